# SPDX-License-Identifier: BSD-3-Clause
"""Windows: a HANDLE, and WaitForMultipleObjects; the snapshot of all processes.

While a HANDLE is open, the pid is not given to another process, and the system keeps the exit
code of any process, not of our children alone. Only a wait tells whether it has exited:
STILL_ACTIVE, 259, is also a valid exit code. The HANDLE is opened with as few rights as possible:

SYNCHRONIZE                        to wait
PROCESS_QUERY_LIMITED_INFORMATION  exit code, start time, pid; may be denied by itself
PROCESS_TERMINATE                  on another HANDLE, opened when it is needed

A process that we may not open is still in the snapshot: see CreateToolhelp32Snapshot. That has
no start times, so a process is identified there by its parent and its name.
"""

import os
from errno import EACCES, EINTR, ENOSYS, ESRCH
from io import UnsupportedOperation

from .._base.deadline import Deadline
from .._base.errors import Failed, failed, log
from .._base.handle import RUNNING, Handle
from .._base.probe import checks
from .calls import ask
from .windows_calls import (
    ERROR_INVALID_PARAMETER,
    ERROR_NO_MORE_FILES,
    PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_TERMINATE,
    PROCESSENTRY_NAME,
    PROCESSENTRY_PID,
    PROCESSENTRY_SIZE,
    PROCESSENTRY_THREADS,
    SYNCHRONIZE,
    TH32CS_SNAPPROCESS,
    WAIT_OBJECT_0,
    Owned,
    opened_handle,
    winerror,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Identity, Iterator, Outcome

# Seconds of one call at most. The interpreter's WaitForMultipleObjects forgets a Ctrl-C that
# came right before it: it resets the event without looking at pending signals. And while the
# machine sleeps, the time of a call stands still; the clock of a deadline goes on.
LONGEST_CALL = 4.0


def open_process(rights: int, pid: int) -> Owned:
    """A HANDLE with these rights; Failed (ESRCH) if no process has the pid."""
    try:
        return opened_handle("OpenProcess", rights, False, pid)
    except Failed as why:
        if winerror(why) == ERROR_INVALID_PARAMETER:
            raise failed(ESRCH) from None
        raise


def _open_to_wait(pid: int) -> Owned:
    try:
        owned = open_process(SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION, pid)
    except Failed as why:
        if why.errno != EACCES:
            raise
        owned = open_process(SYNCHRONIZE, pid)
    if not _has_pid(owned.number, pid):
        owned.close()
        raise failed(ESRCH)
    return owned


def _has_pid(handle: int, pid: int) -> bool:
    # Pids are multiples of 4, and OpenProcess ignores the last two bits: 4713 opens 4712.
    try:
        return bool(ask("GetProcessId", handle) == pid)
    except Failed as why:  # no right to query, or no binding
        log("GetProcessId, pid %d: %s", pid, why)
    try:
        return find_entry(pid) is not None
    except Failed as why:
        log("CreateToolhelp32Snapshot, pid %d: %s", pid, why)
    return pid % 4 == 0


def is_signalled(handle: int) -> bool:
    """Whether the process of a HANDLE has exited."""
    return bool(ask("WaitForSingleObject", handle, 0) == WAIT_OBJECT_0)


def wait_for_handle(handle: int, seconds: "float | None") -> bool:
    """Whether the HANDLE is signalled within these seconds, or those of the longest call.

    On the main thread Ctrl-C ends it early.
    """
    # The interpreter adds the event that Ctrl-C sets. It does not do so for WaitForSingleObject,
    # which Popen.wait() calls: bpo-28168.
    try:
        answer = ask("WaitForMultipleObjects", (handle,), False, call_milliseconds(seconds))
    except Failed as why:
        if why.errno != EINTR:
            raise
        return False  # Python's signal handler has run, or runs now
    return bool(answer == WAIT_OBJECT_0)


def call_milliseconds(seconds: "float | None") -> int:
    """Milliseconds for one call, rounded up. A long wait takes several calls."""
    if seconds is None or seconds > LONGEST_CALL:
        seconds = LONGEST_CALL
    return -int(-seconds * 1000 // 1)


def _look_at(handle: int, pid: int) -> "Outcome":
    if not is_signalled(handle):
        return RUNNING
    try:
        return ask("GetExitCodeProcess", handle)  # type: ignore[no-any-return]
    except Failed as why:  # we were given no right but SYNCHRONIZE
        log("GetExitCodeProcess, pid %d: %s", pid, why)
        return None


def _identify(handle: int, pid: int) -> "Identity | None":
    try:
        return "start", pid, ask("GetProcessTimes", handle)[0]
    except Failed as why:
        log("GetProcessTimes, pid %d: %s", pid, why)
        return None


class Win32Handle(Handle):
    """A HANDLE, which no child inherits."""

    backend = "win32"
    pid: int
    # If it is one of many (see windows_port): the system's wait for it, and its packet's number.
    registered: "Owned | None" = None
    packet = 0

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.owned = _open_to_wait(pid)
        self.number = self.owned.number

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a process has no fileno")

    def close(self) -> None:
        self.number = 0
        if self.registered is not None:
            self.registered.close()
        self.owned.close()

    def sleep(self, deadline: Deadline, pauses: "Iterator[float]") -> bool:
        try:
            while self.backend != "polling":
                seconds = deadline.remaining()
                if wait_for_handle(self.number, seconds):
                    return True
                if seconds == 0:
                    return False
        except Failed as why:  # a policy, or somebody else has closed it
            self._poll(why)
        return super().sleep(deadline, pauses)

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        try:
            return _look_at(self.number, self.pid)
        except Failed as why:
            self._poll(why)
        try:
            return _look_by_pid(self.pid)[1]
        except Failed as why:
            if why.errno != ESRCH:
                raise
            return None

    def _poll(self, why: Failed) -> None:
        if self.backend != "polling":
            log("pid %d is polled: %s", self.pid, why)
        self.backend = "polling"

    def identify(self) -> "Identity | None":
        return _identify(self.number, self.pid)

    def send_signal(self, sig: int) -> None:
        import signal

        # As Popen.send_signal() does, but without os.kill(). That takes every other number for
        # an exit code, and terminates the process with it; in older Pythons also after a
        # console event could not be sent (bpo-14484). A plain 0 equals CTRL_C_EVENT, but on
        # other systems it only checks whether the process is there.
        if isinstance(sig, signal.Signals) and sig.name in ("CTRL_C_EVENT", "CTRL_BREAK_EVENT"):
            _named("GenerateConsoleCtrlEvent", ask, "GenerateConsoleCtrlEvent", sig, self.pid)
        elif sig == signal.SIGTERM:
            # Our open HANDLE keeps the pid from being given to another process.
            owned = _named("OpenProcess", open_process, PROCESS_TERMINATE, self.pid)
            try:
                _named("TerminateProcess", ask, "TerminateProcess", owned.number, 1)
            except Failed:
                # Access is also denied once it has exited: see TerminateProcess.
                if self.look() is not RUNNING:
                    raise failed(ESRCH) from None
                raise
            finally:
                owned.close()
        elif sig != 0:
            raise ValueError("sig must be SIGTERM or a CTRL_ event on Windows, not %s" % sig)


def _named(name: str, function: "Callable[..., Any]", *arguments: object) -> "Any":
    """``function(*arguments)``; the error has the name of the call in its text."""
    try:
        return function(*arguments)
    except Failed as why:
        text = "%s, %s" % (why.error.strerror, name)
        raise Failed(OSError(why.errno, text, None, winerror(why))) from None


class SnapshotHandle(Handle):
    """Polled: a HANDLE for each look, or the snapshot of all processes."""

    pid: int

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._identity, code = _look_by_pid(pid)
        # Kept, as a later look, or another thread's, may find the process gone.
        self._code: "Outcome" = None if code is RUNNING else code

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        try:
            identity, code = _look_by_pid(self.pid)
        except Failed as why:
            if why.errno != ESRCH:
                raise
            return self._code
        if self._is_other(identity):
            return self._code
        if code is not None and code is not RUNNING:
            self._code = code
        return RUNNING if code is RUNNING else self._code

    def _is_other(self, identity: "Identity | None") -> bool:
        # If it could be opened before and not now, or the reverse, there is nothing to compare.
        if identity is None or self._identity is None or identity[0] != self._identity[0]:
            return False
        return identity != self._identity

    def send_signal(self, sig: int) -> None:
        handle = Win32Handle(self.pid)
        try:
            if self._is_other(handle.identify()) or handle.look() is not RUNNING:
                raise failed(ESRCH)
            handle.send_signal(sig)
        finally:
            handle.close()

    def identify(self) -> "Identity | None":
        return self._identity


def _look_by_pid(pid: int) -> "tuple[Identity | None, Outcome]":
    """Its identity, and RUNNING or the exit code; Failed (ESRCH) if there is no process."""
    try:
        owned = _open_to_wait(pid)
        try:
            return _identify(owned.number, pid), _look_at(owned.number, pid)
        finally:
            owned.close()
    except Failed as why:
        if why.errno == ESRCH:
            raise
        entry = find_entry(pid)
        if entry is None:
            raise failed(ESRCH) from None
        return ("entry", pid, entry.parent, entry.name), RUNNING if entry.threads else None


class Entry:
    """The fields of a PROCESSENTRY32W that tell one process from another."""

    __slots__ = ("name", "parent", "pid", "threads")

    def __init__(self, entry: bytearray) -> None:
        def number(offset: int) -> int:
            return int.from_bytes(entry[offset : offset + 4], "little")

        self.pid = number(PROCESSENTRY_PID)
        self.threads = number(PROCESSENTRY_THREADS)
        self.parent = number(PROCESSENTRY_THREADS + 4)
        name = entry[PROCESSENTRY_NAME:].decode("utf-16-le", "replace")
        self.name = name.partition("\0")[0]


def find_entry(pid: int) -> "Entry | None":
    return next((entry for entry in entries() if entry.pid == pid), None)


def entries() -> "list[Entry]":
    """All processes, as the snapshot shows them."""
    snapshot = opened_handle("CreateToolhelp32Snapshot", TH32CS_SNAPPROCESS, 0)
    try:
        found: "list[Entry]" = []
        entry = bytearray(PROCESSENTRY_SIZE)
        entry[:4] = len(entry).to_bytes(4, "little")
        while True:
            try:
                ask("Process32NextW" if found else "Process32FirstW", snapshot.number, entry)
            except Failed as why:
                if winerror(why) == ERROR_NO_MORE_FILES:
                    return found
                raise
            found.append(Entry(entry))
    finally:
        snapshot.close()


# The checks


def check_win32() -> None:
    """Open our own process, and wait for it."""
    if os.name != "nt":
        raise failed(ENOSYS, "this is not Windows")
    _with_own(_check_wait)


def _with_own(use: "Callable[[Win32Handle], object]") -> None:
    handle = Win32Handle(os.getpid())
    try:
        use(handle)
    finally:
        handle.close()


def _check_wait(handle: Win32Handle) -> None:
    if wait_for_handle(handle.number, 0) or is_signalled(handle.number):
        raise failed(ENOSYS, "a wait takes a running process for an exited one")


def _ask_of_own(name: str) -> "Callable[[], None]":
    def check_call() -> None:
        """Ask about our own process."""
        _with_own(lambda handle: ask(name, handle.number))

    return check_call


def check_snapshot() -> None:
    """Find our own process."""
    if find_entry(os.getpid()) is None:
        raise failed(ENOSYS, "the snapshot lacks this process")


checks["win32"] += [
    ("OpenProcess", "OpenProcess", check_win32),
    ("WaitForMultipleObjects", "WaitForMultipleObjects", check_win32),
    ("GetExitCodeProcess", "GetExitCodeProcess", _ask_of_own("GetExitCodeProcess")),
    ("GetProcessId", "GetProcessId", _ask_of_own("GetProcessId")),
    ("GetProcessTimes", "GetProcessTimes", _ask_of_own("GetProcessTimes")),
    ("process snapshot", "CreateToolhelp32Snapshot", check_snapshot),
]
