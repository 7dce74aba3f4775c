# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: the handle is a registration in a kqueue; without kqueue, ps(1) is asked."""

from ..posix import check_waitid
from ..system import System
from .handle import KqueueHandle, check_kqueue
from .ps import PsHandle, check_ps, parent_as_ps_tells, ps_clock

BSD = System(
    "kqueue",
    check_kqueue,
    KqueueHandle,
    PsHandle,
    parent_as_ps_tells,
    "group",
    (
        [("kqueue", "kqueue", check_kqueue)],
        [("waitid", "waitid", check_waitid), ("ps", None, check_ps)],
    ),
    ps_clock,
)
