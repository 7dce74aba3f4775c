# SPDX-License-Identifier: BSD-3-Clause
"""Windows, listed: a snapshot of all processes, and a HANDLE for what it lacks.

While the HANDLE is open, the pid is not given to another process. So all facts are of one
process, with ``full`` or without.
"""

import time
from errno import EACCES, ENOSYS, ESRCH
from operator import attrgetter

from .._base.errors import Failed, failed, log, no_such_process, raise_of_handler
from .._systems.calls import ask
from .._systems.windows_calls import (
    ERROR_INVALID_PARAMETER,
    ERROR_NOT_FOUND,
    PARAMETERS_COMMAND_LINE,
    PEB_PARAMETERS,
    POINTER_SIZE,
    PROCESS_BASIC_INFORMATION,
    PROCESS_BASIC_INFORMATION_SIZE,
    PROCESS_COMMAND_LINE_INFORMATION,
    PROCESS_QUERY_INFORMATION,
    PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_VM_READ,
    SYNCHRONIZE,
    TOKEN_QUERY,
    UNICODE_STRING_MAX,
    UNICODE_STRING_SIZE,
    Owned,
)
from .._systems.windows_handles import (
    Entry,
    entries,
    find_entry,
    is_signalled,
    open_process,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable, NoReturn

NEED_FULL: "frozenset[str]" = frozenset()
_SECOND = 10**7  # of a FILETIME, which counts 100 ns
_EPOCH = 11644473600 * _SECOND  # from 1601 on
# The clock may stand still for 15.6 ms, while time.time() goes on: from Python 3.13 on that
# calls GetSystemTimePreciseAsFileTime.
_TICK = _SECOND // 60
_RIGHTS = SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION
_BLANKS = " \t"


class Facts:
    __slots__ = ("__weakref__", "_cmdline", "_entry", "_owned", "_times", "_user", "pid")

    def __init__(self, pid: int, entry: "Entry | None" = None) -> None:
        self.pid = pid
        self._entry = entry
        self._times: "list[int] | None" = None
        self._cmdline: "list[str] | None" = None
        self._user: "str | None" = None
        self._owned: "Owned | None" = None
        try:
            self._owned = _open(_RIGHTS, pid)
        except PermissionError as error:  # the snapshot still has its name and parent
            raise_of_handler(error)
            log("OpenProcess, pid %d: %s", pid, error)

    def check_entry(self, latest: int) -> None:
        """Forget an entry that may be of another process; ``latest`` is when it was read."""
        # That process may have exited since, and its pid been given to this one. If the clock was
        # set back instead, a new snapshot tells the same.
        if self._owned is not None and self.started() > latest:
            self._entry = None

    def _handle(self) -> int:
        if self._owned is None:
            raise failed(EACCES).as_error("OpenProcess", self.pid)
        return self._owned.number

    def _ask(self, name: str, *arguments: object) -> "Any":
        try:
            return ask(name, *arguments)
        except Failed as why:
            if self._has_exited():
                raise no_such_process(self.pid) from None
            raise why.as_error(name, self.pid) from None

    def _has_exited(self) -> bool:
        try:
            return is_signalled(self._handle())
        except Failed as why:
            raise why.as_error("WaitForSingleObject", self.pid) from None

    def _shown(self) -> Entry:
        if self._entry is None:
            self._entry = _snapshot(find_entry, self.pid)
            if self._entry is None:
                raise no_such_process(self.pid)
        return self._entry

    def _clock(self) -> "list[int]":
        if self._times is None:
            self._times = self._ask("GetProcessTimes", self._handle())
        return self._times

    def started(self) -> int:
        return self._clock()[0]

    def name(self) -> str:
        return self._shown().name

    def ppid(self) -> int:
        return self._shown().parent

    def status(self) -> str:
        exited = not self._shown().threads if self._owned is None else self._has_exited()
        return "zombie" if exited else "running"

    def create_time(self) -> float:
        return (self.started() - _EPOCH) / _SECOND

    def cpu_times(self) -> "tuple[float, float, float, float]":
        _, _, kernel, user = self._clock()
        return user / _SECOND, kernel / _SECOND, 0.0, 0.0

    def cmdline(self) -> "list[str]":
        if self._cmdline is None:
            try:
                line = self._command_line()
            except OSError as error:
                raise_of_handler(error)
                if not self._has_exited():
                    raise
                line = ""
            self._cmdline = split(line)
        return self._cmdline

    def _command_line(self) -> str:
        size = UNICODE_STRING_SIZE + UNICODE_STRING_MAX
        arguments = self._handle(), PROCESS_COMMAND_LINE_INFORMATION, size
        try:
            memory = self._ask("NtQueryInformationProcess", *arguments)
        except OSError as error:
            raise_of_handler(error)
            number = getattr(error, "winerror", None)
            if number == ERROR_NOT_FOUND:  # a process of the kernel's
                return ""
            if number == ERROR_INVALID_PARAMETER:  # before Windows 8.1, and Wine 8
                return self._remembered_line()
            raise
        return _text(memory[UNICODE_STRING_SIZE:][: _length(memory)])

    def _remembered_line(self) -> str:
        """The command line in the memory of the process."""
        owned = _open(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, self.pid)
        try:
            basic = self._ask(
                "NtQueryInformationProcess",
                owned.number,
                PROCESS_BASIC_INFORMATION,
                PROCESS_BASIC_INFORMATION_SIZE,
            )
            peb = _word(basic)
            if not peb:  # of a 64-bit process, and we have 32 bits
                self._not_told("command line")

            def read(address: int, size: int) -> bytearray:
                found: bytearray = self._ask("ReadProcessMemory", owned.number, address, size)
                return found

            # _word() takes the second one.
            parameters = _word(read(peb + PEB_PARAMETERS - POINTER_SIZE, 2 * POINTER_SIZE))
            string = read(parameters + PARAMETERS_COMMAND_LINE, UNICODE_STRING_SIZE)
            length = _length(string)
            return _text(read(_word(string), length)) if length else ""
        finally:
            owned.close()

    def username(self) -> str:
        if self._user is None:
            token = Owned(self._ask("OpenProcessToken", self._handle(), TOKEN_QUERY))
            try:
                sid = self._ask("GetTokenInformation", token.number)
            finally:
                token.close()
            self._user = user_name(sid)
        return self._user

    def _not_told(self, what: str) -> "NoReturn":
        raise OSError(ENOSYS, "Windows does not tell the %s (pid %d)" % (what, self.pid))

    def uids(self) -> "tuple[int, int, int]":
        self._not_told("uids")

    def terminal(self) -> "str | None":
        self._not_told("terminal")

    def pgid(self) -> int:
        self._not_told("process group")

    def sid(self) -> int:
        self._not_told("session")

    def close(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.close()


def _open(rights: int, pid: int) -> Owned:
    try:
        return open_process(rights, pid)
    except Failed as why:
        if why.errno == ESRCH:
            raise no_such_process(pid) from None
        raise why.as_error("OpenProcess", pid) from None


def _snapshot(function: "Callable[..., Any]", *arguments: int) -> "Any":
    try:
        return function(*arguments)
    except Failed as why:
        raise why.error from None


def _length(string: bytearray) -> int:
    return int.from_bytes(string[:2], "little")


def _word(memory: bytearray) -> int:
    """The second word."""
    return int.from_bytes(memory[POINTER_SIZE:][:POINTER_SIZE], "little")


def _text(memory: bytearray) -> str:
    return memory.decode("utf-16-le", "surrogatepass")


def user_name(sid: bytearray) -> str:
    try:
        return "%s\\%s" % ask("LookupAccountSidW", sid)
    except Failed as why:  # it has been deleted, or its domain can't be asked
        log("LookupAccountSidW: %s", why)
    numbers = [int.from_bytes(sid[at : at + 4], "little") for at in range(8, len(sid), 4)]
    return "-".join(map(str, ["S", sid[0], int.from_bytes(sid[2:8], "big")] + numbers))


def split(line: str) -> "list[str]":
    """The words of a command line, as CommandLineToArgvW in its documentation returns them."""
    if not line:
        return []
    # In the name of the program a backslash is nothing special.
    if line[0] == '"':
        program, _, rest = line[1:].partition('"')
    else:
        end = (line + " ").replace("\t", " ").index(" ")
        program, rest = line[:end], line[end:]
    words = [program]
    word: "list[str] | None" = None
    slashes = 0  # right before
    quotes = 0  # 1 within quotes; 2 right after them, and a third one there stands for itself
    for char in rest:
        if char != '"':
            quotes %= 2
            if char in _BLANKS and not quotes:
                if word is not None:
                    words.append("".join(word))
                word, slashes = None, 0
                continue
        if word is None:
            word = []
        if char == '"':
            # Two backslashes stand for one. If one is left over, the quote stands for itself.
            is_plain = slashes % 2 == 1
            del word[len(word) - (slashes + 1) // 2 :]
            if not is_plain:
                quotes += 1
                is_plain = quotes == 3
                quotes %= 3
            if is_plain:
                word.append(char)
        else:
            word.append(char)
        slashes = slashes + 1 if char == "\\" else 0
    if word is not None:
        words.append("".join(word))
    return words


def _time() -> int:
    return int(time.time() * _SECOND) + _EPOCH


def now() -> int:
    # A process that is started from now on must not seem to be older.
    return _time() - _TICK


def read(pid: int, full: bool) -> Facts:
    return Facts(pid)


def read_all(full: bool) -> "Iterator[Facts]":
    found = sorted(_snapshot(entries), key=attrgetter("pid"))
    latest = _time() + _TICK
    for entry in found:
        if entry.pid == 0:  # System Idle Process: nobody can wait for it
            continue
        try:
            facts = Facts(entry.pid, entry)
            facts.check_entry(latest)
        except ProcessLookupError as error:
            raise_of_handler(error)
            continue
        yield facts
