# SPDX-License-Identifier: BSD-3-Clause
"""Check that other people's checks are silent about copies, at their defaults.

python -m tests.matrix.silent
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIES = (
    "whole",
    "--parts wait --systems linux,bsd some",
    "--parts trees --systems windows trees",
    "--single-file single.py",
    "--single-file --parts wait,many,watch,spawn,find,end,probe,cli --systems linux more.py",
)
CHECKS = (
    "mypy --strict --warn-unused-ignores .",
    "pyright --pythonpath " + sys.executable,
    "ruff check .",
    "ruff format --check .",
    "flake8 .",
    "pylint acme",
)


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        vendor = [sys.executable, "-m", "pidwait", "vendor"]
        project = Path(folder, "acme")
        project.mkdir()
        project.joinpath("__init__.py").touch()
        for args in COPIES:
            *options, name = args.split()
            subprocess.check_call([*vendor, *options, str(project / name)], cwd=str(ROOT))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for check in CHECKS:
            print(check, flush=True)
            if subprocess.call([sys.executable, "-m", *check.split()], cwd=folder, env=env):
                failed.append(check)
    print("not silent: " + ", ".join(failed) if failed else "all are silent")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
