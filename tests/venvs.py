# SPDX-License-Identifier: BSD-3-Clause
"""Virtual environments for the tests, each made once for one interpreter and a list of packages."""

import os
import platform
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".tox"
# Older ones take no wheels for newer C libraries.
OLDEST_PIP = (20, 3)


def interpreter():
    return "{} {}.{}.{}".format(platform.python_implementation(), *sys.version_info)


class Venv:
    """``packages`` have to be there; ``extras`` are taken as wheels, if there are wheels."""

    def __init__(self, name, packages, extras=()):
        self.folder = FOLDER / name
        self.python = str(self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
        self.packages = list(packages)
        self.extras = list(extras)
        self._stamp = self.folder / "stamp"
        self._wanted = " ".join([sys.version] + self.packages + self.extras) + "\n"

    def is_made(self):
        if not self._stamp.is_file() or not os.path.isfile(self.python):
            return False
        return self._stamp.read_text().startswith(self._wanted)

    def lacks(self):
        """The extras that could not be had when it was made."""
        return self._stamp.read_text()[len(self._wanted) :].split()

    def make(self):
        if self.is_made():
            return
        missing = [name for name in ("venv", "ensurepip") if not find_spec(name)]
        if missing:
            sys.exit(
                "{} has no module {}: install it (Debian and Ubuntu: apt install python3-venv, "
                "or pypy3-venv)".format(sys.executable, " and no ".join(missing))
            )
        shutil.rmtree(str(self.folder), ignore_errors=True)
        made = run([sys.executable, "-m", "venv", str(self.folder)])
        if made.returncode:
            sys.exit("{} -m venv failed: {}".format(sys.executable, last_words(made.stdout)))
        import ensurepip

        if tuple(map(int, ensurepip.version().split(".")[:2])) < OLDEST_PIP:
            self._need(["pip>=21"])
        lacks = []
        if not self.extras or self._install(self.packages + self.extras).returncode:
            self._need(self.packages)
            lacks = [extra for extra in self.extras if self._install([extra]).returncode]
        self._stamp.write_text(self._wanted + " ".join(lacks))

    def _install(self, packages):
        command = [self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        command += ["--no-compile", "--retries", "2"]
        if self.extras:
            command += ["--only-binary", ",".join(self.extras)]
        return run(command + packages)

    def _need(self, packages):
        done = self._install(packages)
        if done.returncode:
            text = (
                "pip could not install {}: is there a network, and a package registry? It said: {}"
            )
            sys.exit(text.format(", ".join(packages), last_words(done.stdout)))


def run(command):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )


def last_words(output):
    """The line that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    return (errors or lines or ["nothing"])[-1]


def call(command, env):
    """Its exit status. Ctrl-C reaches it without us, and it ends in its own way."""
    process = subprocess.Popen(command, env=env, cwd=str(ROOT))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return 128 - code if code < 0 else code
