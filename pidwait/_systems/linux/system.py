# SPDX-License-Identifier: BSD-3-Clause
"""Linux: the handle is a pidfd; without pidfds, /proc is read."""

from ..posix import check_waitid
from ..system import System
from .handle import PIDFD_CHECKS, PidfdHandle, check_pidfd, received_pidfd
from .proc import PROC_CHECKS, ProcfsHandle, parent_of

LINUX = System(
    "pidfd",
    check_pidfd,
    PidfdHandle,
    ProcfsHandle,
    parent_of,
    "reaper",
    (PIDFD_CHECKS, [("waitid", "waitid", check_waitid), *PROC_CHECKS]),
    received=received_pidfd,
)
