# SPDX-License-Identifier: BSD-3-Clause
"""How does one list processes?

A lister's read(pid) and read_all(), in the order of pids, return facts: the system's information
about one process, even if its pid is reused meanwhile. Facts have a method for each attribute that
the system reports, and started(), which never changes for one process, and is greater for a process
that started later. The lister's now() is such a time; with ``clock_is_steady``, nobody sets the
clock. ``where`` names the source of the facts, for messages.

Facts raise Failed: ESRCH if the process is gone, EACCES if we may not see it, ENOSYS if the system
does not report the attribute. A file or table is read for the first attribute in it, and then kept
until close(): facts are for one moment.
"""

from collections import namedtuple
from errno import ENOSYS

from .._base.errors import REFUSED, Failed
from .bindings import PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple  # novm

    from .._types import Any, Iterable

    Uids = NamedTuple("Uids", [("real", int), ("effective", int), ("saved", int)])
if not TYPE_CHECKING:
    Uids = namedtuple("Uids", "real effective saved")

ATTRIBUTES = "pid name ppid cmdline status create_time username uids".split()


def _find_lister() -> "Any":
    if PLATFORM == "win":
        from .windows.listing import WindowsLister

        return WindowsLister()
    if PLATFORM in ("linux", "android"):
        from .linux.listing import LinuxLister

        return LinuxLister()
    from .bsd.listing import BsdLister

    return BsdLister()


# Not at the first use: by then a test may have replaced os (pyfakefs), or the program may have
# changed its root.
lister = _find_lister()


def checked(attrs: "Iterable[str] | None") -> "list[str]":
    if isinstance(attrs, str):
        raise TypeError("attrs must be a list of names, not str")
    names = list(attrs or ())
    for name in names:
        if name not in ATTRIBUTES:
            raise ValueError("attrs has %r, not one of %s" % (name, ", ".join(ATTRIBUTES)))
    return names or ATTRIBUTES


def gather(facts: "Any", names: "Iterable[str]", ad_value: object) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for name in names:
        try:
            found[name] = fact(facts, name)
        except Failed as why:
            if why.errno not in REFUSED:
                raise
            found[name] = ad_value
    return found


def fact(facts: "Any", name: str) -> "Any":
    if name == "pid":
        return facts.pid
    if not hasattr(facts, name):
        raise Failed(ENOSYS, "the system does not show the " + name)
    value = getattr(facts, name)()
    return Uids(*value) if name == "uids" else value
