# SPDX-License-Identifier: BSD-3-Clause
"""Random small changes of the code: how many of them does no test notice?

python -m tests.matrix.mutants --random N [--seed S]: the same seed makes the same mutants of the
same code. For each the tests nearest to it are run, then all the others, up to the first that
fails. More than 5 % of survivors are a failure; tests/mutants/equivalent.py lists mutants that
change nothing.
"""

import random
import sys
import time
from collections import namedtuple
from pathlib import PurePosixPath

from ..mutants.equivalent import EQUIVALENT
from .mutation import linux_mutations, words
from .trees import HANG, HANGS, ROOT, Trees, changed, run

ENVIRONMENT = "mutants-random"  # more skips than tests/skips.ini grants it are a failure, too
# Each in a run of its own: pytest would merge the two, as one is inside the other, and then leave
# out what norecursedirs names.
ALL = ["tests", "tests/faults"]
RATE = 0.05
# {word of a module's path: the tests for it, besides the one with the module's own name}
NEAREST = {
    "actions": "subprocess popen_differences",
    "aio": "aio_completed aio_cancel aio_spawn aio_owners",
    "backends": "process wait waiting",
    "calls": "probe",
    "checks": "probe",
    "cli": "cli commands cli_values cli_streams cli_family cli_terminal cli_exit_code cli_select",
    "combined": "handlers polling_set later_policies engine waitset waiting forks",
    "config": "probe",
    "connector": "connector_messages listening_set",
    "deadline": "wait",
    "engine": "waitset waiting targets forks",
    "errors": "process handlers",
    "events": "events_wait connector_messages listening_set",
    "exitcodes": "process wait procfs pidfd",
    "ffi": "ffi posix_spawn",
    "facts": "listing listing_linux",
    "family": "listing listing_linux run_tree cli_family",
    "fork": "waitset process",
    "guard": "process spawn child forks",
    "handle": "process",
    "heard": "listening_members listening_set",
    "highfds": "waitset",
    "init": "probe package docstrings imports",
    "job": "run_as_gnu run_signals run_tree cli_terminal",
    "kinds": "raising_owners targets owners forks",
    "linux": "run_tree",
    "listed": "listing listing_linux listing_peers",
    "listening": "listening_members inotify",
    "listing": "listing_linux recipes",
    "loops": "aio aio_loops aio_cancel aio_completed aio_fds aio_forks",
    "main": "cli",
    "netlink": "connector connector_messages",
    "outcome": "wait",
    "paced": "listening_members listening_set inotify",
    "parts": "vendor_single_file vendor_folder",
    "pidfd": "pidfd waitset child aio_watcher",
    "polled": "procfs wait process",
    "polling": "paced_sets waiting engine",
    "popen": "subprocess popen_differences",
    "process": "owners targets wait tracers",
    "procfs": "procfs process listing_linux",
    "run": "run_as_gnu run_signals run_tree",
    "select": "cli_names",
    "set": "waitset later_policies engine",
    "sources": "wait process",
    "spawn": "posix_spawn spawn_failures",
    "spawning": "spawn spawn_failures posix_spawn",
    "start": "run_as_gnu",
    "subprocess": "posix_spawn hooks popen_differences",
    "targets": "raising_owners owners input waitset waiting",
    "timers": "fd waitset",
    "tree": "run_tree run_signals",
    "turn": "waitset",
    "vendor": "vendor_folder vendor_single_file",
    "vendoring": "vendor_joining vendor_single_file vendor_folder",
    "waiting": "waitset",
    "waitset": "engine waiting forks",
    "watcher": "aio_watcher aio_fds aio_forks",
    "watching": "watching_interrupted",
}

# The same of tests/faults, which are run next.
FAULTS = {
    "child": "interrupts threads",
    "combined": "interrupts policy fds",
    "engine": "interrupts threads",
    "errors": "errors_of_handlers",
    "exitcodes": "lost policy tracer users",
    "fd": "fds",
    "given": "reuse lost",
    "highfds": "fds interrupts",
    "listed": "listing",
    "listing": "listing",
    "pidfd": "lost errors_of_handlers reuse fds",
    "polled": "reuse procfs users",
    "polling": "reuse procfs",
    "process": "tracer reuse errors_of_handlers",
    "procfs": "procfs users reuse",
    "select": "choosing",
    "set": "interrupts errors_of_handlers",
    "spawn": "exec",
    "targets": "reuse interrupts",
    "users": "listing",
    "waitset": "interrupts threads",
}

# ``by``: the test that failed, or another reason; None for a survivor.
Result = namedtuple("Result", "mutation by")


def nearest(file, root=ROOT):
    """The test files to run first for a module: of each folder of ALL, in its order."""
    found = []
    for folder, known in zip(ALL, (NEAREST, FAULTS)):
        names = [PurePosixPath(file).stem.strip("_")]
        for word in words(file):
            names += known.get(word, "").split()
        tests = ["{}/test_{}.py".format(folder, name) for name in dict.fromkeys(names)]
        found.append([test for test in tests if root.joinpath(test).is_file()])
    return found


def sample(mutations, count, seed):
    known = {(each.file, each.old, each.new) for each in EQUIVALENT}
    mutations = [each for each in mutations if (each.file, *each.change) not in known]
    return random.Random(seed).sample(mutations, min(count, len(mutations)))


def killer(code, output):
    if code is None:
        return "the time limit"
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].partition(" ")[2]
    return "a hang" if HANG in output else "exit status {}".format(code)


def first_red(tree, stages, limit=None):
    """The first failure, and the output; (None, "") if nothing fails."""
    for stage in stages:
        code, output = run(tree, stage, ENVIRONMENT, limit)
        if code != 0:
            return killer(code, output), output
    return None, ""


def trial(folders, limit):
    """The function that tries one mutation in a tree."""

    def attempt(mutation, tree):
        first = nearest(mutation.file, tree)
        ignored = ["--ignore=" + each for each in sum(first, [])]
        stages = [*filter(None, first), *([folder, *ignored] for folder in folders)]
        stages = [[*HANGS, *stage] for stage in stages]
        with changed(tree / "pidwait" / mutation.file, mutation.result):
            by, _ = first_red(tree, stages, limit)
        what = "killed by " + by if by else "survives\n" + mutation.diff
        print("{0.file}:{0.line} {1}".format(mutation, what), flush=True)
        return Result(mutation, by)

    return attempt


def run_all(mutations, trees, folders=ALL):
    with trees.one() as tree:
        started = time.monotonic()
        by, output = first_red(tree, [[folder] for folder in folders])
        took = time.monotonic() - started
    if by:
        sys.exit(output + "\nthe tests fail without a mutant, too")
    # The time limit allows for the other mutants, which run at the same time.
    return list(trees.map(trial(folders, 60 + 5 * took), mutations))


def report(results):
    alive = [result.mutation for result in results if result.by is None]
    print("\nsurvivors:", *map("{0.file}:{0.line}".format, alive))
    share = len(alive) / len(results)
    form = "{} killed, {} by the time limit; {} survive, {:.1%}, at most {:.0%} may"
    limit = sum(result.by == killer(None, "") for result in results)
    print(form.format(len(results) - len(alive), limit, len(alive), share, RATE))
    return 0 if share <= RATE else 1


def main(count, seed):
    mutations = sample(linux_mutations(ROOT / "pidwait"), count, seed)
    print("{} mutants, --seed {}".format(len(mutations), seed), flush=True)
    with Trees() as trees:
        return report(run_all(mutations, trees))
