# SPDX-License-Identifier: BSD-3-Clause
"""The one way into the package for tests: its table of system calls.

A test puts a function there that fails, or that waits, and sees what a caller sees. Only this
module knows where the table is; the stand-in for kqueue and the tests of bindings and contracts
aside, no test imports a private name.
"""

import errno
import importlib
import os
import signal
import subprocess

from . import pidwait
from .needs import LINUX


def _module(name):
    try:
        return importlib.import_module(pidwait.__name__ + "." + name)
    except ImportError:  # a single file: it has all names itself
        if hasattr(pidwait, "__path__"):
            raise
        return pidwait


calls = _module("_systems.calls")
errors = _module("_base.errors")


def forget():
    """Have the package ask the system anew, as after a change of PIDWAIT_BACKEND or a policy."""
    _module("_base.probe")._answers.clear()
    _module("_systems")._backend.clear()
    _module("_systems.bindings")._not_found.clear()
    for table in _tables():
        table.clear()
    if os.name == "posix":  # these go with the binding that made them
        _module("_systems.posix_spawn")._kept_structures.clear()


def _tables():
    """The system calls, and those of posix_spawn."""
    return calls.CALLS, _module("_systems.libc_spawn").SPAWN_CALLS


def _table(name):
    tables = [table for table in _tables() if name in table.rows]
    if not tables and not LINUX:  # there a name may be misspelt
        import pytest

        pytest.skip("this system has no call " + name)
    return tables[0]


def get(name):
    """The function by which the package makes a system call; OSError if there is none."""
    try:
        return _Raising(_table(name)[name])
    except errors.Failed as why:
        raise why.error from None


class _Raising:
    """A call of the package's, for a test: it raises an OSError, as the system does."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **kwargs):
        try:
            return self._function(*args, **kwargs)
        except errors.Failed as why:
            raise why.error from None


class _Put:
    """A test's function in the place of a call: its OSErrors are the system's answers.

    Those of a signal handler that interrupts it are not.
    """

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **kwargs):
        try:
            return self._function(*args, **kwargs)
        except OSError as error:
            if _is_of_handler(error):
                raise
            raise errors.Failed(error) from None


def _is_of_handler(error):
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    called = [one if hasattr(one, "__code__") else type(one).__call__ for one in handlers]
    codes = [getattr(one, "__code__", 0) for one in called]
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def refusing(code):
    """A function that fails as the system does."""

    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return refuse


class Seam:
    """Within a test: put functions in place of system calls."""

    get = staticmethod(get)

    def __init__(self):
        self._rows = []
        self._set = []

    def put(self, name, function):
        """From now on, this is the call. What has been asked of the system stays as it is."""
        try:
            get(name)
        except OSError:  # this system has no such call
            calls.origins[name] = "a test"
        _table(name)[name] = _Put(function)

    def refuse(self, name, code=errno.EPERM):
        """From now on the call fails; the package finds out when it makes it."""
        self.put(name, refusing(code))

    def hide(self, *names):
        """As if the system's library had never had these functions: asked anew."""

        def missing(binding, name):
            raise LookupError("the system's library has no " + name)

        for name in names:
            rows = _table(name).rows
            self._rows.append((rows, name, rows[name]))
            rows[name] = (None, missing)
        forget()

    def set_spawn_flag(self, name, value):
        """Give a flag of posix_spawn a number, as another system does."""
        flags = _module("_systems.libc_spawn").SPAWN_FLAGS
        self._replace(_module("_systems.posix_spawn"), "SPAWN_FLAGS", dict(flags, **{name: value}))

    def pretend_to_be_macos(self):
        """Have posix_spawn checked as on macOS."""
        self._replace(_module("_systems.posix_spawn"), "PLATFORM", "darwin")

    def hide_zombies(self):
        """As where /proc tells no exit codes: only the reaping tells those of others' children."""
        self._replace(_module("_systems.pidfd"), "code_of_zombie", lambda pid: None)

    def look_once(self):
        """Have the second look at what is polled come in a day, if nothing hints at it earlier."""
        self._replace(_module("_waiting.members"), "SHORTEST", 86400.0, forgets=False)

    def _replace(self, module, name, value, forgets=True):
        self._set.append((module, name, getattr(module, name)))
        setattr(module, name, value)
        if forgets:
            forget()

    def undo(self):
        while self._set:
            setattr(*self._set.pop())
        while self._rows:
            rows, name, row = self._rows.pop()
            rows[name] = row
        forget()


def start_by_posix_spawn():
    """Have Popen started by posix_spawn on all interpreters, as before Python 3.10 on Linux."""
    _module("subprocess")._would_fork = lambda: True


def count_starts(note):
    """Call ``note(pid)`` for each process that posix_spawn has started from now on."""
    start = _module("_systems.posix_spawn").start_by_posix_spawn

    def noted(request, *event):
        pid = start(request, *event)
        if pid is not None:
            note(pid)
        return pid

    for name in "_systems.posix_spawn", "_spawning":
        _module(name).start_by_posix_spawn = noted


def keeper():
    """The module of the program that keeps a tree."""
    return _module("_trees.keeper")


def start_trees(note):
    """Have the standard subprocess start every command as a tree; ``note(pid)`` for each one."""
    ours, popens = _module("subprocess"), _module("_trees.popen")
    popens.TreePopen.__init__.__kwdefaults__["tree"] = True
    start = popens.TreePopen._start_tree

    def noted(self, *args):
        start(self, *args)
        note(self.pid)

    popens.TreePopen._start_tree = noted
    for name in "Popen", "call", "check_call", "run", "check_output", "getstatusoutput":
        setattr(subprocess, name, getattr(ours, name))
    subprocess.getoutput = ours.getoutput
