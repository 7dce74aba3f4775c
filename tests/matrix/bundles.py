# SPDX-License-Identifier: BSD-3-Clause
"""Build a program that waits with each tool that makes one file of a program, and run it.

They are zipapp, shiv, pex, PyInstaller and Nuitka.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
from pidwait.cli import main

if __name__ == "__main__":
    main()
"""
PYTHON = "/usr/bin/env python3"
# The package stands beside "main.py", and in the folders "app" and "source", the latter with its
# pyproject.toml. What is built gets into the folder "built".
TOOLS = {
    "zipapp": ["zipapp", "app", "-p", PYTHON, "-m", "pidwait.cli:main", "-o", "built/zipapp"],
    "shiv": ["shiv", "-c", "py-pidwait", "-p", PYTHON, "-o", "built/shiv", "./source"],
    "pex": ["pex", "./source", "-c", "py-pidwait", "-o", "built/pex"],
    "PyInstaller": ["PyInstaller", "--onefile", "-n", "PyInstaller", "--distpath=built", "main.py"],
    "nuitka": ["nuitka", "--onefile", "--output-filename=built/nuitka", "main.py"],
}


def waits(program, env):
    """Whether the program waits for a process, and exits with its exit code."""
    child = subprocess.Popen(["sh", "-c", "sleep 0.5; exit 3"])
    try:
        status = subprocess.call([program, "--exit-code", "-t", "60", str(child.pid)], env=env)
    finally:
        child.wait()
    print("%s: exit status %d" % (program, status), flush=True)
    return status == 3


def main(names):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "source"), Path(folder, "built")
        shutil.copytree(
            str(ROOT), str(source), ignore=shutil.ignore_patterns(".*", "__pycache__", "tests")
        )
        for place in "app", ".":
            shutil.copytree(str(source / "pidwait"), str(Path(folder, place, "pidwait")))
        Path(folder, "main.py").write_text(PROGRAM)
        built.mkdir()
        binaries = Path(folder, "bin")
        binaries.mkdir()
        binaries.joinpath("python3").symlink_to(sys.executable)
        env = dict(os.environ, PATH="%s:%s" % (binaries, os.environ["PATH"]))
        env.pop("PYTHONPATH", None)
        for name in names or TOOLS:
            command = [sys.executable, "-m", *TOOLS[name]]
            failed = subprocess.call(command, cwd=folder, env=env)
            if failed or not waits(str(built / name), env):
                wrong.append(name)
    print("wrong: %s" % ", ".join(wrong) if wrong else "all of them wait")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
