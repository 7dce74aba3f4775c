# SPDX-License-Identifier: BSD-3-Clause
"""The proc connector and inotify, for their tests."""

import importlib
import sys

import pytest

from . import pidwait
from .processes import become_zombie


def module(name):
    return importlib.import_module(pidwait.__name__ + "._backends." + name)


connector, inotify = module("connector"), module("inotify")
netlink = importlib.import_module(pidwait.__name__ + "._ffi.netlink")
KINDS = {"connector": connector.Connector, "polling": inotify.ExecutableWatches}


def use(backend, use_variant, monkeypatch):
    """Have this backend used; the proc connector is not to be had in another PID namespace."""
    # In a long run the ctypes of PyPy 3.9 has refused a pointer that it took before.
    use_variant("pidfd-cffi" if sys.implementation.name == "pypy" else "pidfd-ctypes")
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
