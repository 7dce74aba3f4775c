# SPDX-License-Identifier: BSD-3-Clause
"""The proc connector and inotify, for their tests."""

import importlib.util
import os
import signal
import sys
import traceback

import pytest

from .. import pidwait
from ..processes import become_zombie, eventually, is_open


def module(name):
    return importlib.import_module(pidwait.__name__ + "._backends." + name)


connector, inotify = module("connector"), module("inotify")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
netlink = importlib.import_module(pidwait.__name__ + "._ffi.netlink")
# In a long run the ctypes of PyPy 3.9 has refused a pointer that it took before.
HAS_CTYPES = sys.implementation.name != "pypy" and importlib.util.find_spec("_ctypes")
VARIANT = "pidfd-ctypes" if HAS_CTYPES else "pidfd-cffi"
KINDS = {"connector": connector.Connector, "polling": inotify.ExecutableWatches}


def use(backend, use_variant, monkeypatch):
    """Have this backend used; the proc connector is not to be had in another PID namespace."""
    use_variant(VARIANT)
    reason = pidwait.probe()["backends"][backend]["reason"]
    if reason:
        pytest.skip(reason)
    monkeypatch.setenv("PIDWAIT_BACKEND", backend)
    importlib.import_module(pidwait.__name__ + "._probe").forget()


def listening(waiting, kind):
    """The events of a set, once nothing but they would tell of its members."""
    polled = waiting._engine.sets.polled
    while waiting._engine.delay() < 1000:
        assert waiting.wait(0.02) == []
    assert type(polled._events) is KINDS[kind]
    return polled._events


def executed(child):
    """The child, once execve(2) is over: Popen() returns a moment earlier on Linux 6.12."""
    read_stat = importlib.import_module(pidwait.__name__ + "._sources.procfs").read_stat
    eventually(lambda: not read_stat(child.pid).flags & linux.PF_FORKNOEXEC)
    return child


def end(child):
    child.stdin.close()
    become_zombie(child.pid)


def after_the_look(monkeypatch, act):
    """Do something right after a process that is added to a set has been seen running."""
    handle = module("polled_procfs").ProcfsHandle
    was_running = handle.was_running

    def look(self):
        found = was_running(self)
        act()
        return found

    monkeypatch.setattr(handle, "was_running", look)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def in_a_fork(function):
    """Call the function in a forked child; return whether it ended without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(40)  # ends what would hang
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def all_fds():
    return sorted(filter(is_open, map(int, os.listdir("/proc/self/fd"))))
