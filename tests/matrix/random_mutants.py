# SPDX-License-Identifier: BSD-3-Clause
"""Random small changes of the code: how many of them does no test notice?

python -m tests.matrix.mutants --random N [--seed S]: the same seed makes the same mutants of the
same code. Each is tried with the tests that run its line, those that run little else first, then
with all others, up to the first that fails. More than 5 % of survivors are a failure;
tests/mutants/equivalent.txt lists mutants that change nothing.
"""

import random
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

from ..mutants.equivalent import EQUIVALENT
from .lines import Lines, environment
from .mutation import linux_mutations
from .trees import HANG, HANGS, ROOT, Trees, changed, run

ENVIRONMENT = "mutants-random"  # more skips than tests/skips.ini grants it are a failure, too
# Each in a run of its own: pytest would merge the two, as one is inside the other, and then leave
# out what norecursedirs names.
ALL = ["tests", "tests/faults"]
RATE = 0.05
NONE_LEFT = 5  # pytest's exit status where each test is deselected
QUICK = 50  # tests to begin with: nearly always one of them fails

# ``by``: the test that failed, or another reason; None for a survivor.
Result = namedtuple("Result", "mutation by")


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
        if code not in (0, NONE_LEFT):
            return killer(code, output), output
    return None, ""


def stages(tests, folders):
    """What to run one after the other, until something fails."""
    others = ["--deselect=" + test for test in tests]
    parts = tests[:QUICK], tests[QUICK:], *([folder, *others] for folder in folders)
    return [[*HANGS, *part] for part in parts if part]


def trial(folders, lines, limit):
    """The function that tries one mutation in a tree."""

    def attempt(mutation, tree):
        tests = lines.tests(mutation.file, mutation.line)
        with changed(tree / "pidwait" / mutation.file, mutation.result):
            by, _ = first_red(tree, stages(tests, folders), limit)
        what = "killed by " + by if by else "survives\n" + mutation.diff
        print("{0.file}:{0.line} {1}".format(mutation, what), flush=True)
        return Result(mutation, by)

    return attempt


def run_all(mutations, trees, folders=ALL):
    with tempfile.TemporaryDirectory() as made, trees.one() as tree:
        file = Path(made, "lines")
        started = time.monotonic()
        for folder in folders:
            recording = ["-p", "tests.matrix.lines", folder]
            code, output = run(tree, recording, ENVIRONMENT, more=environment(file, tree))
            if code != 0:
                sys.exit(output + "\nthe tests fail without a mutant, too")
        took = time.monotonic() - started
        lines = Lines(file)
    # The time limit allows for the other mutants, which run at the same time.
    return list(trees.map(trial(folders, lines, 60 + 5 * took), mutations))


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
