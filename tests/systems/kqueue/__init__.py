# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for the kqueues of macOS and the BSDs, over pidfd and epoll, on Linux.

It has each system's struct kevent, siginfo_t and numbers as in its headers, and its quirks.
The tests show that pidwait agrees with what is written here; only the systems themselves can
show whether they do, too. tests/matrix/headers.py compares the layouts with the real headers.

The environment variable KQUEUE_STANDIN names the systems: those of SYSTEMS, separated by spaces.
"""

import contextlib
import errno
import importlib
import os
import select
import sys
from pathlib import Path

from ... import pidwait, seam
from . import signals
from .kernel import Event, Kernel, has_exited, is_answer, pidfd_open
from .kernel import close as real_close
from .signals import InC, system_call
from .systems import (
    EV_ADD,
    EV_DELETE,
    EV_ENABLE,
    EV_ERROR,
    EV_ONESHOT,
    NOTE_EXIT,
)

# All that reaches into the package: what it takes for the system, its bindings, its ps.

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin")
(
    _systems,
    _pollers,
    _calls,
    _bindings,
    _posix,
    _kqueue,
    _kqueue_poller,
    _kqueue_calls,
    _ps,
    _bsd,
    _listed_ps,
    _finding,
) = (
    importlib.import_module(pidwait.__name__ + "." + name)
    for name in (
        "_systems _systems.pollers _systems.calls _systems.bindings _systems.posix "
        "_systems.bsd.handle _systems.bsd.poller _systems.bsd.calls _systems.bsd.ps "
        "_systems.bsd.system _systems.bsd.listing _finding"
    ).split()
)


class Library:
    """The library from which an adapter loads functions: the C library with the Kernel's calls."""

    def __init__(self, adapter, kernel):
        self._adapter = adapter
        self._real = adapter._libraries[None]
        self._kernel = kernel

    def __getitem__(self, name):  # for ctypes
        return self._kernel.find(
            name, lambda address: self._real._FuncPtr(address) if address else self._real[name]
        )

    def load_function(self, kind, name):  # for cffi
        return self._kernel.find(
            name,
            lambda address: (
                self._adapter._ffi.cast(kind, address)
                if address
                else self._real.load_function(kind, name)
            ),
        )


def _install_inside(kernel, patch):
    for attribute, value in list(vars(_bsd.BSD).items()):  # dressed up, it is the system itself
        patch(_systems.system, attribute, value)
    patch(_pollers, "_make_poller", _kqueue_poller.KqueuePoller)
    for module in _bindings, _listed_ps, _kqueue_calls, _ps:
        patch(module, "PLATFORM", kernel.system.platform)
    patch(_calls.CALLS, "rows", dict(_kqueue_calls.KQUEUE_ROWS))
    for module in _calls, _posix:
        patch(module, "WAITID", _kqueue_calls.waitid_numbers())
    for binding in ("ctypes", "cffi"):
        adapter = _bindings.load(binding)
        if not isinstance(adapter, str):
            patch(adapter, "_libraries", {None: Library(adapter, kernel)})
    more = {"STANDIN_PLATFORM": kernel.system.platform, "STANDIN_PYTHON": sys.executable}
    patch(_ps, "ENVIRONMENT", dict(_ps.ENVIRONMENT, **more))
    patch(_finding, "lister", _listed_ps.BsdLister())
    set_ps(PS, patch)
    # On a busy machine it takes long to load a Python; if it hangs, pytest's time limit tells.
    set_time_limit_of_ps(100.0, patch)
    seam.forget()


def answering(function):
    """A system call of the interpreter's that Python does here: its errors are the system's."""

    def call(*args):
        try:
            return function(*args)
        except OSError as error:
            if not is_answer(error) or isinstance(error, InterruptedError):
                raise
            raise seam.errors.Failed(error) from None

    return call


PS = os.path.join(_FOLDER, "ps")


def set_ps(path, patch):
    """Have the package run that program for ps."""
    for module in _ps, _listed_ps:
        patch(module, "PS", path)


def set_time_limit_of_ps(seconds, patch):
    """Have a ps that takes longer be ended."""
    patch(_ps, "_TIME_LIMIT", seconds)
    patch(_listed_ps, "_LIST_TIME_LIMIT", seconds)


# The rest replaces public functions of Python.


def select_types(kernel):
    """select.kqueue and select.kevent."""

    class kqueue:
        _fd = -1

        def __init__(self):
            system_call(self._open)()

        def _open(self):
            self._fd = answering(kernel.kqueue)()
            os.set_inheritable(self._fd, False)

        def fileno(self):
            if self._fd < 0:
                raise ValueError("I/O operation on closed kqueue object")
            return self._fd

        @property
        def control(self):
            return InC(system_call(self._control, self._again))

        @staticmethod
        def _again(seconds, changelist, max_events, timeout=None):
            return changelist, max_events, timeout and max(0, timeout - seconds)

        def _control(self, changelist, max_events, timeout=None):
            if max_events < 0:
                raise ValueError("Length of eventlist must be 0 or positive")
            for change in changelist or ():
                assert isinstance(change, Event)
            changes = list(changelist or ())
            return answering(kernel.kevent)(self.fileno(), changes, max_events, timeout)

        def close(self):
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

        def __del__(self):
            # Before Python 3.13 this runs in a forked child, too, which has no such kqueue.
            self.close()

    return kqueue, Event


