# SPDX-License-Identifier: BSD-3-Clause
"""The command run beside GNU timeout, over each option that this documents.

Compared are the exit status, of which signal it died, and whether there was a message on stderr.
What differs, and stays so, is in DIFFERENT, with the reason.
"""

import errno
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from . import pidwait
from .processes import FACTORS

COMMAND = [sys.executable, "-m", pidwait.__name__, "run"]
# The shell looks for signals often, and ends by itself.
BUSY = "turn=0; while [ $((turn += 1)) -lt 3000 ]; do sleep 0.01; done"
STUBBORN = "trap '' TERM; sleep 60; sleep 60"

# Each as the options, the last of which is the time, and the script.
SAME = {
    "in time": (["-k", "50", "50"], "exit 7"),
    "time out": (["0.2"], "sleep 60"),
    "signal": (["-s", "INT", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "--signal": (["--signal=INT", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "number": (["-s", "2", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "with SIG": (["-s", "sigint", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "status": (["-s", "130", "0.2"], "trap 'exit 5' INT; " + BUSY),
    "real time": (["-s", "RTMIN+1", "0.2"], "sleep 60"),
    "from the last": (["-v", "-s", "RTMAX-1", "0.2"], "sleep 60"),
    "none": (["-s", "0", "0.2"], "sleep 0.5; exit 4"),
    "none, but kill": (["-s", "0", "-k", "0.2", "0.2"], "sleep 60; exit 4"),
    "continue": (["-s", "CONT", "0.2"], "sleep 0.5; exit 4"),
    "alarm": (["-s", "ALRM", "0.2"], "sleep 60"),
    "killed": (["-s", "KILL", "0.2"], "sleep 60"),
    "killed, -v": (["-v", "-s", "KILL", "0.2"], "sleep 60"),
    "killed, -f": (["--foreground", "-s", "KILL", "0.2"], "exec sleep 60"),
    "kill after": (["-k", "0.2", "1.0"], STUBBORN),
    "kill after, -v": (["-v", "--kill-after=200e-3", "1.0"], STUBBORN),
    "kill after 0": (["-k", "0", "0.2"], "trap '' TERM; sleep 0.5; sleep 0.1; exit 5"),
    "kill after inf": (["-k", "inf", "0.2"], "trap '' TERM; sleep 0.5; sleep 0.1; exit 5"),
    "kill after, --foreground": (["--foreground", "-k", "0.2", "1.0"], "trap '' TERM; " + BUSY),
    "whole group": (["0.2"], "sleep 60 & sleep 60 & wait"),
    "of another group": (["0.2"], "exec setsid -w sleep 60"),
    "stops itself": (["0.5"], "kill -STOP $$; sleep 60"),
    "verbose": (["-v", "0.2"], "sleep 60"),
    "--verbose, in time": (["--verbose", "50"], "exit 2"),
    "--preserve-status": (["--preserve-status", "0.2"], "trap 'exit 5' TERM; " + BUSY),
    "preserved signal": (["--preserve-status", "0.2"], "sleep 60"),
    "preserved, killed": (["--preserve-status", "--foreground", "-s", "9", "0.2"], "exec sleep 60"),
    "preserved, in time": (["--preserve-status", "50"], "exit 5"),
    "--foreground": (["--foreground", "0.2"], "trap 'exit 5' TERM; " + BUSY),
    "dies of a signal": (["50"], "kill -USR1 $$"),
    "dies of a hang-up": (["50"], "kill -HUP $$"),
    "dies of a real-time one": (["50"], "kill -40 $$"),
    "kills itself": (["50"], "kill -KILL $$"),
    "kills the group": (["50"], "kill -KILL 0"),
    "for ever": (["0"], "sleep 0.1; exit 3"),
    "infinite": (["inf"], "exit 3"),
    "exponent": (["1e-1"], "sleep 60"),
    "hexadecimal": (["0x.1p-1"], "sleep 60"),
    "day": (["0.000001d"], "sleep 60"),
    "hour": (["0.00001h"], "sleep 60"),
    "minute": (["0.001m"], "sleep 60"),
    "second": (["0.1s"], "sleep 60"),
    "too large": (["1e400"], "exit 3"),
    "not a number": (["nan"], "exit 3"),
    "unit": (["5x"], "exit 3"),
    "negative": (["-k", "-1", "5"], "exit 3"),
    "no signal": (["-s", "NONESUCH", "5"], "exit 3"),
    "a signal of the C library": (["-s", "33", "5"], "exit 3"),
    "no real-time signal": (["-s", "RTMIN+99", "5"], "exit 3"),
    "no option": (["--nonesuch", "5"], "exit 3"),
}

DIFFERENT = {
    "it ends it: the peer stops itself, too": (
        ["-s", "STOP", "-k", "0.3", "0.2"],
        "sleep 60",
        -signal.SIGKILL,
    ),
    "it sees the exit: the peer ignores SIGCHLD from then on, and waits for ever": (
        ["-s", "CHLD", "0.2"],
        "sleep 0.5; exit 4",
        124,
    ),
    "an extension": (["100ms"], "sleep 60", 124),
    "another extension": (["0m100ms"], "sleep 60", 124),
    "-p and -f are those of coreutils 9.5": (["-p", "-f", "0.2"], "exec sleep 60", 128 + 15),
}


def ours(options):
    return COMMAND + options[:-1] + ["--timeout=" + options[-1]]


def theirs(options):
    timeout = shutil.which("timeout")
    assert timeout, "coreutils' timeout is the peer"
    return [timeout] + options


def outcome(command, **kwargs):
    """The exit status, and whether there was a message. The shell has its own."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        **kwargs,
    )
    text = process.communicate()[1]
    return process.returncode, re.search(
        rb"^(\S*timeout: |Try |python -m )", text, re.M
    ) is not None


def slowed(factor, options, script):
    """All tenths of a second times the factor."""

    def slow(text):
        return re.sub(r"\b(0\.[1-9]|1\.0)\b", lambda time: str(float(time.group()) * factor), text)

    return list(map(slow, options)), ["sh", "-c", slow(script)]


@pytest.mark.parametrize("name", sorted(SAME))
def test_same(name):
    for factor in FACTORS:
        options, command = slowed(factor, *SAME[name])
        found, expected = outcome(ours(options) + command), outcome(theirs(options) + command)
        if found == expected:
            break
    assert found == expected


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_different(name):
    *given, expected = DIFFERENT[name]
    for factor in FACTORS:
        options, command = slowed(factor, *given)
        status, _ = outcome(ours(options) + command)
        if status == expected:
            break
    assert status == expected


def test_signal_of_the_c_library():
    """The posix_spawn of glibc 2.36 starts the command with it ignored, that of 2.43 does not."""
    command = ["sh", "-c", "kill -33 $$; exit 3"]
    status, has_message = outcome(ours(["50"]) + command)
    assert status in (3, -33) and not has_message


@pytest.fixture
def programs(tmp_path):
    """Files that are more or less programs."""
    for name, text, mode in [
        ("shell-script", "exit ${1-3}\n", 0o755),
        ("bad", "#!/nonesuch\n", 0o755),
        ("no-exec", "#!/bin/sh\n", 0o644),
        ("empty", "", 0o755),
        ("binary", "\x7fELF", 0o755),
    ]:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


STARTS = {
    "not there": ["{}/nonesuch"],
    "not in PATH": ["nonesuch"],
    "empty name": [""],
    "empty argument": ["true", ""],
    "a folder": ["{}"],
    "below a file": ["{}/shell-script/x"],
    "loop of links": ["{}/loop"],
    "long name": ["x" * 300],
    "many arguments": ["true"] + ["x" * 100000] * 18,
    "without #!": ["{}/shell-script"],
    "without #!, in PATH": ["shell-script", "1", "2"],
    "without its interpreter": ["{}/bad"],
    "not executable": ["{}/no-exec"],
    "not executable, in PATH": ["no-exec"],
    "empty file": ["{}/empty"],
    "no binary": ["{}/binary"],
    "nothing": [],
    "--help": None,
    "--version": None,
}


@pytest.mark.parametrize("name", sorted(STARTS))
def test_start(programs, name):
    command = STARTS[name]
    env = dict(os.environ, PATH=os.pathsep.join([os.defpath, str(programs)]))
    if command is None:
        assert outcome(ours(["5"]) + [name], env=env) == outcome(theirs([name, "5"]), env=env)
        return
    command = [word.format(programs) for word in command]
    expected = outcome(theirs(["5"]) + command, env=env)
    assert outcome(ours(["5"]) + command, env=env) == expected
    if name == "nothing":
        assert expected[0] == 125


def test_shell_that_can_not_be_started_either(monkeypatch):
    start = importlib.import_module(pidwait.__name__ + ".cli._start")
    errors = [OSError(code, os.strerror(code)) for code in (errno.ENOEXEC, errno.EAGAIN)]

    def spawn(*args, **options):
        raise errors.pop(0)

    monkeypatch.setattr(start, "spawn", spawn)
    with pytest.raises(start.CanNotStart, match="can't start './script': Resource temp") as caught:
        start.start(["./script"])
    assert caught.value.status == start.FAILED and not errors


def test_script_in_path_and_another_one_in_the_folder(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cwd")
    (folder / "shell-script").write_text("exit 4\n")
    env = dict(os.environ, PATH="/bin:/usr/bin:%s" % programs)  # os.defpath of 3.6 has "."
    env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    assert outcome(ours(["50"]) + ["shell-script"], env=env, cwd=str(folder)) == (3, False)


@pytest.mark.parametrize("blocked", [["CHLD"], ["CHLD", "ALRM"]])
def test_signals_that_the_parent_blocks(blocked):
    def block():
        numbers = [getattr(signal, "SIG" + name) for name in blocked]
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    for options, script in (["50"], "sleep 0.1; exit 5"), (["0.2"], "sleep 60"):
        command = ["sh", "-c", script]
        expected = outcome(theirs(options) + command, preexec_fn=block)
        assert outcome(ours(options) + command, preexec_fn=block) == expected
