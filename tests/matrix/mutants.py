# SPDX-License-Identifier: BSD-3-Clause
"""Take each guard out, one at a time, and see its test fail.

python -m tests.matrix.mutants [NAME...]: the list is in tests/mutants. Each mutant is made in a
copy of the tree; first all the tests named there have to pass in a copy without any mutant.
With --random N [--seed S]: N random small changes of what runs on Linux, see random_mutants.
"""

import argparse
import random
import sys

from ..mutants import MUTANTS
from . import random_mutants
from .trees import HANGS, Trees, changed, run

# Seconds for one file of tests: what a mutant does not come back from, its test has found.
LIMIT = 300


def why_alive(mutant, tree):
    """Why the mutant was not killed, or None."""
    path = tree / "pidwait" / mutant.file
    text = path.read_text()
    count = text.count(mutant.old)
    if count != 1:
        return "{} has the text {} times".format(mutant.file, count)
    with changed(path, text.replace(mutant.old, mutant.new).encode()):
        code, output = run(tree, [*HANGS, mutant.test], limit=LIMIT)
    if code is None:
        return None
    # 1 means failed tests; 2 to 5 would mean that none was run.
    if code == 1 and " skipped" not in output.splitlines()[-1]:
        return None
    return "survives {}, exit status {}: {}".format(mutant.test, code, output.splitlines()[-1])


def chosen(names):
    mutants = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with Trees() as trees:
        with trees.one() as tree:
            code, output = run(tree, sorted({mutant.test for mutant in mutants}))
        if code:
            sys.exit(output + "\nthe tests fail without a mutant, too")
        results = list(trees.map(why_alive, mutants))
    for mutant, why in zip(mutants, results):
        print("{:40} {}".format(mutant.name, why or "killed by " + mutant.test))
    failed = sum(why is not None for why in results)
    print("{} passed, {} failed".format(len(mutants) - failed, failed))
    return 1 if failed or not mutants else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(10000))
    args = parser.parse_args()
    if args.random is None:
        return chosen(args.names)
    return random_mutants.main(args.random, args.seed)


if __name__ == "__main__":
    sys.exit(main())
