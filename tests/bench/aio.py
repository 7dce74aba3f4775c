# SPDX-License-Identifier: BSD-3-Clause
"""Waits in asyncio's event loop: wake-up, CPU per exit

"bare" is loop.add_reader() on a pidfd, and then the same calls for the exit code. Times are in
microseconds, CPU time is without the set-up.
"""

import asyncio
import importlib
import os
import tempfile
import threading
import time
from contextlib import closing

from .. import pidwait
from . import core, herd, latency, many

aio = importlib.import_module(pidwait.__name__ + ".aio")
PARTS = ("wakeup", "number")


async def bare(loop, pid):
    """The least that a coroutine can do."""
    fd = os.pidfd_open(pid)
    future = loop.create_future()

    def exited():
        loop.remove_reader(fd)
        code = os.waitid(latency.P_PIDFD, fd, latency.OPTIONS).si_status
        os.close(fd)
        future.set_result(code)

    loop.add_reader(fd, exited)
    return await future


async def resumed(wait):
    """When the coroutine goes on after the wait."""
    await wait
    return time.monotonic()


def wakeup(folder, rounds):
    with closing(asyncio.new_event_loop()) as loop:
        children = latency.Children(folder)
        try:
            results = core.in_turns(
                {
                    "ours": lambda: children.measure(
                        lambda popen: loop.run_until_complete(resumed(aio.wait(popen.pid))), float
                    ),
                    "bare": lambda: children.measure(
                        lambda popen: loop.run_until_complete(resumed(bare(loop, popen.pid))), float
                    ),
                },
                (rounds or 1) * 300,
                warm_up=5,
            )
        finally:
            children.close()
    ours, peer = (core.median([woken for woken, _ in results[name]]) for name in ("ours", "bare"))
    yield core.Row("wake-up p50, aio.wait(pid) : bare", ours, peer, bound=1.4)


def per_exit(starter, count, wrong):
    """CPU time of an exit, while a task waits for each."""

    async def wait(pid):
        return pid, await aio.wait(pid)

    with herd.Herd(starter, count) as processes, closing(asyncio.new_event_loop()) as loop:
        tasks = [loop.create_task(wait(pid)) for pid in processes.pids]
        loop.run_until_complete(asyncio.sleep(0))
        processes.end(0, count, many.STEP)
        cpu = time.process_time()
        exits = loop.run_until_complete(asyncio.gather(*tasks))
        cpu = time.process_time() - cpu
        wrong.append(many.wrong(processes.pids, exits))
    return cpu / count * 1e6


def number(folder, rounds):
    starter = herd.compile_starter(folder)
    wrong = []
    threads = []

    def large():
        before = threading.active_count()
        figure = per_exit(starter, 5000, wrong)
        threads.append(threading.active_count() - before)
        return figure

    results = core.in_turns(
        {
            "large": large,
            "small": lambda: core.median([per_exit(starter, 100, wrong) for _ in range(9)]),
        },
        rounds or 5,
        warm_up=0,
    )
    yield core.paired_row("CPU, 5,000 : 100 waits", results["large"], results["small"], bound=1.5)
    yield core.Row("exit codes lost or wrong", sum(wrong), kind="count", bound=0)
    yield core.Row("threads for 5,000 waits", max(threads), kind="count", bound=0)


def run(options):
    if not hasattr(os, "pidfd_open"):
        raise core.Unavailable("what to compare with needs os.pidfd_open")
    many.allow_all_fds()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.part or PARTS:
            rows += globals()[name](folder, options.rounds)
    return rows
