# SPDX-License-Identifier: BSD-3-Clause
"""The command line, as a user calls it."""

import contextlib
import os
import subprocess
import time

from .. import pidwait, seam
from ..needs import THERE
from ..processes import INTERPRETER, state

COMMAND = [INTERPRETER, "-m", pidwait.__name__]
PROG = os.path.basename(INTERPRETER).partition(".exe")[0] + " -m " + pidwait.__name__


def run(*args, **kwargs):
    return subprocess.run(
        COMMAND + [str(arg) for arg in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )


def until_it_sleeps(pid, runs_ps=False):
    """Wait until a process has slept for a while: it has loaded all it needs, and waits.

    ``runs_ps``: where there is no /proc, it also sleeps while its ps runs, which may take long.
    """

    def is_busy():
        if state(pid) in ("R", "D"):
            return True
        if not runs_ps or THERE["/proc"]:
            return False
        parents = subprocess.check_output(["ps", "-ax", "-o", "ppid="], universal_newlines=True)
        return str(pid) in parents.split()

    looks, pause = 0, 0.003 if THERE["/proc"] else 0.1  # there it also sleeps while its ps runs
    while looks < 5:
        looks = 0 if is_busy() else looks + 1
        time.sleep(pause)


@contextlib.contextmanager
def once_we_sleep(action):
    """In the block: once this process sleeps, another one takes the action."""
    pid, helper = os.getpid(), os.fork()
    if not helper:
        try:
            until_it_sleeps(pid)
            action()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.waitpid(helper, 0)


def acting_first(pid, action):
    """pidfd_open(), before which the action is taken when it is first called for that pid."""
    call, actions = seam.get("pidfd_open"), [action]

    def act(*args):
        while actions and args[0] == pid:
            actions.pop()()
        return call(*args)

    return act
