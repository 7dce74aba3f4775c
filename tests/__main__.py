# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests.

python3 -m tests [--whole] [pytest arguments]
    A sample of the suite for the interpreter that runs it, in about a minute; --whole: all of it.
    Makes itself a virtual environment in .tox; needs the module venv and a package registry.

python3 -m tests landing [ENVIRONMENT...]
    What guards each change: the landing run, on every kind of system that this machine can show.

python3 -m tests deep [ENVIRONMENT...]
    All else: other interpreters, kernels, processors, peers. README.md in this folder has a list.
"""

import configparser
import os
import sys


def main(args):
    if args[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if args[:1] not in (["landing"], ["deep"]):
        from . import runner

        return runner.main(args)
    from . import venvs

    tox = configparser.ConfigParser(interpolation=None)
    tox.read(str(venvs.ROOT / "tox.ini"))
    venv = venvs.Venv(".runner", tox["tox"]["requires"].split() + ["psutil"])
    venv.make()
    env = dict(os.environ, UV_PYTHON_DOWNLOADS="never")
    return venvs.call([venv.python, "-m", "tests.matrix.environments", *args], env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
