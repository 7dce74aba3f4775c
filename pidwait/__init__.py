# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes to exit, without polling, on every Python from 3.6 on."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # also for tools that look for a program's imports
    from typing import Any

    from ._child import Child
    from ._errors import TimeoutExpired
    from ._probe import probe
    from .listing import ProcessInfo, process_iter
    from .process import Process, pid_exists, wait
    from .spawning import spawn
    from .waiting import WaitSet, as_completed, wait_procs
    from .watching import Watch, watch

__version__ = "0.1.0"

__all__ = [
    "Child",
    "Process",
    "ProcessInfo",
    "TimeoutExpired",
    "WaitSet",
    "Watch",
    "as_completed",
    "pid_exists",
    "probe",
    "process_iter",
    "spawn",
    "wait",
    "wait_procs",
    "watch",
]

# Each name is loaded when it is first used, with all that it needs.
_HOMES = {
    "Child": "_child",
    "Process": "process",
    "ProcessInfo": "listing",
    "TimeoutExpired": "_errors",
    "WaitSet": "waiting",
    "Watch": "watching",
    "as_completed": "waiting",
    "pid_exists": "process",
    "probe": "_probe",
    "process_iter": "listing",
    "spawn": "spawning",
    "wait": "process",
    "wait_procs": "waiting",
    "watch": "watching",
}


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    value = getattr(__import__(home, globals(), None, (name,), 1), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    own = {"TYPE_CHECKING", "sys", "__dir__", "__getattr__"}
    shown = {name for name in globals() if name[:1] != "_" or name[:2] == "__"}
    return sorted((shown - own) | set(__all__))


if not hasattr(sys.modules[__name__], "TimeoutExpired"):  # Python 3.6 looks in the class only

    class _Module(type(sys)):  # type: ignore[misc]
        def __getattr__(self, name: str) -> "Any":
            return __getattr__(name)

        def __dir__(self) -> "list[str]":
            return __dir__()

    sys.modules[__name__].__class__ = _Module
