# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait."""

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys

import pytest

from . import pidwait
from .processes import (
    WINDOWS,
    become_zombie,
    codes,
    eventually,
    exiting,
    gone_pid,
    not_on_windows,
    sleeping,
    state,
)

# What the processes of exiting() and of sleeping() are called.
SH, SLEEP = (os.path.basename(sys.executable),) * 2 if WINDOWS else ("sh", "sleep")
COMMAND = [sys.executable, "-m", pidwait.__name__]


def run(*args, **kwargs):
    return subprocess.run(
        COMMAND + [str(arg) for arg in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )


def run_told(start, children, *args):
    """The exit status and the lines of the command, for children that exit meanwhile.

    Each is told to when there is a line for the one before it. The first line of all is for a
    process that had exited, and by then the names of all are known, which Windows forgets.
    """
    exited = start(*exiting(0))
    become_zombie(exited.pid)
    pids = [str(child.pid) for child in children[::-1] + [exited]]
    command = start(*COMMAND + list(args) + pids, stdout=subprocess.PIPE, universal_newlines=True)
    lines = []
    for child in children:
        lines.append(command.stdout.readline())
        child.stdin.close()
    lines += command.stdout
    return command.wait(), lines[1:]


def test_waits(variant, start):
    child = start(*sleeping(0.2))
    done = run(child.pid)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert state(child.pid) == "Z"


def test_verbose(start, start_told):
    children = [start_told(code) for code in codes(0, 3, -signal.SIGTERM, -40)]
    status, lines = run_told(start, children, "-v")
    assert status == 0
    ends = ["exited with 0", "exited with 3", "killed by SIGTERM", "killed by signal 40"]
    assert len(lines) == len(children)
    for line, child, end in zip(lines, children, ends):
        assert re.match(r"%d \(%s\): %s after \d+\.\d{3} s$" % (child.pid, SH, end), line)


def test_json(start, start_told, sleeper):
    child = start_told(3)
    status, lines = run_told(start, [child], "--json")
    (one,) = map(json.loads, lines)
    assert status == 0
    assert 0 <= one.pop("seconds") <= 60
    assert one == {"pid": child.pid, "name": SH, "exited": True, "exitcode": 3}
    done = run("--json", "-t", "0", sleeper.pid)
    assert done.returncode == 124
    assert json.loads(done.stdout) == {
        "pid": sleeper.pid,
        "name": SLEEP,
        "exited": False,
        "exitcode": None,
        "seconds": None,
    }


@pytest.mark.parametrize("timeout", ["0", "0.05", "0.05s", ".001m", "0.00001h", "0.000001d"])
def test_time_out(sleeper, timeout):
    done = run("-t", timeout, sleeper.pid)
    assert (done.returncode, done.stdout) == (124, "")
    assert "the time was up; still running: %d (%s)" % (sleeper.pid, SLEEP) in done.stderr


@pytest.mark.parametrize("count, more", [(3, ""), (4, ", and 1 more")])
def test_time_out_of_several(start, count, more):
    pids = [start(*sleeping(60)).pid for _ in range(count)]
    names = ", ".join("%d (%s)" % (pid, SLEEP) for pid in pids[:3])
    done = run("-t", "0", *pids)
    assert done.returncode == 124
    assert done.stderr.endswith("the time was up; still running: %s%s\n" % (names, more))


@pytest.mark.parametrize("timeout", ["10", "0.5s", "2m", "1h", "1d", "999999d"])
def test_durations(start, timeout):
    assert run(start(*sleeping(0.01)).pid, "--timeout", timeout).returncode == 0


@pytest.mark.parametrize("timeout", ["", "1x", "-1", "1e3", "s", "1.5.2", "nan", "inf", "1 s"])
def test_bad_durations(sleeper, timeout):
    done = run("--timeout=" + timeout, sleeper.pid)
    assert done.returncode == 2
    assert "is not a duration" in done.stderr


def test_no_such_process(start, start_told):
    gone = gone_pid()
    done = run(gone)
    assert done.returncode == 1
    assert "there is no process %d" % gone in done.stderr
    done = run("-e", gone)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # The others are waited for all the same.
    child = start_told(2)
    status, (line,) = run_told(start, [child], "-v", str(gone))
    assert status == 1
    assert line.startswith("%d (%s): exited with 2" % (child.pid, SH))


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "give at least one PID"),
        (["make"], "'make' is not a process ID"),
        (["1.5"], "'1.5' is not a process ID"),
        (["0"], "PID must be positive"),
        (["99999999999"], "PID must be at most 2147483647"),
        (["--probe", "1"], "give at least one PID, or --probe"),
        (["--nonesuch"], "PID"),
    ],
)
def test_usage(args, message):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("command", [[], ["run"], ["patch"]])
def test_help(command):
    done = run(*command + ["-h"])
    assert done.returncode == 0
    name = " ".join(["python -m", pidwait.__name__] + command)
    assert done.stdout.startswith("usage: %s " % name)
    assert ("examples:" in done.stdout) is (not command)


def test_given_twice(start):
    child = start(*sleeping(0.05))
    done = run("-v", child.pid, child.pid)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1


def test_reported_as_they_exit(variant, start, start_told):
    children = [start_told(code) for code in (1, 2)]
    status, lines = run_told(start, children, "-v")
    assert status == 0
    assert [line.split()[0] for line in lines] == [str(child.pid) for child in children]


