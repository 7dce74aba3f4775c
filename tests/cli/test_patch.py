# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait patch: a script or a module runs as python itself runs it, but patched."""

import os
import signal
import subprocess
import sys

import pytest

from .. import pidwait
from ..processes import exiting, not_on_windows
from .command_line import COMMAND, PROG, run

PROGRAM = """if True:
    import os, sys
    print(__name__, sys.modules[__name__].__dict__ is globals(), sys.argv)
    print([os.path.abspath(folder) for folder in sys.path], "__file__" in globals())
    import subprocess
    print(subprocess.call(%r, timeout=30))
    sys.exit(5)
""" % (exiting(3),)


@pytest.fixture(params=["script", "module"])
def program(request, tmp_path):
    """program(text) puts it into a file, and is what patch and python take for it."""

    def program(text):
        path = tmp_path.resolve() / "a_program.py"
        path.write_text(text)
        return [str(path)] if request.param == "script" else ["-m", "a_program"]

    return program


@pytest.fixture
def env(tmp_path):
    paths = [str(tmp_path.resolve())] + list(map(os.path.abspath, sys.path))
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths))


@pytest.mark.windows
def test_a_program_is_run_as_python_runs_it(program, env):
    command = program(PROGRAM) + ["-x", "--", "-t"]
    alone = subprocess.run(
        [sys.executable] + command, env=env, stdout=subprocess.PIPE, universal_newlines=True
    )
    done = run("patch", *command, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (5, alone.stdout, "")
    assert done.stdout.startswith("__main__ True [") and done.stdout.endswith("True\n3\n")


PATCHED = """if True:
    import subprocess
    from {} import subprocess as ours
    popen = dict(vars(subprocess.Popen))
    ours.unpatch()
    print(popen != dict(vars(subprocess.Popen)), ours.Popen(["true"]).wait(50))
""".format(pidwait.__name__)


def test_subprocess_is_patched_before_it_runs(program, env):
    assert run("patch", *program(PATCHED), env=env).stdout == "True 0\n"


def test_a_program_that_fails_shows_its_own_traceback(program, env):
    done = run("patch", *program("1 / 0\n"), env=env)
    assert done.returncode == 1
    assert 'a_program.py", line 1' in done.stderr and "ZeroDivisionError" in done.stderr


@pytest.mark.windows
def test_a_script_that_is_not_there(tmp_path):
    path = str(tmp_path / "nonesuch.py")
    done = run("patch", path)
    message = "%s patch: %s: No such file or directory\n" % (PROG, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ") and done.stderr.endswith(message)


def with_sigint(action, command, env):
    return subprocess.run(
        COMMAND + ["patch"] + command,
        env=env,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, action),
    )


@not_on_windows("SIGINT")
def test_a_program_gets_ctrl_c_as_an_exception(program, env):
    text = (
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('caught')\n"
    )
    done = with_sigint(signal.SIG_DFL, program(text), env)
    assert (done.returncode, done.stdout) == (0, b"caught\n")


@not_on_windows("SIGINT")
@pytest.mark.skipif(sys.implementation.name == "pypy", reason="PyPy catches an ignored SIGINT")
def test_a_program_in_the_background_of_a_shell_has_no_ctrl_c(program, env):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('goes on')\n"
    done = with_sigint(signal.SIG_IGN, program(text), env)
    assert (done.returncode, done.stdout) == (0, b"goes on\n")
