# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes to exit, without polling, on every Python from 3.6 on."""

from ._errors import TimeoutExpired
from ._probe import probe
from .process import Process, pid_exists, wait
from .spawning import Child, spawn
from .waiting import WaitSet, as_completed, wait_procs
from .watching import Watch, watch

__version__ = "0.1.0"

__all__ = [
    "Child",
    "Process",
    "TimeoutExpired",
    "WaitSet",
    "Watch",
    "as_completed",
    "pid_exists",
    "probe",
    "spawn",
    "wait",
    "wait_procs",
    "watch",
]
