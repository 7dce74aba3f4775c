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


@not_on_windows("SIGINT")
@pytest.mark.parametrize(
    "action, printed", [(signal.SIG_DFL, b"caught\n"), (signal.SIG_IGN, b"goes on\n")]
)
def test_a_program_gets_ctrl_c_as_from_python(program, env, action, printed):
    """An exception; in the background of a shell, nothing."""
    if action == signal.SIG_IGN and sys.implementation.name == "pypy":
        pytest.skip("PyPy catches SIGINT that is to be ignored, too")
    text = (
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.01)\n    print('goes on')\n"
        "except KeyboardInterrupt:\n    print('caught')\n"
    )
    done = subprocess.run(
        COMMAND + ["patch"] + program(text),
        env=env,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, action),
    )
    assert (done.returncode, done.stdout) == (0, printed)
