# SPDX-License-Identifier: BSD-3-Clause
"""The tables' functions through cffi, in its ABI mode: nothing is compiled.

_cffi_backend is the module that cffi's generated code imports. It has a C parser for
types, which is all we need. cffi.FFI().cdef() would load pycparser, a parser for whole
declarations; on PyPy that takes a quarter of a second, 500 times as long.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_LIBRARY = "kernel32" if os.name == "nt" else None  # the system's
_POINTER = "(__stdcall *)" if os.name == "nt" else "(*)"


class Adapter:
    name = "cffi"

    def __init__(self) -> None:
        import _cffi_backend

        self._load = _cffi_backend.load_library
        self._ffi: "Any" = _cffi_backend.FFI()
        self.null = self._ffi.NULL
        self._int = self._ffi.typeof("int *")
        self._text = self._ffi.typeof("char[]")
        self._texts = self._ffi.typeof("char *[]")
        self._libraries: "dict[str | None, Any]" = {None: self._load(_LIBRARY, 0)}

    def _type(self, prototype: "tuple[str, ...]") -> "Any":
        return self._ffi.typeof("%s%s(%s)" % (prototype[0], _POINTER, ", ".join(prototype[1:])))

    def _library(self, name: "str | None") -> "Any":
        if name not in self._libraries:
            self._libraries[name] = self._load(name, 0)
        return self._libraries[name]

    def _last_error(self) -> OSError:
        if os.name == "nt":
            code, text = self._ffi.getwinerror()
            return OSError(0, text, None, code)
        code = self._ffi.errno
        return OSError(code, os.strerror(code))

    def function(
        self,
        name: str,
        prototype: "tuple[str, ...]",
        failure: "int | None" = -1,
        library: "str | None" = None,
        converts: bool = True,
    ) -> "Callable[..., int]":
        """A function of the system's library; it raises OSError instead of returning ``failure``.

        With None as ``failure`` it returns every result. ``library`` names another library.
        ``converts`` makes no difference here.
        """
        try:
            function: "Any" = self._library(library).load_function(self._type(prototype), name)
        except AttributeError:
            raise ImportError("the system's library has no %s" % name) from None
        if failure is None:
            raw: "Callable[..., int]" = function
            return raw

        def call(*arguments: "Any") -> int:
            result: int = function(*arguments)
            if result == failure:
                raise self._last_error()
            return result

        return call

    def pointer(self, buffer: bytearray) -> "Any":
        """A void * to memory that the caller keeps alive."""
        return self._ffi.from_buffer(buffer)

    def cell(self) -> "Any":
        """An int * to newly allocated memory; [0] is the int."""
        return self._ffi.new(self._int)

    def strings(self, items: "list[bytes]") -> "Any":
        """A void * to a char *[] that ends with NULL; it keeps the strings alive."""
        strings = [self._ffi.new(self._text, item) for item in items]
        pointer = self._ffi.new(self._texts, [*strings, self._ffi.NULL])
        return self._ffi.gc(pointer, lambda _: strings.clear())

    def callback(self, prototype: "tuple[str, ...]", function: "Callable[..., Any]") -> "Any":
        """A void * to a C function that calls ``function``; the caller keeps it alive."""
        return self._ffi.callback(self._type(prototype), function)
