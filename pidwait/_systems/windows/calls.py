# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the prototypes of kernel32, ntdll and advapi32, and functions made from them.

The prototypes name the types of C. Without a prototype, ctypes would truncate a HANDLE to an int.
"""

import sys
from struct import Struct

from ..._base.errors import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Adapter, Any, Callable, Rows

POINTER_SIZE = 8 if sys.maxsize > 2**32 else 4
INVALID_HANDLE = 2 ** (POINTER_SIZE * 8) - 1  # INVALID_HANDLE_VALUE
# The longest call, in milliseconds, where a call on the main thread does not notice Ctrl-C.
_SLICE = 100

_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
# LARGE_INTEGER PerProcessUserTimeLimit, PerJobUserTimeLimit; DWORD LimitFlags; and more
_LIMITS = Struct("qqIPPIPII6Q4P")
_PROCESS_ID_LIST = 3  # JobObjectBasicProcessIdList
# DWORD NumberOfAssignedProcesses, NumberOfProcessIdsInList; ULONG_PTR ProcessIdList[1];
_PROCESSES = Struct("IIP")
_ERROR_MORE_DATA = 234

_HANDLE = _SIZE_T = "uintptr_t"
_DWORD = _NTSTATUS = "unsigned int"
_BOOL = _ENUM = "int"
_NONE = -1  # no DWORD has this value
_BUFFER = "void *"
_SIZED = _BUFFER, _DWORD

# name: (library if not kernel32, the result that means failure, result, arguments...)
_PROTOTYPES32: "dict[str, tuple[Any, ...]]" = {
    "OpenProcess": (None, 0, _HANDLE, _DWORD, _BOOL, _DWORD),
    "WaitForMultipleObjects": (None, 0xFFFFFFFF, _DWORD, _DWORD, _BUFFER, _BOOL, _DWORD),
    "GetProcessTimes": (None, 0, _BOOL, _HANDLE, _BUFFER, _BUFFER, _BUFFER, _BUFFER),
    "GenerateConsoleCtrlEvent": (None, 0, _BOOL, _DWORD, _DWORD),
    "CreateToolhelp32Snapshot": (None, INVALID_HANDLE, _HANDLE, _DWORD, _DWORD),
    "Process32FirstW": (None, 0, _BOOL, _HANDLE, _BUFFER),
    "Process32NextW": (None, 0, _BOOL, _HANDLE, _BUFFER),
    "CreateJobObjectW": (None, 0, _HANDLE, _BUFFER, _BUFFER),
    "AssignProcessToJobObject": (None, 0, _BOOL, _HANDLE, _HANDLE),
    "TerminateJobObject": (None, 0, _BOOL, _HANDLE, _DWORD),
    # job, class, buffer, size; to query also: size needed
    "SetInformationJobObject": (None, 0, _BOOL, _HANDLE, _ENUM, *_SIZED),
    "QueryInformationJobObject": (None, 0, _BOOL, _HANDLE, _ENUM, *_SIZED, _BUFFER),
    "ResumeThread": (None, 0xFFFFFFFF, _DWORD, _HANDLE),
    # handle, address, buffer, size, bytes read
    "ReadProcessMemory": (None, 0, _BOOL, _HANDLE, _SIZE_T, _BUFFER, _SIZE_T, _BUFFER),
    # handle, class, buffer, size, size needed
    "NtQueryInformationProcess": ("ntdll", _NONE, _NTSTATUS, _HANDLE, _ENUM, *_SIZED, _BUFFER),
    "RtlNtStatusToDosError": ("ntdll", _NONE, _DWORD, _NTSTATUS),
    # process, rights, token
    "OpenProcessToken": ("advapi32", 0, _BOOL, _HANDLE, _DWORD, _BUFFER),
    # token, class, buffer, size, size needed
    "GetTokenInformation": ("advapi32", 0, _BOOL, _HANDLE, _ENUM, *_SIZED, _BUFFER),
    # computer, SID, name, its size, domain, its size, kind
    "LookupAccountSidW": ("advapi32", 0, _BOOL, *7 * (_BUFFER,)),
}


def _bind32(binding: "Adapter", name: str) -> "Callable[..., int]":
    library, failure, *prototype = _PROTOTYPES32[name]
    return binding.function(name, prototype, failure, library)


class _Bound32:
    def __init__(self, binding: "Adapter", name: str) -> None:
        self._function = _bind32(binding, name)


class _Wait(_Bound32):
    """WaitForMultipleObjects(handles, wait_all, milliseconds)

    Ctrl-C ends _winapi's call, but not this one: so no call is long.
    """

    def __call__(self, handles: "tuple[int, ...]", wait_all: bool, milliseconds: int) -> int:
        array = bytearray().join(one.to_bytes(POINTER_SIZE, "little") for one in handles)
        return self._function(len(handles), array, wait_all, min(milliseconds, _SLICE))


class _Times(_Bound32):
    """GetProcessTimes(handle) -> created, exited, kernel, user, in units of 100 ns"""

    def __call__(self, handle: int) -> "list[int]":
        times = [bytearray(8) for _ in range(4)]
        self._function(handle, *times)
        return [int.from_bytes(time, "little") for time in times]


class _Query(_Bound32):
    """NtQueryInformationProcess(handle, class, size) -> the bytes"""

    def __init__(self, binding: "Adapter", name: str) -> None:
        super().__init__(binding, name)
        self._error_of = _bind32(binding, "RtlNtStatusToDosError")

    def __call__(self, handle: int, class_: int, size: int) -> bytearray:
        memory = bytearray(size)
        status = self._function(handle, class_, memory, size, None)
        if status:
            raise Failed(OSError(0, "NTSTATUS 0x%X" % status, None, self._error_of(status)))
        return memory


class _LimitJob(_Bound32):
    """SetInformationJobObject(job, flags of its limits)"""

    def __call__(self, job: int, flags: int) -> None:
        memory = bytearray(_LIMITS.size)
        memory[16:20] = flags.to_bytes(4, "little")
        self._function(job, _EXTENDED_LIMITS, memory, len(memory))


class _QueryJob(_Bound32):
    """QueryInformationJobObject(job) -> the number of running processes, the pid of one"""

    def __call__(self, job: int) -> "tuple[int, int]":
        memory = bytearray(_PROCESSES.size)
        try:
            self._function(job, _PROCESS_ID_LIST, memory, len(memory), None)
        except Failed as why:
            if why.winerror != _ERROR_MORE_DATA:
                raise
        running, _, pid = _PROCESSES.unpack(memory)
        return running, pid


WINDOWS_ROWS: "Rows" = dict(
    dict.fromkeys(_PROTOTYPES32, (None, _bind32)),
    OpenProcess=("_winapi", _bind32),
    WaitForMultipleObjects=("_winapi", _Wait),
    GetProcessTimes=(None, _Times),
    NtQueryInformationProcess=(None, _Query),
    SetInformationJobObject=(None, _LimitJob),
    QueryInformationJobObject=(None, _QueryJob),
    # Every interpreter has these: its subprocess needs them.
    CloseHandle=("_winapi", None),
    GetExitCodeProcess=("_winapi", None),
    TerminateProcess=("_winapi", None),
    WaitForSingleObject=("_winapi", None),
    # Only asyncio's module has these; bindings can't make them.
    CreateIoCompletionPort=("_overlapped", None),
    RegisterWaitWithQueue=("_overlapped", None),
    UnregisterWaitEx=("_overlapped", None),
    GetQueuedCompletionStatus=("_overlapped", None),
    PostQueuedCompletionStatus=("_overlapped", None),
)
