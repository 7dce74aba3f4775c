# SPDX-License-Identifier: BSD-3-Clause
"""The code in RECIPES.md, by the titles of its sections."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from .. import pidwait

TEXT = Path(__file__).resolve().parents[1].joinpath("RECIPES.md").read_text(encoding="utf-8")
SECTIONS = [section.partition("\n") for section in TEXT.split("\n## ")[1:]]


def code(language):
    return {
        name: re.findall("```%s\n(.*?)```" % language, text, re.S) for name, _, text in SECTIONS
    }


RECIPES = code("python")
# What a shell runs.
SHELL = code("sh")


def with_our_name(text):
    """The package may be a copy under another name."""
    name = pidwait.__name__
    text = text.replace("import pidwait", "import %s as pidwait" % name)
    return text.replace("from pidwait", "from " + name).replace("-m pidwait", "-m " + name)


# Run by plays/test_remote.py and plays/test_runners.py.
IN_SHELL = {
    "In a script that names its requirements",
    "On another machine",
    "On a hundred machines",
}
# Run by waiting/test_recipe.py.
IN_WAITING = {"One wait in one script"}
# Run where they are installed; the tox environment `plays` has all of them.
NEEDS = {"From psutil.wait_procs": "psutil", "With pexpect": "pexpect"}
# Run by plays/test_event_loops.py and plays/test_scopes.py, and what they need.
IN_LOOPS = {
    "In a server (anyio, Starlette)": ("anyio",),
    "In other event loops": (),
    "In trio and anyio": ("trio", "anyio"),
    "In gevent and eventlet": ("gevent", "eventlet"),
    "In tornado": ("tornado",),
    "In Qt": ("PyQt5",),
    "In GLib": (),  # Debian's: see there
}


class Folder:
    """A folder with a copy of the package, in which python3 is this interpreter."""

    def __init__(self, path):
        self.path = path
        self.env = dict(os.environ, PATH="%s:%s" % (path / "bin", os.environ["PATH"]))
        self.env.pop("PYTHONPATH", None)
        vendor = [sys.executable, "-m", pidwait.__name__, "vendor", str(path / "pidwait")]
        subprocess.check_call(vendor, stdout=subprocess.DEVNULL)
        python = self.write(
            "bin/python3", '#!/bin/sh\nexec %s "$@"\n' % shlex.quote(sys.executable)
        )
        python.chmod(0o755)

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def popen(self, *command, start_new_session=False, **names):
        return subprocess.Popen(
            command,
            cwd=str(self.path),
            env=dict(self.env, **names),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            start_new_session=start_new_session,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *command, **names):
        """The exit status, and what it wrote."""
        popen = self.popen(*command, **names)
        out, err = popen.communicate()
        return popen.returncode, out, err

    def shell(self, code, **names):
        return self.run("sh", "-e", "-c", code, **names)
