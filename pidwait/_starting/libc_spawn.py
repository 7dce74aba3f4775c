# SPDX-License-Identifier: BSD-3-Clause
"""posix_spawn and its family: prototypes, flags and structures."""

from itertools import count

from .._base.errors import Failed
from .._systems.bindings import PLATFORM
from .._systems.calls import Calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Adapter, Any, Callable, Pointer, Rows

_ACTIONS = _ATTRIBUTES = "void *"

# name: (result, arguments...)
SPAWN_PROTOTYPES = {
    # int posix_spawn(pid_t *pid, const char *path,
    #                 const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
    #                 char *const argv[], char *const envp[]);
    "posix_spawn": ("int", "int *", "char *", _ACTIONS, _ATTRIBUTES, "void *", "void *"),
    "posix_spawnattr_init": ("int", _ATTRIBUTES),
    "posix_spawnattr_destroy": ("int", _ATTRIBUTES),
    "posix_spawnattr_setflags": ("int", _ATTRIBUTES, "short"),
    "posix_spawnattr_setpgroup": ("int", _ATTRIBUTES, "int"),
    "posix_spawnattr_setsigdefault": ("int", _ATTRIBUTES, "void *"),
    "posix_spawn_file_actions_init": ("int", _ACTIONS),
    "posix_spawn_file_actions_destroy": ("int", _ACTIONS),
    "posix_spawn_file_actions_adddup2": ("int", _ACTIONS, "int", "int"),
    "posix_spawn_file_actions_addclose": ("int", _ACTIONS, "int"),
    # (..., int fd, const char *path, int oflag, mode_t mode)
    "posix_spawn_file_actions_addopen": ("int", _ACTIONS, "int", "char *", "int", "unsigned int"),
    "posix_spawn_file_actions_addclosefrom_np": ("int", _ACTIONS, "int"),  # glibc 2.34, FreeBSD
    "posix_spawn_file_actions_addinherit_np": ("int", _ACTIONS, "int"),  # macOS
    # glibc 2.29, musl 1.1.24, macOS 10.15, FreeBSD 13.1
    "posix_spawn_file_actions_addchdir_np": ("int", _ACTIONS, "char *"),
    "sigemptyset": ("int", "void *"),
    "sigaddset": ("int", "void *", "int"),
}

# Enough for the structures, which are opaque, and for a sigset_t: at most 336 bytes on glibc.
SIZE = 1024

# SETSID, a new session: glibc 2.26, musl 1.1.17, macOS 10.15. USEVFORK: glibc before 2.24 forks
# without this flag; later glibcs, and musl, ignore it. CLOEXEC_DEFAULT, macOS 10.7: all file
# descriptors are closed except those that a file action has opened or inherited. RETURNERROR:
# without it NetBSD returns before the file actions, and after an error the child exits with 127.
FLAGS = {
    "linux": {"SETSIGDEF": 0x04, "SETSID": 0x80, "USEVFORK": 0x40},
    "darwin": {"SETSIGDEF": 0x04, "SETSID": 0x400, "CLOEXEC_DEFAULT": 0x4000},
    "netbsd": {"SETSIGDEF": 0x10, "RETURNERROR": 0x40},
    **dict.fromkeys(["freebsd", "openbsd", "dragonfly"], {"SETSIGDEF": 0x10}),
}
# This system's flags; 0: it lacks the flag.
_NONE_OF_THEM = dict.fromkeys("SETSIGDEF SETSID USEVFORK CLOEXEC_DEFAULT RETURNERROR".split(), 0)
SPAWN_FLAGS = dict(_NONE_OF_THEM, SETPGROUP=0x02, **FLAGS.get(PLATFORM, {}))


def _bind_environ(binding: "Adapter", name: str) -> "Callable[[bool], Pointer]":
    """A function that returns C's environ, or a copy of it by strings()."""
    # environ is no function, but has an address like one. On macOS, libraries can't see it.
    is_macos = PLATFORM == "darwin"
    found = binding.function("_NSGetEnviron" if is_macos else "environ", ("void *",), None)
    variable = binding.variable(found() if is_macos else found)

    def environ(copies: bool) -> "Pointer":
        pointer = variable[0]  # ctypes reads the variable when the call is made
        if not pointer or not (copies or binding.name == "cffi"):
            return pointer
        items = iter(map(pointer.__getitem__, count()).__next__, binding.null)
        return binding.strings(list(map(binding.string, items)))

    return environ


# All functions return an error number, and do not set errno.
# The interpreter's own os.posix_spawn is not used: it holds the GIL until the exec.
SPAWN_ROWS: "Rows" = dict(
    dict.fromkeys(
        SPAWN_PROTOTYPES,
        (None, lambda binding, name: binding.function(name, SPAWN_PROTOTYPES[name], None)),
    ),
    # Functions that make an int * for the pid; a zeroed structure, as a void * that keeps it alive;
    # from a list of bytes, a char *const [] that ends with NULL; and C's environ.
    spawn_cell=(None, lambda binding, name: binding.cell),
    spawn_memory=(None, lambda binding, name: lambda: binding.pointer(bytearray(SIZE))),
    spawn_strings=(None, lambda binding, name: binding.strings),
    spawn_environ=(None, _bind_environ),
)
SPAWN_CALLS = Calls(SPAWN_ROWS)


class Structure:
    """An initialised, opaque structure of the C library; freeing this object destroys it."""

    _destroy: "Any" = None

    def __init__(self, kind: str) -> None:
        self._kind = kind
        destroy = SPAWN_CALLS[kind + "_destroy"]
        self.pointer = SPAWN_CALLS["spawn_memory"]()
        self.call("init")
        self._destroy = destroy

    def call(self, name: str, *arguments: "Any") -> None:
        error = SPAWN_CALLS[self._kind + "_" + name](self.pointer, *arguments)
        if error:
            raise Failed(error)

    def __del__(self) -> None:
        # No hasattr(): at the end of a subinterpreter, Python 3.8 has cleared the builtins.
        if self._destroy is not None:
            self._destroy(self.pointer)
