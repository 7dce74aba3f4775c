# SPDX-License-Identifier: BSD-3-Clause
"""Where there is no pidfd: polling beside the pidfds.

Each means has a process of its own; in that of polling, seccomp refuses pidfd_open(2). Times are in
microseconds unless a row says otherwise. A wait for one process has lasted 0.15 s or longer when it
exits, so that the intervals of the polling have grown.
"""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

from . import core, herd, latency
from .nopidfd_waiter import MEANS, Waiter

PARTS = ("latency", "many", "killed")
TIMEOUT = 30
DELAYS = 0.15, 0.2
COUNT = 5000
STEP = 200  # microseconds between two exits
LITTLE = 64  # file descriptors
IDLE = 5
KILLED = 1000
EXITS = 150


def waiters(stack, *means):
    return {name: stack.enter_context(Waiter(name)) for name in means}


# One process


def of_one(rounds):
    codes = {name: [] for name in MEANS}

    def measured(name, waiter):
        def wait(popen):
            woken, code, cpu = waiter.ask("wait", popen.pid, TIMEOUT)
            codes[name].append(code)
            return woken

        return lambda: children.measure(wait, lambda woken: woken)[0]

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        children = latency.Children(folder, DELAYS)
        stack.callback(children.close)
        variants = {name: measured(name, waiter) for name, waiter in waiters(stack, *MEANS).items()}
        results = core.in_turns(variants, rounds, warm_up=2)
    p50 = [core.median(results[name]) for name in ("polling", "pidfd")]
    rows = [core.Row("exit to return, p50, polling : pidfd", *p50)]
    wrong = {name: sum(code != 7 for code in codes[name]) for name in MEANS}
    title = "wrong exit codes of {}, polling".format(len(codes["polling"]))
    rows.append(core.Row(title, wrong["polling"], wrong["pidfd"], "count", 0))
    return rows


# Many


class Many:
    """A herd whose exits one waiter collects."""

    def __init__(self, starter, waiter, fds, step):
        self.starter, self.waiter, self.fds, self.step = starter, waiter, fds, step

    def measure(self):
        """The CPU time to put one into the set, and that of an exit."""
        with herd.Herd(self.starter, COUNT) as processes:
            added = self.waiter.ask("watch", processes.pids, self.fds)
            self.waiter.tell("collect")
            time.sleep(0.2)
            processes.end(0, COUNT, self.step)
            exits, cpu = self.waiter.answer()
        if len(exits) != COUNT:
            raise core.Unavailable("{} exits of {}".format(len(exits), COUNT))
        return added / COUNT * 1e6, cpu / COUNT * 1e6


def of_many(rounds):
    rows = []
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * COUNT:
        raise core.Unavailable("the pidfds need a hard limit of {}".format(2 * COUNT))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, "polling", "pidfd")
        starter = herd.compile_starter(folder)
        for step, when in (STEP, "one every 0.2 ms"), (0, "all at once"):
            many = {
                name: Many(starter, waiter, None if name == "pidfd" else LITTLE, step)
                for name, waiter in found.items()
            }
            results = core.in_turns({name: one.measure for name, one in many.items()}, rounds)
            for column, what, bound in (1, "an exit", None), (0, "an add", None):
                if column or step:
                    ours, peer = (
                        [result[column] for result in results[name]]
                        for name in ("polling", "pidfd")
                    )
                    title = "CPU of {}, {}, {}, polling : pidfd".format(what, COUNT, when)
                    rows.append(core.paired_row(title, ours, peer, bound))
    return rows


def of_killed(_rounds):
    """All wait for the same processes, at once."""
    delays = {}
    with ExitStack() as stack:
        found = waiters(stack, "polling")
        processes = [stack.enter_context(subprocess.Popen(["sleep", "300"])) for _ in range(KILLED)]
        stack.callback(lambda: [process.kill() for process in processes])
        pids = [process.pid for process in processes]
        for waiter in found.values():
            waiter.ask("watch", pids, LITTLE)
            waiter.ask("rest", 2)  # the intervals grow
        for waiter in found.values():
            waiter.tell("rest", IDLE)
        shares = {name: waiter.answer() for name, waiter in found.items()}
        for waiter in found.values():
            waiter.tell("collect")
        random.shuffle(pids)
        ended = {}
        for pid in pids[:EXITS]:
            ended[pid] = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            time.sleep(random.uniform(0.03, 0.07))
        for pid in pids[EXITS:]:
            os.kill(pid, signal.SIGKILL)
        for name, waiter in found.items():
            exits, _ = waiter.answer()
            delays[name] = [
                (when - ended[pid]) * 1e3
                for pid, code, when in exits
                if pid in ended and code == -signal.SIGKILL
            ]
            if len(delays[name]) != EXITS or len(exits) != len(pids):
                raise core.Unavailable("{}: exits are missing or wrong".format(name))
    return [
        core.Row("1,000: exit to report, p50, ms", core.median(delays["polling"]), kind="count"),
        core.Row("1,000: % of a core, idle", shares["polling"], kind="count", bound=5),
    ]


def run(options):
    if not sys.platform.startswith("linux"):
        raise core.Unavailable("seccomp is Linux's")
    measures = {
        "latency": (of_one, 40),
        "many": (of_many, 5),
        "killed": (of_killed, 1),
    }
    rows = []
    for part in options.part or PARTS:
        measure, rounds = measures[part]
        rows += measure(options.rounds or rounds)
    return rows
