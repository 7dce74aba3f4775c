# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait run, and patch."""

import os
import subprocess
import sys

import pytest

from . import pidwait
from .command_line import run
from .processes import PYTHON, exiting, not_on_windows, sleeping

posix = not_on_windows("signals, nor sh")


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_status_is_the_commands(code):
    done = run("run", "-t", "50", *exiting(code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_time_out():
    assert run("run", "-t", "0.2", *sleeping(60)).returncode == 124


def test_status_preserved_and_signal_told():
    done = run("run", "-p", "-v", "-t", "0.2", *sleeping(60))
    assert done.returncode not in (0, 124)
    text = "sending signal TERM to command %r\n" % sleeping(60)[0]
    assert done.stderr == "python -m %s run: %s" % (pidwait.__name__, text)


def test_options_of_the_command_are_its_own():
    script = "import sys; print(sys.argv[1:])"
    for separator in [], ["--"]:
        done = run("run", *separator, *PYTHON, "-c", script, "-t", "--", "-h")
        assert done.stdout == "['-t', '--', '-h']\n", done


@pytest.mark.parametrize(
    "args, status, message",
    [
        (["/nonesuch"], 127, "can't start '/nonesuch': "),
        (["nonesuch"], 127, "can't start 'nonesuch': "),
        ([], 125, "give a COMMAND"),
        (["-t", "x", "true"], 125, "is not a duration"),
        (["-s", "NONESUCH", "true"], 125, "is not a signal"),
        (["--nonesuch", "true"], 125, "--nonesuch"),
    ],
)
def test_failures(args, status, message):
    # A directory of PATH that one may not search would be an error of its own.
    done = run("run", *args, env=dict(os.environ, PATH=os.defpath))
    assert done.returncode == status
    assert message in done.stderr and "Traceback" not in done.stderr


@posix
def test_directory_can_not_be_invoked():
    assert run("run", "/").returncode == 126


SCRIPT = """if True:
    import subprocess, sys
    patched = hasattr(subprocess.Popen, "_patched")
    print(__name__, patched, sys.argv, sys.path[0], "__file__" in globals())
    print(subprocess.call(%r, timeout=30))
    sys.exit(5)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "a_script.py"
    path.write_text(SCRIPT % (exiting(3),))
    return path


def test_patch(script):
    done = run("patch", script, "-x", "--", "-t")
    argv = [str(script), "-x", "--", "-t"]
    first, second = done.stdout.splitlines()
    assert first == "__main__ True {} {} True".format(argv, script.resolve().parent), done
    assert (second, done.returncode) == ("3", 5)


def test_patch_module(script):
    path = os.pathsep.join([str(script.parent)] + sys.path)
    done = run("patch", "-m", "a_script", "-x", env=dict(os.environ, PYTHONPATH=path))
    first, second = done.stdout.splitlines()
    assert first.startswith("__main__ True") and first.endswith("True") and "'-x'" in first, done
    assert (second, done.returncode) == ("3", 5)


def test_patch_without_a_script(tmp_path):
    for args in [], ["-m"], [tmp_path / "nonesuch.py"]:
        done = run("patch", *args)
        assert done.returncode == 2 and "Traceback" not in done.stderr
    assert run("patch", "-h").returncode == 0


def test_patched_script_that_fails(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("1 / 0\n")
    done = run("patch", path)
    assert done.returncode == 1
    assert 'script.py", line 1' in done.stderr and "ZeroDivisionError" in done.stderr


PROGRAM = """if True:
    import os, sys
    print(__name__, sys.modules[__name__].__dict__ is globals(), sys.argv)
    print([os.path.abspath(folder) for folder in sys.path])
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_patched_program_is_run_as_python_runs_it(tmp_path, how):
    path = tmp_path.resolve() / "a_program.py"
    path.write_text(PROGRAM)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(path.parent)] + sys.path))
    args = [str(path), "-x"] if how == "script" else ["-m", "a_program", "-x"]
    alone = subprocess.check_output([sys.executable] + args, env=env, universal_newlines=True)
    assert run("patch", *args, env=env).stdout == alone
