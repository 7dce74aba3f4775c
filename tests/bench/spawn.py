# SPDX-License-Identifier: BSD-3-Clause
"""Starting /bin/true: spawn and our Popen against the standard one, by heap and by threads

Each interpreter measures in processes of its own, the variants in turns; microseconds per start, to
the end of its wait. CPU is that of the process that starts, without its children.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .. import pidwait
from ..matrix import interpreters
from . import core

GIB = 2**30
TRUE = ["/bin/true"]
CLOSEFROM = "posix_spawn_file_actions_addclosefrom_np"
THREADS = (1, 4, 16, 64, 256)
STARTS = 1500  # of each variant, or five rounds if that is more


def ours(**options):
    popen = importlib.import_module(pidwait.__name__ + ".subprocess").Popen
    return lambda: popen(TRUE, **options).wait()


def standard(**options):
    return lambda: subprocess.Popen(TRUE, **options).wait()


def spawn():
    child = pidwait.spawn(TRUE, process_group=0)
    child.wait()
    child.close()


# name: what makes one start, once it is chosen.
VARIANTS = {
    "spawn": lambda: spawn,
    "ours": ours,
    "standard": standard,
    "ours, group": lambda: ours(process_group=0),
    "standard, group": lambda: standard(process_group=0),
    "standard, preexec_fn": lambda: standard(preexec_fn=os.setpgrp),
}


def hide_closefrom():
    calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")

    def missing(binding, name):
        raise ImportError("hidden by the bench")

    calls._CALLS[CLOSEFROM] = (None, missing)
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


def measure(names, heap, threads, count, hidden):
    """{name: (CPU, wall)} in microseconds, the medians over rounds."""
    if hidden:
        hide_closefrom()
    ballast = bytearray(heap)
    ballast[::4096] = b"x" * len(ballast[::4096])  # pages that are there
    with ThreadPoolExecutor(threads) as pool:

        def rounds(start):
            def one_round():
                cpu, wall = time.process_time(), time.perf_counter()
                list(pool.map(lambda _: start(), range(count)))
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                return cpu / count * 1e6, wall / count * 1e6

            return one_round

        variants = {name: rounds(VARIANTS[name]()) for name in names}
        results = core.in_turns(variants, max(5, STARTS // count))
    return {
        name: [core.median(column) for column in zip(*result)] for name, result in results.items()
    }


def stall():
    """The longest stop of another thread, in milliseconds, during a start that takes a second."""
    actions_of = importlib.import_module(pidwait.__name__ + "._spawn_actions")
    calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
    build, fifo = actions_of.build_actions, "/tmp/pidwait-bench-%d" % os.getpid()

    def with_fifo(*wanted):
        actions = build(*wanted)
        add = calls.get("posix_spawn_file_actions_addopen")
        assert not add(actions.pointer, 0, os.fsencode(fifo), os.O_RDONLY, 0)
        return actions

    def own(path):
        action = (os.POSIX_SPAWN_OPEN, 0, path, os.O_RDONLY, 0)
        os.waitpid(os.posix_spawn(TRUE[0], TRUE, os.environ, file_actions=[action]), 0)

    ways = {"spawn": lambda: pidwait.spawn(TRUE).__exit__(None, None, None)}
    if hasattr(os, "posix_spawn"):
        ways["os.posix_spawn"] = lambda: own(fifo)
    found = {}
    spawn()  # what is loaded once
    actions_of.build_actions = with_fifo
    importlib.import_module(pidwait.__name__ + "._probe").forget()
    os.mkfifo(fifo)
    try:
        for name, start in ways.items():
            opener = subprocess.Popen(["sh", "-c", 'sleep 1; : > "$0"', fifo])
            found[name] = longest_stop(threading.Thread(target=start)) * 1000
            opener.wait()
    finally:
        os.unlink(fifo)
    return found


def longest_stop(worker):
    """Run the thread; the longest time, in seconds, in which this one could do nothing."""
    # From before the start: that returns only when the worker gives the GIL back.
    longest, last, alive = 0.0, time.perf_counter(), True
    worker.start()
    while alive:
        alive = worker.is_alive()
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        time.sleep(0.001)
    worker.join()
    return longest


def find(version):
    """The interpreter of that version, or None."""
    for folder in interpreters.search_path().split(os.pathsep):
        path = os.path.join(folder, "python" + version)
        # pyenv's shims are there for versions that are not.
        if os.access(path, os.X_OK) and "shims" not in folder:
            return path
    return None


def ask(python, *arguments):
    command = [python, "-m", __name__, json.dumps(arguments)]
    return json.loads(core.output(command, cwd=str(core.ROOT)))


class Figures:
    """What one interpreter measures, and why not."""

    def __init__(self, version):
        self.version = version
        self.python = find(version)
        self.lacks = None if self.python else "no python" + version

    def row(self, name, ours, peer, bound, column=0, heap=0, threads=1, count=60, hidden=False):
        name = "{}: {}".format(self.version, name)
        if self.python is None:
            return core.Row(name, None, None, bound=bound, lacks=self.lacks)
        found = ask(self.python, [ours, peer], heap, threads, count, hidden)
        return core.Row(name, found[ours][column], found[peer][column], bound=bound)


def by_heap(version, rounds):
    figures = Figures(version)
    if figures.python is None:
        return core.Row("spawn, heap of 1 GiB : none", None, bound=1.3, lacks=figures.lacks)
    found = core.in_turns(
        {
            heap: lambda heap=heap: ask(figures.python, ["spawn"], heap, 1, 60, False)
            for heap in (0, GIB)
        },
        rounds,
        warm_up=0,
    )
    small, large = (
        core.median([answer["spawn"][0] for answer in found[heap]]) for heap in (0, GIB)
    )
    return core.Row("{}: spawn, CPU, heap of 1 GiB : none".format(version), large, small, bound=1.3)


def by_threads(version):
    """The row of 256 threads against one, and under it the table of the article."""
    figures = Figures(version)
    name = "{}: spawn, CPU, 256 threads : 1".format(version)
    if figures.python is None:
        return core.Row(name, None, bound=1.5, lacks=figures.lacks)
    names = ["standard, preexec_fn", "standard", "ours", "spawn"]
    notes = ["{:>7}  {}".format("threads", "".join("{:>23}".format(name) for name in names))]
    cpu = {}
    for threads in THREADS:
        found = ask(figures.python, names, 0, threads, 256, False)
        cpu[threads] = found["spawn"][0]
        cells = ("{:>10.0f} / {:>7.0f} us".format(*found[name]) for name in names)
        notes.append("{:>7}  {}".format(threads, "".join("{:>23}".format(cell) for cell in cells)))
    notes.append("(CPU / wall)")
    return core.Row(name, cpu[256], cpu[1], bound=1.5, notes=notes)


def run(options):
    if os.name != "posix":
        raise core.Unavailable("Windows has no posix_spawn")
    rows = [by_heap("3.11", options.rounds or 3), by_threads("3.11"), by_threads("3.8")]
    old = Figures("3.8")
    heap = {"column": 1, "heap": GIB, "count": 10}
    rows.append(old.row("standard : our Popen, 1 GiB, inverse", "ours", "standard", 1 / 50, **heap))
    rows.append(
        old.row("the same, without closefrom", "ours", "standard", 1 / 40, hidden=True, **heap)
    )
    for version in ("3.6", "3.7", "3.8", "3.9"):
        rows.append(Figures(version).row("Popen, CPU", "ours", "standard", 0.35))
    for version in ("3.11", "3.12", "3.13", "3.14", "3.15"):
        figures = Figures(version)
        rows.append(figures.row("Popen, CPU", "ours", "standard", 1.05))
        name = "spawn : Popen(process_group=0), CPU"
        rows.append(figures.row(name, "spawn", "standard, group", 0.85))
    rows.append(
        Figures("3.11").row(
            "64 threads, wall, spawn : Popen", "spawn", "standard", 0.9, 1, 0, 64, 640
        )
    )
    found = ask(sys.executable, "stall")
    rows.append(
        core.Row(
            "stall of another thread, ms", found["spawn"], found.get("os.posix_spawn"), "count", 50
        )
    )
    return rows


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(json.dumps(stall() if arguments == ["stall"] else measure(*arguments)))
