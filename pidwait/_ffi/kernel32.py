# SPDX-License-Identifier: BSD-3-Clause
"""Functions of kernel32, with the arguments and results of _winapi's where it has the same."""

from functools import lru_cache

from . import win32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence


def bind(binding: "Any", name: str) -> "Callable[..., int]":
    failure, result, *arguments = win32.PROTOTYPES[name]
    library = win32.LIBRARIES.get(name)
    function: "Callable[..., int]" = binding.function(name, (result, *arguments), failure, library)
    return function


def _get_exit_code(binding: "Any", name: str) -> "Callable[[int], int]":
    function = bind(binding, name)

    def get_exit_code(handle: int) -> int:
        code = bytearray(4)
        function(handle, binding.pointer(code))
        return int.from_bytes(code, "little")

    return get_exit_code


def _get_times(binding: "Any", name: str) -> "Callable[[int], list[int]]":
    """GetProcessTimes(handle) -> created, exited, kernel, user, in units of 100 ns."""
    function = bind(binding, name)

    def get_times(handle: int) -> "list[int]":
        times = [bytearray(8) for _ in range(4)]
        function(handle, *map(binding.pointer, times))
        return [int.from_bytes(time, "little") for time in times]

    return get_times


def _read_memory(binding: "Any", name: str) -> "Callable[[int, int, int], bytearray]":
    """ReadProcessMemory(handle, address, size) -> the bytes."""
    function = bind(binding, name)

    def read_memory(handle: int, address: int, size: int) -> bytearray:
        memory = bytearray(size)
        function(handle, address, binding.pointer(memory), size, binding.null)
        return memory

    return read_memory


def _with_entry(binding: "Any", name: str) -> "Callable[[int, bytearray], int]":
    function = bind(binding, name)
    return lambda snapshot, entry: function(snapshot, binding.pointer(entry))


def wait_without_ctrl_c(binding: "Any", name: str) -> "Callable[[Sequence[int], bool, int], int]":
    """WaitForMultipleObjectsEx(handles, wait_all, milliseconds), for at most 64 handles."""
    function = bind(binding, name)

    def wait(handles: "Sequence[int]", wait_all: bool, milliseconds: int) -> int:
        array = bytearray().join(handle.to_bytes(win32.WORD, "little") for handle in handles)
        return function(len(handles), binding.pointer(array), wait_all, milliseconds, False)

    return wait


# It is never freed: the system may call it a moment after a wait has been unregistered.
@lru_cache(maxsize=None)
def _wait_callback(binding: "Any", function: "Callable[[int, int], None]") -> "Any":
    return binding.callback(win32.WAITORTIMERCALLBACK, function)


def _register_wait(binding: "Any", name: str) -> "Callable[..., None]":
    register = bind(binding, name)
    flags = win32.WT_EXECUTEONLYONCE | win32.WT_EXECUTEINWAITTHREAD

    def register_wait(
        wait: bytearray, handle: int, function: "Callable[[int, int], None]", number: int
    ) -> None:
        """Have ``function(number, 0)`` called once, in a thread of the system's.

        ``wait`` receives the HANDLE of the wait.
        """
        callback = _wait_callback(binding, function)
        register(binding.pointer(wait), handle, callback, number, win32.INFINITE, flags)

    return register_wait


# As in calls.py, which adds WaitForMultipleObjects: that needs console.py, which imports this
# module.
CALLS: "dict[str, tuple[str | None, Any]]" = {
    "OpenProcess": ("_winapi", bind),
    "CloseHandle": ("_winapi", bind),
    "GetExitCodeProcess": ("_winapi", _get_exit_code),
    "TerminateProcess": ("_winapi", bind),
    "WaitForMultipleObjectsEx": (None, wait_without_ctrl_c),
    "CreateEventW": (None, bind),
    "SetEvent": (None, bind),
    "ResetEvent": (None, bind),
    "RegisterWaitForSingleObject": (None, _register_wait),
    "UnregisterWaitEx": (None, bind),
    "GetProcessId": ("_winapi", bind),
    "GetProcessTimes": ("_winapi", _get_times),
    "ReadProcessMemory": (None, _read_memory),
    "GenerateConsoleCtrlEvent": ("_winapi", bind),
    "CreateToolhelp32Snapshot": ("_winapi", bind),
    "Process32FirstW": ("_winapi", _with_entry),
    "Process32NextW": ("_winapi", _with_entry),
}
