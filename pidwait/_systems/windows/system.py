# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the handle is a HANDLE; without HANDLEs, snapshots are taken."""

from ..system import System
from .handle import HANDLE_CHECKS, Win32Handle, check_win32, parent_by_age, polled_handle

WINDOWS = System(
    "win32", check_win32, Win32Handle, polled_handle, parent_by_age, "job", (HANDLE_CHECKS, [])
)
