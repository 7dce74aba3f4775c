# SPDX-License-Identifier: BSD-3-Clause
"""Where there is no pidfd: the proc connector, inotify and plain polling, beside the pidfds

Each means has a process of its own, where seccomp refuses what is better: pidfd_open(2), for
inotify the sockets as well, for plain polling inotify_init1(2), too. Times are in microseconds
unless a row says otherwise. A wait for one process has lasted 0.15 s or longer when it exits, so
that the intervals of the polling have grown.
"""

import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

from . import core, herd, latency, limit
from .nopidfd_waiter import MEANS, Waiter

PARTS = ("latency", "many", "idle", "wake-ups", "executables", "forked")
TIMEOUT = 30
DELAYS = 0.15, 0.2
COUNT = 5000
STEP = 200  # microseconds between two exits
LITTLE = 64  # file descriptors
IDLE = 5
EXECUTABLES, OF_EACH = 20, 50
EXITS = 150
# A process that has called execve(2), and lives until it is killed.
LIVE = rb"""
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}
"""


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
    rows = [
        core.Row(
            "exit to return, p50, {} : pidfd".format(name),
            core.median(results[name]),
            core.median(results["pidfd"]),
            bound=bound,
        )
        for name, bound in (("connector", 1.5), ("inotify", 3), ("plain", None))
    ]
    wrong = {name: sum(code != 7 for code in codes[name]) for name in MEANS}
    for name in "connector", "inotify":
        title = "wrong exit codes of {}, {}".format(len(codes[name]), name)
        rows.append(core.Row(title, wrong[name], wrong["pidfd"], "count", 0))
    return rows


def wake_ups(_rounds):
    """All wait for the same process, at once."""
    rates = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, *MEANS)
        path = limit.build(LIVE, os.path.join(folder, "live"), "-Os", "-static")
        process = stack.enter_context(subprocess.Popen([path]))
        stack.callback(process.kill)
        for waiter in found.values():
            waiter.tell("wait", process.pid, TIMEOUT)
        time.sleep(10)
        began = time.monotonic()
        counts = {name: waiter.switches() for name, waiter in found.items()}
        time.sleep(10)
        seconds = time.monotonic() - began
        for name, waiter in found.items():
            rates[name] = (waiter.switches() - counts[name]) / seconds
        process.kill()
        for waiter in found.values():
            waiter.answer()
    return [
        core.Row("wake-ups a second, {} : plain".format(name), *pair, kind="count", bound=1.5)
        for name in ("connector", "inotify")
        for pair in [(rates[name], rates["plain"])]
    ]


def of_forked(rounds):
    """Both wait for the same process, at once."""
    woken, cpu = ({"inotify": [], "plain": []} for _ in range(2))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, *woken)
        forked = stack.enter_context(herd.Herd(herd.compile_starter(folder), rounds, keep=True))
        for number, pid in enumerate(forked.pids):
            for waiter in found.values():
                waiter.tell("wait", pid, TIMEOUT)
            # From one interval of the polling to the next, the moment is any.
            time.sleep(random.uniform(0.2, 0.28))
            forked.end(number, number + 1, 0)
            ended = forked.ended()
            for name, waiter in found.items():
                when, code, used = waiter.answer()
                if code != number % 256:
                    raise core.Unavailable("{}: {}, not {}".format(name, code, number % 256))
                woken[name].append((when - ended) * 1e6)
                cpu[name].append(used * 1e6)
    # The mean is the steadier one, as the time is anything from 0 to an interval.
    times = [statistics.mean(woken[name]) for name in ("inotify", "plain")]
    title = "forked without exec: {}, inotify : plain"
    return [
        core.Row(title.format("exit to return, mean"), *times, bound=1.25),
        core.paired_row(title.format("CPU of a wait"), cpu["inotify"], cpu["plain"], 1.25),
    ]


# Many


class Many:
    """A herd whose exits one waiter collects."""

    def __init__(self, starter, waiter, fds, step):
        self.starter, self.waiter, self.fds, self.step = starter, waiter, fds, step
        self.wrong = 0

    def measure(self):
        """The CPU time to put one into the set, and that of an exit."""
        with herd.Herd(self.starter, COUNT) as processes:
            added = self.waiter.ask("watch", processes.pids, self.fds)
            self.waiter.tell("collect")
            time.sleep(0.2)
            processes.end(0, COUNT, self.step)
            exits, cpu = self.waiter.answer()
        codes = {pid: code for pid, code, _ in exits}
        self.wrong += sum(codes.get(pid) != i % 256 for i, pid in enumerate(processes.pids))
        return added / COUNT * 1e6, cpu / COUNT * 1e6


