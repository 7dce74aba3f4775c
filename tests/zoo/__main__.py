# SPDX-License-Identifier: BSD-3-Clause
"""End trees of processes that try to outlive it, on every interpreter, as root and as nobody.

python -m tests.zoo [--tries 20] [--seconds 20] [INTERPRETER...]: how often each animal is ended
while it is young, how long strangers are born meanwhile; and when fork bombs end. It needs cc,
and root's rights.
"""

import argparse
import os
import shutil
import sys
import tempfile
from multiprocessing.pool import ThreadPool

from .. import hangs
from ..matrix.interpreters import search_path
from ..venvs import ROOT
from . import bombs, strangers, tries
from .nest import compiled, nest

INTERPRETERS = "python3.6", "python3.8", "python3.13", "pypy3"
AT_ONCE = 2
LIMIT = 3600  # seconds for one line of the table


def run(program, name, user, mechanism, module, number):
    """Whether all went well, and the lines of the table."""
    head = "%-12s %-7s %-7s " % (name, user, mechanism)
    path = shutil.which(name, path=search_path())
    if path is None:
        return False, head + "not found: see tests/matrix/interpreters.py"
    command = [*nest(user), path, "-S", "-m", module.__name__, program, str(number)]
    env = dict(os.environ, PYTHONPATH=str(ROOT), PIDWAIT_TREE=mechanism, TMPDIR="/tmp")
    try:
        code, figures, errors = hangs.finished(command, env, LIMIT)
    except AssertionError as error:
        return False, head + str(error)
    lines = figures.splitlines() + errors.splitlines()
    return code == 0 and not errors, "\n".join(head + line for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("names", nargs="*", metavar="INTERPRETER", default=INTERPRETERS)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder, ThreadPool(AT_ONCE) as pool:
        jobs = []
        for name in options.names or INTERPRETERS:
            for mechanism in tries.MECHANISMS:
                jobs += [
                    (name, user, mechanism, tries, options.tries) for user in ("root", "nobody")
                ]
                # Only root may choose pids.
                jobs.append((name, "root", mechanism, strangers, options.seconds))
        program = compiled(folder)
        bomb = compiled(folder, "bomb")
        for holds, lines in pool.imap(lambda job: run(program, *job), jobs):
            print("\n".join(("ok   " if holds else "BAD  ") + line for line in lines.splitlines()))
            sys.stdout.flush()
            good = good and holds
        os.chmod(folder, 0o755)
        for name in options.names or INTERPRETERS:  # one by one: it is a matter of time
            for mechanism in tries.MECHANISMS:
                holds, lines = run(bomb, name, "bomber", mechanism, bombs, 5)
                print(lines, flush=True)
                good = good and holds
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
