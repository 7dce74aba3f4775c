# SPDX-License-Identifier: BSD-3-Clause
"""Windows: a HANDLE, and WaitForMultipleObjects.

While a HANDLE is open, the pid is not given to another process, and the system keeps the exit
code, whosever child the process was. Only a wait tells whether it has exited: STILL_ACTIVE,
259, is also a valid exit code. The HANDLE is opened with as few rights as possible:

SYNCHRONIZE                        to wait
PROCESS_QUERY_LIMITED_INFORMATION  exit code, start time, pid; may be denied by itself
PROCESS_TERMINATE                  on another HANDLE, opened when it is needed
"""

import os
from errno import ENOSYS
from io import UnsupportedOperation

from .._deadline import NOW, Deadline
from .._errors import no_such_process, pass_over
from .._ffi import calls, win32
from .._handle import Owned, fail, open_process, opened
from .._outcome import RUNNING
from .._sources import toolhelp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._outcome import Outcome
    from .contract import Checks, Identity

# Seconds of one call at most. The interpreter's WaitForMultipleObjects forgets a Ctrl-C that
# came right before it: it resets the event without looking at pending signals. And while the
# machine sleeps, the time of a call stands still; the clock of a deadline goes on.
LONGEST_CALL = 4.0


class Win32Handle:
    """A HANDLE, which no child inherits."""

    __slots__ = ("_owned", "handle", "is_child", "pid")

    backend = "win32"

    def __init__(self, pid: int) -> None:
        self._owned = _open(pid)
        self.handle = self._owned.number
        self.pid = pid
        self.is_child = False

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a process has no fileno")

    def close(self) -> None:
        self.handle = 0
        self._owned.close()

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        return self.get_exit_code() if self._wait(deadline) else RUNNING

    def has_exited(self) -> bool:
        return self._wait(NOW)

    def _wait(self, deadline: Deadline) -> bool:
        # On the main thread the interpreter adds the event that Ctrl-C sets. It does not do so
        # for WaitForSingleObject, which Popen.wait() calls: bpo-28168.
        wait = calls.get("WaitForMultipleObjects")
        while True:
            seconds = deadline.remaining()
            try:
                if wait((self.handle,), False, milliseconds(seconds)) == win32.WAIT_OBJECT_0:
                    return True
            except InterruptedError:
                continue  # Python's signal handler has run, or runs now
            if seconds == 0:
                return False

    def get_exit_code(self) -> "int | None":
        """The exit code of a process that has exited."""
        try:
            code: int = calls.get("GetExitCodeProcess")(self.handle)
        except OSError as error:  # we were given no right but SYNCHRONIZE
            pass_over(error, "GetExitCodeProcess, pid %d", self.pid)
            return None
        return code

    def reaping(self, block: bool = True) -> None:
        return None

    def keeps_identity(self) -> bool:
        return False

    def identify(self) -> "Identity | None":
        try:
            return "start", self.pid, calls.get("GetProcessTimes")(self.handle)[0]
        except OSError as error:
            pass_over(error, "GetProcessTimes, pid %d", self.pid)
            return None

    def send_signal(self, sig: int) -> None:
        import signal

        # As Popen.send_signal() does, but without os.kill(). That takes every other number for
        # an exit code, and terminates the process with it; in older Pythons also after a
        # console event could not be sent (bpo-14484). A plain 0 equals CTRL_C_EVENT, but on
        # other systems it only checks whether the process is there.
        if isinstance(sig, signal.Signals) and sig.name in ("CTRL_C_EVENT", "CTRL_BREAK_EVENT"):
            try:
                calls.get("GenerateConsoleCtrlEvent")(sig, self.pid)
            except OSError as error:
                fail(error, "GenerateConsoleCtrlEvent", self.pid)
        elif sig == signal.SIGTERM:
            self._terminate()
        elif sig != 0:
            raise ValueError("sig must be SIGTERM or a CTRL_ event on Windows, not %s" % sig)

    def _terminate(self) -> None:
        # Our open HANDLE keeps the pid from being given to another process.
        try:
            owned = opened("OpenProcess", win32.PROCESS_TERMINATE, False, self.pid)
        except OSError as error:
            fail(error, "OpenProcess", self.pid)
        try:
            calls.get("TerminateProcess")(owned.number, 1)
        except OSError as error:
            # Access is also denied once it has exited: see TerminateProcess.
            if self.has_exited():
                raise no_such_process(self.pid) from None
            fail(error, "TerminateProcess", self.pid)
        finally:
            owned.close()


def milliseconds(seconds: "float | None") -> int:
    """Milliseconds for one call, rounded up. A long wait takes several calls."""
    if seconds is None or seconds > LONGEST_CALL:
        seconds = LONGEST_CALL
    return -int(-seconds * 1000 // 1)


def _open(pid: int) -> Owned:
    try:
        owned = open_process(win32.SYNCHRONIZE | win32.PROCESS_QUERY_LIMITED_INFORMATION, pid)
    except PermissionError:
        owned = open_process(win32.SYNCHRONIZE, pid)
    if not _has_pid(owned.number, pid):
        owned.close()
        raise no_such_process(pid)
    return owned


def _has_pid(handle: int, pid: int) -> bool:
    # Pids are multiples of 4, and OpenProcess ignores the last two bits: 4713 opens 4712.
    try:
        return bool(calls.get("GetProcessId")(handle) == pid)
    except OSError as error:  # no right to query, or no binding
        pass_over(error, "GetProcessId, pid %d", pid)
    try:
        return toolhelp.find(pid) is not None
    except OSError as error:
        pass_over(error, "CreateToolhelp32Snapshot, pid %d", pid)
    return pid % 4 == 0


def check() -> None:
    """Open our own process, and wait for it."""
    if os.name != "nt":
        raise OSError(ENOSYS, "this is not Windows")
    handle = Win32Handle(os.getpid())
    try:
        if handle.has_exited():
            raise OSError(ENOSYS, "a wait takes a running process for an exited one")
    finally:
        handle.close()


def _ask_of_self(name: str) -> None:
    handle = Win32Handle(os.getpid())
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


def _ignore(number: int, is_timeout: int) -> None:
    """Our own process does not exit before the check has ended."""


def check_pool() -> None:
    """Have the system's threads wait for our own process, and stop them."""
    handle = Win32Handle(os.getpid())
    try:
        wait = bytearray(win32.WORD)
        calls.get("RegisterWaitForSingleObject")(wait, handle.handle, _ignore, 0)
        number = int.from_bytes(wait, "little")
        calls.get("UnregisterWaitEx")(number, win32.INVALID_HANDLE_VALUE)
    finally:
        handle.close()


CHECKS: "Checks" = (
    ("OpenProcess", "OpenProcess", check),
    ("WaitForMultipleObjects", "WaitForMultipleObjects", check),
    ("GetExitCodeProcess", "GetExitCodeProcess", check_exit_code),
    ("GetProcessId", "GetProcessId", check_id),
    ("GetProcessTimes", "GetProcessTimes", check_times),
    ("thread pool wait", "RegisterWaitForSingleObject", check_pool),
    ("process snapshot", "CreateToolhelp32Snapshot", toolhelp.check),
)
