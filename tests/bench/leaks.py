# SPDX-License-Identifier: BSD-3-Clause
"""What 10,000 waits for our own children leave behind: fds, zombies; wrong exit codes

By pid, by Popen, by Process, with and without `reap`, with and without a first look.
"""

import itertools
import os
import signal
import subprocess
import time

from .. import pidwait
from . import core

TIMEOUT = 30
CODES = (0, 7, 255, -signal.SIGTERM, -signal.SIGKILL)


def shell(code):
    return ["/bin/sh", "-c", "exit %d" % code if code >= 0 else "kill %d $$" % code]


def by_popen(code):
    popen = subprocess.Popen(shell(code))
    return popen, popen.pid


def by_spawn(code):
    command = shell(code)
    pid = os.posix_spawn(command[0], command, os.environ)
    return pid, pid


def by_fork(code):
    pid = os.fork()
    if pid == 0:
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    return pid, pid


def wait(proc, pid):
    return pidwait.wait(proc, TIMEOUT)


def wait_reap(proc, pid):
    return pidwait.wait(proc, TIMEOUT, reap=True)


def look_first(proc, pid):
    try:
        return pidwait.wait(proc, 0)
    except pidwait.TimeoutExpired:
        return pidwait.wait(proc, TIMEOUT)


def handle(proc, pid):
    with pidwait.Process(pid) as process:
        return process.wait(TIMEOUT)


def reap(proc):
    """Reap as the owner would; it may have been reaped already."""
    if not isinstance(proc, int):
        proc.wait()
        return
    try:
        os.waitpid(proc, 0)
    except ChildProcessError:
        pass


def fds():
    return len(os.listdir("/dev/fd"))


def reap_zombies():
    count = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    except ChildProcessError:
        pass
    return count


def waits(rounds):
    """Wait for so many children; return the number of wrong codes."""
    starts = [by_popen, by_fork] + [by_spawn] * hasattr(os, "posix_spawn")
    combinations = itertools.cycle(
        itertools.product(CODES, (wait, wait_reap, look_first, handle), starts)
    )
    wrong = 0
    for code, way, start in itertools.islice(combinations, rounds):
        proc, pid = start(code)
        wrong += way(proc, pid) != code
        # A wait that reaps gets no help: a zombie that it left would be counted.
        if way is not wait_reap and not (way is wait and start is by_popen):
            reap(proc)
    return wrong


def rate(wait):
    start = time.perf_counter()
    with subprocess.Popen(["true"]) as popen:
        wait(popen)
    return (time.perf_counter() - start) * 1e6


def run(options):
    if not hasattr(os, "fork"):
        raise core.Unavailable("no os.fork")
    rounds = options.rounds or 10000
    waits(60)
    before = fds()
    wrong = waits(rounds)
    zombies = reap_zombies()
    after = fds()
    times = core.in_turns(
        {
            "ours": lambda: rate(lambda popen: pidwait.wait(popen, TIMEOUT)),
            "peer": lambda: rate(lambda popen: popen.wait(TIMEOUT)),
        },
        min(rounds, 1000),
    )
    ours, peer = (core.median(times[who]) for who in ("ours", "peer"))
    per_second = ["%.0f a second, Popen.wait %.0f" % (1e6 / ours, 1e6 / peer)]
    return [
        core.Row("open fds after %d waits : before" % rounds, after, before, "more", 0),
        core.Row("zombies", zombies, kind="count", bound=0),
        core.Row("wrong exit codes", wrong, kind="count", bound=0),
        core.Row("us to start and wait : Popen.wait", ours, peer, notes=per_second),
    ]
