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
from contextlib import closing
from errno import EIO, ENOSYS
from functools import partial

from .._base.errors import Failed, call, not_by_handler
from .._starting.spawn import spawn
from .._systems import system
from .._systems.posix import own

_DEVNULL = -3
_HOME = "PYTHONHOME"


def check_reaper() -> None:
    """Whether a keeper of a tree could work."""
    if system.tree != "reaper":
        raise Failed(ENOSYS, "only on Linux: a tree is a process group here")
    path = sys.executable or ""
    names = [os.path.basename(one) for one in (path, os.path.realpath(path))]
    is_program = hasattr(sys, "frozen") or "__compiled__" in globals()
    if is_program or not any(one.startswith(("python", "pypy")) for one in names):
        raise Failed(ENOSYS, "there is no interpreter to start, sys.executable is %r" % path)
    from .._systems.linux.proc import check_procfs  # Linux has loaded it

    check_procfs()
    if not os.access("/proc/self/task/%d/children" % os.getpid(), os.R_OK):
        raise Failed(ENOSYS, "/proc does not show children")
    try:
        __import__("_ctypes")
    except not_by_handler(Exception) as why:  # a broken library, or a policy
        raise Failed(ENOSYS, "importing _ctypes: %s" % why) from None


def check_keeper() -> None:
    """As check_reaper(), and whether a keeper's interpreter starts."""
    check_reaper()
    words, env = interpreter()
    reader, writer = map(own, call(os.pipe))
    try:
        child = spawn([*words, "-c", ""], env=env, stdin=_DEVNULL, stderr=writer)
        with closing(reader), closing(writer), child:
            writer.close()
            text = b"".join(iter(partial(os.read, reader.fileno(), 4096), b""))
    except not_by_handler(OSError) as error:
        raise Failed(error.errno or 0, "the keeper's interpreter: %s" % error) from None
    if child.exitcode:
        errors = [one for one in text.decode("utf-8", "replace").splitlines() if "rror" in one]
        why = "the keeper's interpreter has ended: %s %s" % (words[0], "".join(errors[:1]))
        raise Failed(EIO, why)


def interpreter() -> "tuple[list[str], dict[str, str] | None]":
    """The first words that start a keeper's interpreter; and the environment that it needs.

    That is None, unless this program's interpreter may find its library only by PYTHONHOME.
    """
    if _HOME not in os.environ or sys.flags.ignore_environment:
        return [sys.executable, "-I", "-S"], None
    env = {name: os.environ[name] for name in os.environ if name[:6] != "PYTHON" or name == _HOME}
    return [sys.executable, "-S"], env
