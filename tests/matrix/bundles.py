# SPDX-License-Identifier: BSD-3-Clause
"""Build a program that waits, and ends trees, with each tool that makes one file, and run it.

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
import logging
from pidwait.cli import main

if __name__ == "__main__":
    logging.basicConfig()
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
PROGRAMS = "PyInstaller", "nuitka"  # they have no interpreter


def waits(program, env):
    """Whether the program waits for a process, and exits with its exit code."""
    child = subprocess.Popen(["sh", "-c", "sleep 0.5; exit 3"])
    try:
        status = subprocess.call([program, "--exit-code", "-t", "60", str(child.pid)], env=env)
    finally:
        child.wait()
    print("%s: exit status %d" % (program, status), flush=True)
    return status == 3


def ends_trees(program, script, env):
    """Whether a tree ends. Without an interpreter it is a process group, and a warning says so."""
    done = subprocess.run(
        [program, *"run --tree --rest=kill sh".split(), str(script)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    said = done.stderr.decode()
    print("%s: exit status %d, %r" % (program, done.returncode, said), flush=True)
    warns = "there is no interpreter" in said and "can escape" in said
    return done.returncode == 3 and (warns if Path(program).name in PROGRAMS else not said)


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
        script = Path(folder, "script")
        script.write_text("sleep 600 &\nexit 3\n")  # as a file: Nuitka refuses -c
        built.mkdir()
        binaries = Path(folder, "bin")
        binaries.mkdir()
        binaries.joinpath("python3").symlink_to(sys.executable)
        env = dict(os.environ, PATH="%s:%s" % (binaries, os.environ["PATH"]))
        env.pop("PYTHONPATH", None)
        for name in names or TOOLS:
            command = [sys.executable, "-m", *TOOLS[name]]
            failed = subprocess.call(command, cwd=folder, env=env)
            program = str(built / name)
            if failed or not waits(program, env) or not ends_trees(program, script, env):
                wrong.append(name)
    print("wrong: %s" % ", ".join(wrong) if wrong else "all of them wait, and end trees")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
