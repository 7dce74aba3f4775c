# SPDX-License-Identifier: BSD-3-Clause
"""The option --exit-code."""

import importlib
import os
import signal
import subprocess

import pytest

from . import pidwait
from .command_line import COMMAND, run
from .processes import WINDOWS, become_zombie, codes, exiting, gone_pid, stop

common = importlib.import_module(pidwait.__name__ + ".cli._common")


@pytest.fixture
def exited(start):
    """exited(code) starts a process that exits; it has exited."""

    def exited(code):
        child = start(*exiting(code))
        become_zombie(child.pid)
        return child.pid

    return exited


@pytest.mark.parametrize("code", codes(0, 3, 255, -signal.SIGTERM, -9, -40))
def test_code(exited, code):
    done = run("--exit-code", exited(code))
    assert done.returncode == (code if code >= 0 else 128 - code)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("code", codes(0, 3, -signal.SIGTERM))
def test_code_of_one_that_still_runs(monkeypatch, start_told, start, backend, code):
    monkeypatch.setenv("PIDWAIT_BACKEND", backend)
    child = start_told(code)
    command = start(*COMMAND + ["--exit-code", str(child.pid)])
    child.stdin.close()
    assert command.wait() == (code if code >= 0 else 128 - code)


@pytest.mark.parametrize(
    "code, status",
    [
        (0, 0),
        (7, 7),
        (2**31 - 1, 2**31 - 1),
        (-1, 129),
        (-9, 137),
        (-40, 168),
        (0xC0000005, -0x3FFFFFFB),
        (2**31, -(2**31)),
    ],
)
def test_status(code, status):
    """Those of Windows are as signed as sys.exit() takes them."""
    assert common.as_status(code) == status


def test_status_of_one_that_is_no_child(keeper):
    pid = keeper.start(*exiting(5))
    if not WINDOWS:
        become_zombie(pid)
    assert run("--exit-code", pid).returncode == 5
    keeper.reap(pid)


def test_first_that_is_not_zero(exited, start_told, start):
    """As they exit, not as they are given."""
    assert run("--exit-code", exited(0), exited(0)).returncode == 0
    late = [start_told(code) for code in (3, 4)]
    pids = [str(one.pid) for one in late] + [str(exited(0))]
    command = start(
        *COMMAND + ["-v", "--exit-code"] + pids, stdout=subprocess.PIPE, universal_newlines=True
    )
    for child in (None,) + tuple(late[::-1]):
        if child is not None:
            child.stdin.close()
        assert command.stdout.readline()
    assert command.wait() == 4


def test_any(exited, sleeper):
    assert run("--exit-code", "--any", sleeper.pid, exited(6)).returncode == 6
    assert run("--exit-code", "-c", "1", sleeper.pid, exited(0)).returncode == 0


def test_time_out(exited, sleeper):
    done = run("--exit-code", "-t", "0", exited(6), sleeper.pid)
    assert done.returncode == 124 and "the time was up" in done.stderr


def test_no_such_process(exited):
    gone = gone_pid()
    done = run("--exit-code", gone)
    assert done.returncode == 127 and "there is no process %d" % gone in done.stderr
    assert run("--exit-code", gone, exited(6)).returncode == 127
    done = run("--exit-code", "-e", gone)
    assert (done.returncode, done.stderr) == (0, "")
    assert run("--exit-code", "-e", gone, exited(6)).returncode == 6


def test_chosen(token, worker, start):
    child = worker(token)
    command = start(*COMMAND + ["--exit-code", "-e", "-f", "--name", token])
    child.kill()
    # It may have exited before it was looked for.
    assert command.wait() in ((0, 1) if WINDOWS else (0, 137))
    assert run("--exit-code", "-f", "--name", token).returncode == 127


if not WINDOWS:

    def test_code_that_is_not_known(keeper, exited, monkeypatch):
        """It is reaped while nobody looks: polling sees that it is gone, and no more."""
        monkeypatch.setenv("PIDWAIT_BACKEND", "polling")
        first, pid = exited(0), keeper.start("sleep", "60")
        command = subprocess.Popen(
            COMMAND + ["-v", "--exit-code", str(pid), str(first)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            start_new_session=True,
        )
        with command:
            assert command.stdout.readline().startswith("%d " % first)
            stop(command.pid)
            os.kill(pid, signal.SIGKILL)
            keeper.reap(pid)
            command.send_signal(signal.SIGCONT)
            message = command.stderr.read()
        assert command.returncode == 125
        assert "the system does not tell the exit code of %d (sleep)" % pid in message

    @pytest.mark.parametrize("args", ["-v", "--json"])
    def test_stdout_that_takes_nothing(exited, args):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                COMMAND + ["--exit-code", args, str(exited(3))],
                stdout=full,
                stderr=subprocess.PIPE,
            )
        assert done.returncode == 125
