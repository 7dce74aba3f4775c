# SPDX-License-Identifier: BSD-3-Clause
"""The tables' functions through cffi, in its ABI mode: nothing is compiled.

This is the module that cffi's generated code imports. Its C parser knows types,
which is all that is needed; cffi.FFI().cdef() would load pycparser for whole
declarations, which takes a quarter of a second on PyPy, 500 times as long.
"""

import os

import _cffi_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class Adapter:
    name = "cffi"

    def __init__(self) -> None:
        self._ffi = _cffi_backend.FFI()
        self._library: "Any" = _cffi_backend.load_library(None, 0)

    def function(self, name: str, prototype: "tuple[str, ...]") -> "Callable[..., int]":
        """A C function that returns -1 and sets errno when it fails."""
        ffi = self._ffi
        type_ = ffi.typeof("%s(*)(%s)" % (prototype[0], ", ".join(prototype[1:])))
        try:
            function = self._library.load_function(type_, name)
        except AttributeError:
            raise ImportError("the C library has no %s" % name) from None

        def call(*arguments: "Any") -> int:
            result: int = function(*arguments)
            if result == -1:
                code = ffi.errno
                raise OSError(code, os.strerror(code))
            return result

        return call

    def pointer(self, buffer: bytearray) -> "Any":
        """A void * to memory that the caller keeps alive."""
        return self._ffi.from_buffer(buffer)