@pytest.mark.parametrize("option", [("--any",), ("-c", "1"), ("--count=1",)])
def test_any(start, sleeper, option):
    child = start(*exiting(3))
    done = run("-v", sleeper.pid, child.pid, *option)
    assert done.returncode == 0
    name = r"( \(%s\))?" % SH  # it may have exited before its name was looked up
    assert re.match(r"%d%s: exited with 3 after \S+ s\n\Z" % (child.pid, name), done.stdout)
    assert run("-e", sleeper.pid, gone_pid(), *option).returncode == 0  # one has exited


def test_count(start, sleeper):
    children = [start(*exiting(0)) for _ in range(2)]
    pids = [child.pid for child in children] + [sleeper.pid]
    assert run("-c", "2", *pids).returncode == 0
    assert run("-t", "0", "-c", "3", *pids).returncode == 124
    assert run("-e", "-t", "0", "-c", "9", *pids).returncode == 124
    for count in "0", "-1", "x", "":
        done = run("--count=" + count, sleeper.pid)
        assert done.returncode == 2 and "is not a count" in done.stderr
    assert run("--any", "-c", "2", sleeper.pid).returncode == 2


def test_probe(variant, backend):
    done = run("--probe")
    assert done.returncode == 0
    assert re.search(r"^backend +%s$" % backend, done.stdout, re.MULTILINE)
    assert re.search(r"^  (pidfd_open|OpenProcess) +(yes \(\w+\)|no: .+)$", done.stdout, re.M)
    done = run("--probe", "--json")
    assert json.loads(done.stdout) == pidwait.probe()


def test_bad_environment(monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", "nonesuch")
    done = run(os.getpid(), "-t", "0")
    assert done.returncode == 2
    assert "auto, pidfd, kqueue, win32, polling" in done.stderr
    assert "Traceback" not in done.stderr


@not_on_windows("such file names")
@pytest.mark.parametrize("encoding, shown", [("ascii", b"\\xe9"), ("utf-8", b"\xc3\xa9")])
def test_name_that_talks_to_the_terminal(start, tmp_path, encoding, shown):
    path = tmp_path / "\x1b[31m\u00e9"
    path.symlink_to("/bin/sleep")
    child = start(str(path), "0.3")
    with open("/proc/%d/comm" % child.pid, "rb") as comm:
        eventually(lambda: comm.seek(0) == 0 and b"[31m" in comm.read())
    env = dict(os.environ, PYTHONIOENCODING=encoding)
    done = subprocess.run(COMMAND + ["-v", str(child.pid)], stdout=subprocess.PIPE, env=env)
    assert done.stdout.startswith(b"%d (?[31m%s): exited with 0" % (child.pid, shown))


def test_reader_that_has_gone(start):
    child = start(*sleeping(0.2))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            COMMAND + ["-v", str(child.pid)], stdout=writer, stderr=subprocess.PIPE
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@not_on_windows("signals")
def test_interrupt(start, sleeper):
    waiter = start(*COMMAND + [str(sleeper.pid)], stderr=subprocess.PIPE)
    eventually(lambda: state(waiter.pid) == "S" and holds_a_handle(waiter.pid))
    waiter.send_signal(signal.SIGINT)
    assert waiter.wait() == -signal.SIGINT
    assert waiter.stderr.read() == b""


def holds_a_handle(pid):
    if pidwait.probe()["backend"] != "pidfd":
        return True
    folder = "/proc/%d/fd" % pid
    return "anon_inode:[pidfd]" in [
        os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)
    ]


def on_a_terminal(start, killed, *args, columns=0):
    """What the command writes there; ``killed`` has whom to kill once it has shown what."""
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    seen = b""
    try:
        waiter = start(*COMMAND + list(map(str, args)), stdout=slave, stderr=slave)
        os.close(slave)
        while True:
            if select.select([master], [], [], 1)[0]:
                try:
                    seen += os.read(master, 1024)
                except OSError:  # EIO: the other side is closed
                    break
            elif waiter.poll() is not None:
                break
            for shown, child in killed.items():
                if shown in seen:
                    child.kill()
    finally:
        os.close(master)
    return seen.decode()


@not_on_windows("pseudo-terminals that Python can open")
def test_progress_of_several(start, sleeper):
    child = start(*sleeping(60))
    killed = {b"0 of 2": child, b"1 of 2": sleeper}
    text = on_a_terminal(start, killed, child.pid, sleeper.pid)
    line = r"\r\x1b\[K1 of 2 exited, \d+:\d\d; waiting for %d \(sleep\)" % sleeper.pid
    assert re.search(line, text), text


@not_on_windows("pseudo-terminals that Python can open")
@pytest.mark.parametrize("columns, width", [(0, 80), (23, 23)])
def test_progress_is_as_wide_as_the_terminal(start, columns, width):
    """0 is what a terminal says that was not told its size. The last column stays free."""
    children = [start(*sleeping(60)) for _ in range(9)]
    killed = {b"0 of 9": children[0]}
    pids = [child.pid for child in children]
    text = on_a_terminal(start, killed, "--any", *pids, columns=columns)
    names = ", ".join("%d (sleep)" % pid for pid in pids[:3])
    shown = re.match(r"\r\x1b\[K(0 of 9 exited, (\d:\d\d).*?)\r", text)
    line = "0 of 9 exited, %s; waiting for %s, and 6 more" % (shown.group(2), names)
    assert shown.group(1) == line[: width - 1]


@not_on_windows("pseudo-terminals that Python can open")
def test_progress_on_a_terminal(start):
    child = start(*sleeping(60))
    text = on_a_terminal(start, {b"waiting 0:01": child}, "-v", child.pid)
    assert re.search(r"\r\x1b\[Kwaiting 0:01 for %d \(sleep\)\r" % child.pid, text), text
    # It is wiped before the result.
    assert re.search(r"\r\x1b\[K%d \(sleep\): killed by SIGKILL after" % child.pid, text), text
