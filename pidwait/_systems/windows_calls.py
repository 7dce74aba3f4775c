# SPDX-License-Identifier: BSD-3-Clause
"""Windows: functions of kernel32, ntdll and advapi32; their prototypes, layouts, constants.

The types are C's own: a DWORD is an unsigned int, a BOOL an int, a HANDLE as wide as a
pointer. Without a prototype, ctypes would truncate a HANDLE to an int.
"""

import sys

from .._base.errors import Failed, log
from .calls import CALLS, PLATFORM, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

POINTER_SIZE = 8 if sys.maxsize > 2**32 else 4

# INVALID_HANDLE_VALUE; an event for UnregisterWaitEx that says: return after the callback
INVALID_HANDLE = 2 ** (POINTER_SIZE * 8) - 1

# name: (the result that means failure, result, arguments...)
_PROTOTYPES32 = {
    # HANDLE OpenProcess(DWORD dwDesiredAccess, BOOL bInheritHandle, DWORD dwProcessId);
    "OpenProcess": (0, "uintptr_t", "unsigned int", "int", "unsigned int"),
    # BOOL CloseHandle(HANDLE hObject);
    "CloseHandle": (0, "int", "uintptr_t"),
    # DWORD GetProcessId(HANDLE Process);
    "GetProcessId": (0, "unsigned int", "uintptr_t"),
    # DWORD WaitForSingleObject(HANDLE hHandle, DWORD dwMilliseconds);
    "WaitForSingleObject": (0xFFFFFFFF, "unsigned int", "uintptr_t", "unsigned int"),
    # BOOL GetExitCodeProcess(HANDLE hProcess, LPDWORD lpExitCode);
    "GetExitCodeProcess": (0, "int", "uintptr_t", "void *"),
    # BOOL GetProcessTimes(HANDLE hProcess, LPFILETIME lpCreationTime, LPFILETIME lpExitTime,
    #                      LPFILETIME lpKernelTime, LPFILETIME lpUserTime);
    "GetProcessTimes": (0, "int", "uintptr_t", "void *", "void *", "void *", "void *"),
    # BOOL TerminateProcess(HANDLE hProcess, UINT uExitCode);
    "TerminateProcess": (0, "int", "uintptr_t", "unsigned int"),
    # BOOL GenerateConsoleCtrlEvent(DWORD dwCtrlEvent, DWORD dwProcessGroupId);
    "GenerateConsoleCtrlEvent": (0, "int", "unsigned int", "unsigned int"),
    # HANDLE CreateToolhelp32Snapshot(DWORD dwFlags, DWORD th32ProcessID);
    "CreateToolhelp32Snapshot": (INVALID_HANDLE, "uintptr_t", "unsigned int", "unsigned int"),
    # BOOL Process32FirstW(HANDLE hSnapshot, LPPROCESSENTRY32W lppe); Process32NextW is alike
    "Process32FirstW": (0, "int", "uintptr_t", "void *"),
    "Process32NextW": (0, "int", "uintptr_t", "void *"),
    # BOOL ReadProcessMemory(HANDLE hProcess, LPCVOID lpBaseAddress, LPVOID lpBuffer,
    #                        SIZE_T nSize, SIZE_T *lpNumberOfBytesRead);
    "ReadProcessMemory": (0, "int", "uintptr_t", "uintptr_t", "void *", "uintptr_t", "void *"),
    # NTSTATUS NtQueryInformationProcess(HANDLE ProcessHandle,
    #                                    PROCESSINFOCLASS ProcessInformationClass,
    #                                    PVOID ProcessInformation,
    #                                    ULONG ProcessInformationLength, PULONG ReturnLength);
    "NtQueryInformationProcess": (
        None,
        *("unsigned int", "uintptr_t", "int", "void *", "unsigned int", "void *"),
    ),
    # ULONG RtlNtStatusToDosError(NTSTATUS Status);
    "RtlNtStatusToDosError": (None, "unsigned int", "unsigned int"),
    # BOOL OpenProcessToken(HANDLE ProcessHandle, DWORD DesiredAccess, PHANDLE TokenHandle);
    "OpenProcessToken": (0, "int", "uintptr_t", "unsigned int", "void *"),
    # BOOL GetTokenInformation(HANDLE TokenHandle, TOKEN_INFORMATION_CLASS TokenInformationClass,
    #                          LPVOID TokenInformation, DWORD TokenInformationLength,
    #                          PDWORD ReturnLength);
    "GetTokenInformation": (0, "int", "uintptr_t", "int", "void *", "unsigned int", "void *"),
    # BOOL LookupAccountSidW(LPCWSTR lpSystemName, PSID Sid, LPWSTR Name, LPDWORD cchName,
    #                        LPWSTR ReferencedDomainName, LPDWORD cchReferencedDomainName,
    #                        PSID_NAME_USE peUse);
    "LookupAccountSidW": (0, "int", *7 * ("void *",)),
}

