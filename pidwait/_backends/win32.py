# SPDX-License-Identifier: BSD-3-Clause
"""Windows: a handle of kernel32, and WaitForMultipleObjects.

A handle keeps the process's number from being given to another one, and its exit
code, whosever child it was. Only a wait tells alive from dead: STILL_ACTIVE, 259,
is an exit code like others. Opened with the least rights that will do:

SYNCHRONIZE                        to wait
PROCESS_QUERY_LIMITED_INFORMATION  exit code, start time, number; can be denied alone
PROCESS_TERMINATE                  opened when it is needed
"""

import os
from errno import ENOSYS
from io import UnsupportedOperation

from .. import _polling, _toolhelp
from .._deadline import Deadline
from .._errors import log, no_such_process
from .._exitcodes import RUNNING
from .._ffi import calls, win32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Identity = tuple[object, ...]  # novm


class Handle:
    """A HANDLE, which no child inherits."""

    __slots__ = ("handle", "pid")

    backend = "win32"

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.handle = 0
        self.handle = _open(pid)  # last, so that no interrupt can lose it

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a process has no fileno")

    def close(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            calls.get("CloseHandle")(handle)

    def __del__(self) -> None:
        # Ctrl-C may come anywhere, also where nobody closes yet.
        self.close()

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        if not self._wait(deadline):
            return RUNNING
        try:
            return calls.get("GetExitCodeProcess")(self.handle)
        except OSError as error:  # SYNCHRONIZE is all that we were given
            log("GetExitCodeProcess, pid %d: %s", self.pid, error)
            return None

    def _wait(self, deadline: Deadline) -> bool:
        # On the main thread the interpreter adds the event that Ctrl-C sets, which
        # it does not for WaitForSingleObject, nor Popen.wait(): bpo-28168.
        wait = calls.get("WaitForMultipleObjects")
        while True:
            milliseconds = deadline.milliseconds()
            if milliseconds is None:
                milliseconds = win32.INFINITE
            try:
                if wait((self.handle,), False, milliseconds) == win32.WAIT_OBJECT_0:
                    return True
            except InterruptedError:
                continue  # Python's handler has run, or runs now
            if deadline.expired():
                return False

    def exited(self) -> bool:
        return self._wait(Deadline(0))

    def identify(self) -> "Identity | None":
        try:
            return "start", self.pid, calls.get("GetProcessTimes")(self.handle)
        except OSError as error:
            log("GetProcessTimes, pid %d: %s", self.pid, error)
            return None

    def send_signal(self, sig: int) -> None:
        import signal

        # As Popen.send_signal() does, but for os.kill(): that takes every other number
        # for an exit code to terminate with, and in older Pythons went on to it when
        # a console event could not be sent (bpo-14484). A plain 0 equals CTRL_C_EVENT,
        # but is what looks whether somebody is there on other systems.
        if isinstance(sig, signal.Signals) and sig.name in ("CTRL_C_EVENT", "CTRL_BREAK_EVENT"):
            try:
                calls.get("GenerateConsoleCtrlEvent")(sig, self.pid)
            except OSError as error:
                _fail(error, "GenerateConsoleCtrlEvent", self.pid)
        elif sig == signal.SIGTERM:
            self._terminate()
        elif sig != 0:
            raise ValueError("sig must be SIGTERM or a CTRL_ event on Windows, not %s" % sig)

    def _terminate(self) -> None:
        # Our own handle, which is open, keeps the number from anybody else.
        try:
            handle = calls.get("OpenProcess")(win32.PROCESS_TERMINATE, False, self.pid)
        except OSError as error:
            _fail(error, "OpenProcess", self.pid)
        try:
            calls.get("TerminateProcess")(handle, 1)
        except OSError as error:
            # Access is denied, too, once it has exited: TerminateProcess.
            if self.exited():
                raise no_such_process(self.pid) from None
            _fail(error, "TerminateProcess", self.pid)
        finally:
            calls.get("CloseHandle")(handle)


def _open(pid: int) -> int:
    try:
        handle = _open_with(win32.SYNCHRONIZE | win32.PROCESS_QUERY_LIMITED_INFORMATION, pid)
    except PermissionError:
        handle = _open_with(win32.SYNCHRONIZE, pid)
    try:
        if not _has_pid(handle, pid):
            raise no_such_process(pid)
    except BaseException:
        calls.get("CloseHandle")(handle)
        raise
    return handle


def _open_with(rights: int, pid: int) -> int:
    try:
        handle: int = calls.get("OpenProcess")(rights, False, pid)
    except OSError as error:
        if win32.error_number(error) == win32.ERROR_INVALID_PARAMETER:
            raise no_such_process(pid) from None
        _fail(error, "OpenProcess", pid)
    return handle


def _has_pid(handle: int, pid: int) -> bool:
    # Numbers are multiples of 4, and the last two bits are not looked at:
    # 4712 opens for 4713, too.
    try:
        return bool(calls.get("GetProcessId")(handle) == pid)
    except OSError as error:  # no right to query, or no binding
        log("GetProcessId, pid %d: %s", pid, error)
    try:
        return _toolhelp.find(pid) is not None
    except OSError as error:
        log("CreateToolhelp32Snapshot, pid %d: %s", pid, error)
    return pid % 4 == 0


def _fail(error: OSError, call: str, pid: int) -> "NoReturn":
    text = "%s (%s, pid %d)" % (error.strerror, call, pid)
    raise OSError(error.errno, text, None, win32.error_number(error)) from None


class Polled:
    """A process ID, and what the process that had it at first was known by.

    To who may not open a process, the snapshot of all tells that it is there: by its
    parent and its name, since it has no start times.
    """

    __slots__ = ("_code", "_identity", "pid")

    backend = "polling"
    clock = staticmethod(_polling.cpu_time)

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._identity, self._code = _look(pid)

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is polled has no fileno")

    def close(self) -> None:
        """Nothing is open between two looks."""

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        return self._code if _polling.poll(self._exited, deadline) else RUNNING

    def _exited(self) -> bool:
        self._code = None
        try:
            identity, code = _look(self.pid)
        except ProcessLookupError:
            return True
        if self._is_other(identity):
            return True
        self._code = None if code is RUNNING else code
        return code is not RUNNING

    def _is_other(self, identity: "Identity | None") -> bool:
        # What was opened once and denied now, or the other way round, can't be compared.
        if identity is None or self._identity is None or identity[0] != self._identity[0]:
            return False
        return identity != self._identity

    def send_signal(self, sig: int) -> None:
        handle = Handle(self.pid)
        try:
            if self._is_other(handle.identify()) or handle.exited():
                raise no_such_process(self.pid)
            handle.send_signal(sig)
        finally:
            handle.close()

    def identify(self) -> "Identity | None":
        return self._identity


def _look(pid: int) -> "tuple[Identity | None, Any]":
    """Its identity, and RUNNING or the exit code; ProcessLookupError if there is none."""
    try:
        handle = Handle(pid)
    except ProcessLookupError:
        raise
    except OSError:
        entry = _toolhelp.find(pid)
        if entry is None:
            raise no_such_process(pid) from None
        return ("entry", pid, entry.parent, entry.name), RUNNING if entry.threads else None
    try:
        return handle.identify(), handle.wait(Deadline(0), False)
    finally:
        handle.close()


def check() -> None:
    """Open this very process, and wait for it."""
    if os.name != "nt":
        raise OSError(ENOSYS, "this is not Windows")
    handle = Handle(os.getpid())
    try:
        if handle.exited():
            raise OSError(ENOSYS, "a wait takes a running process for an exited one")
    finally:
        handle.close()


def many(shared: bool) -> "Any":
    from . import winset

    return winset.Many()


def _ask_of_self(name: str) -> None:
    handle = Handle(os.getpid())
    try:
        calls.get(name)(handle.handle)
    finally:
        handle.close()


def check_exit_code() -> None:
    _ask_of_self("GetExitCodeProcess")


def check_id() -> None:
    _ask_of_self("GetProcessId")


def check_times() -> None:
    _ask_of_self("GetProcessTimes")


# What the probe shows: name, the call it goes through, what asks for it.
CALLS = (
    ("OpenProcess", "OpenProcess", check),
    ("WaitForMultipleObjects", "WaitForMultipleObjects", check),
    ("GetExitCodeProcess", "GetExitCodeProcess", check_exit_code),
    ("GetProcessId", "GetProcessId", check_id),
    ("GetProcessTimes", "GetProcessTimes", check_times),
    ("process snapshot", "CreateToolhelp32Snapshot", _toolhelp.check),
)
