# SPDX-License-Identifier: BSD-3-Clause
"""A set in a program's own poll(2) loop, without events: exit to report, and turns while idle

The processes are not our children. Either their code is hidden, so that only their reaping would
tell it, which never comes; or they are polled, as where there is no pidfd.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import closing

from .. import pidwait, seam
from ..processes import Keeper
from . import core

BOUND = 1.2
TURNS = 30
IDLE = 3


def in_a_loop(waiting):
    """An event loop that runs until an exit is reported; return the number of its turns."""
    poll = select.poll()
    poll.register(waiting, select.POLLIN)
    turns = 0
    while True:
        poll.poll()
        turns += 1
        if waiting.wait(0):
            return turns


def blocking(waiting):
    while not waiting.wait():
        pass


def exit_to_report(strangers, wait):
    """Milliseconds from the signal that ends a process, while we sleep in the loop."""
    pid = strangers.start("sleep", "60")
    with pidwait.WaitSet([pid]) as waiting:
        if wait is in_a_loop:
            waiting.fileno()
        # Until the interval of a polled member is at its longest.
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            if waiting.wait(0.03):
                raise core.Unavailable("a process that sleeps was reported")
        ender = subprocess.Popen(
            [sys.executable, "-S", "-c", ENDER.format(pid)], stdout=subprocess.PIPE
        )
        wait(waiting)
        reported = time.monotonic()
        with ender:
            return (reported - float(ender.stdout.read())) * 1000


ENDER = "import os, time; time.sleep(0.02); os.kill({}, 9); print(time.monotonic())"


class Kind:
    """In the block all sets treat processes as of one kind: polled, or with a hidden code."""

    def __init__(self, backend):
        self._backend = backend
        self._seam = seam.Seam()

    def __enter__(self):
        if self._backend == "polling":
            os.environ["PIDWAIT_BACKEND"] = "polling"
            seam.forget()
        else:
            self._seam.hide_zombies()

    def __exit__(self, *exc_info):
        os.environ.pop("PIDWAIT_BACKEND", None)
        self._seam.undo()


def idle_turns(strangers):
    """Turns a second, while the set's only member is polled and runs."""
    pid = strangers.start("sleep", "60")
    with pidwait.WaitSet([pid]) as waiting:
        poll = select.poll()
        poll.register(waiting, select.POLLIN)
        end, turns = time.monotonic() + IDLE, 0
        while time.monotonic() < end:
            if poll.poll(100):
                turns += 1
                waiting.wait(0)
    os.kill(pid, signal.SIGKILL)
    return turns / IDLE


def run(options):
    if not hasattr(select, "poll") or not sys.platform.startswith("linux"):
        raise core.Unavailable("it is about pidfds and timerfds, which Linux has")
    rows = []
    with closing(Keeper()) as strangers:
        for name, backend in (("code by reaping", "pidfd"), ("polled", "polling")):
            with Kind(backend):
                results = core.in_turns(
                    {
                        wait.__name__: lambda wait=wait: exit_to_report(strangers, wait)
                        for wait in (in_a_loop, blocking)
                    },
                    options.rounds or 60,
                )
            figures = {name: core.median(numbers) for name, numbers in results.items()}
            title = "ms, {}, fileno() : blocking, p50".format(name)
            rows.append(core.Row(title, figures["in_a_loop"], figures["blocking"], bound=BOUND))
        with Kind("polling"):
            turns = idle_turns(strangers)
    rows.append(core.Row("turns a second, a polled one idle", turns, kind="count", bound=TURNS))
    return rows
