# SPDX-License-Identifier: BSD-3-Clause
"""Look again and again, at growing intervals: this works everywhere, and keeps nothing open.

What there is to look at differs: see polled_procfs for Linux, polled_ps for macOS and the
BSDs, polled_win32 for Windows.
"""

import os

from .. import _ffi

if os.name == "nt":
    from .polled_win32 import SnapshotHandle as _Handle
elif _ffi.PLATFORM in ("linux", "android"):
    from .polled_procfs import ProcfsHandle as _Handle  # type: ignore[assignment]
else:
    from .polled_ps import PsHandle as _Handle  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contract import Checks, Handle


def open_polled(pid: int) -> "Handle":
    return _Handle(pid)


def clock() -> float:
    """A clock that measures, in seconds, what a look costs."""
    return _Handle.clock()


def check() -> None:
    """It can be used everywhere."""


CHECKS: "Checks" = (("polling", None, check),)

if _ffi.PLATFORM in ("linux", "android"):
    from . import events

    CHECKS += (("inotify_add_watch", "inotify_add_watch", events.check_inotify),)
