# SPDX-License-Identifier: BSD-3-Clause
"""Objects that stand for a process, whatever their own code does."""

import importlib
import multiprocessing
import os
import signal
import threading

import pytest

from . import pidwait
from .processes import become_zombie, exiting, gone_pid, run_python, sleeping, state
from .ways import every_way

_targets = importlib.import_module(pidwait.__name__ + "._targets")


@pytest.fixture
def patience(monkeypatch):
    """Each time that an owner's patience is asked for takes a third of it."""
    now = [0.0]

    def monotonic():
        now[0] += _targets._PATIENCE / 3
        return now[0]

    monkeypatch.setattr(_targets, "monotonic", monotonic)


@pytest.fixture
def forks():
    """forks(function, *arguments) runs it in a process of multiprocessing."""
    made = []

    def fork(function, *arguments):
        process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
        process.start()
        made.append(process)
        return process

    yield fork
    while made:
        process = made.pop()
        if process._popen.returncode is None:
            process._popen.returncode = 0  # somebody else has reaped it
        process.join()
        if hasattr(process, "close"):  # Python 3.7
            process.close()
        del process


@every_way
def test_multiprocessing_that_somebody_else_reaped(either, way, forks, patience):
    process = forks(os._exit, 3)
    os.waitpid(process.pid, 0)
    assert way(process) is None


@every_way
def test_multiprocessing_where_sigchld_is_ignored(either, way, forks, patience):
    reader, writer = os.pipe()
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = forks(os.read, reader, 1)
        threading.Timer(0.01, os.write, (writer, b"x")).start()
        assert way(process) in (None, 0)  # by pidfd, the system may have told the code
    finally:
        signal.signal(signal.SIGCHLD, old)
        os.close(reader)
        os.close(writer)


PARENT = """if True:
    import multiprocessing, os, sys, threading
    import {package} as pidwait

    def child(exits, waits, reader, writer):
        os.close(writer)
        parent = multiprocessing.parent_process()
        told = threading.Event()
        pidwait.watch(parent, lambda *exit: told.set())
        with pidwait.WaitSet([parent]) as waiting:
            assert waiting.wait(0) == []
            os.write(waits, b"x")
            os.read(reader, 1)  # until the parent's end is closed
            assert [proc for proc, _ in waiting.wait(20)] == [parent]
        assert pidwait.wait_procs([parent], 20)[1] == []
        pidwait.wait(parent, 20)
        assert told.wait(20)
        os.write(1, b"good\\n")

    ends = os.pipe() + os.pipe()
    multiprocessing.get_context("fork").Process(target=child, args=ends).start()
    os.read(ends[0], 1)
    os._exit(5)
"""


@pytest.mark.skipif(
    not hasattr(multiprocessing, "parent_process"), reason="parent_process() is of Python 3.8"
)
def test_parent_process(either):
    done = run_python(PARENT.format(package=pidwait.__name__))
    assert (done.stdout, done.stderr) == ("good\n", "")


@every_way
def test_popen_whose_pid_is_a_strangers_now(either, way, keeper, start):
    """Somebody else has reaped it, and its pid was given out again."""
    child = start(*exiting(3))
    os.waitpid(child.pid, 0)
    child.pid = keeper.start(*sleeping(60))
    try:
        assert way(child) is None
        assert state(child.pid) not in (None, "Z")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.returncode = 0  # it is not to be killed by its fixture


@every_way
def test_psutil_popen(either, way):
    """It is a psutil.Process, too, which reaps nothing."""
    psutil = pytest.importorskip("psutil")
    child = psutil.Popen(exiting(3))
    assert way(child) == 3
    assert child.returncode == 3 and state(child.pid) is None


@every_way
def test_multiprocessing_that_exits_with_255(either, way, forks):
    """It is told as it is: only of a fork server's child can it mean that nobody knows."""
    process = forks(os._exit, 255)
    become_zombie(process.pid)
    assert process.join() is None and process.exitcode == 255
    assert way(process) == 255
    process = forks(os._exit, 255)
    assert way(process) == 255


@every_way
@pytest.mark.parametrize("code", [5, 0])
def test_popen_without_a_lock_keeps_its_code(either, way, code):
    """As gevent's, whose loop has reaped the child, and tells the code when it is asked."""

    class Popen:
        returncode = None

        def poll(self):
            self.returncode = code
            return code

    popen = Popen()
    popen.pid = gone_pid()
    assert way(popen) == code


@pytest.mark.parametrize(
    "use, message",
    [
        (
            lambda popen: pidwait.Process(popen),
            r"pid must be an int, not Popen: wait\(\) takes obj",
        ),
        (lambda popen: pidwait.wait([popen.pid]), r"for several there is wait_procs\(\)"),
        (lambda popen: pidwait.wait((popen,), 0), r"not tuple: for several there is wait_procs"),
        (lambda popen: pidwait.watch([popen], print), r"not list: for several"),
    ],
)
def test_errors_name_what_to_call(sleeper, use, message):
    with pytest.raises(TypeError, match=message):
        use(sleeper)