def of_many(rounds):
    rows = []
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * COUNT:
        raise core.Unavailable("the pidfds need a hard limit of {}".format(2 * COUNT))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, "connector", "pidfd")
        starter = herd.compile_starter(folder)
        for step, when in (STEP, "one every 0.2 ms"), (0, "all at once"):
            many = {
                name: Many(starter, waiter, None if name == "pidfd" else LITTLE, step)
                for name, waiter in found.items()
            }
            results = core.in_turns({name: one.measure for name, one in many.items()}, rounds)
            for column, what, bound in (1, "an exit", 2 if step else None), (0, "an add", None):
                if column or step:
                    ours, peer = (
                        [result[column] for result in results[name]]
                        for name in ("connector", "pidfd")
                    )
                    title = "CPU of {}, {}, {}, connector : pidfd".format(what, COUNT, when)
                    rows.append(core.paired_row(title, ours, peer, bound))
            wrong = [many[name].wrong for name in ("connector", "pidfd")]
            title = "wrong exit codes of {}, {}, connector".format((rounds + 1) * COUNT, when)
            rows.append(core.Row(title, *wrong, kind="count", bound=0))
    return rows


def idle(rounds):
    """While 1,000 others exit each second: elsewhere, and with pids between those waited for."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, "connector")
        starter = herd.compile_starter(folder)
        for title, mine, others in (
            ("", slice(COUNT), slice(COUNT, None)),
            (", pids mixed", slice(0, None, 2), slice(1, None, 2)),
        ):
            shares = []
            for _ in range(rounds):
                with herd.Herd(starter, 2 * COUNT) as processes:
                    found["connector"].ask("watch", processes.pids[mine], LITTLE)
                    found["connector"].ask("rest", 2)  # the intervals grow
                    found["connector"].tell("rest", IDLE)
                    each_millisecond(processes.pids[others][: IDLE * 1000])
                    shares.append(found["connector"].answer())
                    found["connector"].ask("leave")
            text = "% of a core, {} waited for, 1,000 exits/s of others{}, connector"
            rows.append(
                core.Row(text.format(COUNT, title), core.median(shares), kind="count", bound=2)
            )
    return rows


def each_millisecond(pids):
    moment = time.monotonic()
    for pid in pids:
        moment += 0.001
        time.sleep(max(0, moment - time.monotonic()))
        os.kill(pid, signal.SIGUSR1)


def of_executables(_rounds):
    """All wait for the same processes, at once."""
    rows = []
    delays = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = waiters(stack, "inotify", "connector", "plain")
        first = limit.build(LIVE, os.path.join(folder, "0"), "-Os", "-static")
        paths = [first] + [os.path.join(folder, str(i)) for i in range(1, EXECUTABLES)]
        for path in paths[1:]:
            shutil.copy(first, path)
        processes = [
            stack.enter_context(subprocess.Popen([path])) for path in paths for _ in range(OF_EACH)
        ]
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
    title = "1,000 of 20 executables: {}, {} : plain"
    for name in "inotify", "connector":
        p50 = [core.median(delays[which]) for which in (name, "plain")]
        rows.append(core.Row(title.format("exit to report, p50, ms", name), *p50, "count", 20))
        both = shares[name], shares["plain"]
        rows.append(core.Row(title.format("% of a core, idle", name), *both, "count", 2))
    return rows


def run(options):
    if not sys.platform.startswith("linux"):
        raise core.Unavailable("seccomp, inotify and the proc connector are Linux's")
    measures = {
        "latency": (of_one, 40),
        "many": (of_many, 5),
        "idle": (idle, 3),
        "wake-ups": (wake_ups, 1),
        "executables": (of_executables, 1),
        "forked": (of_forked, 100),
    }
    rows = []
    for part in options.part or PARTS:
        measure, rounds = measures[part]
        rows += measure(options.rounds or rounds)
    return rows
