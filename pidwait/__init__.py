# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes to exit, without polling, on every Python from 3.6 on."""

from ._base.errors import TimeoutExpired
from ._finding import ProcessInfo, process_iter
from ._process import Process, pid_exists, wait
from ._sets import WaitSet, as_completed, wait_procs
from ._spawning import Child, spawn
from ._systems import probe
from ._watching import Watch, watch

__version__ = "0.2.0"

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


def __dir__() -> "list[str]":
    return sorted({*__all__, *(name for name in globals() if name[:2] == "__")} - {"__dir__"})
