# SPDX-License-Identifier: BSD-3-Clause
"""pidfds: what is left of them where a call is missing, and codes that come late."""

import errno
import importlib
import os
import threading

import pytest

from . import pidwait
from .conftest import not_on_kqueue
from .processes import become_zombie, eventually, exiting, not_on_windows, state

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
checks = importlib.import_module(pidwait.__name__ + "._checks")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
pidfd = importlib.import_module(pidwait.__name__ + "._backends.pidfd")
procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

pytestmark = [not_on_windows("pidfds"), not_on_kqueue]


@pytest.fixture
def lacking(use_variant, monkeypatch):
    """lacking(names...): calls that fail as on a system without them; "/proc" is one, too."""
    use_variant("pidfd-ctypes")
    pidwait.probe()

    def lacking(*names):
        def missing(*arguments):
            raise OSError(errno.ENOSYS, "not there")

        for name in names:
            if name == "/proc":
                monkeypatch.setitem(checks._answers, procfs.check, OSError(errno.ENOENT, "hidden"))
            else:
                monkeypatch.setitem(calls._resolved, name, (missing, "test"))
        for check in (pidfd.check_send_signal, pidfd.check_get_info):
            checks._answers.pop(check, None)

    return lacking


def test_signal_that_goes_by_the_pid_reaps_nothing(lacking, start):
    lacking("pidfd_send_signal")
    child = start(*exiting(3))
    handle = pidfd.PidfdHandle(child.pid)
    try:
        become_zombie(child.pid)
        with pytest.raises(ProcessLookupError):
            handle.send_signal(9)
    finally:
        handle.close()
    assert state(child.pid) == "Z"
    assert child.wait() == 3


def test_pidfd_from_elsewhere_of_which_nobody_tells_the_pid(lacking, start_told):
    child = start_told(4)
    file = pidfd.open_pidfd(child.pid)
    fd = os.dup(file.fileno())
    file.close()
    lacking("/proc", "ioctl")
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid is None
        assert not process.has_exited()
        child.stdin.close()
        assert process.wait(30) == 4


def test_links_of_a_process_that_goes_between_two_looks(monkeypatch):
    """Its link count can't be asked any more: then the links tell nothing."""

    def readlink(path, *arguments):
        if path.endswith("/cwd"):
            raise FileNotFoundError(errno.ENOENT, "no directory", path)
        return "user:[4026531837]"

    monkeypatch.setattr(os, "readlink", readlink)
    monkeypatch.setattr(procfs._checks, "works", lambda check: True)
    assert procfs.links_tell_exit(2**22 + 1) is False


def test_code_that_only_the_reaping_tells(use_variant, keeper, monkeypatch):
    """A set waits for it, as /proc shows nothing of somebody else's zombie."""
    use_variant("pidfd-ctypes")
    if not checks.works(pidfd.check_get_info):
        pytest.skip("PIDFD_GET_INFO: %s" % checks.ask(pidfd.check_get_info))
    module = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")
    monkeypatch.setattr(module, "GRACE", 60)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    told = []
    with pidwait.WaitSet([pid]) as waiting:
        pidfds = waiting._engine.sets.best
        thread = threading.Thread(target=lambda: told.extend(waiting.wait(30)))
        thread.start()
        eventually(lambda: pidfds._fading or told)
        keeper.reap(pid)
        thread.join()
    assert told == [(pid, 7)]


def test_code_that_nobody_tells_in_time(use_variant, keeper, monkeypatch):
    """With the time up, the exit is reported without its code."""
    use_variant("pidfd-ctypes")
    module = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")
    monkeypatch.setattr(module, "GRACE", 60)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    assert pidwait.wait_procs([pid], 0) == ([(pid, None)], [])
    assert list(pidwait.as_completed([pid], 0)) == [(pid, None)]
    keeper.reap(pid)
