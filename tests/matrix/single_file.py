# SPDX-License-Identifier: BSD-3-Clause
"""Run tests on the single file: python -m tests.matrix.single_file [ARGUMENT OF PYTEST...].

The file stands in a folder of its own, beside a copy of the tests.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(args):
    with tempfile.TemporaryDirectory() as tmp:
        vendor = [sys.executable, "-m", "pidwait", "vendor", "--single-file"]
        vendor += ["--parts", "many,watch,spawn,cli"]
        subprocess.check_call(vendor + [os.path.join(tmp, "pidwait.py")], cwd=str(ROOT))
        shutil.copytree(str(ROOT / "tests"), os.path.join(tmp, "tests"))
        shutil.copy(str(ROOT / "pyproject.toml"), tmp)
        env = dict(os.environ, PYTHONPATH=tmp)
        return subprocess.call([sys.executable, "-m", "pytest"] + args, cwd=tmp, env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
