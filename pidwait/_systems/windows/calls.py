# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the prototypes of the calls for waiting, and functions made from them.

A prototype names the types of C. Without one, ctypes would truncate a HANDLE to an int.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Adapter, Any, Callable, Function, Make, Rows

POINTER_SIZE = 8 if sys.maxsize > 2**32 else 4
INVALID_HANDLE = 2 ** (POINTER_SIZE * 8) - 1  # INVALID_HANDLE_VALUE
# The longest call, in milliseconds, where a call on the main thread does not notice Ctrl-C.
LONGEST_DEAF = 100

_TYPES = {"HANDLE": "uintptr_t", "SIZE_T": "uintptr_t", "PVOID": "void *"}
_TYPES.update(DWORD="unsigned int", NTSTATUS="unsigned int", BOOL="int", ENUM="int")


class Wrapper32:
    """A function of the system's as a function for Python."""

    def __init__(self, function: "Callable[..., int]") -> None:
        self._function = function


def row32(
    prototype: str,
    failure: int = 0,
    wrapper: "type[Any] | None" = None,
    module: "str | None" = None,
    library: "str | None" = None,  # kernel32
) -> "tuple[str | None, Make]":
    """The row of a function; ``failure`` is the result that means failure."""

    def make(binding: "Adapter", name: str) -> "Function":
        types = [_TYPES[word] for word in prototype.split()]
        function = binding.function(name, types, failure, library)
        return wrapper(function) if wrapper else function

    return module, make


class _Wait(Wrapper32):
    """WaitForMultipleObjects(handles, wait_all, milliseconds)

    Ctrl-C ends _winapi's call, but not this one: so no call is long.
    """

    def __call__(self, handles: "tuple[int, ...]", wait_all: bool, milliseconds: int) -> int:
        array = bytearray().join(one.to_bytes(POINTER_SIZE, "little") for one in handles)
        return self._function(len(handles), array, wait_all, min(milliseconds, LONGEST_DEAF))


class _Times(Wrapper32):
    """GetProcessTimes(handle) -> created, exited, kernel, user, in units of 100 ns"""

    def __call__(self, handle: int) -> "list[int]":
        times = [bytearray(8) for _ in range(4)]
        self._function(handle, *times)
        return [int.from_bytes(time, "little") for time in times]


class _PeakMemory(Wrapper32):
    """K32GetProcessMemoryInfo(handle) -> PeakWorkingSetSize, in bytes"""

    def __call__(self, handle: int) -> int:
        # PROCESS_MEMORY_COUNTERS: DWORD cb, PageFaultCount; SIZE_T PeakWorkingSetSize; and more
        memory = bytearray(8 + 8 * POINTER_SIZE)
        memory[:4] = len(memory).to_bytes(4, "little")
        self._function(handle, memory, len(memory))
        return int.from_bytes(memory[8 : 8 + POINTER_SIZE], "little")


WINDOWS_ROWS: "Rows" = {
    "OpenProcess": row32("HANDLE DWORD BOOL DWORD", module="_winapi"),
    "WaitForMultipleObjects": row32("DWORD DWORD PVOID BOOL DWORD", 0xFFFFFFFF, _Wait, "_winapi"),
    "K32GetProcessMemoryInfo": row32("BOOL HANDLE PVOID DWORD", wrapper=_PeakMemory),
    "GetProcessTimes": row32("BOOL HANDLE PVOID PVOID PVOID PVOID", wrapper=_Times),
    "GenerateConsoleCtrlEvent": row32("BOOL DWORD DWORD"),
    "CreateToolhelp32Snapshot": row32("HANDLE DWORD DWORD", INVALID_HANDLE),
    "Process32FirstW": row32("BOOL HANDLE PVOID"),
    "Process32NextW": row32("BOOL HANDLE PVOID"),
    # Every interpreter has these: its subprocess needs them.
    "CloseHandle": ("_winapi", None),
    "GetExitCodeProcess": ("_winapi", None),
    "TerminateProcess": ("_winapi", None),
    "WaitForSingleObject": ("_winapi", None),
    # Only asyncio's module has these; bindings can't make them.
    "CreateIoCompletionPort": ("_overlapped", None),
    "RegisterWaitWithQueue": ("_overlapped", None),
    "UnregisterWaitEx": ("_overlapped", None),
    "GetQueuedCompletionStatus": ("_overlapped", None),
    "PostQueuedCompletionStatus": ("_overlapped", None),
}
