# SPDX-License-Identifier: BSD-3-Clause
"""Functions of advapi32 and ntdll. Neither library is loaded before one of them is called."""

from . import win32
from .kernel32 import bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_NAME_MAX = 512  # characters; the name of a user has 256 at most, that of a domain 255


def _query(binding: "Any", name: str) -> "Callable[[int, int, int], bytearray]":
    """NtQueryInformationProcess(handle, class, size) -> the bytes."""
    function, to_error = bind(binding, name), bind(binding, "RtlNtStatusToDosError")

    def query(handle: int, class_: int, size: int) -> bytearray:
        memory = bytearray(size)
        status = function(handle, class_, binding.pointer(memory), size, binding.null)
        if status:
            raise OSError(0, "NTSTATUS 0x%X" % status, None, to_error(status))
        return memory

    return query


def _open_token(binding: "Any", name: str) -> "Callable[[int, int, bytearray], int]":
    """OpenProcessToken(handle, rights, cell), which puts the HANDLE into the cell."""
    function = bind(binding, name)
    return lambda handle, rights, cell: function(handle, rights, binding.pointer(cell))


def _get_user(binding: "Any", name: str) -> "Callable[[int], bytearray]":
    """GetTokenInformation(token) -> the SID of its user."""
    function = bind(binding, name)

    def get_user(token: int) -> bytearray:
        memory, filled = bytearray(win32.TOKEN_USER_SIZE + win32.SID_MAX), bytearray(4)
        pointers = binding.pointer(memory), len(memory), binding.pointer(filled)
        function(token, win32.TOKEN_USER, *pointers)
        return memory[win32.TOKEN_USER_SIZE : int.from_bytes(filled, "little")]

    return get_user


def _look_up(binding: "Any", name: str) -> "Callable[[bytearray], tuple[str, str]]":
    """LookupAccountSidW(sid) -> the names of the domain and of the user."""
    function = bind(binding, name)

    def look_up(sid: bytearray) -> "tuple[str, str]":
        user, domain = bytearray(2 * _NAME_MAX), bytearray(2 * _NAME_MAX)
        room = [bytearray(_NAME_MAX.to_bytes(4, "little")) for _ in range(2)]
        memory = sid, user, room[0], domain, room[1], bytearray(4)
        function(binding.null, *map(binding.pointer, memory))
        found, of = (text.decode("utf-16-le", "replace") for text in (user, domain))
        return of.partition("\0")[0], found.partition("\0")[0]

    return look_up


CALLS: "dict[str, Any]" = {
    "NtQueryInformationProcess": _query,
    "RtlNtStatusToDosError": bind,
    "OpenProcessToken": _open_token,
    "GetTokenInformation": _get_user,
    "LookupAccountSidW": _look_up,
}
