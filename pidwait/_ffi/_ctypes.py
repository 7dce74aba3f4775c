# SPDX-License-Identifier: BSD-3-Clause
"""The tables' functions through ctypes."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class _Arrays(dict):  # type: ignore[type-arg]
    """{n: the type of arrays of n + 1 strings}; to make a type takes longer than to find it."""

    def __init__(self, item: "Any") -> None:
        self.item = item

    def __missing__(self, number: int) -> "Any":
        made = self[number] = self.item * (number + 1)
        return made


class Adapter:
    name = "ctypes"
    null = None

    def __init__(self) -> None:
        import ctypes

        self._ctypes: "Any" = ctypes
        # An int * to newly allocated memory; [0] is the int.
        self.cell: "Callable[[], Any]" = ctypes.c_int * 1
        self._types: "dict[str, Any]" = {
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
        self._libraries: "dict[str | None, Any]" = {None: self._load(None)}
        self._arrays = _Arrays(ctypes.c_char_p)

    def _load(self, name: "str | None") -> "Any":
        # A library object of our own: prototypes set on a shared one would affect other code.
        if sys.platform == "win32":
            return self._ctypes.WinDLL(name or "kernel32", use_last_error=True)
        return self._ctypes.CDLL(name, use_errno=True)

    def _last_error(self) -> OSError:
        if sys.platform == "win32":
            error: OSError = self._ctypes.WinError(self._ctypes.get_last_error())
            return error
        code = self._ctypes.get_errno()
        return OSError(code, os.strerror(code))

    def _library(self, name: "str | None") -> "Any":
        if name not in self._libraries:
            self._libraries[name] = self._load(name)
        return self._libraries[name]

    def function(
        self,
        name: str,
        prototype: "tuple[str, ...]",
        failure: "int | None" = -1,
        library: "str | None" = None,
        converts: bool = True,
    ) -> "Callable[..., int]":
        """A function of the system's library; it raises OSError instead of returning ``failure``.

        With None as ``failure`` it returns every result. ``library`` names another library. It
        need not convert its arguments if all of them are bytes, or made by this adapter.
        """
        try:
            function: "Any" = self._library(library)[name]
        except AttributeError:
            raise ImportError("the system's library has no %s" % name) from None

        def check(result: "Any", function: object, arguments: object) -> "Any":
            if result == failure:
                raise self._last_error()
            return result

        function.restype = self._types[prototype[0]]
        if converts:  # which takes as long as the rest of a call
            function.argtypes = [self._types[type_] for type_ in prototype[1:]]
        if failure is not None:
            function.errcheck = check
        checked: "Callable[..., int]" = function
        return checked

    def pointer(self, buffer: bytearray) -> "Any":
        """A void * to memory that the caller keeps alive."""
        return (self._ctypes.c_char * len(buffer)).from_buffer(buffer)

    def strings(self, items: "list[bytes]") -> "Any":
        """A void * to a char *[] that ends with NULL; it keeps the strings alive."""
        return self._arrays[len(items)](*items)

    def callback(self, prototype: "tuple[str, ...]", function: "Callable[..., Any]") -> "Any":
        """A void * to a C function that calls ``function``; the caller keeps it alive."""
        types = [self._types[type_] for type_ in prototype]
        if sys.platform == "win32":
            return self._ctypes.WINFUNCTYPE(*types)(function)
        return self._ctypes.CFUNCTYPE(*types)(function)
