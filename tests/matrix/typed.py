# SPDX-License-Identifier: BSD-3-Clause
"""Check the types of a project with copies of the package: mypy --strict; and pyright of its uses.

One copy is a folder under another name, the other one a single file.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USES = """\
from typing import Optional

from acme import waits
from acme._vendor import renamed


def by_the_folder(pid: int) -> Optional[int]:
    with renamed.WaitSet([pid]) as waiting:
        for proc, exitcode in waiting.wait(1):
            print(proc + 1, exitcode)
    return renamed.wait(pid, 1)


def by_the_file(pid: int) -> Optional[int]:
    exited, alive = waits.wait_procs([pid], 1)
    print(exited, alive)
    return waits.wait(pid, 1)
"""


def main():
    with tempfile.TemporaryDirectory() as tmp:
        project = Path(tmp, "acme")
        project.joinpath("_vendor").mkdir(parents=True)
        for folder in project, project / "_vendor":
            folder.joinpath("__init__.py").touch()
        project.joinpath("main.py").write_text(USES)
        vendor = [sys.executable, "-m", "pidwait", "vendor"]
        subprocess.check_call(vendor + [str(project / "_vendor" / "renamed")], cwd=str(ROOT))
        subprocess.check_call(vendor + ["--single-file", str(project / "waits.py")], cwd=str(ROOT))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for checker in (
            ["mypy", "--strict", "acme"],
            ["pyright", "--pythonpath", sys.executable, "acme/main.py"],
        ):
            print(*checker, flush=True)
            subprocess.check_call([sys.executable, "-m", *checker], cwd=tmp, env=env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
