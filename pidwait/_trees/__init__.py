# SPDX-License-Identifier: BSD-3-Clause
"""What ends a command with all that it starts: the means of a Popen that stands for a tree.

    ReaperTree  Linux. A keeper, a process of ours, stands between the caller and the command; it
                is the parent of each orphan, so nobody escapes.
    JobTree     Windows. The system ends a job object with all that is in it.
    GroupTree   elsewhere, and where there is no interpreter to start a keeper. The command leads a
                process group; the tree is that group and its descendants, as far as parents tell.

``rest`` is what happens to the others when the command has exited: "kill", "wait" or "leave". They
have the same methods in the same order:

    start()       starts the command; ``pid`` is the command's from then on
    poll()        never blocks; the command's exit code once nothing is left. ``left`` is set by
                  then: the pids of those that refused to die
    sleep()       until poll() may tell more, or the time is up
    has_exited()  whether the command has: a time-out is for that
    send()        sends a signal other than SIGKILL to the command alone, or to all
    end()         sends a signal to all, and SIGKILL after so many seconds; it returns at once
"""

import os
from errno import ENOSYS

from .._base.errors import PASSING, log
from .._base.probe import TREE, TREES, choice, why_not
from .._systems.linux.proc import check_reaper

if os.name == "nt":
    from .job import JobTree
else:
    from .group import GroupTree
    from .reaper import ReaperTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any

_warned: "list[str]" = []


def open_tree(rest: str, grace: float) -> "Any":
    """By the best means that works; OSError if the environment asks for one that does not."""
    asked = choice(TREE, *TREES)
    if os.name == "nt":
        if asked in ("auto", "job"):
            return JobTree(rest)
        raise OSError(ENOSYS, "%s is %s: not on this system" % (TREE, asked))
    why = why_not(check_reaper)
    if asked in ("auto", "reaper") and (why is None or why.errno in PASSING):
        return ReaperTree(rest, grace)
    if asked in ("reaper", "job"):
        text = "not on this system" if why is None else why.error.strerror
        raise OSError(ENOSYS, "%s is %s: %s" % (TREE, asked, text))
    if why is not None and str(why) not in _warned:
        _warned.append(str(why))
        log("a tree is a process group, daemons escape from it: %s", why, level="warning")
    return GroupTree(rest, grace)
