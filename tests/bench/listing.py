# SPDX-License-Identifier: BSD-3-Clause
"""Listing 2,000 processes, attributes of one, and the command line's start, beside psutil

The 2,000 are real ones, which share the memory of the small C program that starts them. Times are
CPU time in microseconds, of each process listed, of each set of attributes, of each start. What is
compared runs in turns, in random order; a figure is the median of the rounds' ratios. Before
psutil's first round counts it has run twice, so its process_iter() has all the processes in its
cache and reads only what is asked for, while ours reads each process's start time anew if anything
is asked for; "cold" is with psutil's cache cleared each time.
"""

import gc
import os
import subprocess
import sys
import tempfile
import time

from .. import pidwait
from ..processes import gone_pid
from . import core, herd, imports, syscalls

PARTS = ("herd", "files", "oneshot", "start")
COUNT = 2000
IN_STAT = ("name", "ppid", "status", "create_time")
ALL = IN_STAT + ("cmdline", "uids", "username")
# Title, names, the most files that as_dict() may open, and what a oneshot may cost at most.
SETS = [
    ("four attributes in /proc/PID/stat", IN_STAT, 2, 0.5),
    ("all attributes", ALL, None, None),
]
LISTED = {
    "process_iter(['pid', 'name'])": (["pid", "name"], 0.8),
    "process_iter()": (None, 3.0),
    "process_iter(['pid'])": (["pid"], 3.0),
    "process_iter() of all attributes": (["pid"] + list(ALL), None),
}
FAMILIES = {"children()": (False, 1.0), "children(recursive=True)": (True, None)}
REPEATED = 100
SLEEP = ["sleep", "600"]
EMPTY = "empty_with_argparse"


def listing(process_iter, attrs, clear=None):
    """A function that lists all processes, and returns the CPU time for each."""

    def measure():
        gc.collect()
        if clear:
            clear()
        began = time.process_time()
        count = sum(1 for _ in process_iter(attrs))
        seconds = time.process_time() - began
        if count < COUNT:
            raise core.Unavailable("only {} processes were listed".format(count))
        return seconds / count * 1e6

    return measure


def family(info, recursive):
    """A function that finds children among all processes, and returns the CPU time for each."""

    def measure():
        gc.collect()
        began = time.process_time()
        count = len(info.children(recursive))
        seconds = time.process_time() - began
        if recursive and count < COUNT:
            raise core.Unavailable("only {} descendants were found".format(count))
        return seconds / COUNT * 1e6

    return measure


def of_a_herd(rounds):
    psutil = core.psutil
    variants = {}
    for title, (attrs, _) in LISTED.items():
        variants[title, "ours"] = listing(pidwait.process_iter, attrs)
        if psutil:
            variants[title, "psutil"] = listing(psutil.process_iter, attrs)
    for title, (recursive, _) in FAMILIES.items():
        variants[title, "ours"] = family(pidwait.ProcessInfo(os.getpid()), recursive)
        if psutil:
            variants[title, "psutil"] = family(psutil.Process(), recursive)
    cold, (attrs, _) = next(iter(LISTED.items()))
    # A round of it leaves the cache full, as one of the others does.
    clear = getattr(psutil and psutil.process_iter, "cache_clear", None)
    if clear:
        variants[cold, "cold"] = listing(psutil.process_iter, attrs, clear)
    with tempfile.TemporaryDirectory() as folder, herd.Herd(herd.compile_starter(folder), COUNT):
        results = core.in_turns(variants, rounds, warm_up=2)
    rows = [
        row(title, results[title, "ours"], results.get((title, "psutil")), bound)
        for title, (_, bound) in list(LISTED.items()) + list(FAMILIES.items())
    ]
    if clear:
        rows.append(row(cold + ", cold", results[cold, "ours"], results[cold, "cold"]))
    return rows


