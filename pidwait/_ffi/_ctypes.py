# SPDX-License-Identifier: BSD-3-Clause
"""The tables' functions through ctypes."""

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_TYPES: "dict[str, Any]" = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "void *": ctypes.c_void_p,
}


class Adapter:
    name = "ctypes"

    def __init__(self) -> None:
        # A private handle: prototypes set on a shared one leak into other code.
        self._library = ctypes.CDLL(None, use_errno=True)

    def function(self, name: str, prototype: "tuple[str, ...]") -> "Callable[..., int]":
        """A C function that returns -1 and sets errno when it fails."""
        try:
            function = self._library[name]
        except AttributeError:
            raise ImportError("the C library has no %s" % name) from None
        function.restype = _TYPES[prototype[0]]
        function.argtypes = [_TYPES[type_] for type_ in prototype[1:]]
        function.errcheck = _check
        return function

    def pointer(self, buffer: bytearray) -> "Any":
        """A void * to memory that the caller keeps alive."""
        return (ctypes.c_char * len(buffer)).from_buffer(buffer)


def _check(result: "Any", function: object, arguments: object) -> "Any":
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
