# SPDX-License-Identifier: BSD-3-Clause
"""Windows: a HANDLE, and WaitForMultipleObjects; the snapshot of all processes.

While a HANDLE is open, its pid is not reused, and the system keeps the exit code of any process,
not of our children alone. Only a wait shows whether the process has exited: STILL_ACTIVE, 259,
is also a valid exit code. The right to query may be denied where the right to wait is granted:
then there is no exit code, and no start time.

A process that we may not open is still in the snapshot: see CreateToolhelp32Snapshot. A snapshot
has no start times, so a process is identified there by its parent and its name.
"""

from errno import EACCES, EINTR, ENOSYS, ESRCH
from functools import partial
from io import UnsupportedOperation
from itertools import chain, repeat
from os import getpid
from struct import Struct

from ..._base.deadline import Backoff, Deadline
from ..._base.errors import Failed, call, log
from ..._base.handle import RUNNING, Handle, Usage
from ..calls import CALLS, ask
from .calls import INVALID_HANDLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Callable, Checks, Identity, Outcome, Self

# Seconds of one call at most. The interpreter's WaitForMultipleObjects misses a Ctrl-C that came
# right before it: it resets the event without checking for pending signals. And while the machine
# sleeps, a call's time stands still; the clock of a deadline goes on.
LONGEST_CALL = 4.0

_SYNCHRONIZE = 0x00100000
_PROCESS_TERMINATE = 0x0001
RIGHTS_TO_LOOK = _SYNCHRONIZE | 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
_WAIT_OBJECT_0 = 0
_ERROR_NO_MORE_FILES = 18
_ERROR_INVALID_PARAMETER = 87
_TH32CS_SNAPPROCESS = 0x00000002
# DWORD dwSize, cntUsage, th32ProcessID; ULONG_PTR th32DefaultHeapID; DWORD th32ModuleID,
# cntThreads, th32ParentProcessID; LONG pcPriClassBase; DWORD dwFlags; WCHAR szExeFile[260];
_PROCESSENTRY32W = Struct("IIIPIIIiI520s0P")


class Owned(filter):  # type: ignore[type-arg]
    """A HANDLE, ``number``. close() closes it; so does freeing this object.

    An iterator, which is written in C, makes the calls. In plain statements, an exception of a
    signal handler in __del__ would be printed and lost, and one between two calls closed a HANDLE
    for which the thread pool still waited: the process crashed.
    """

    __slots__ = ("number", "waits")
    number: int
    waits: "list[partial[None]]"  # registered with the thread pool: each call ends one wait

    def __new__(cls, function: "Callable[..., int]", *args: object) -> "Self":
        """The HANDLE that ``function(*args)`` opens."""
        waits: "list[partial[None]]" = []
        handles: "list[partial[None]]" = []
        # Each call returns None, so the first next() makes all of them.
        calls = map(partial.__call__, chain(waits, handles))
        self = super().__new__(cls, None, chain(calls, repeat(True)))
        call(handles.extend, map(partial, (CALLS["CloseHandle"],), map(function, *zip(args))))
        self.waits, self.number = waits, handles[0].args[0]
        return self

    __del__ = filter.__next__

    def close(self) -> None:
        self.number = 0
        try:
            call(next, self)
        except Failed as why:  # somebody else has closed it
            log("CloseHandle: %s", why)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_process(rights: int, pid: int) -> Owned:
    """A HANDLE with these rights; Failed (ESRCH) if no process has the pid."""
    # Pids are multiples of 4, and OpenProcess ignores the last two bits: 4713 opens 4712.
    if pid % 4:
        raise Failed(ESRCH)
    try:
        return Owned(CALLS["OpenProcess"], rights, False, pid)
    except Failed as why:
        if why.winerror == _ERROR_INVALID_PARAMETER:
            raise Failed(ESRCH) from None
        raise


def is_signalled(handle: int) -> bool:
    """Whether the process of a HANDLE has exited."""
    return bool(ask("WaitForSingleObject", handle, 0) == _WAIT_OBJECT_0)


