# SPDX-License-Identifier: BSD-3-Clause
"""The command line where stdin, stdout or stderr is closed, full, read no more, or a terminal."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from ..processes import become_zombie, exiting, gone_pid, sleeping
from .command_line import COMMAND, PROG, until_it_sleeps

PYTHON = " ".join(map(shlex.quote, COMMAND)) + " "
needs_sigint_ignored = pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="it catches SIGINT that is to be ignored, too"
)
# What is buffered is written once more when the interpreter ends.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def shell(command):
    return subprocess.run(
        ["sh", "-c", command],
        env=BUFFERED,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


@pytest.fixture
def exited(start):
    child = start(*exiting(0))
    become_zombie(child.pid)
    return child


# Streams that take nothing


@contextlib.contextmanager
def stream(kind):
    """A stream that is closed, full, or read no more, as Python has it."""
    if kind == "closed":
        yield None
        return
    number = os.open("/dev/full", os.O_WRONLY)
    if kind == "unread":
        os.close(number)
        reader, number = os.pipe()
        os.close(reader)
    with os.fdopen(number, "w") as file:
        yield file


ERRORS = {"closed": "Bad file descriptor", "full": "No space left on device"}


@pytest.mark.parametrize("kind", sorted(ERRORS))
@pytest.mark.parametrize(
    "args, status",
    [
        ("--help", 1),
        ("--version", 1),
        ("--probe", 1),
        ("--probe --json", 1),
        ("-l {exited}", 1),
        ("-v {exited}", 1),
        ("--json {exited}", 1),
        ("-v --exit-code {exited}", 125),
        ("--json -t 0 {sleeper}", 124),
        ("run --help", 125),
    ],
)
def test_a_stdout_that_takes_nothing(monkeypatch, main, exited, sleeper, args, status, kind):
    args = args.format(exited=exited.pid, sleeper=sleeper.pid).split()
    with stream(kind) as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        done = main(*args)
    assert done.returncode == status
    (line,) = [line for line in done.stderr.splitlines() if "still running" not in line]
    assert line.startswith(PROG) and line.endswith("can't write to stdout: " + ERRORS[kind])


@pytest.mark.parametrize("args", ["--help", "-v {}", "--json --exit-code {}", "-l {}", "run -h"])
def test_a_stdout_that_nobody_reads(exited, args):
    with stream("unread") as stdout:
        command = COMMAND + args.format(exited.pid).split()
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=BUFFERED)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("stderr", ["", " 2>&-"])
@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
def test_the_end_of_the_interpreter_does_not_change_that(exited, stdout, stderr):
    done = shell(PYTHON + "-v %d %s %s" % (exited.pid, stdout, stderr))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == (0 if stderr else 1)


def test_a_wait_goes_on_without_its_output(start, exited):
    child = start(*sleeping(0.3))
    done = shell(PYTHON + "-v 2>&1 >/dev/full %d %d" % (exited.pid, child.pid))
    assert (done.returncode, done.stdout.count("stdout:"), child.poll()) == (1, 1, 0)


@pytest.mark.parametrize("kind", sorted(ERRORS))
@pytest.mark.parametrize(
    "args, status",
    [("--json {gone}", 1), ("-t 0 {sleeper}", 124), ("--nonesuch", 2), ("run --nonesuch", 125)],
)
def test_a_message_that_gets_lost_changes_nothing(monkeypatch, main, sleeper, args, status, kind):
    args = args.format(gone=gone_pid(), sleeper=sleeper.pid).split()
    with stream(kind) as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        done = main(*args)
    assert done.returncode == status
    found = [json.loads(line)["found"] for line in done.stdout.splitlines()]
    assert found == ([False] if "--json" in args else [])


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("args, status", [("run /nonesuch", 127), ("run -v -t 0.1 sleep 60", 124)])
def test_a_message_that_gets_lost_does_not_come_out_elsewhere(args, status, stderr):
    done = shell(PYTHON + args + " " + stderr)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_that_are_not_needed(exited, closed):
    done = shell(PYTHON + "%d %s" % (exited.pid, closed))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", ">&- 2>&-"])
def test_the_command_of_run_finds_its_streams_closed(tmp_path, closed):
    path = tmp_path / "streams"
    tests = ["(: 9<&0) 2>/dev/null", "(: 9<&1) 2>/dev/null", "(: 9<&2)"]
    script = "; ".join("%s && echo %d >> $0" % (test, n) for n, test in enumerate(tests))
    done = shell("%s run -t 50 sh -c '%s; exit 4' %s %s" % (PYTHON, script, path, closed))
    assert (done.returncode, done.stderr) == (4, "")
    names = {"<&-": "0", ">&-": "1", "2>&-": "2"}
    closed = [names[one] for one in closed.split()]
    assert path.read_text().split() == [n for n in "012" if n not in closed]


# Readers that go, and signals that are ignored


@pytest.fixture
def ends():
    """ends(kind): our end and theirs of what is to be a stream."""
    with contextlib.ExitStack() as stack:

        def ends(kind="pipe"):
            if kind == "socket":
                both = socket.socketpair()
            else:
                reader, writer = os.pipe()
                both = os.fdopen(reader, "rb"), os.fdopen(writer, "wb")
            return list(map(stack.enter_context, both))

        yield ends


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("args", [[], ["-v"], ["-t", "600"]], ids=" ".join)
def test_a_wait_that_nobody_reads_any_more_ends(variant, start, sleeper, ends, kind, args):
    """A reader of stderr does not count."""
    (our_out, out), (_, err) = ends(kind), ends(kind)
    command = start(*COMMAND + args + [str(sleeper.pid)], stdout=out, stderr=err)
    out.close()
    err.close()
    until_it_sleeps(command.pid)
    assert command.poll() is None
    our_out.close()
    assert command.wait() == 141
    assert sleeper.poll() is None


@pytest.mark.parametrize("why", ["it is read", "nohup"])
def test_a_wait_goes_on_while_stdout_has_a_reader(start, sleeper, ends, why):
    """Or under nohup."""
    (our_out, out), (our_err, err) = ends(), ends()
    hang_up = signal.SIG_IGN if why == "nohup" else signal.SIG_DFL
    command = start(
        *COMMAND + [str(sleeper.pid)],
        stdout=out,
        stderr=err,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, hang_up),
    )
    out.close()
    err.close()
    until_it_sleeps(command.pid)
    our_err.close()
    if why == "nohup":
        our_out.close()
    until_it_sleeps(command.pid)
    sleeper.kill()
    assert command.wait() == 0


@needs_sigint_ignored
def test_a_job_in_the_background_of_a_shell_has_no_ctrl_c(start, sleeper):
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    command = start(*COMMAND + [str(sleeper.pid)], **ignore)
    until_it_sleeps(command.pid)
    command.send_signal(signal.SIGINT)
    sleeper.kill()
    assert command.wait() == 0


# A terminal


def test_no_message_stops_run_in_the_background_of_a_terminal(start):
    pty = pytest.importorskip("pty")
    code = """if True:
        import os, sys, termios
        os.setsid()
        fd = os.open(os.ttyname(2), os.O_RDWR)  # the terminal that controls us from here on
        old = termios.tcgetattr(fd)
        old[3] |= termios.TOSTOP
        termios.tcsetattr(fd, termios.TCSANOW, old)
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os.execv(sys.executable, [sys.executable] + sys.argv[1:])
        os._exit(os.waitpid(pid, 0)[1] >> 8)
    """
    command = [sys.executable, "-c", code] + COMMAND[1:]
    master, slave = pty.openpty()
    process = start(*command, "run", "-v", "-t", "0.5", "sleep", "60", stdout=slave, stderr=slave)
    os.close(slave)
    assert process.wait() == 124
    with open(master, "rb", buffering=0) as file:
        assert b"sending signal TERM to command 'sleep'" in file.read(1024)
