# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m tests [tox arguments]: the whole suite, on every interpreter this machine has."""

import configparser
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from .matrix import interpreters

ROOT = Path(__file__).resolve().parent.parent
RUNNER = ROOT / ".tox" / ".runner"
PYTHON = RUNNER / ("Scripts" if os.name == "nt" else "bin") / "python"


def make_runner():
    """A virtualenv with tox, made once for each version of Python and of tox.ini's `requires`."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(str(ROOT / "tox.ini"))
    requires = tox["tox"]["requires"].split()
    wanted = "\n".join([sys.version] + requires)
    stamp = RUNNER / "stamp"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if sys.version_info < (3, 9) or not find_spec("ensurepip"):
        sys.exit(
            "tox needs Python >= 3.9 with the modules venv and ensurepip (Debian: python3-venv); "
            "{} has not got them".format(sys.executable)
        )
    subprocess.check_call([sys.executable, "-m", "venv", "--clear", str(RUNNER)])
    subprocess.check_call([str(PYTHON), "-m", "pip", "install", "--quiet"] + requires)
    stamp.write_text(wanted)


def main():
    make_runner()
    env = dict(os.environ, PATH=interpreters.search_path(), UV_PYTHON_DOWNLOADS="never")
    os.chdir(str(ROOT))
    command = [str(PYTHON), "-m", "tox"] + sys.argv[1:]
    if os.name == "nt":
        sys.exit(subprocess.call(command, env=env))
    os.execve(command[0], command, env)


if __name__ == "__main__":
    main()
