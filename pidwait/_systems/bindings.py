# SPDX-License-Identifier: BSD-3-Clause
"""C functions for interpreters that have no public function for them: by ctypes, or by cffi.

The tables of prototypes (calls.py of each system, libc_spawn) serve both. An adapter makes
functions from them, which raise Failed. No binding is imported, and no library loaded, before a
call is needed that the interpreter lacks.
"""

import os
import sys
from errno import ENOSYS
from functools import partial
from types import SimpleNamespace

from .._base.checks import FFI, choice
from .._base.errors import PASSING, Failed, call, not_by_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Pointer, Prototype, Sequence

# The faster one first: PyPy's ctypes is written in Python, on top of what cffi uses directly.
NAMES = ("cffi", "ctypes") if sys.implementation.name == "pypy" else ("ctypes", "cffi")
# The system, which selects the tables: sys.platform without the version that some append.
PLATFORM = sys.platform.rstrip("0123456789.")
_WINDOWS = PLATFORM == "win"

_loaded: "dict[str, Adapter]" = {}
# Why the others can't be used: a second try would search for their files again.
_not_found: "dict[str, str]" = {}


def binding() -> "Adapter":
    """The adapter to use; Failed (ENOSYS) with all reasons if none works."""
    name = choice(FFI, *NAMES)
    reasons = []
    for candidate in NAMES if name == "auto" else (name,):
        found = load(candidate)
        if not isinstance(found, str):
            return found
        reasons.append("%s: %s" % (candidate, found))
    raise Failed(ENOSYS, "; ".join(reasons))


def load(name: str) -> "Adapter | str":
    """The adapter of that name, or the reason why it can't be used."""
    adapter = _loaded.get(name) or _not_found.get(name)
    if adapter is None:
        try:
            adapter = _loaded[name] = _ADAPTERS[name]()
        # A damaged ctypes can raise anything: OSError for a library, MemoryError where a policy
        # forbids memory that is both writable and executable.
        except not_by_handler(Exception) as error:
            if getattr(error, "errno", None) in PASSING:
                raise Failed(error) from None  # type: ignore[arg-type]
            check_files()
            adapter = _not_found[name] = "%s: %s" % (type(error).__name__, error)
    return adapter


def check_files() -> None:
    """Failed (EMFILE), say, if no file can be opened: an ImportError does not show that."""
    if not _WINDOWS:  # where os.open() can't open a directory
        os.close(call(os.open, os.sep, os.O_RDONLY))


class Adapter:
    """Makes functions by one binding: the common part of both adapters."""

    name: str
    null: "Pointer"
    refusal: "Callable[[], Failed]"  # for the error of the latest call
    pointer: "Callable[[bytearray], Pointer]"  # a void * to memory that the caller keeps alive
    # A void * to a char *[] that ends with NULL; it keeps the strings alive.
    strings: "Callable[[list[bytes]], Pointer]"
    cell: "Callable[[], Pointer]"  # an int * to newly allocated memory; [0] is the int
    longs: "Callable[[], Pointer]"  # a long * to 18 zeros
    string: "Callable[[Any], bytes]"
    variable: "Callable[[Any], Pointer]"
    _libraries: "dict[str | None, object]"
    _load: "Callable[[str | None], object]"
    _find: "Callable[[object, str, Prototype], Callable[..., int]]"

    def function(
        self,
        name: str,
        prototype: "Prototype",
        failure: "int | None" = -1,
        library: "str | None" = None,
    ) -> "Callable[..., int]":
        """A function of the system's library; it raises Failed instead of returning ``failure``.

        It takes a bytearray for memory, and None for NULL. With None as ``failure`` it is the
        binding's own function, and returns every result. ``library`` names another library.
        LookupError if there is no such function.
        """
        if library not in self._libraries:
            self._libraries[library] = self._load(library)
        try:
            found = self._find(self._libraries[library], name, prototype)
        except not_by_handler(AttributeError):
            raise LookupError("the system's library has no %s" % name) from None
        return found if failure is None else _Checked(self, found, failure)

    def convert(self, argument: object) -> object:
        if argument is None:
            return self.null
        return self.pointer(argument) if type(argument) is bytearray else argument


class _Checked:
    """A function that raises Failed. It is not a plain Python function: see call()."""

    def __init__(self, adapter: Adapter, function: "Callable[..., int]", failure: int) -> None:
        self._adapter, self._function, self._failure = adapter, function, failure

    def __call__(self, *arguments: object) -> int:
        result = self._function(*[self._adapter.convert(one) for one in arguments])
        if result == self._failure:
            raise self._adapter.refusal()
        return result


