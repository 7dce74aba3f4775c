# SPDX-License-Identifier: BSD-3-Clause
"""Three ways to end a command with all that it starts, for a Popen that stands for a tree.

    ReaperTree  Linux. A keeper, a process of ours, stands between the caller and the command. All
                orphans become its children, so no process escapes.
    JobTree     Windows. The system ends a job object with all processes in it.
    GroupTree   elsewhere, and where there is no interpreter to start a keeper. The command leads a
                process group; the tree is that group and its descendants, as found by parents.

``rest`` says what happens to the other processes when the command has exited: "kill", "wait" or
"leave". The classes have the same methods in the same order:

    start()       starts the command, and sets ``pid`` to its pid
    poll()        never blocks; returns the command's exit code once nothing is left, and then
                  ``left`` has the pids of processes that could not be killed
    sleep()       until poll() may have news, or the time is up
    has_exited()  whether the command has exited: a time-out bounds the command
    send()        sends a signal other than SIGKILL to the command alone, or to all
    end()         sends a signal to all, and SIGKILL after the grace; returns at once
"""

import os
import sys
from errno import ENOSYS

from .._base.errors import failed, not_by_handler
from .._systems import system


def check_reaper() -> None:
    """Whether a keeper of a tree could work."""
    if system.tree != "reaper":
        raise failed(ENOSYS, "only on Linux: a tree is a process group here")
    path = sys.executable or ""
    names = [os.path.basename(one) for one in (path, os.path.realpath(path))]
    is_program = hasattr(sys, "frozen") or "__compiled__" in globals()
    if is_program or not any(one.startswith(("python", "pypy")) for one in names):
        raise failed(ENOSYS, "there is no interpreter to start, sys.executable is %r" % path)
    from .._systems.linux.proc import check_procfs  # Linux has loaded it

    check_procfs()
    if not os.access("/proc/self/task/%d/children" % os.getpid(), os.R_OK):
        raise failed(ENOSYS, "/proc does not show children")
    try:
        __import__("_ctypes")
    except not_by_handler(Exception) as why:  # a broken library, or a policy
        raise failed(ENOSYS, "importing _ctypes: %s" % why) from None
