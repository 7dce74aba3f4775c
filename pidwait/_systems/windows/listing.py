# SPDX-License-Identifier: BSD-3-Clause
"""Windows, listed: a snapshot of all processes, and a HANDLE for the other attributes.

While the HANDLE is open, the pid is not reused. So all facts are of one process.
"""

import re
import time
from errno import EACCES, ENOSYS, ESRCH
from struct import Struct

from ..._base.errors import Failed, call, log
from ..calls import CALLS, Calls
from .calls import POINTER_SIZE, Wrapper32, row32
from .handle import RIGHTS_TO_LOOK, Owned, entries, find_entry, is_signalled, open_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Any, Iterator
    from .handle import Entry

_SECOND = 10**7  # of a FILETIME, which counts 100 ns
_EPOCH = 11644473600 * _SECOND  # from 1601 on
# The system's clock may stand still for 15.6 ms, while time.time() goes on: from Python 3.13 on it
# calls GetSystemTimePreciseAsFileTime.
_TICK = _SECOND // 60

_RIGHTS_TO_READ = 0x0410  # PROCESS_QUERY_INFORMATION | PROCESS_VM_READ
# Classes of NtQueryInformationProcess. The first fills a PROCESS_BASIC_INFORMATION, whose second
# word is the address of the PEB. In that is the address of the RTL_USER_PROCESS_PARAMETERS, with
# the UNICODE_STRING CommandLine. The other class, from Windows 8.1 on, fills a UNICODE_STRING and
# puts the text right behind it.
_BASIC_INFORMATION, _COMMAND_LINE_INFORMATION = 0, 60
_BASIC = Struct("6P")
_PARAMETERS, _COMMAND_LINE = (0x20, 0x70) if POINTER_SIZE == 8 else (0x10, 0x40)
_UNICODE_STRING = Struct("HHP")  # length and room in bytes, address
_LONGEST_STRING = 0xFFFE
_ERROR_NOT_FOUND = 1168
_UNREADABLE = 299, 998  # ERROR_PARTIAL_COPY, ERROR_NOACCESS: a process that starts or ends

# Class of GetTokenInformation. It fills a TOKEN_USER, which is two words, and puts the SID right
# behind it: a revision, the number of its subauthorities (15 at most), 6 bytes of an authority,
# and the subauthorities.
_TOKEN_QUERY, _TOKEN_USER = 0x0008, 1  # the first is an access right
_SID_AT = 2 * POINTER_SIZE
_TOKEN_MAX = _SID_AT + 68
_NAME_MAX = 512  # characters; the name of a user has 256 at most, that of a domain 255


class _Query(Wrapper32):
    """NtQueryInformationProcess(handle, class, size) -> the bytes"""

    def __call__(self, handle: int, class_: int, size: int) -> bytearray:
        memory = bytearray(size)
        status = self._function(handle, class_, memory, size, None)
        if status:
            error = LISTING_CALLS["RtlNtStatusToDosError"](status)
            raise Failed(OSError(0, "NTSTATUS 0x%X" % status, None, error))
        return memory


_NONE = -1  # no DWORD has this value
_SIZED = " HANDLE ENUM PVOID DWORD PVOID"  # handle, class, buffer, size, size needed
LISTING_CALLS = Calls(
    {
        # handle, address, buffer, size, bytes read
        "ReadProcessMemory": row32("BOOL HANDLE SIZE_T PVOID SIZE_T PVOID"),
        "NtQueryInformationProcess": row32("NTSTATUS" + _SIZED, _NONE, _Query, library="ntdll"),
        "RtlNtStatusToDosError": row32("DWORD NTSTATUS", _NONE, library="ntdll"),
        # process, rights, token
        "OpenProcessToken": row32("BOOL HANDLE DWORD PVOID", library="advapi32"),
        "GetTokenInformation": row32("BOOL" + _SIZED, library="advapi32"),
        # computer, SID, name, its size, domain, its size, kind
        "LookupAccountSidW": row32("BOOL" + 7 * " PVOID", library="advapi32"),
    }
)