def install(name, patch):
    """Make this process look like one on that system; ``patch(object, name, value)`` sets names.

    A value of None deletes the name. Return the Kernel, which has to be closed.
    """
    kernel = Kernel(name)
    signals.install(patch)
    _install_select(kernel, patch)
    _install_os(kernel, patch)
    _install_inside(kernel, patch)
    return kernel


def is_found(pid, zombies):
    """Whether kill() finds it; Linux's own also finds threads."""
    try:
        fd = pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # no file descriptor left
        return True
    try:
        return zombies or not has_exited(fd)
    finally:
        real_close(fd)


def has_living(group):
    """Whether a process of the group is no zombie."""
    for path in Path("/proc").glob("[1-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            letter, _, member = path.read_bytes().rpartition(b")")[2].split()[:3]
            if int(member) == group and letter != b"Z":
                return True
    return False


def _install_select(kernel, patch):
    system = kernel.system
    kqueue, kevent = select_types(kernel)
    for name, value in (
        ("kqueue", kqueue),
        ("kevent", kevent),
        ("KQ_FILTER_PROC", system.filter_proc),
        ("KQ_FILTER_TIMER", system.filter_timer),
        ("KQ_FILTER_READ", system.filter_read),
        ("KQ_EV_ADD", EV_ADD),
        ("KQ_EV_DELETE", EV_DELETE),
        ("KQ_EV_ENABLE", EV_ENABLE),
        ("KQ_EV_ONESHOT", EV_ONESHOT),
        ("KQ_EV_ERROR", EV_ERROR),
        ("KQ_NOTE_EXIT", NOTE_EXIT),
    ):
        patch(select, name, value)


def _install_os(kernel, patch):
    system = kernel.system
    real_fork, real_kill, real_waitpid, real_wait4 = os.fork, os.kill, os.waitpid, os.wait4
    real_killpg = os.killpg

    def close(fd):
        if not kernel.close_fd(fd):
            real_close(fd)

    def fork():
        pid = real_fork()
        if pid == 0:
            kernel.forked()
        return pid

    def kill(pid, sig):
        pid = kernel.passed_on.get(pid, pid)
        if pid > 0 and not is_found(pid, kernel.kill_finds_zombies):
            raise ProcessLookupError(errno.ESRCH, "kill")
        real_kill(pid, sig)

    def killpg(group, sig):
        if system.platform == "darwin" and not has_living(group):
            raise PermissionError(errno.EPERM, "killpg")
        real_killpg(group, sig)

    def waitpid(pid, options):
        return kernel.waitpid(pid, options, real_waitpid)

    def wait4(pid, options):
        return (*kernel.waitpid(pid, options, real_wait4), None)[:3]

    patch(os, "close", system_call(close))
    patch(os, "waitpid", waitpid)
    patch(os, "wait4", wait4)
    patch(os, "kill", kill)
    patch(os, "killpg", killpg)
    patch(os, "fork", fork)
    if system.has_waitid and hasattr(os, "waitid"):

        def waitid(idtype, id_, options):
            info = kernel.waitid(idtype, id_, options)
            return info if info.si_pid else None

        patch(os, "waitid", waitid)
        patch(os, "P_PID", system.p_pid)
        patch(os, "WEXITED", system.wexited)
        patch(os, "WNOWAIT", system.wnowait)
    elif hasattr(os, "waitid"):
        for name in ("waitid", "P_PID", "WEXITED", "WNOWAIT"):
            patch(os, name, None)


def use(name, monkeypatch):
    """install(), for child processes, too, until the monkeypatch undoes it."""

    def patch(object_, name, value):
        if value is None:
            monkeypatch.delattr(object_, name)
        else:
            monkeypatch.setattr(object_, name, value, raising=False)

    kernel = install(name, patch)
    monkeypatch.setenv(VARIABLE, name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([_FOLDER] + sys.path))
    monkeypatch.syspath_prepend(_FOLDER)
    return kernel


VARIABLE = "KQUEUE_STANDIN_CHILD"


def set_or_delete(object_, name, value):
    if value is None:
        delattr(object_, name)
    else:
        setattr(object_, name, value)


def install_in_child():
    """Called by standin/sitecustomize.py."""
    import selectors  # noqa: F401  # it would use a select.kqueue that is already there

    install(os.environ[VARIABLE], set_or_delete)
