# SPDX-License-Identifier: BSD-3-Clause
"""What RECIPES.md has a shell do, as it stands there."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

from .processes import eventually, exiting, state
from .recipes import RECIPES, SHELL
from .test_cli import holds_a_handle
from .test_package import SOURCES


class Folder:
    """A folder with a copy of the package, in which python3 is this interpreter."""

    def __init__(self, path):
        self.path = path
        self.env = dict(os.environ, PATH="%s:%s" % (path / "bin", os.environ["PATH"]))
        self.env.pop("PYTHONPATH", None)
        for file, text in SOURCES.items():
            self.write("pidwait/" + file, text)
        self.write("pidwait/py.typed", "")
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


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_zipapp(folder, start, sleeper):
    child = start(*exiting(0, 0.5))
    assert folder.shell(SHELL["In a zipapp"][0], PID=str(child.pid)) == (0, "", "")
    assert child.poll() == 0
    for arguments, status in (
        ("-t 0.1 %d" % sleeper.pid, 124),
        ("%d" % child.pid, 1),
        ("--exit-code %d" % child.pid, 127),
        ("--nonesuch", 2),
        ("run sh -c 'exit 5'", 5),
        ("run -t 0.1 sleep 60", 124),
        ("run sh -c 'kill $$'", -signal.SIGTERM),
        ("run /nonesuch", 127),
    ):
        assert folder.run("./wait.pyz", *shlex.split(arguments))[0] == status, arguments


def test_ctrl_c_in_a_zipapp(folder, start, sleeper):
    assert folder.shell(SHELL["In a zipapp"][0], PID=str(start(*exiting(0)).pid))[0] == 0
    waiter = folder.popen("./wait.pyz", "-v", str(sleeper.pid))
    eventually(lambda: state(waiter.pid) == "S" and holds_a_handle(waiter.pid))
    waiter.send_signal(signal.SIGINT)
    assert waiter.communicate() == ("", "")
    assert waiter.returncode == -signal.SIGINT


def test_program_in_a_zipapp(folder):
    folder.write("app/__main__.py", RECIPES["In a zipapp"][0])
    folder.shell("cp -R pidwait app/")
    folder.write("bin/make", "#!/bin/sh\nexit 3\n").chmod(0o755)
    assert folder.shell(SHELL["In a zipapp"][1]) == (3, "", "")
    assert folder.run("./program.pyz", "sh", "-c", "kill $$") == (143, "", "")
