# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite as those have it who get the sdist: unpacked, and from there."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flit_core import buildapi

ROOT = Path(__file__).resolve().parents[2]


def main():
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(str(ROOT))
        sdist = buildapi.build_sdist(tmp)
        shutil.unpack_archive(os.path.join(tmp, sdist), tmp)
        top = os.path.join(tmp, sdist[: -len(".tar.gz")])
        env = dict(os.environ, PYTHONPATH=top)
        return subprocess.call([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=top, env=env)


if __name__ == "__main__":
    sys.exit(main())
