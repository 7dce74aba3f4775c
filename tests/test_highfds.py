# SPDX-License-Identifier: BSD-3-Clause
"""The soft limit of file descriptors, which belongs to the whole process."""

import errno
import importlib
import os
import resource
import sys
import threading

import pytest

from . import pidwait
from .processes import OnPurpose, interrupted_by

_highfds = importlib.import_module(pidwait.__name__ + "._highfds")
_fd = importlib.import_module(pidwait.__name__ + "._fd")
NOFILE = resource.RLIMIT_NOFILE


@pytest.fixture
def limits():
    """A soft limit that is not the hard one."""
    before = resource.getrlimit(NOFILE)
    if before[1] < 128:
        pytest.skip("the hard limit leaves no room for a lower one")
    resource.setrlimit(NOFILE, (100, before[1]))
    yield (100, before[1])
    resource.setrlimit(NOFILE, before)


def raised_while(use):
    found = []

    def inside(move):
        found.append(resource.getrlimit(NOFILE))
        use()

    try:
        _highfds.Raised()(inside)
    finally:
        assert found == [(found[0][1],) * 2]


def test_limit_is_put_back(limits):
    raised_while(lambda: None)
    assert resource.getrlimit(NOFILE) == limits


def test_limit_is_raised_again(limits):
    raised, found = _highfds.Raised(), []
    for _ in range(2):
        raised(lambda move: found.append(resource.getrlimit(NOFILE)))
    assert found == [(limits[1],) * 2] * 2


def test_limit_is_put_back_after_an_exception(limits):
    def use():
        raise OnPurpose

    with pytest.raises(OnPurpose):
        raised_while(use)
    assert resource.getrlimit(NOFILE) == limits


@pytest.mark.parametrize("soft", [64, 120])
def test_limit_that_another_thread_sets_meanwhile(limits, soft):
    raised_while(lambda: resource.setrlimit(NOFILE, (soft, limits[1])))
    assert resource.getrlimit(NOFILE) == (soft, limits[1])


def moved():
    """The number to which a file descriptor is moved."""
    file = _highfds.Raised()(lambda move: move(_fd.opened(os.open, os.devnull, os.O_RDONLY)))
    try:
        return file.fileno()
    finally:
        file.close()


def test_those_below_the_soft_limit_are_left_free(limits, monkeypatch):
    monkeypatch.setattr(_highfds, "_LOW", 3)  # where none are above the limit
    assert moved() >= 100


def test_signal_handler_that_raises_while_one_is_moved(limits, monkeypatch):
    """Its error is not the kernel's answer, after which a lower number would be tried."""
    fcntl, steps = importlib.import_module("fcntl"), []
    duplicate = fcntl.fcntl

    with interrupted_by(OSError(errno.EIO, "on purpose")) as interrupted:

        def once(*arguments):
            steps.append(True)
            return interrupted() if len(steps) == 1 else duplicate(*arguments)

        monkeypatch.setattr(fcntl, "fcntl", once)
        with pytest.raises(OSError, match="on purpose"):
            moved()
    assert steps == [True]


@pytest.mark.parametrize("highest", [100, 99])
def test_a_high_soft_limit_is_left_alone(limits, monkeypatch, highest):
    """The kernel's table has room for all numbers up to the highest one."""
    monkeypatch.setattr(_highfds, "_HIGH", highest)
    assert (moved() >= 100) is (highest == 100)


def test_half_of_the_fds_are_left_free_where_none_are_above_the_limit(limits):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(NOFILE, (100, 100))
        os._exit(moved())
    assert 50 <= os.waitpid(pid, 0)[1] >> 8 < 100


def test_limits_that_may_not_be_asked_for(limits, monkeypatch, caplog):
    def forbidden(*arguments):
        raise PermissionError(errno.EPERM, "a policy")

    monkeypatch.setattr(resource, "getrlimit", forbidden)
    with caplog.at_level("DEBUG"):
        assert moved() > 2
    assert "RLIMIT_NOFILE: [Errno %d] a policy" % errno.EPERM in caplog.text


def test_without_prlimit(limits, monkeypatch):
    """As on PyPy."""
    monkeypatch.delattr(resource, "prlimit", raising=False)
    raised_while(lambda: None)
    assert resource.getrlimit(NOFILE) == limits


def test_fork_while_it_is_raised(limits):
    """The first call in the child restores the limit, as a thread of the parent would have."""
    raised, statuses = _highfds.Raised(), []

    def inside(move):
        pid = os.fork()
        if pid == 0:
            raised(lambda move: None)
            os._exit(0 if resource.getrlimit(NOFILE) == limits else 1)
        statuses.append(os.waitpid(pid, 0)[1])

    raised(inside)
    assert statuses == [0]


def test_fork_while_another_thread_has_raised_it(limits):
    raised, inside, over = _highfds.Raised(), threading.Event(), threading.Event()

    def use(move):
        inside.set()
        over.wait()

    thread = threading.Thread(target=raised, args=(use,))
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        raised(lambda move: None)  # with that thread's lock it would hang
        os._exit(0 if resource.getrlimit(NOFILE) == limits else 1)
    try:
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        over.set()
        thread.join()


def test_call_by_a_signal_handler_while_it_is_raised(limits):
    """The limit stays up until the call that was interrupted has ended."""
    raised, found = _highfds.Raised(), []

    def look(move):
        found.append(resource.getrlimit(NOFILE))
        return len(found)

    def inside(move):
        assert raised(look) == 1
        return look(move)

    assert raised(inside) == 2
    assert found == [(limits[1],) * 2] * 2
    assert resource.getrlimit(NOFILE) == limits


@pytest.mark.parametrize("step", [1, 2])
def test_restoring_that_ctrl_c_interrupts(limits, monkeypatch, step):
    """The limit is restored twice, as Ctrl-C may come anywhere in one of the two."""
    raised, steps = _highfds.Raised(), []
    restore = raised._restore

    def interrupted():
        steps.append(True)
        if len(steps) == step:
            raise KeyboardInterrupt
        restore()

    monkeypatch.setattr(raised, "_restore", interrupted)
    with pytest.raises(KeyboardInterrupt):
        raised(lambda move: None)
    assert resource.getrlimit(NOFILE) == limits


def test_import_that_fails_for_want_of_a_file_descriptor(limits, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    reader, writer = map(_fd.own, os.pipe())
    writer.close()
    with pytest.raises(OSError, match="fcntl") as caught:
        _highfds.Raised()(lambda move: move(reader))
    assert caught.value.errno == errno.EMFILE
    assert reader.closed


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="PyPy has no prlimit(2)")
@pytest.mark.parametrize("step", [1, 2])
def test_limit_that_another_thread_sets_just_before_a_call(limits, monkeypatch, step):
    """Before the limit is raised, or before it is restored: the other thread's limit stays."""
    exchange, steps = _highfds._exchange, []

    def interposed(wanted):
        steps.append(wanted)
        if len(steps) == step:
            resource.setrlimit(NOFILE, (80, limits[1]))
        return exchange(wanted)

    monkeypatch.setattr(_highfds, "_exchange", interposed)
    _highfds.Raised()(lambda move: None)
    assert resource.getrlimit(NOFILE) == (80, limits[1])


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="PyPy has no prlimit(2)")
def test_limits_are_exchanged_in_one_call(limits, monkeypatch):
    """What another thread set between getrlimit(2) and setrlimit(2) would be overwritten."""
    monkeypatch.setattr(resource, "setrlimit", None)
    raised_while(lambda: None)
    monkeypatch.undo()
    assert resource.getrlimit(NOFILE) == limits
