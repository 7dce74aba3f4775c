# SPDX-License-Identifier: BSD-3-Clause
"""Starting /bin/true: spawn and our Popen against the standard one, by heap and by threads

Each interpreter measures a pair of variants in processes of their own, in turns: a third that
shares code with one of them would keep that in the caches. Microseconds per start, to the end of
its wait; CPU is that of the starting process, without its children. Noise of the machine hits both
variants of a round alike, so a figure is the median of the rounds' ratios.
"""

import json
import os
from functools import partial

from . import core, starts

GIB = 2**30
THREADS = (1, 4, 16, 64, 256)
OLD = ("3.6", "3.7", "3.8", "3.9")
NEW = ("3.11", "3.12", "3.13", "3.14", "3.15")
PARTS = ("heap", "256 threads", "closefrom") + OLD + NEW
CPU, WALL = 0, 1


def ask(python, processes=1, **options):
    """The rounds of starts.measure(), from so many processes, one after the other."""
    found = {}
    for _ in range(processes):
        command = [python, "-m", starts.__name__, json.dumps(options)]
        for name, rounds in json.loads(core.output(command, cwd=str(core.ROOT))).items():
            found.setdefault(name, []).extend(rounds)
    return found


def row(title, found, ours, peer, bound=None, column=CPU, notes=()):
    mine, others = ([both[column] for both in found[name]] for name in (ours, peer))
    return core.paired_row(title, mine, others, bound, notes)


class Bench:
    def __init__(self, processes):
        self.processes = processes

    def measure(self, version, rows, **options):
        """The rows of one interpreter: (title, ours, peer, bound)."""
        rows = [("{}: {}".format(version, title), *rest) for title, *rest in rows]
        python = core.find(version)
        if python is None:
            lacks = "no python" + version
            return [core.Row(title, None, bound=bound, lacks=lacks) for title, *_, bound in rows]
        column = options.pop("column", CPU)
        processes = options.pop("processes", self.processes)
        measured = []
        for title, ours, peer, bound in rows:
            found = ask(python, processes, names=[ours, peer], **options)
            measured.append(row(title, found, ours, peer, bound, column))
        return measured

    def old(self, version):
        return self.measure(version, [("Popen, CPU", "ours", "standard", 0.45)], rounds=100)

    def new(self, version):
        rows = [
            ("Popen, CPU", "ours", "standard", 1.6),
            ("Popen patched : standard, CPU", "patched", "standard", 1.3),
            ("spawn : Popen(process_group=0), CPU", "spawn", "standard, group", 2),
        ]
        return self.measure(version, rows)

    def heap(self):
        title = "3.11: spawn, CPU, heap of 1 GiB : none"
        python = core.find("3.11")
        if python is None:
            return [core.Row(title, None, bound=1.3, lacks="no python3.11")]
        options = {"names": ["spawn"], "count": 60, "rounds": 25}
        found = core.in_turns(
            {heap: partial(ask, python, heap=heap, **options) for heap in (0, GIB)},
            self.processes,
            warm_up=0,
        )
        small, large = (
            core.median([both[CPU] for answer in found[heap] for both in answer["spawn"]])
            for heap in (0, GIB)
        )
        return [core.Row(title, large, small, bound=1.3)]

    def closefrom(self):
        options = {"heap": GIB, "column": WALL, "count": 10, "rounds": 20, "processes": 1}
        title = "standard : our Popen, 1 GiB, inverse"
        rows = self.measure("3.8", [(title, "ours", "standard", 1 / 35)], **options)
        title = "the same, without closefrom"
        options["hidden"] = True
        return rows + self.measure("3.8", [(title, "ours", "standard", 1 / 35)], **options)

    def threads_256(self):
        return [by_threads(version, 1.6, self.processes) for version in ("3.11", "3.8")]


def by_threads(version, bound, processes):
    """The row of 256 threads against one, and below it a table of all numbers of threads."""
    title = "{}: spawn, CPU, 256 threads : 1".format(version)
    python = core.find(version)
    if python is None:
        return core.Row(title, None, bound=bound, lacks="no python" + version)
    pools = ask(python, processes, names=["spawn"], threads=[1, 256], count=256, rounds=10)
    names = ["standard, preexec_fn", "standard", "ours", "spawn"]
    notes = ["{:>7}  {}".format("threads", "".join("{:>23}".format(name) for name in names))]
    for threads in THREADS:
        found = ask(python, names=names, threads=[threads], count=256, rounds=5)
        cells = [
            "{:.0f} / {:>7.0f} us".format(*map(core.median, zip(*found[name]))) for name in names
        ]
        notes.append("{:>7}  {}".format(threads, "".join("{:>23}".format(cell) for cell in cells)))
    notes.append("(CPU / wall)")
    return row(title, pools, "spawn, 256", "spawn, 1", bound, notes=notes)


def run(options):
    if os.name != "posix":
        raise core.Unavailable("Windows has no posix_spawn")
    bench = Bench(options.rounds or 3)
    parts = {
        "heap": bench.heap,
        "256 threads": bench.threads_256,
        "closefrom": bench.closefrom,
    }
    parts.update({version: partial(bench.old, version) for version in OLD})
    parts.update({version: partial(bench.new, version) for version in NEW})
    return [row for name in options.part or PARTS for row in parts[name]()]