def wait_for_handle(milliseconds: int, *handles: int) -> bool:
    """Whether one is signalled within this time. On the main thread Ctrl-C ends the wait early."""
    # The interpreter adds the event that Ctrl-C sets, but not to WaitForSingleObject, which
    # Popen.wait() calls: bpo-28168.
    try:
        answer = ask("WaitForMultipleObjects", handles, False, milliseconds)
    except Failed as why:
        if why.errno != EINTR:
            raise
        return False  # Python's signal handler has run, or runs now
    return bool(answer < len(handles))  # else it is WAIT_TIMEOUT


def new_port() -> Owned:
    """A completion port that lets any number of threads run.

    With 1, a thread that has taken a packet would keep the others asleep while it computes.
    """
    return Owned(CALLS["CreateIoCompletionPort"], INVALID_HANDLE, 0, 0, 0xFFFFFFFF)


class Win32Handle(Handle):
    """A HANDLE, which no child inherits."""

    backend = "win32"
    pid: int

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.owned = open_process(RIGHTS_TO_LOOK, pid)
        except Failed as why:
            if why.errno != EACCES:
                raise
            self.owned = open_process(_SYNCHRONIZE, pid)

    def look(self, reap: bool = False) -> "Outcome":
        try:
            exited = is_signalled(self.owned.number)
        except Failed as why:
            self._poll(why)
            entry = find_entry(self.pid)
            exited = entry is None or not entry.threads
        if not exited:
            return RUNNING
        if reap:
            self.usage = usage_by_handle(self.owned.number)
        try:
            return ask("GetExitCodeProcess", self.owned.number)  # type: ignore[no-any-return]
        except Failed as why:  # we have no right but SYNCHRONIZE
            log("GetExitCodeProcess, pid %d: %s", self.pid, why)
            return None

    def _poll(self, why: Failed) -> None:
        if self.backend != "polling":
            log("pid %d is polled: %s", self.pid, why)
        self.backend = "polling"

    def sleep(self, deadline: Deadline, backoff: Backoff) -> bool:
        try:
            while self.backend != "polling":
                milliseconds = deadline.milliseconds(LONGEST_CALL)
                if wait_for_handle(milliseconds, self.owned.number):
                    return True
                if milliseconds == 0:
                    return False
        except Failed as why:  # a policy, or somebody else has closed it
            self._poll(why)
        return super().sleep(deadline, backoff)

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a process has no fileno")

    def send_signal(self, sig: int) -> None:
        import signal

        # As Popen.send_signal() does, but without os.kill(). os.kill() takes every other number
        # for an exit code, and terminates the process with it; in older Pythons also after a
        # console event could not be sent (bpo-14484). A plain 0 equals CTRL_C_EVENT, but on
        # other systems 0 only checks that the process is there.
        name = "GenerateConsoleCtrlEvent"
        try:
            if isinstance(sig, signal.Signals) and sig.name in ("CTRL_C_EVENT", "CTRL_BREAK_EVENT"):
                ask(name, sig, self.pid)
            elif sig == signal.SIGTERM:
                name = "OpenProcess"
                # Our open HANDLE keeps the pid from being reused.
                with open_process(_PROCESS_TERMINATE, self.pid) as owned:
                    name = "TerminateProcess"
                    ask(name, owned.number, 1)
            elif sig != 0:
                raise ValueError("sig must be SIGTERM or a CTRL_ event on Windows, not %s" % sig)
        except Failed as why:
            # Access is also denied once the process has exited: see TerminateProcess.
            if self.look() is not RUNNING:
                raise Failed(ESRCH) from None
            why.call = name
            raise

    def identify(self) -> "Identity | None":
        try:
            return "start", self.pid, ask("GetProcessTimes", self.owned.number)[0]
        except Failed as why:
            log("GetProcessTimes, pid %d: %s", self.pid, why)
            return None

    def close(self) -> None:
        super().close()
        self.owned.close()


def usage_by_handle(number: int) -> "Usage | None":
    """What a process has used that has exited."""
    try:
        _, _, system, user = ask("GetProcessTimes", number)
    except Failed as why:
        log("GetProcessTimes: %s", why)
        return None
    try:
        peak = ask("K32GetProcessMemoryInfo", number)
    except Failed as why:  # under Wine, soon after the exit
        log("K32GetProcessMemoryInfo: %s", why)
        peak = 0
    return Usage(user / 1e7, system / 1e7, peak)


