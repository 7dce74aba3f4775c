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
import time

from . import LINUX, pidwait


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
    _module("_base.checks")._answers.clear()
    _module("_systems")._backend.clear()
    _module("_systems.bindings")._not_found.clear()
    for table in _tables():
        table.clear()
    if os.name == "posix":  # these go with the binding that made them
        _module("_starting.posix_spawn")._structures.cache_clear()


def _tables():
    """The system calls; those of posix_spawn, and of timers; on Windows, of jobs and listings."""
    tables = [calls.CALLS, _module("_starting.libc_spawn").SPAWN_CALLS]
    if LINUX:
        tables.append(_module("_systems.linux.poller").TIMER_CALLS)
    if os.name == "nt":
        tables.append(_module("_systems.windows.jobs").JOB_CALLS)
        tables.append(_module("_systems.windows.listing").LISTING_CALLS)
    return tables


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
        flags = _module("_starting.libc_spawn").SPAWN_FLAGS
        self._replace(_module("_starting.posix_spawn"), "SPAWN_FLAGS", dict(flags, **{name: value}))

    def hide_zombies(self):
        """As where /proc tells no exit codes: only the reaping tells those of others' children."""
        self._replace(_module("_systems.linux.handle"), "code_of_zombie", lambda pid: None)

    def move_clock(self, seconds):
        """Have the clock show another time from now on, as in a forked child with its own."""
        deadline = _module("_base.deadline").Deadline
        now = deadline.now
        self._set.append((deadline, "now", staticmethod(now)))
        deadline.now = staticmethod(lambda: now() + seconds)

    def _replace(self, module, name, value):
        self._set.append((module, name, getattr(module, name)))
        setattr(module, name, value)
        forget()

    def undo(self):
        while self._set:
            setattr(*self._set.pop())
        while self._rows:
            rows, name, row = self._rows.pop()
            rows[name] = row
        forget()


def sleepers(sleep, now):
    """Have all that sleeps in the package sleep by turns; return what undoes that.

    ``sleep(ask, seconds)`` returns None where it does not know the thread: that one sleeps as ever.
    Else it returns a tuple of what ask() has said, which never blocks. ``now()`` is the clock.
    """
    deadline = _module("_base.deadline")
    undo = []

    def put(where, name, function):
        undo.append((where, name, vars(where)[name]))
        setattr(where, name, function)

    put(deadline.Deadline, "now", staticmethod(now))
    wait, real_sleep = os.waitid if hasattr(os, "waitid") else None, time.sleep

    def pause(seconds):
        if sleep(lambda: False, seconds) is None:
            real_sleep(seconds)

    def poll(fd, mask, end):
        seconds = end.remaining()
        if seconds != 0:
            said = sleep(lambda: real_poll(fd, mask, deadline.NOW), seconds)
            if said is not None:
                return said[0] or 0
        return real_poll(fd, mask, end)

    real_poll = _module("_systems.posix").poll
    put(time, "sleep", pause)
    sleepers_in = "_systems.linux.handle _systems.linux.poller _systems.bsd.handle _trees.reaper"
    for name in sleepers_in.split():
        if "poll" in vars(_module(name)):
            put(_module(name), "poll", poll)
    for name in "_trees.reaper", "_trees.group":
        put(_module(name), "sleep", pause)

    def waiting(real):
        def waitid(kind, number, options):
            if not options & os.WNOHANG:
                said = sleep(lambda: real(kind, number, options | os.WNOHANG), None)
                if said is not None:
                    return said[0]
            return real(kind, number, options)

        return waitid

    real_waitid = calls.CALLS["waitid"]
    calls.CALLS["waitid"] = waiting(real_waitid)
    if wait is not None:
        put(os, "waitid", waiting(wait))
    for poller in _pollers():
        put(poller, "poll", _polling(poller.poll, sleep))

    def restore():
        calls.CALLS["waitid"] = real_waitid
        while undo:
            setattr(*undo.pop())

    return restore


def _pollers():
    """The classes that sleep for many."""
    if os.name == "nt":
        return []
    from_kqueue = _module("_systems").system.backends[0] == "kqueue"
    kqueue, poller = _module("_systems.bsd.handle").Kqueue, _module("_systems.pollers")._make_poller
    return [kqueue if from_kqueue else poller]


def _polling(poll, sleep):
    def polling(self, seconds, *room):
        def ask():
            poll(self, 0, *room)
            return bool(self.ready)

        if seconds == 0 or sleep(ask, seconds) is None:
            poll(self, seconds, *room)

    return polling


def left_in(waiting):
    """The tables of a set that are not empty: what it still knows of its members."""
    core = waiting._opened()
    tables = dict(vars(core), schedule=core.schedule.members, ready=core.poller.ready, poller=None)
    tables.update(core.poller.__dict__.get("_batches") and {"batches": 1} or {})
    ignored = "waiters", "_forked", "ready"
    return sorted(
        name
        for name, table in tables.items()
        if isinstance(table, dict) and table and name not in ignored
    )


def left_children():
    """How many children nobody has an object for, so that spawn() reaps them."""
    return len(_module("_starting.spawn")._left)


def start_by_posix_spawn():
    """Have Popen started by posix_spawn on all interpreters, as before Python 3.10 on Linux."""
    _module("_starting.popen").would_fork = lambda: True


def count_starts(note):
    """Call ``note(pid)`` for each process that posix_spawn has started from now on."""
    start = _module("_starting.posix_spawn").start_by_posix_spawn

    def noted(request, *event):
        pid = start(request, *event)
        if pid is not None:
            note(pid)
        return pid

    for name in "_starting.posix_spawn", "_starting.popen", "_starting.spawn":
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