class CtypesAdapter(Adapter):
    name = "ctypes"
    null = None
    string = bytes

    def __init__(self) -> None:
        import ctypes

        self._ctypes: "Any" = ctypes
        self.cell, self.longs = ctypes.c_int * 1, ctypes.c_long * 18
        self._types = {
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
        variable = ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p))
        self.variable = lambda found: ctypes.cast(found, variable)
        self._libraries = {None: self._load(None)}

    def _load(self, name: "str | None") -> "Any":
        # A library object of our own: prototypes set on a shared one would affect other code.
        if _WINDOWS:
            return self._ctypes.WinDLL(name or "kernel32", use_last_error=True)
        return self._ctypes.CDLL(name, use_errno=True)

    def _find(self, library: "Any", name: str, prototype: "Prototype") -> "Any":
        function = library[name]
        function.restype, *function.argtypes = (self._types[type_] for type_ in prototype)
        return function

    def refusal(self) -> Failed:
        if _WINDOWS:
            return Failed(self._ctypes.WinError(self._ctypes.get_last_error()))
        return Failed(self._ctypes.get_errno())

    def pointer(self, buffer: bytearray) -> "Pointer":
        return (self._ctypes.c_char * len(buffer)).from_buffer(buffer)

    def strings(self, items: "list[bytes]") -> "Pointer":
        return (self._ctypes.c_char_p * (len(items) + 1))(*items)


class CffiAdapter(Adapter):
    """The same by cffi, in ABI mode: nothing is compiled.

    _cffi_backend is the module that cffi's generated code imports. It has a C parser for
    types, which is all we need. cffi.FFI().cdef() would load pycparser, a parser for whole
    declarations; on PyPy that takes a quarter of a second, 500 times as long.
    """

    name = "cffi"

    def __init__(self) -> None:
        self._backend = __import__("_cffi_backend")  # type checkers may lack its types
        self._ffi: "Any" = self._backend.FFI()
        self.null, self.string = self._ffi.NULL, self._ffi.string
        self.variable = partial(self._ffi.cast, "char ***")
        self.pointer, self.cell = self._ffi.from_buffer, partial(self._ffi.new, "int *")
        self.longs = partial(self._ffi.new, "long[18]")
        self._libraries = {None: self._load("kernel32" if _WINDOWS else None)}

    def _load(self, name: "str | None") -> "Any":
        return self._backend.load_library(name, 0)

    def _find(self, library: "Any", name: str, prototype: "Prototype") -> "Any":
        kind = "(__stdcall *)" if _WINDOWS else "(*)"
        kind = "%s%s(%s)" % (prototype[0], kind, ", ".join(prototype[1:]))
        return library.load_function(self._ffi.typeof(kind), name)

    def refusal(self) -> Failed:
        if _WINDOWS:
            code, text = self._ffi.getwinerror()
            return Failed(OSError(0, text, None, code))
        return Failed(self._ffi.errno)

    def strings(self, items: "list[bytes]") -> "Pointer":
        strings = [self._ffi.new("char[]", item) for item in items]
        pointer = self._ffi.new("char *[]", [*strings, self._ffi.NULL])
        return self._ffi.gc(pointer, lambda _: strings.clear())


_ADAPTERS: "dict[str, Callable[[], Adapter]]" = {"ctypes": CtypesAdapter, "cffi": CffiAdapter}


class WaitId:
    """os.waitid(), for an interpreter that lacks it: by a prototype, and offsets in siginfo_t."""

    def __init__(self, binding: Adapter, prototype: "Prototype", offsets: "Sequence[int]") -> None:
        self._function = binding.function("waitid", prototype)
        self._offsets = offsets

    def __call__(self, idtype: int, id_: int, options: int) -> "SimpleNamespace | None":
        info = bytearray(256)  # the largest siginfo_t has 136 bytes
        # Modulo: cffi takes no -1, the fd of a closed handle, for an unsigned int.
        self._function(idtype, id_ % 2**32, info, options)
        code, pid, status = (
            int.from_bytes(info[at : at + 4], sys.byteorder, signed=True) for at in self._offsets
        )
        # With WNOHANG, si_pid is 0 if the child has not exited: waitid(2).
        return SimpleNamespace(si_code=code, si_pid=pid, si_status=status) if pid else None