class WindowsFacts:
    _started: "int | None" = None
    _owned: "Owned | None" = None

    def __init__(self, pid: int, entry: "Entry | None" = None, latest: int = 0) -> None:
        """``latest``: when the entry was read, or later."""
        self.pid = pid
        self._entry = entry
        self._latest = latest

    def _handle(self) -> int:
        if self._owned is None:
            self._owned = open_process(RIGHTS_TO_LOOK, self.pid)
        return self._owned.number

    def _ask(self, name: str, *arguments: object) -> "Any":
        table = LISTING_CALLS if name in LISTING_CALLS.rows else CALLS
        try:
            return call(table[name], *arguments)
        except Failed as why:
            if self._has_exited():
                raise Failed(ESRCH) from None
            refused = Failed(EACCES, why.error.strerror) if why.winerror in _UNREADABLE else why
            refused.call = name
            raise refused from None

    def _has_exited(self) -> bool:
        return is_signalled(self._handle())

    def _shown(self) -> "Entry":
        if self._entry is None:
            self._entry = find_entry(self.pid)
            if self._entry is None:
                raise Failed(ESRCH)
        return self._entry

    def started(self) -> int:
        if self._started is None:
            started: int = self._ask("GetProcessTimes", self._handle())[0]
            self._started = started
            # The process of the entry may have exited since, and this one have got its pid. If the
            # clock was set back instead, a new snapshot shows the same.
            if started > self._latest:
                self._entry = None
        return self._started

    def name(self) -> str:
        return self._shown().name

    def ppid(self) -> int:
        return self._shown().parent  # type: ignore[no-any-return]

    def status(self) -> str:
        try:
            exited = self._has_exited()
        except Failed as why:
            if why.errno != EACCES:
                raise
            exited = not self._shown().threads  # this we may see
        return "zombie" if exited else "running"

    def create_time(self) -> float:
        return (self.started() - _EPOCH) / _SECOND

    def cmdline(self) -> "list[str]":
        return split_command_line("" if self._has_exited() else self._command_line())

    def _command_line(self) -> str:
        size = _UNICODE_STRING.size + _LONGEST_STRING
        arguments = self._handle(), _COMMAND_LINE_INFORMATION, size
        try:
            memory = call(LISTING_CALLS["NtQueryInformationProcess"], *arguments)
        except Failed as why:
            # A kernel process has none. Windows before 8.1 and Wine 8 lack the class.
            return "" if why.winerror == _ERROR_NOT_FOUND else self._remembered_line()
        length, _, _ = _UNICODE_STRING.unpack_from(memory)
        return _text(memory[_UNICODE_STRING.size :][:length])

    def _remembered_line(self) -> str:
        """The command line in the memory of the process."""

        def read(address: int, size: int) -> bytearray:
            memory = bytearray(size)
            self._ask("ReadProcessMemory", owned.number, address, memory, size, None)
            return memory

        with Owned(self._ask, "OpenProcess", _RIGHTS_TO_READ, False, self.pid) as owned:
            of_process = owned.number, _BASIC_INFORMATION, _BASIC.size
            peb = _BASIC.unpack(self._ask("NtQueryInformationProcess", *of_process))[1]
            if not peb:  # a 64-bit process, and we have 32 bits
                raise Failed(ENOSYS, "Windows does not show the command line")
            parameters = int.from_bytes(read(peb + _PARAMETERS, POINTER_SIZE), "little")
            string = read(parameters + _COMMAND_LINE, _UNICODE_STRING.size)
            length, _, address = _UNICODE_STRING.unpack(string)
            return _text(read(address, length)) if length else ""

    def username(self) -> str:
        token, memory, filled = bytearray(POINTER_SIZE), bytearray(_TOKEN_MAX), bytearray(4)
        self._ask("OpenProcessToken", self._handle(), _TOKEN_QUERY, token)
        with Owned(int.from_bytes, token, "little") as owned:
            arguments = owned.number, _TOKEN_USER, memory, _TOKEN_MAX, filled
            self._ask("GetTokenInformation", *arguments)
        return account_name(memory[_SID_AT : int.from_bytes(filled, "little")])

    def close(self) -> None:
        if self._owned is not None:
            self._owned.close()


def _text(memory: bytearray) -> str:
    return memory.decode("utf-16-le", "surrogatepass")


def account_name(sid: bytearray) -> str:
    user, domain = bytearray(2 * _NAME_MAX), bytearray(2 * _NAME_MAX)
    sizes = [bytearray(_NAME_MAX.to_bytes(4, "little")) for _ in range(2)]
    try:
        function = LISTING_CALLS["LookupAccountSidW"]
        call(function, None, sid, user, sizes[0], domain, sizes[1], bytearray(4))
        return "\\".join(_text(name).partition("\0")[0] for name in (domain, user))
    except Failed as why:  # the account has been deleted, or its domain can't be asked
        log("LookupAccountSidW: %s", why)
    numbers = [int.from_bytes(sid[at : at + 4], "little") for at in range(8, len(sid), 4)]
    return "-".join(map(str, ["S", sid[0], int.from_bytes(sid[2:8], "big")] + numbers))


def split_command_line(line: str) -> "list[str]":
    """The words of a command line, as CommandLineToArgvW in its documentation returns them."""
    if not line:
        return []
    # In the name of the program a backslash is an ordinary character.
    program: "Any" = re.match(r'"([^"]*)"?|([^ \t]*)', line)
    words = [program.group(1) or program.group(2) or ""]
    quotes = 0  # 1 within quotes
    is_new = True
    pattern = r'([ \t]+)|(\\*)("+)|(\\+|[^ \t\\"]+)'
    for blanks, slashes, marks, text in re.findall(pattern, line[program.end() :]):
        if blanks and not quotes:
            is_new = True
            continue
        if is_new:
            words.append("")
            is_new = False
        if marks:
            # Two backslashes before a quote stand for one. If one is left over, the quote stands
            # for itself. So does the third of three other quotes.
            is_plain = len(slashes) % 2
            quotes += len(marks) - is_plain
            text = "\\" * (len(slashes) // 2) + '"' * (is_plain + quotes // 3)
            quotes = quotes % 3 % 2
        words[-1] += blanks + text
    return words


class WindowsLister:
    """See listers.py."""

    where = "OpenProcess"

    def now(self) -> int:
        # A process that starts from now on must not seem older than this.
        return int(time.time() * _SECOND) + _EPOCH - _TICK

    def read(self, pid: int) -> WindowsFacts:
        return WindowsFacts(pid)

    def read_all(self) -> "Iterator[WindowsFacts]":
        try:
            found = sorted(entries(), key=lambda entry: entry.pid)
        except Failed as why:
            raise why.error from None
        latest = self.now() + 2 * _TICK
        for entry in found:
            if entry.pid:  # 0 is the System Idle Process: nobody can wait for it
                yield WindowsFacts(entry.pid, entry, latest)
