# SPDX-License-Identifier: BSD-3-Clause
"""posix_spawn and its family: prototypes, flags, and memory for their structures.

All of them return an error number, and do not set errno.
"""

from .calls import CALLS, PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_ACTIONS = _ATTRIBUTES = "void *"

# name: (result, arguments...)
PROTOTYPES = {
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
    # glibc 2.34, FreeBSD
    "posix_spawn_file_actions_addclosefrom_np": ("int", _ACTIONS, "int"),
    "posix_spawn_file_actions_addinherit_np": ("int", _ACTIONS, "int"),  # macOS
    # glibc 2.29, musl 1.1.24, macOS 10.15, FreeBSD 13.1
    "posix_spawn_file_actions_addchdir_np": ("int", _ACTIONS, "char *"),
    "sigemptyset": ("int", "void *"),
    "sigaddset": ("int", "void *", "int"),
}

# The structures are opaque: 336 and 80 bytes on glibc, a pointer on macOS and the
# BSDs. A sigset_t is 128 bytes at most.
SIZE = 1024

SETPGROUP = 0x02
_BSD = {"SETSIGDEF": 0x10}
# SETSID, a new session: glibc 2.26, musl 1.1.17, macOS 10.15. USEVFORK: glibc before
# 2.24 forks without it; later ones, and musl, ignore it. CLOEXEC_DEFAULT, macOS 10.7: all
# file descriptors are closed except those that a file action has opened or inherited.
FLAGS = {
    "linux": {"SETSIGDEF": 0x04, "SETSID": 0x80, "USEVFORK": 0x40},
    "darwin": {"SETSIGDEF": 0x04, "SETSID": 0x400, "CLOEXEC_DEFAULT": 0x4000},
    "freebsd": _BSD,
    "netbsd": _BSD,
    "openbsd": _BSD,
    "dragonfly": _BSD,
}
_flags = FLAGS.get(PLATFORM, {})
SETSIGDEF = _flags.get("SETSIGDEF")
SETSID = _flags.get("SETSID")
CLOEXEC_DEFAULT = _flags.get("CLOEXEC_DEFAULT")
USEVFORK = _flags.get("USEVFORK", 0)


def _function(binding: "Any", name: str) -> "Callable[..., int]":
    function: "Callable[..., int]" = binding.function(name, PROTOTYPES[name], None)
    return function


def _posix_spawn(binding: "Any", name: str) -> "Callable[..., int]":
    function: "Callable[..., int]" = binding.function(name, PROTOTYPES[name], None, converts=False)
    return function


def _cell(binding: "Any", name: str) -> "Callable[[], Any]":
    """A function that makes the int * where posix_spawn puts the pid."""
    make: "Callable[[], Any]" = binding.cell
    return make


def _memory(binding: "Any", name: str) -> "Callable[[], Any]":
    """A function that makes a zeroed structure: a void * that keeps it alive."""
    return lambda: binding.pointer(bytearray(SIZE))


def _strings(binding: "Any", name: str) -> "Callable[[list[bytes]], Any]":
    """A function that makes a char *const [], ended by NULL: a void * that keeps it alive."""
    make: "Callable[[list[bytes]], Any]" = binding.strings
    return make


# The interpreter's own os.posix_spawn is not used: it holds the GIL until the exec.
CALLS.update(dict.fromkeys(PROTOTYPES, (None, _function)))
CALLS.update(
    posix_spawn=(None, _posix_spawn),
    spawn_cell=(None, _cell),
    spawn_memory=(None, _memory),
    spawn_strings=(None, _strings),
)
