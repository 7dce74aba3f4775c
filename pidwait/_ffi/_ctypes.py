# SPDX-License-Identifier: BSD-3-Clause
"""The tables' functions through ctypes."""

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_TYPES: "dict[str, Any]" = {
    "void": None,
    "unsigned char": ctypes.c_ubyte,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "short": ctypes.c_short,
    "long": ctypes.c_long,
    "int64_t": ctypes.c_int64,
    "uintptr_t": ctypes.c_size_t,
    "void *": ctypes.c_void_p,
    "char *": ctypes.c_char_p,
    "int *": ctypes.POINTER(ctypes.c_int),
}
_Cell = ctypes.c_int * 1

# A library object of our own: prototypes set on a shared one would affect other code.
if sys.platform == "win32":
    _FunctionType = ctypes.WINFUNCTYPE

    def _load(name: "str | None") -> "Any":
        return ctypes.WinDLL(name or "kernel32", use_last_error=True)

    def _last_error() -> OSError:
        return ctypes.WinError(ctypes.get_last_error())

else:
    _FunctionType = ctypes.CFUNCTYPE

    def _load(name: "str | None") -> "Any":
        return ctypes.CDLL(name, use_errno=True)

    def _last_error() -> OSError:
        code = ctypes.get_errno()
        return OSError(code, os.strerror(code))


class Adapter:
    name = "ctypes"
    null = None

    def __init__(self) -> None:
        self._libraries: "dict[str | None, Any]" = {None: _load(None)}

    def _library(self, name: "str | None") -> "Any":
        if name not in self._libraries:
            self._libraries[name] = _load(name)
        return self._libraries[name]

    def function(
        self,
        name: str,
        prototype: "tuple[str, ...]",
        failure: "int | None" = -1,
        library: "str | None" = None,
    ) -> "Callable[..., int]":
        """A function of the system's library; it raises OSError instead of returning ``failure``.

        With None as ``failure`` it returns every result. ``library`` names another library.
        """
        try:
            function: "Any" = self._library(library)[name]
        except AttributeError:
            raise ImportError("the system's library has no %s" % name) from None

        def check(result: "Any", function: object, arguments: object) -> "Any":
            if result == failure:
                raise _last_error()
            return result

        function.restype = _TYPES[prototype[0]]
        function.argtypes = [_TYPES[type_] for type_ in prototype[1:]]
        if failure is not None:
            function.errcheck = check
        checked: "Callable[..., int]" = function
        return checked

    def pointer(self, buffer: bytearray) -> "Any":
        """A void * to memory that the caller keeps alive."""
        return (ctypes.c_char * len(buffer)).from_buffer(buffer)

    def cell(self) -> "Any":
        """An int * to newly allocated memory; [0] is the int."""
        return _Cell()

    def strings(self, items: "list[bytes]") -> "Any":
        """A void * to a char *[] that ends with NULL; it keeps the strings alive."""
        return (ctypes.c_char_p * (len(items) + 1))(*items)

    def callback(self, prototype: "tuple[str, ...]", function: "Callable[..., Any]") -> "Any":
        """A void * to a C function that calls ``function``; the caller keeps it alive."""
        return _FunctionType(*[_TYPES[type_] for type_ in prototype])(function)
