# SPDX-License-Identifier: BSD-3-Clause
"""What may be asked of a process, by name, and this system's source of it."""

import os
from collections import namedtuple
from errno import ENOSYS

from .._base.errors import raise_of_handler
from .._systems.calls import PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NamedTuple  # novm

    from .contract import Facts, Source

    class Uids(NamedTuple):  # novm
        real: int
        effective: int
        saved: int

    class CpuTimes(NamedTuple):  # novm
        user: float
        system: float
        children_user: float
        children_system: float

else:
    Uids = namedtuple("Uids", "real effective saved")
    CpuTimes = namedtuple("CpuTimes", "user system children_user children_system")

ATTRIBUTES = (
    "pid",
    "name",
    "ppid",
    "cmdline",
    "status",
    "create_time",
    "username",
    "uids",
    "terminal",
    "cpu_times",
)
_TYPES = {"uids": Uids._make, "cpu_times": CpuTimes._make}
_sources: "list[Source]" = []  # the first counts, if two threads enter it


def source() -> "Source":
    if not _sources:
        if os.name == "nt":
            from . import windows

            _sources.append(windows)
        elif PLATFORM in ("linux", "android"):
            from . import linux

            _sources.append(linux)
        else:
            from . import bsd

            _sources.append(bsd)
    return _sources[0]


def started(facts: "Facts") -> "int | None":
    try:
        return facts.started()
    except PermissionError as error:
        raise_of_handler(error)
        return None


def checked(attrs: "Iterable[str] | None") -> "list[str]":
    if isinstance(attrs, str):
        raise TypeError("attrs must be a list of names, not str")
    names = list(attrs or ())
    for name in names:
        if name not in ATTRIBUTES:
            raise ValueError("attrs has %r; there is %s" % (name, ", ".join(ATTRIBUTES)))
    return names or list(ATTRIBUTES)


def gather(facts: "Facts", names: "Iterable[str]", ad_value: object) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for name in names:
        try:
            found[name] = fact(facts, name)
        except OSError as error:
            raise_of_handler(error)
            if error.errno != ENOSYS and not isinstance(error, PermissionError):
                raise
            found[name] = ad_value
    return found


def fact(facts: "Facts", name: str) -> "Any":
    if name == "pid":
        return facts.pid
    value = getattr(facts, name)()
    return _TYPES[name](value) if name in _TYPES else value
