# SPDX-License-Identifier: BSD-3-Clause
"""The proc connector and inotify, for their tests."""

import importlib.util
import os
import sys
import time

import pytest

from .. import pidwait
from ..processes import become_zombie, eventually


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


class Script:
    """The events of a connector: what tell() was told, once a message can be read."""

    longest = 3600.0
    hears_all = True

    def __init__(self):
        self.fds = self.reader, self.writer = list(os.pipe())
        self.messages = []
        self.heard = []  # the keys of those that have been added, and not discarded

    def fileno(self):
        return self.reader

    def add(self, pid):
        self.heard.append(pid)
        return pid, connector.Status()

    def add_again(self, key, pid):
        return key

    def discard(self, key):
        self.heard.remove(key)

    def may_have_exited(self, key, pid):
        return True

    def tell(self, pid, *message):
        """The process is told of with ``(is_main, status)``; of all with None, and no message."""
        self.messages.append((pid, message and (*message, time.monotonic())))
        os.write(self.writer, b".")

    def read(self):
        messages, self.messages = self.messages, []
        if messages:
            os.read(self.reader, len(messages))
        return messages

    def close(self):
        while self.fds:
            os.close(self.fds.pop())
