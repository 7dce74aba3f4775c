# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of processes, not our children, at once: CPU per exit, idle CPU, memory, limits

Each measurement has a herd of its own, with one exit every 0.2 ms unless it says otherwise. It
counts the CPU time after the set-up, in microseconds per exit.
"""

import fcntl
import os
import resource
import select
import struct
import sys
import tempfile
import threading
import time
import tracemalloc

from .. import pidwait
from . import core, herd

STEP = 200
IDLE = 10
PARTS = ("number", "psutil", "loop", "idle", "soft limit", "hard limit")
CODE = struct.Struct("=Q8x3i32xi")
GET_INFO = 0xC040FF0B
REQUEST = CODE.pack(8, 0, 0, 0, 0)


def by_set(pids):
    waiting = pidwait.WaitSet(pids)

    def run():
        exits = []
        with waiting:
            while len(waiting):
                exits += waiting.wait()
        return exits

    return run


def by_wait_procs(pids):
    """wait_procs' own loop, with its set-up kept out of the timing."""
    completed = pidwait.as_completed(pids)
    return lambda: list(completed)


def by_epoll(pids):
    """The least that Python code can do: epoll, dict pop, ioctl for the code, close."""
    epoll = select.epoll()
    numbers = {}
    for pid in pids:
        fd = os.pidfd_open(pid)
        epoll.register(fd, select.EPOLLIN)
        numbers[fd] = pid

    def run():
        exits = []
        while numbers:
            for fd, _ in epoll.poll():
                pid = numbers.pop(fd)
                info = bytearray(REQUEST)
                try:
                    fcntl.ioctl(fd, GET_INFO, info, True)
                except ProcessLookupError:  # just while it is being reaped
                    fcntl.ioctl(fd, GET_INFO, info, True)
                exits.append((pid, CODE.unpack(info)[4] >> 8))
                os.close(fd)
        epoll.close()
        return exits

    return run


def by_psutil(pids):
    processes = [core.psutil.Process(pid) for pid in pids]
    return lambda: [(one.pid, None) for one in core.psutil.wait_procs(processes)[0]]


def wrong(pids, exits):
    """The number of pids that are not reported exactly once, with the right code."""
    return sum(dict(exits).get(pid) != i % 256 for i, pid in enumerate(pids)) + abs(
        len(exits) - len(pids)
    )


# The package from the first folder, the tests from the second.
ELSEWHERE = """if True:
    import os, sys
    sys.path[0] = sys.argv[1]
    import pidwait
    assert pidwait.__file__.startswith(sys.argv[1] + os.sep), pidwait.__file__
    sys.path[0] = sys.argv[2]
    from tests.bench import many
    many.allow_all_fds()
    bench = many.Bench(sys.argv[3])
    cpu = bench.per_exit(getattr(many, sys.argv[4]), 4000, int(sys.argv[5]))
    print(cpu, bench.wrong or 0)
"""