def row(title, ours, peer, bound=None):
    if peer is None:
        return core.Row(title, core.median(ours), bound=bound, lacks=core.NO_PSUTIL)
    return core.paired_row(title, ours, peer, bound)


def files(_rounds):
    found = syscalls.traced(module=__name__)

    def opens(mark):
        return sum(call.startswith("open") for call in syscalls.typical(found[mark]))

    return [
        core.Row(
            "as_dict of {}: files opened".format(title),
            opens("ours/" + title),
            opens("psutil/" + title) if core.psutil else None,
            "count",
            bound,
            core.NO_PSUTIL,
            [syscalls.sequence(syscalls.typical(found["ours/" + title]))],
        )
        for title, _, bound, _ in SETS
    ]


def trace_me():
    child = subprocess.Popen(SLEEP)
    subjects = {"ours": pidwait.ProcessInfo(child.pid)}
    if core.psutil:
        subjects["psutil"] = core.psutil.Process(child.pid)
    for who, subject in subjects.items():
        for title, attrs, _, _ in SETS:
            for _ in range(1 + syscalls.WAITS):
                syscalls.marked(who + "/" + title, subject.as_dict, list(attrs))
    child.kill()
    child.wait()


def asked(info, names, oneshot):
    """A function that calls these methods, and returns the CPU time for all of them."""

    def call():
        for name in names:
            getattr(info, name)()

    def measure():
        began = time.process_time()
        for _ in range(REPEATED):
            if oneshot:
                with info.oneshot():
                    call()
            else:
                call()
        return (time.process_time() - began) / REPEATED * 1e6

    return measure


def oneshots(rounds):
    child = subprocess.Popen(SLEEP)
    try:
        subjects = {"ours": pidwait.ProcessInfo(child.pid)}
        if core.psutil:
            subjects["psutil"] = core.psutil.Process(child.pid)
        variants = {
            (title, who, oneshot): asked(subject, names, oneshot)
            for title, names, _, _ in SETS
            for who, subject in subjects.items()
            for oneshot in (True, False)
        }
        results = core.in_turns(variants, rounds)
    finally:
        child.kill()
        child.wait()
    rows = []
    for title, _, _, bound in SETS:
        with_it = results[title, "ours", True]
        name = "{}, oneshot : without".format(title)
        rows.append(core.paired_row(name, with_it, results[title, "ours", False], bound))
        rows.append(row(title + ", oneshot", with_it, results.get((title, "psutil", True))))
    return rows


def start(folder, *arguments):
    """The CPU time of an interpreter, from its start to its end, without .pth files."""
    command = [sys.executable, "-ES", "-m"] + list(arguments)
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE)
    with process:
        errors = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    if "Traceback" in errors or "No module" in errors:
        raise core.Unavailable("{} failed: {}".format(" ".join(command), errors))
    return (usage.ru_utime + usage.ru_stime) * 1e6


def starts(rounds):
    with tempfile.TemporaryDirectory() as folder:
        imports.copy(folder)
        with open(os.path.join(folder, EMPTY + ".py"), "w") as file:
            file.write("import argparse\n")
        results = core.in_turns(
            {
                "ours": lambda: start(folder, imports.NAME, str(gone_pid())),
                "empty": lambda: start(folder, EMPTY),
            },
            rounds,
        )
    title = "python -m pidwait PID, gone : an empty module with argparse"
    return [core.paired_row(title, results["ours"], results["empty"], 1.3)]


def run(options):
    if not sys.platform.startswith("linux"):
        raise core.Unavailable("strace, /proc and the herd's clone(2) are Linux's")
    measures = {
        "herd": (of_a_herd, 20),
        "files": (files, 1),
        "oneshot": (oneshots, 40),
        "start": (starts, 60),
    }
    rows = []
    for part in options.part or PARTS:
        measure, rounds = measures[part]
        rows += measure(options.rounds or rounds)
    return rows


if __name__ == "__main__":
    trace_me()
