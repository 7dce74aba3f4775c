# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests. Both say first what they will do, and at the end what passed and was skipped.

python3 -m tests [pytest arguments]
    The suite for the interpreter that runs it, in three processes for each core. Makes itself a
    virtual environment in .tox; needs the module venv and a package registry.

python3 -m tests all [--large] [--limit MINUTES] [tox arguments] [-- pytest arguments]
    Each environment of tox.ini that this machine has an interpreter for, by tox, in parallel. What
    needs large downloads runs only with --large, if it is named (-e), or in CI. Other commands of
    tox can be given, too: `all list`, `all run -e py38,lint`. A command that takes longer than
    --limit is stopped, and prints where it was (on Linux).
"""

import sys


def main(args):
    first = args[1:2] if args[:1] == ["all"] else args[:1]
    if first in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if args[:1] == ["all"]:
        from .matrix import everything

        return everything.main(args[1:])
    from . import runner

    return runner.main(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
