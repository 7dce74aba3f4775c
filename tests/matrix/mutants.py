# SPDX-License-Identifier: BSD-3-Clause
"""Take each guard out, one at a time, and see its test go red.

python -m tests.matrix.mutants [NAME...]: the list is tests/mutants. Each mutant is made in a
copy of the tree; first all the tests named there have to pass on one without any.
"""

import concurrent.futures
import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ..mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
IGNORED = shutil.ignore_patterns(".*", "__pycache__")
# By the hash of the source: a mutant may be as long as the original, and of the same second.
COMPILE = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash", "pidwait"]
# A guard that is missing may well mean a hang, which is red, too.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=20"]


def run(tree, tests):
    """The exit status and the output of pytest, in a session of its own.

    A forked child of a test can outlive pytest's time limit.
    """
    env = dict(os.environ, PYTHONPATH=str(tree))
    env.pop("TOX_ENV_NAME", None)  # whose skips are counted
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            PYTEST + list(tests),
            cwd=str(tree),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return code, output.read()


def try_mutant(mutant, trees):
    """Why the mutant was not killed, or None."""
    tree = trees.get()
    path = tree / "pidwait" / mutant.file
    text = path.read_text()
    try:
        count = text.count(mutant.old)
        if count != 1:
            return "{} has the text {} times".format(mutant.file, count)
        path.write_text(text.replace(mutant.old, mutant.new))
        code, output = run(tree, [mutant.test])
        # 1 is for failed tests; 2 to 5 would mean that none was run.
        if code == 1 and " skipped" not in output.splitlines()[-1]:
            return None
        return "survives {}, exit status {}: {}".format(mutant.test, code, output.splitlines()[-1])
    finally:
        path.write_text(text)
        trees.put(tree)


def main():
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as tmp:
        trees = queue.Queue()
        for number in range(WORKERS):
            tree = Path(tmp, str(number))
            shutil.copytree(str(ROOT), str(tree), ignore=IGNORED)
            subprocess.check_call(COMPILE, cwd=str(tree))
            trees.put(tree)
        code, output = run(tree, sorted({mutant.test for mutant in chosen}))
        if code:
            sys.exit(output + "\nthe tests fail without a mutant, too")
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            results = list(pool.map(lambda mutant: try_mutant(mutant, trees), chosen))
    for mutant, why in zip(chosen, results):
        print("{:40} {}".format(mutant.name, why or "killed by " + mutant.test))
    failed = sum(why is not None for why in results)
    print("{} passed, {} failed".format(len(chosen) - failed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
