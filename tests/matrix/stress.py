# SPDX-License-Identifier: BSD-3-Clause
"""Run tests.soak.interruptions in all of its modes, on every interpreter, and print one table.

python -m tests.matrix.stress [--seconds 60] [--mode MODE]... [INTERPRETER...]
"""

import argparse
import os
import shutil
import sys
from multiprocessing.pool import ThreadPool

from .. import hangs
from ..soak import interruptions
from ..venvs import ROOT
from .interpreters import search_path

# pypy3 is Debian 12's, of Python 3.9.
INTERPRETERS = ("python3.6", "python3.8", "python3.11", "python3.13", "python3.14", "python3.15")
INTERPRETERS += ("python3.13t", "pypy3", "pypy3.11")
AT_ONCE = 2
GRACE = 90  # seconds after which the script would have ended itself


def run(name, mode, seconds):
    """Whether it holds, and the line of the table."""
    path = shutil.which(name, path=search_path())
    if path is None:
        return False, "%-12s %-8s not found: see tests/matrix/interpreters.py" % (name, mode)
    command = [path, "-m", interruptions.__name__, mode, str(seconds)]
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    try:
        code, figures, dump = hangs.finished(command, env, seconds + GRACE)
    except AssertionError as error:
        return False, "%-12s %-8s %s" % (name, mode, error)
    if code:
        sys.stderr.write(dump)
    return code == 0, figures.strip() or "%-12s %-8s exit code %d" % (name, mode, code)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--mode", action="append", choices=interruptions.MODES)
    parser.add_argument("names", nargs="*", metavar="INTERPRETER", default=INTERPRETERS)
    options = parser.parse_args()
    jobs = [
        (name, mode, options.seconds)
        for name in options.names or INTERPRETERS
        for mode in options.mode or interruptions.MODES
    ]
    good = True
    with ThreadPool(AT_ONCE) as pool:
        for holds, line in pool.imap(lambda job: run(*job), jobs):
            print("%-4s %s" % ("ok" if holds else "BAD", line), flush=True)
            good = good and holds
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