# Where a function is that kernel32 lacks.
_LIBRARIES = {
    "NtQueryInformationProcess": "ntdll",
    "RtlNtStatusToDosError": "ntdll",
    "OpenProcessToken": "advapi32",
    "GetTokenInformation": "advapi32",
    "LookupAccountSidW": "advapi32",
}

# access rights of a process
SYNCHRONIZE = 0x00100000
PROCESS_TERMINATE = 0x0001
PROCESS_VM_READ = 0x0010
PROCESS_QUERY_INFORMATION = 0x0400
PROCESS_QUERY_LIMITED_INFORMATION = 0x1000

# results of the WaitFor functions
WAIT_OBJECT_0 = 0
INFINITE = 0xFFFFFFFF

# GetLastError()
ERROR_ACCESS_DENIED = 5
ERROR_NO_MORE_FILES = 18
ERROR_INVALID_PARAMETER = 87
ERROR_NOT_FOUND = 1168

TH32CS_SNAPPROCESS = 0x00000002
# typedef struct tagPROCESSENTRY32W {
#     DWORD dwSize, cntUsage, th32ProcessID; ULONG_PTR th32DefaultHeapID;
#     DWORD th32ModuleID, cntThreads, th32ParentProcessID; LONG pcPriClassBase;
#     DWORD dwFlags; WCHAR szExeFile[260];
# } PROCESSENTRY32W;
PROCESSENTRY_SIZE = 568 if POINTER_SIZE == 8 else 556
PROCESSENTRY_PID = 8
PROCESSENTRY_THREADS = 28 if POINTER_SIZE == 8 else 20  # the parent's pid follows it
PROCESSENTRY_NAME = 44 if POINTER_SIZE == 8 else 36

# Classes of NtQueryInformationProcess. The first fills a PROCESS_BASIC_INFORMATION, whose second
# word is the address of the PEB. The other, from Windows 8.1 on, fills a UNICODE_STRING and puts
# the text right behind it.
PROCESS_BASIC_INFORMATION = 0
PROCESS_BASIC_INFORMATION_SIZE = 6 * POINTER_SIZE
PROCESS_COMMAND_LINE_INFORMATION = 60
# typedef struct { USHORT Length, MaximumLength; PWSTR Buffer; } UNICODE_STRING;  lengths in bytes
UNICODE_STRING_SIZE = 2 * POINTER_SIZE
UNICODE_STRING_MAX = 0xFFFE
# In the PEB, the address of its RTL_USER_PROCESS_PARAMETERS; there, the UNICODE_STRING CommandLine.
PEB_PARAMETERS = 0x20 if POINTER_SIZE == 8 else 0x10
PARAMETERS_COMMAND_LINE = 0x70 if POINTER_SIZE == 8 else 0x40

TOKEN_QUERY = 0x0008  # access right of a token
# Class of GetTokenInformation: it fills a TOKEN_USER, which is two words, and puts the SID right
# behind it. A SID has 68 bytes at most: a revision, the number of its subauthorities, 6 bytes of
# an authority, and the subauthorities.
TOKEN_USER = 1
TOKEN_USER_SIZE = 2 * POINTER_SIZE
SID_MAX = 68

_NAME_MAX = 512  # characters; the name of a user has 256 at most, that of a domain 255
# Milliseconds of one call on the main thread at most, where it does not notice Ctrl-C.
SLICE = 100


def winerror(why: Failed) -> "int | None":
    """What GetLastError() said; only on Windows does OSError have the attribute."""
    number: "int | None" = getattr(why.error, "winerror", None)
    return number


def _bind32(binding: "Any", name: str) -> "Callable[..., int]":
    failure, result, *arguments = _PROTOTYPES32[name]
    function: "Callable[..., int]" = binding.function(
        name, (result, *arguments), failure, _LIBRARIES.get(name)
    )
    return function


class _Function32:
    """A function with other arguments than in C, or with another result."""

    symbol: "str | None" = None

    def __init__(self, binding: "Any", name: str) -> None:
        self._function = _bind32(binding, self.symbol or name)
        self._binding = binding
        self._pointer: "Callable[[bytearray], Any]" = binding.pointer


class _Wait(_Function32):
    """WaitForMultipleObjects(handles, wait_all, milliseconds), for one HANDLE.

    _winapi's ends when Ctrl-C comes. This one does not: so no call is long.
    """

    symbol = "WaitForSingleObject"

    def __call__(self, handles: "tuple[int]", wait_all: bool, milliseconds: int) -> int:
        return self._function(handles[0], min(milliseconds, SLICE))


class _ExitCode(_Function32):
    """GetExitCodeProcess(handle) -> code"""

    def __call__(self, handle: int) -> int:
        code = bytearray(4)
        self._function(handle, self._pointer(code))
        return int.from_bytes(code, "little")


