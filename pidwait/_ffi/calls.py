# SPDX-License-Identifier: BSD-3-Clause
"""System calls: the interpreter's own public function if it has one, else an adapter's.

A call is resolved when it is first needed. It raises OSError with the system's errno.
"""

import os
import sys
from errno import ENOSYS

from . import adapter, check_files, forced, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

_SIGINFO_SIZE = 256  # the largest siginfo_t has 136 bytes


class _Resolved(dict):  # type: ignore[type-arg]
    """{name: function}; a name that is missing is resolved."""

    __slots__ = ()

    # Single operations only: if two threads resolve the same call, either answer is right.
    def __missing__(self, name: str) -> "Callable[..., Any]":
        try:
            function, _origins[name] = _resolve(name)
        except (ImportError, LookupError) as error:
            check_files()  # a lack of file descriptors is transient
            raise OSError(ENOSYS, error.args[0]) from None
        self[name] = function
        return function


_origins: "dict[str, str]" = {}
_resolved = _Resolved()
# The function of that name; OSError (ENOSYS) with the reason if there is none. Right after a sleep
# each function of ours that is called costs some 4 us; this one is the dict's own.
get: "Callable[[str], Callable[..., Any]]" = _resolved.__getitem__


def resolve(name: str) -> "tuple[Callable[..., Any], str]":
    """The function, and the name of the module or binding that it comes from."""
    return get(name), _origins[name]


def forget() -> None:
    _resolved.clear()


def add(table: "Mapping[str, tuple[str | None, Any]]") -> None:
    """Make more calls known: rows as in _CALLS. One that is known stays as it is."""
    for name, row in table.items():
        _CALLS.setdefault(name, row)


def _resolve(name: str) -> "tuple[Callable[..., Any], str]":
    module, make = _CALLS[name]
    if module is not None and (make is None or forced() is None):
        own = __import__(module)
        if hasattr(own, name) and hasattr(own, _WHOLE.get(name, name)):
            return getattr(own, name), module.lstrip("_")
    if make is None:  # gevent, say, has removed it
        raise ImportError("the module %s has no %s" % (module, name))
    binding = adapter()
    return make(binding, name), binding.name


def _syscall(binding: "Any", name: str) -> "Callable[..., int]":
    number = linux.number(name)
    syscall = binding.function("syscall", linux.PROTOTYPES["syscall"])

    def call(*arguments: int) -> int:
        result: int = syscall(number, *(arguments + (0, 0, 0, 0))[:4])
        return result

    return call


def _bind(binding: "Any", name: str) -> "Callable[..., int]":
    function: "Callable[..., int]" = binding.function(name, linux.PROTOTYPES[name])
    return function


class SigInfo:
    """The fields that we need of what os.waitid() returns."""

    __slots__ = ("si_code", "si_pid", "si_status")

    def __init__(self, info: bytearray, code: int, pid: int, status: int) -> None:
        self.si_code = integer(info, code)
        self.si_pid = integer(info, pid)
        self.si_status = integer(info, status)


def integer(buffer: bytearray, offset: int, size: int = 4) -> int:
    """A signed number in a C structure."""
    return int.from_bytes(buffer[offset : offset + size], sys.byteorder, signed=True)


def _waitid(binding: "Any", name: str) -> "Callable[[int, int, int], SigInfo | None]":
    """os.waitid(), for an interpreter that lacks it."""
    from . import bsd

    prototype = linux.PROTOTYPES[name]
    code, pid, status = linux.SIGINFO_CODE, linux.SIGINFO_PID, linux.SIGINFO_STATUS
    if bsd.system() is not None:
        known = bsd.table().waitid
        prototype = known.prototype
        code, pid, status = known.code, known.pid, known.status
    function = binding.function(name, prototype)

    def waitid(idtype: int, id_: int, options: int) -> "SigInfo | None":
        info = bytearray(_SIGINFO_SIZE)
        function(idtype, id_, binding.pointer(info), options)
        # With WNOHANG, si_pid is 0 if the child has not exited: waitid(2).
        return SigInfo(info, code, pid, status) if integer(info, pid) else None

    return waitid


def _timerfd_create(binding: "Any", name: str) -> "Callable[[int], int]":
    """os.timerfd_create()."""
    function = _bind(binding, name)
    return lambda clock: function(clock, os.O_CLOEXEC)


def _timerfd_settime(binding: "Any", name: str) -> "Callable[..., object]":
    """os.timerfd_settime(), with the argument ``initial`` alone."""
    function = _bind(binding, name)

    def timerfd_settime(fd: int, *, initial: float) -> None:
        seconds = int(initial)
        new = linux.ITIMERSPEC.pack(0, 0, seconds, int((initial - seconds) * 1e9))
        function(fd, 0, binding.pointer(bytearray(new)), binding.null)

    return timerfd_settime


def _wait_for_multiple_objects(binding: "Any", name: str) -> "Any":
    from . import console  # which imports threading

    return console.WaitForMultipleObjects(binding, name)


def _from_advapi32(binding: "Any", name: str) -> "Any":
    from . import advapi32

    return advapi32.CALLS[name](binding, name)


# name: (module that may have the interpreter's own function, function that makes one from an
# adapter); either can be None. _signal is signal without its enums: it is always loaded, so
# that no file has to be opened for it when no file descriptor is left.
_CALLS: "dict[str, tuple[str | None, Any]]" = {
    "pidfd_open": ("os", _syscall),
    "pidfd_send_signal": ("_signal", _syscall),
    "waitid": ("os", _waitid),
    "ioctl": ("fcntl", None),
    "epoll": ("select", None),
    "timerfd_create": ("os", _timerfd_create),
    "timerfd_settime": ("os", _timerfd_settime),
    "inotify_init1": (None, _bind),
    "inotify_add_watch": (None, _bind),
    "inotify_rm_watch": (None, _bind),
    "setsockopt": (None, _bind),
    "prctl": (None, _bind),
}

# A name that the module must have, too, or its own function is incomplete: PyPy's select has
# kqueues, but lacks these.
_WHOLE = {"kqueue": "KQ_NOTE_EXIT", "kevent": "KQ_NOTE_EXIT"}

if sys.platform == "win32":
    from . import kernel32, win32

    _CALLS.update(kernel32.CALLS)
    _CALLS.update(dict.fromkeys(win32.LIBRARIES, (None, _from_advapi32)))
    _CALLS["WaitForMultipleObjects"] = ("_winapi", _wait_for_multiple_objects)
