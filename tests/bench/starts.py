# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.bench.starts JSON: the starts of /bin/true that one interpreter measures."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .. import pidwait, seam
from . import core

TRUE = ["/bin/true"]
CLOSEFROM = "posix_spawn_file_actions_addclosefrom_np"


def many(start):
    """A function that starts ``count``, perhaps in a thread pool; it returns CPU and wall time."""

    def run(count, pool):
        cpu, wall = time.process_time(), time.perf_counter()
        if pool:
            list(pool.map(lambda _: start(), range(count)))
        else:
            for _ in range(count):
                start()
        return time.process_time() - cpu, time.perf_counter() - wall

    return run


def ours():
    popen = importlib.import_module(pidwait.__name__ + ".subprocess").Popen
    return many(lambda: popen(TRUE).wait())


def standard(**options):
    """The Popen of another copy of the standard module, which nobody patches.

    To patch and unpatch the same class in turns would slow both down: each time the
    interpreter would lose what it has cached of the class.
    """
    spec = importlib.util.find_spec("subprocess")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return many(lambda: module.Popen(TRUE, **options).wait())


def patched():
    importlib.import_module(pidwait.__name__ + ".subprocess").patch()
    return many(lambda: subprocess.Popen(TRUE).wait())


def spawn():
    def start():
        child = pidwait.spawn(TRUE, process_group=0)
        child.wait()
        child.close()

    return many(start)


# name: the function that prepares a variant and returns its starter.
VARIANTS = {
    "spawn": spawn,
    "ours": ours,
    "standard": standard,
    "patched": patched,
    "standard, group": lambda: standard(process_group=0),
    "standard, preexec_fn": lambda: standard(preexec_fn=os.setpgrp),
}


def hide_closefrom():
    import resource

    pidwait.spawn  # noqa: B018 - which makes its calls known
    seam.Seam().hide(CLOSEFROM)

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


def measure(names, threads=(0,), count=5, rounds=400, heap=0, hidden=False):
    """{name: [(CPU, wall) of each round]} in microseconds per start, the variants in turns.

    threads: the sizes of the pools to measure with; 0 is without a pool, on one CPU.
    """
    if hidden:
        hide_closefrom()
    if tuple(threads) == (0,) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    ballast = bytearray(heap)
    ballast[::4096] = b"x" * len(ballast[::4096])  # touch the pages, so that they exist
    pools = {number: ThreadPoolExecutor(number) if number else None for number in threads}
    variants = {}
    for name in names:
        start = VARIANTS[name]()
        for number, pool in pools.items():
            key = "{}, {}".format(name, number) if len(pools) > 1 else name
            variants[key] = lambda start=start, pool=pool: start(count, pool)
    try:
        results = core.in_turns(variants, rounds)
    finally:
        for pool in filter(None, pools.values()):
            pool.shutdown()
    return {
        name: [[seconds / count * 1e6 for seconds in both] for both in result]
        for name, result in results.items()
    }


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    print(json.dumps(measure(**options)))
