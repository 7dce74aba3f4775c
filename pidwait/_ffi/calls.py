# SPDX-License-Identifier: BSD-3-Clause
"""Each call by the interpreter's own public function if it has one, else by an adapter.

They are resolved on first need, and raise OSError with the system's errno.
"""

import importlib
import struct
from errno import ENOSYS

from . import adapter, forced, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_resolved: "dict[str, tuple[Callable[..., Any], str]]" = {}


def get(name: str) -> "Callable[..., Any]":
    """The function; OSError ENOSYS with the reason where there is none."""
    return resolve(name)[0]


def resolve(name: str) -> "tuple[Callable[..., Any], str]":
    """The function, and the name of what it is reached through."""
    answer = _resolved.get(name)
    if answer is None:
        try:
            answer = _resolved[name] = _resolve(name)
        except (ImportError, LookupError) as error:
            raise OSError(ENOSYS, error.args[0]) from None
    return answer


def forget() -> None:
    _resolved.clear()


def _resolve(name: str) -> "tuple[Callable[..., Any], str]":
    module, adapt, make = _CALLS[name]
    if make is None or forced() is None:
        own = getattr(importlib.import_module(module), name, None)
        if own is not None:
            return (adapt(own) if adapt else own), module
    binding = adapter()
    return make(binding, name), binding.name


def _syscall(binding: "Any", name: str) -> "Callable[..., int]":
    number = linux.number(name)
    syscall = binding.function("syscall", linux.PROTOTYPES["syscall"])

    def call(*arguments: int) -> int:
        result: int = syscall(number, *(arguments + (0, 0, 0, 0))[:4])
        return result

    return call


def _waitid(binding: "Any", name: str) -> "Callable[[int, int, int], tuple[int, int] | None]":
    """waitid(idtype, id, options) -> (si_code, si_status), or None: nothing to tell."""
    function = binding.function(name, linux.PROTOTYPES[name])

    def waitid(idtype: int, id_: int, options: int) -> "tuple[int, int] | None":
        info = bytearray(linux.SIGINFO_SIZE)
        function(idtype, id_, binding.pointer(info), options)

        def field(offset: int) -> int:
            value: int = struct.unpack_from("=i", info, offset)[0]
            return value

        # With WNOHANG and nothing to tell, si_pid is 0: waitid(2).
        if field(linux.SIGINFO_PID) == 0:
            return None
        return field(linux.SIGINFO_CODE), field(linux.SIGINFO_STATUS)

    return waitid


def _own_waitid(own: "Any") -> "Callable[[int, int, int], tuple[int, int] | None]":
    def waitid(idtype: int, id_: int, options: int) -> "tuple[int, int] | None":
        info = own(idtype, id_, options)
        return None if info is None else (info.si_code, info.si_status)

    return waitid


# name: (module with the interpreter's own, what makes ours of it, what makes
# ours of an adapter)
_CALLS: "dict[str, tuple[str, Any, Any]]" = {
    "pidfd_open": ("os", None, _syscall),
    "pidfd_send_signal": ("signal", None, _syscall),
    "waitid": ("os", _own_waitid, _waitid),
    "ioctl": ("fcntl", None, None),
}