class Entry:
    """The fields of a PROCESSENTRY32W that identify a process."""

    def __init__(self, entry: bytearray) -> None:
        fields = _PROCESSENTRY32W.unpack(entry)
        _, _, self.pid, _, _, self.threads, self.parent, _, _, name = fields
        self.name: str = name.decode("utf-16-le", "replace").partition("\0")[0]

    def identify(self) -> "Identity":
        return "entry", self.pid, self.parent, self.name


class SnapshotHandle(Handle):
    """Polled: a process that we may not open, as the snapshot shows it."""

    pid: int

    def __init__(self, pid: int) -> None:
        self.pid = pid
        entry = find_entry(pid)
        if entry is None:
            raise Failed(ESRCH)
        self._identity = entry.identify()

    def look(self, reap: bool = False) -> "Outcome":
        entry = find_entry(self.pid)
        if entry is None or not entry.threads or entry.identify() != self._identity:
            return None
        return RUNNING

    def send_signal(self, sig: int) -> None:
        handle = Win32Handle(self.pid)
        with handle.owned:
            handle.send_signal(sig)

    def identify(self) -> "Identity | None":
        return self._identity


def polled_handle(pid: int) -> Handle:
    """A polled HANDLE; a SnapshotHandle if the process can't be opened."""
    try:
        handle = Win32Handle(pid)
    except Failed as why:
        if why.errno == ESRCH:
            raise
        return SnapshotHandle(pid)
    handle.backend = "polling"
    return handle


def find_entry(pid: int) -> "Entry | None":
    return next((entry for entry in entries() if entry.pid == pid), None)


def entries() -> "list[Entry]":
    """All processes, as the snapshot shows them."""
    found: "list[Entry]" = []
    entry = bytearray(_PROCESSENTRY32W.size)
    entry[:4] = len(entry).to_bytes(4, "little")
    with Owned(CALLS["CreateToolhelp32Snapshot"], _TH32CS_SNAPPROCESS, 0) as snapshot:
        while True:
            try:
                ask("Process32NextW" if found else "Process32FirstW", snapshot.number, entry)
            except Failed as why:
                if why.winerror == _ERROR_NO_MORE_FILES:
                    return found
                raise
            found.append(Entry(entry))


def parent_by_age(pid: int) -> "int | None":
    """The parent; -1 if it has exited, even if its pid has been reused; None if unknown."""
    entry = None
    try:
        with open_process(RIGHTS_TO_LOOK, pid) as child:
            entry = find_entry(pid)
            if entry is None:
                return None
            with open_process(RIGHTS_TO_LOOK, entry.parent) as parent:
                times = [ask("GetProcessTimes", one.number)[0] for one in (parent, child)]
                is_old = times[0] <= times[1] and not is_signalled(parent.number)
                return entry.parent if is_old else -1
    except Failed as why:
        if entry is not None and why.errno == ESRCH:  # no process has the parent's pid
            return -1
        log("the parent of pid %d: %s", pid, why)
        return None


# The checks


def check_win32() -> None:
    """Open our own process, and check that a wait reports it as running."""
    with Win32Handle(getpid()).owned as owned:
        if wait_for_handle(0, owned.number) or is_signalled(owned.number):
            raise Failed(ENOSYS, "a wait reports a running process as exited")


def check_times() -> None:
    """Ask when our own process was started."""
    with Win32Handle(getpid()).owned as owned:
        ask("GetProcessTimes", owned.number)


def check_port() -> None:
    """Check that a port is signalled while it has a packet, and that a wait leaves it there.

    The documentation of the wait functions does not list ports.
    """
    with new_port() as port:
        answers = [wait_for_handle(0, port.number)]
        ask("PostQueuedCompletionStatus", port.number, 0, 0, 1)
        answers += [wait_for_handle(0, port.number) for _ in range(2)]
        if answers != [False, True, True] or not ask("GetQueuedCompletionStatus", port.number, 0):
            raise Failed(ENOSYS, "a wait does not show whether a completion port has a packet")


HANDLE_CHECKS: "Checks" = [
    ("OpenProcess", "OpenProcess", check_win32),
    ("WaitForMultipleObjects", "WaitForMultipleObjects", check_win32),
    ("GetProcessTimes", "GetProcessTimes", check_times),
    ("completion port", "CreateIoCompletionPort", check_port),
]