class Bench:
    def __init__(self, starter, rounds=1):
        self.starter = starter
        self.rounds = rounds
        self.wrong = None

    def per_exit(self, prepare, count, step=STEP):
        with herd.Herd(self.starter, count) as processes:
            run = prepare(processes.pids)
            processes.end(0, count, step)
            cpu = time.process_time()
            exits = run()
            cpu = time.process_time() - cpu
            if prepare in (by_set, by_wait_procs):
                self.wrong = (self.wrong or 0) + wrong(processes.pids, exits)
        return cpu / count * 1e6

    def compare(self, rounds=None, **variants):
        results = core.in_turns(variants, rounds or self.rounds, warm_up=0)
        return {name: core.median(figures) for name, figures in results.items()}

    def number(self):
        figures = self.compare(
            large=lambda: self.per_exit(by_wait_procs, 10000),
            # Several runs, so that the figure is as sure as that of the large one.
            small=lambda: core.median([self.per_exit(by_wait_procs, 100) for _ in range(9)]),
        )
        yield core.Row("CPU, 10,000 : 100", figures["large"], figures["small"], bound=1.5)

    def loop(self):
        for pace, step in (("one in 0.2 ms", STEP), ("all at once", 0)):
            variants = {
                "many": lambda step=step: self.per_exit(by_wait_procs, 4000, step),
                "waitset": lambda step=step: self.per_exit(by_set, 4000, step),
                "loop": lambda step=step: self.per_exit(by_epoll, 4000, step),
            }
            figures = self.compare(**variants)
            for name, ours in (("wait_procs", "many"), ("WaitSet", "waitset")):
                title = "CPU, 4,000, {} : loop, {}".format(name, pace)
                yield core.Row(title, figures[ours], figures["loop"], bound=2.5)

    def beside(self, folder):
        """The package here and the one in another checkout, each run in a process of its own."""
        for pace, step, bound in (("one in 0.2 ms", STEP, 0.95), ("all at once", 0, 0.9)):
            variants = {
                "ours": lambda step=step: self._elsewhere(core.ROOT, "by_set", step),
                "other": lambda step=step: self._elsewhere(folder, "by_set", step),
                "loop": lambda step=step: self._elsewhere(core.ROOT, "by_epoll", step),
            }
            results = core.in_turns(variants, self.rounds)
            ours, other, loop = results["ours"], results["other"], results["loop"]
            title = "CPU, 4,000, WaitSet : %s, " + pace
            yield core.paired_row(title % "the other checkout's", ours, other, bound)
            yield core.paired_row(title % "loop, in processes", ours, loop)
            yield core.paired_row("CPU, 4,000, the other's : loop, " + pace, other, loop)

    def _elsewhere(self, folder, name, step):
        command = [sys.executable, "-B", "-c", ELSEWHERE, os.path.abspath(str(folder))]
        command += [str(core.ROOT), self.starter, name, str(step)]
        cpu, mistakes = core.output(command).split()
        self.wrong = (self.wrong or 0) + int(mistakes)
        return float(cpu)

    def psutil(self):
        # One exit a millisecond: at a higher rate psutil finds several in each of its rounds.
        name = "CPU, 4,000, wait_procs : psutil, one a ms"
        if core.psutil is None:
            yield core.Row(name, None, bound=1 / 10, lacks=core.NO_PSUTIL)
            return
        figures = self.compare(
            1,
            many=lambda: self.per_exit(by_wait_procs, 4000, 1000),
            psutil=lambda: self.per_exit(by_psutil, 4000, 1000),
        )
        yield core.Row(name, figures["many"], figures["psutil"], bound=1 / 10)

    def idle(self):
        with herd.Herd(self.starter, 10000) as processes:
            tracemalloc.start()
            with pidwait.WaitSet(processes.pids):
                memory = tracemalloc.get_traced_memory()[0] / 10000
            tracemalloc.stop()
            with pidwait.WaitSet(processes.pids) as waiting:
                waiting.wait(0.01)
                cpu = time.process_time()
                waiting.wait(IDLE)
                cpu = time.process_time() - cpu
        yield core.Row("CPU ms in 10 s, 10,000 idle", cpu * 1000, kind="count", bound=1)
        yield core.Row("bytes per process", memory, kind="count", bound=1024)

    def soft_limit(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        threads = threading.active_count()
        seen = []

        def limited():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
            try:
                return self.per_exit(watched, 5000)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        def watched(pids):
            low = low_fds()
            run = by_set(pids)
            seen.append(resource.getrlimit(resource.RLIMIT_NOFILE) != (256, limits[1]))
            seen.append(low_fds() != low + 1)  # the set's own, which select() takes
            seen.append(threading.active_count() != threads)
            return run

        figures = self.compare(limited=limited, free=lambda: self.per_exit(by_set, 5000))
        yield core.Row(
            "CPU, 5,000, soft limit 256 : none", figures["limited"], figures["free"], bound=1.2
        )
        yield core.Row("changed limits, low fds, threads", sum(seen), kind="count", bound=0)

    def hard_limit(self):
        """In a process of its own, since only root can raise a hard limit again."""
        command = core.script(__name__ + "_hard", self.starter)
        idle, lost = core.output(command).split()
        yield core.Row("CPU %, 5,000, hard limit 256", float(idle), kind="count", bound=5)
        yield core.Row("lost or wrong, 5,000, hard limit 256", int(lost), kind="count", bound=0)


def low_fds():
    """The number of open file descriptors below 256."""
    return sum(int(fd) < 256 for fd in os.listdir("/proc/self/fd"))


def allow_all_fds():
    """The loop to compare with takes a file descriptor for each process, below the soft limit."""
    if not hasattr(os, "pidfd_open"):
        raise core.Unavailable("the loop to compare with needs os.pidfd_open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def run(options):
    allow_all_fds()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(herd.compile_starter(folder), options.rounds or 5)
        rows = []
        for name in options.part or ([] if options.beside else PARTS):
            rows += getattr(bench, name.replace(" ", "_"))()
        if options.beside:
            rows += bench.beside(options.beside)
    if bench.wrong is not None:
        rows.append(core.Row("exit codes lost or wrong", bench.wrong, kind="count", bound=0))
    return rows
