# SPDX-License-Identifier: BSD-3-Clause
"""Waits in asyncio's event loop: wake-up, CPU per exit, what cancelled waits leave, limits

"bare" is loop.add_reader() on a pidfd, and then the same calls for the exit code. Times are in
microseconds, CPU time is without the set-up.
"""

import asyncio
import importlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

from .. import pidwait
from . import core, herd, latency, many

aio = importlib.import_module(pidwait.__name__ + ".aio")
PARTS = ("wakeup", "number", "own children", "cancelled", "soft limit")
OWN = 2000
SLEEPER = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
PEER = getattr(asyncio, "PidfdChildWatcher", None)
NO_PEER = None if PEER else "this asyncio has no PidfdChildWatcher"


class Loop:
    """An event loop, closed at the end of the block."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)  # for the watcher
        return self.loop

    def __exit__(self, *_):
        asyncio.set_event_loop(None)
        self.loop.close()


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
    with Loop() as loop:
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
    yield core.Row("wake-up p50, aio.wait(pid) : bare", ours, peer, bound=1.25)


def per_exit(starter, count, wrong):
    """CPU time of an exit, while a task waits for each."""

    async def wait(pid):
        return pid, await aio.wait(pid)

    with herd.Herd(starter, count) as processes, Loop() as loop:
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


class Own:
    """Our own children, which are killed one after the other, by a child that is not counted."""

    def __init__(self, sleeper, count):
        self.popens = [subprocess.Popen([sleeper]) for _ in range(count)]
        reads, self._go = os.pipe()
        self._killer = os.fork()
        if self._killer == 0:
            try:
                os.close(self._go)
                if not os.read(reads, 1):
                    os._exit(0)
                for popen in self.popens:
                    os.kill(popen.pid, signal.SIGKILL)
                    time.sleep(many.STEP / 1e6)
            finally:
                os._exit(0)
        os.close(reads)

    def end(self):
        os.write(self._go, b"\n")

    def close(self):
        os.close(self._go)
        os.waitpid(self._killer, 0)
        for popen in self.popens:
            popen.kill()
            popen.wait()


def by_watcher(loop):
    """A task for each, as aio.wait() has."""
    watcher = PEER()
    watcher.attach_loop(loop)

    async def wait(popen):
        future = loop.create_future()
        watcher.add_child_handler(popen.pid, lambda pid, code: future.set_result(code))
        return await future

    return lambda popen: asyncio.ensure_future(wait(popen))


def by_pid(loop):
    return lambda popen: asyncio.ensure_future(aio.wait(popen.pid))


def per_child(sleeper, make_wait, wrong):
    with Loop() as loop:
        own = Own(sleeper, OWN)
        wait = make_wait(loop)

        async def all_exits():
            futures = [wait(popen) for popen in own.popens]
            await asyncio.sleep(0)
            own.end()
            cpu = time.process_time()
            codes = await asyncio.gather(*futures)
            return time.process_time() - cpu, codes

        try:
            cpu, codes = loop.run_until_complete(all_exits())
            for popen in own.popens * (make_wait is not by_pid):
                popen.returncode = -9  # reaped by the watcher
        finally:
            own.close()
        wrong.append(sum(code != -9 for code in codes))
    return cpu / OWN * 1e6


def own_children(folder, rounds):
    title, bound = "CPU, own children, aio.wait(pid) : PidfdChildWatcher", 1.0
    if PEER is None:
        yield core.Row(title, None, bound=bound, lacks=NO_PEER)
        return
    sleeper = core.build(SLEEPER.encode(), os.path.join(folder, "sleeper"), "-Os", "-static")
    wrong = []
    results = core.in_turns(
        {
            "ours": lambda: per_child(sleeper, by_pid, wrong),
            "peer": lambda: per_child(sleeper, by_watcher, wrong),
        },
        rounds or 5,
        warm_up=0,
    )
    yield core.paired_row(title, results["ours"], results["peer"], bound=bound)
    yield core.Row("return codes wrong, own children", sum(wrong), kind="count", bound=0)


def open_fds():
    return len(os.listdir("/proc/self/fd"))


def zombies():
    count = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    except ChildProcessError:
        return count
    return count


def cancelled(folder, rounds):
    """Waits are cancelled anywhere between their start and the exit, and some just at it."""
    count = rounds or 10000
    left = dict.fromkeys(("fds", "readers", "tasks", "zombies"), 0)

    async def one(number):
        popen = subprocess.Popen(["sleep", "60"]) if number % 10 == 0 else None
        target = popen or os.getppid()
        task = asyncio.ensure_future(aio.wait(target))
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        if popen:
            popen.kill()
            await asyncio.sleep(random.uniform(0, 0.002))
        task.cancel()
        await asyncio.wait([task])
        if popen:
            popen.wait()

    async def run():
        for start in range(0, count, 50):
            await asyncio.gather(*[one(number) for number in range(start, start + 50)])

    with Loop() as loop:
        loop.run_until_complete(asyncio.sleep(0))
        fds, readers = open_fds(), len(loop._selector.get_map())
        loop.run_until_complete(run())
        left["fds"] = open_fds() - fds
        left["readers"] = len(loop._selector.get_map()) - readers
        left["tasks"] = len(asyncio.all_tasks(loop))
    left["zombies"] = zombies()
    for name, found in left.items():
        title = "{} left by {:,} cancelled waits".format(name, count)
        yield core.Row(title, found, kind="count", bound=0)


def soft_limit(folder, rounds):
    """In a process of its own, for its limits."""
    starter = herd.compile_starter(folder)
    wrong, threads = core.output(core.script(__name__, starter)).split()
    yield core.Row("exit codes wrong, soft limit 64", int(wrong), kind="count", bound=0)
    yield core.Row("threads, soft limit 64", int(threads), kind="count", bound=0)


def limited(starter):
    with herd.Herd(starter, 1000) as processes:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

        async def wait(pid):
            return pid, await aio.wait(pid)

        async def wait_for_all():
            tasks = [asyncio.ensure_future(wait(pid)) for pid in processes.pids]
            await asyncio.sleep(0)
            processes.end(0, 1000, many.STEP)
            return await asyncio.gather(*tasks)

        with Loop() as loop:
            exits = loop.run_until_complete(wait_for_all())
        print(many.wrong(processes.pids, exits), threading.active_count() - 1)


def run(options):
    if not hasattr(os, "pidfd_open"):
        raise core.Unavailable("what to compare with needs os.pidfd_open")
    many.allow_all_fds()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.part or PARTS:
            rows += globals()[name.replace(" ", "_")](folder, options.rounds)
    return rows


if __name__ == "__main__":
    limited(sys.argv[1])