class _Times(_Function32):
    """GetProcessTimes(handle) -> created, exited, kernel, user, in units of 100 ns"""

    def __call__(self, handle: int) -> "list[int]":
        times = [bytearray(8) for _ in range(4)]
        self._function(handle, *map(self._pointer, times))
        return [int.from_bytes(time, "little") for time in times]


class _Process32(_Function32):
    """Process32FirstW(snapshot, entry)"""

    def __call__(self, snapshot: int, entry: bytearray) -> int:
        return self._function(snapshot, self._pointer(entry))


class _ReadMemory(_Function32):
    """ReadProcessMemory(handle, address, size) -> the bytes"""

    def __call__(self, handle: int, address: int, size: int) -> bytearray:
        memory = bytearray(size)
        self._function(handle, address, self._pointer(memory), size, self._binding.null)
        return memory


class _Query(_Function32):
    """NtQueryInformationProcess(handle, class, size) -> the bytes"""

    def __call__(self, handle: int, class_: int, size: int) -> bytearray:
        memory = bytearray(size)
        status = self._function(handle, class_, self._pointer(memory), size, self._binding.null)
        if status:
            error = _bind32(self._binding, "RtlNtStatusToDosError")(status)
            raise Failed(OSError(0, "NTSTATUS 0x%X" % status, None, error))
        return memory


class _OpenToken(_Function32):
    """OpenProcessToken(handle, rights) -> the HANDLE of its token"""

    def __call__(self, handle: int, rights: int) -> int:
        token = bytearray(POINTER_SIZE)
        self._function(handle, rights, self._pointer(token))
        return int.from_bytes(token, "little")


class _TokenUser(_Function32):
    """GetTokenInformation(token) -> the SID of its user"""

    def __call__(self, token: int) -> bytearray:
        memory, filled = bytearray(TOKEN_USER_SIZE + SID_MAX), bytearray(4)
        self._function(token, TOKEN_USER, self._pointer(memory), len(memory), self._pointer(filled))
        return memory[TOKEN_USER_SIZE : int.from_bytes(filled, "little")]


class _LookUp(_Function32):
    """LookupAccountSidW(sid) -> the names of the domain and of the user"""

    def __call__(self, sid: bytearray) -> "tuple[str, str]":
        user, domain = bytearray(2 * _NAME_MAX), bytearray(2 * _NAME_MAX)
        room = [bytearray(_NAME_MAX.to_bytes(4, "little")) for _ in range(2)]
        memory = sid, user, room[0], domain, room[1], bytearray(4)
        self._function(self._binding.null, *map(self._pointer, memory))
        found, of = (text.decode("utf-16-le", "replace") for text in (user, domain))
        return of.partition("\0")[0], found.partition("\0")[0]


if PLATFORM == "win":
    CALLS.update(
        OpenProcess=("_winapi", _bind32),
        CloseHandle=("_winapi", _bind32),
        WaitForSingleObject=("_winapi", _bind32),
        WaitForMultipleObjects=("_winapi", _Wait),
        GetExitCodeProcess=("_winapi", _ExitCode),
        TerminateProcess=("_winapi", _bind32),
        GetProcessId=(None, _bind32),
        GetProcessTimes=(None, _Times),
        GenerateConsoleCtrlEvent=(None, _bind32),
        CreateToolhelp32Snapshot=(None, _bind32),
        Process32FirstW=(None, _Process32),
        Process32NextW=(None, _Process32),
        ReadProcessMemory=(None, _ReadMemory),
        NtQueryInformationProcess=(None, _Query),
        OpenProcessToken=(None, _OpenToken),
        GetTokenInformation=(None, _TokenUser),
        LookupAccountSidW=(None, _LookUp),
        # asyncio's; no binding makes them
        CreateIoCompletionPort=("_overlapped", None),
        RegisterWaitWithQueue=("_overlapped", None),
        UnregisterWaitEx=("_overlapped", None),
        GetQueuedCompletionStatus=("_overlapped", None),
        PostQueuedCompletionStatus=("_overlapped", None),
    )


class Owned:
    """A HANDLE, ``number``. close() closes it, at the latest when this object is freed.

    By another call than CloseHandle if one is given, with its further arguments. What it
    ``keeps`` is freed after it.
    """

    __slots__ = ("_closing", "_keeps", "number")

    def __init__(
        self, number: int, closing: "tuple[Any, ...]" = ("CloseHandle",), keeps: object = None
    ) -> None:
        self.number = number
        self._closing = [closing]
        self._keeps = keeps

    def close(self) -> None:
        try:
            name, *more = self._closing.pop()  # one thread gets it
        except IndexError:
            return
        try:
            ask(name, self.number, *more)
        except Failed as why:  # somebody else has closed it
            log("%s: %s", name, why)

    __del__ = close


def opened_handle(name: str, *arguments: object) -> Owned:
    """The HANDLE that a call opens."""
    return Owned(ask(name, *arguments))
