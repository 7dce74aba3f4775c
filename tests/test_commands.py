# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait run, and patch."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from . import pidwait
from .processes import PYTHON, eventually, exiting, not_on_windows, sleeping, state

COMMAND = [sys.executable, "-m", pidwait.__name__]
posix = not_on_windows("signals, nor sh")


def run(*args, **options):
    return subprocess.run(
        COMMAND + [str(arg) for arg in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **options,
    )


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_status_is_the_commands(code):
    done = run("run", "-t", "50", *exiting(code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_time_out():
    assert run("run", "-t", "0.2", *sleeping(60)).returncode == 124


def test_options_of_the_command_are_its_own():
    script = "import sys; print(sys.argv[1:])"
    for separator in [], ["--"]:
        done = run("run", *separator, *PYTHON, "-c", script, "-t", "--", "-h")
        assert done.stdout == "['-t', '--', '-h']\n", done


@pytest.mark.parametrize(
    "args, status, message",
    [
        (["/nonesuch"], 127, "/nonesuch"),
        (["nonesuch"], 127, "nonesuch"),
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


# The shell looks for signals often, and ends by itself.
BUSY = "turn=0; while [ $((turn += 1)) -lt 3000 ]; do sleep 0.01; done"

# What has to be the same as GNU timeout's, where that is installed: each as options, command.
GNU = {
    "in time": (["-k", "50", "50"], "exit 7"),
    "time out": (["0.2"], "sleep 60"),
    "signal": (["-s", "INT", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "number": (["-s", "2", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "killed": (["-s", "KILL", "0.2"], "sleep 60"),
    "kill after": (["-k", "0.2", "1"], "trap '' TERM; sleep 60; sleep 60"),
    "whole group": (["0.2"], "sleep 60 & sleep 60 & wait"),
    "dies of a signal": (["50"], "kill -USR1 $$"),
    "kills itself": (["50"], "kill -KILL $$"),
    "for ever": (["0"], "sleep 0.1; exit 3"),
}


@posix
@pytest.mark.parametrize("name", sorted(GNU))
def test_as_gnu_timeout(name):
    timeout = shutil.which("timeout")
    assert timeout, "coreutils' timeout is the peer"
    options, script = GNU[name]
    command = ["sh", "-c", script]
    theirs = subprocess.call([timeout] + options + command)
    ours = run("run", *options[:-1], "-t", options[-1], *command).returncode
    assert ours == theirs


def heed_hang_ups():
    # Under nohup they are ignored, which children inherit.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def start_job(start):
    """start_job(args...) runs the command run; if it is not reaped, its group is killed, too."""
    jobs = []

    def start_job(*args):
        command = COMMAND + ["run"] + list(args)
        jobs.append(start(*command, stdout=subprocess.PIPE, preexec_fn=heed_hang_ups))
        return jobs[-1]

    yield start_job
    for job in jobs:
        if job.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has not made a group yet
                os.killpg(job.pid, signal.SIGKILL)


@posix
def test_signals_are_passed_on(start_job):
    script = "trap 'echo got' HUP USR1; trap 'exit 9' TERM; echo ready; " + BUSY
    child = start_job("sh", "-c", script)
    assert child.stdout.readline() == b"ready\n"
    for number in signal.SIGHUP, signal.SIGUSR1:
        child.send_signal(number)
        assert child.stdout.readline() == b"got\n"
    child.terminate()
    assert child.wait() == 9


@posix
def test_kill_after_a_signal_that_was_passed_on(start_job):
    child = start_job("-k", "0.2", "sh", "-c", "trap '' TERM; echo ready; sleep 60; sleep 60")
    assert child.stdout.readline() == b"ready\n"
    child.terminate()
    assert child.wait() == -signal.SIGKILL


@posix
@pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="PyPy's getsignal() does not know of a signal ignored"
)
def test_ignored_signals_stay_ignored():
    script = "kill -HUP $PPID; kill -HUP $$; sleep 0.1; exit 3"

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert run("run", "sh", "-c", script, preexec_fn=ignore).returncode == 3


@posix
@pytest.mark.parametrize("timeout", [[], ["-t", "50"]])
def test_tree_waits_for_all(timeout, tmp_path):
    mark = tmp_path / "mark"
    script = "(setsid sh -c 'sleep 0.3; exec 1>&-; : > %s' & ); exit 4" % mark
    assert run("run", "--tree", *timeout, "sh", "-c", script).returncode == 4
    assert mark.exists()
    mark.unlink()
    alone = script.replace("setsid", "exec >&- 2>&-; setsid")
    assert run("run", *timeout, "sh", "-c", alone).returncode == 4
    assert not mark.exists()
    eventually(mark.exists)


@posix
@pytest.mark.parametrize("stubborn, status", [(False, 124), (True, 137)])
def test_tree_ends_all(tmp_path, stubborn, status):
    path = tmp_path / "pids"
    trap = "trap '' TERM; " if stubborn else ""
    nested = trap + "echo $$ >> $FILE; sleep 60 & echo $! >> $FILE; wait; wait; sleep 60"
    script = trap + '(setsid sh -c "$NESTED" &); ' + nested
    env = dict(os.environ, FILE=str(path), NESTED=nested)
    options = ["-t", "0.5", "-k", "0.2"]
    assert run("run", "--tree", *options, "sh", "-c", script, env=env).returncode == status
    pids = list(map(int, path.read_text().split()))
    assert len(pids) == 4
    assert [state(pid) for pid in pids] == [None] * 4


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
