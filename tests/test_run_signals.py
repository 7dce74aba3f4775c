# SPDX-License-Identifier: BSD-3-Clause
"""Signals that come to the command run, and those that it sends."""

import contextlib
import importlib
import os
import random
import re
import signal
import subprocess
import sys
import types
from functools import partial

import pytest

from . import command_line, pidwait
from .command_line import COMMAND
from .processes import FACTORS, eventually, run_python, state

run = partial(command_line.run, "run")
job = importlib.import_module(pidwait.__name__ + ".cli._job")
deadline = importlib.import_module(pidwait.__name__ + "._deadline")
Options = importlib.import_module(pidwait.__name__ + ".cli.run").Options


# The shell looks for signals often, and ends by itself.
BUSY = "turn=0; while [ $((turn += 1)) -lt 3000 ]; do sleep 0.01; done"


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


def test_signals_are_passed_on(start_job):
    script = "trap 'echo got' HUP USR1; trap 'exit 9' TERM; echo ready; " + BUSY
    child = start_job("sh", "-c", script)
    assert child.stdout.readline() == b"ready\n"
    for number in signal.SIGHUP, signal.SIGUSR1, signal.SIGHUP:
        child.send_signal(number)
        assert child.stdout.readline() == b"got\n"
    child.terminate()
    assert child.wait() == 9


def test_kill_after_a_signal_that_was_passed_on(start_job):
    child = start_job("-k", "0.2", "sh", "-c", "trap '' TERM; echo ready; sleep 60; sleep 60")
    assert child.stdout.readline() == b"ready\n"
    child.terminate()
    assert child.wait() == -signal.SIGKILL


def test_ignored_signals_stay_ignored():
    script = "kill -HUP $PPID; kill -HUP $$; sleep 0.1; exit 3"

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert run("sh", "-c", script, preexec_fn=ignore).returncode == 3


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
def test_each_signal_is_passed_on(start_job, name):
    child = start_job("sh", "-c", "trap 'exit 9' %s; echo ready; %s" % (name, BUSY))
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(getattr(signal, "SIG" + name))
    assert child.wait() == 9


def test_an_alarm_is_the_end_of_the_time(start_job):
    child = start_job("-s", "INT", "sh", "-c", "trap 'exit 9' INT; echo ready; " + BUSY)
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGALRM)
    assert child.wait() == 124


def test_signals_reach_a_group_of_its_own(start_job):
    child = start_job("setsid", "-w", "sh", "-c", "trap 'exit 9' TERM; echo ready; " + BUSY)
    assert child.stdout.readline() == b"ready\n"
    child.terminate()
    assert child.wait() == 9


STORM = """if True:
    import signal, sys, time
    for number in {numbers}:
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    sys.stdin.readline()
    sys.exit(7)
"""


@pytest.mark.parametrize("options", [[], ["--tree"], ["--foreground"], ["-k", "600"]])
def test_storm_of_signals(start, options):
    numbers = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT]
    script = STORM.format(numbers=list(map(int, numbers)))
    command = COMMAND + ["run"] + options + [sys.executable, "-S", "-E", "-c", script]
    child = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    for _ in range(20000):
        child.send_signal(random.choice(numbers))
    assert child.communicate(b"\n")[1] == b""
    assert child.returncode == 7


def full_pipe():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in 4096, 1:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n" * size)
    os.set_blocking(writer, True)
    return reader, writer


def has_pending_signals(pid):
    with open("/proc/%d/status" % pid) as file:
        pending = re.findall(r"^(?:Sig|Shd)Pnd:\s*(\w+)", file.read(), re.M)
    return any(int(one, 16) for one in pending)


def test_signals_that_come_meanwhile_are_passed_on_once(start):
    reader, writer = full_pipe()
    command = COMMAND + ["run", "-v", "sh", "-c", "trap '' USR1 USR2; echo ready; read line"]
    child = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    try:
        assert child.stdout.readline() == b"ready\n"
        for number in [signal.SIGUSR1, signal.SIGUSR2] * 100:
            child.send_signal(number)  # the first of them can't be told, and so not be passed on
            eventually(lambda: not has_pending_signals(child.pid))
        child.stdin.close()
        told = b""
        while True:
            data = os.read(reader, 65536)
            if not data:
                break
            told += data
    finally:
        os.close(reader)
    assert 0 < told.count(b"sending signal") < 10


def test_foreground_leaves_the_group_alone(start_job):
    """What the command has started is sent nothing, and all are in the group of the caller."""
    script = "sleep 60 & echo $!; exec sleep 60"
    child = start_job("--foreground", "-t", "0.5", "sh", "-c", script)
    pid = int(child.stdout.readline())
    try:
        assert os.getpgid(pid) == os.getpgid(child.pid) == os.getpgrp()
        assert child.wait() == 124
        assert state(pid) == "S"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_terminal_of_the_foreground(start):
    """It reads from the terminal, and gets its Ctrl-C, where a script runs it."""
    import pty

    script = "'%s' -m %s run %%s -t 50 sh -c 'trap \"exit 9\" INT; echo ready; %s'; echo $?; exit 0"
    script = script % (sys.executable, pidwait.__name__, "read line; echo got $line; " + BUSY)
    pid, fd = pty.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            path = os.pathsep.join(sys.path)
            args = "sh", "-c", "trap : INT; " + script % "--foreground"
            os.execvpe("sh", args, dict(os.environ, PYTHONPATH=path))
        finally:
            os._exit(127)
    seen = b""
    try:
        while b"ready" not in seen:
            seen += os.read(fd, 1024)
        os.write(fd, b"a line\n")
        while b"got a line" not in seen:
            seen += os.read(fd, 1024)
        os.write(fd, b"\x03")
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while True:
                seen += os.read(fd, 1024)
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    assert seen.rstrip().endswith(b"9"), seen


def test_leader_of_a_session():
    """It can't leave its group."""
    assert run("-t", "0.2", "sleep", "60", start_new_session=True).returncode == 124


def test_stopped_and_killed():
    """SIGSTOP stops the command alone, so that there is somebody to kill it."""
    assert run("-s", "STOP", "-t", "0.1", "-k", "0.2", "sleep", "60").returncode == -signal.SIGKILL


def test_each_signal_is_told():
    command = ["sh", "-c", "trap '' TERM; sleep 60; sleep 60"]
    start = "python -m %s run: sending signal " % pidwait.__name__
    expected = [start + "TERM to command 'sh'", start + "KILL to command 'sh'"]
    for factor in FACTORS:
        done = run("-v", "-t", 0.3 * factor, "-k", "0.3", *command)
        told = [line for line in done.stderr.splitlines() if line.startswith(start)]
        if told == expected:
            break
    assert told == expected
    assert done.returncode == -signal.SIGKILL


def make_job(*options):
    """One whose command does not run, and what is sent: to the group, and to the command alone."""
    one, group, alone = job.Job(Options(dict.fromkeys(options, "")), ["true"]), [], []
    one.child = types.SimpleNamespace(pid=2**31 - 1, send_signal=alone.append)
    return one, group, alone


@pytest.mark.parametrize("names", [["TERM", "CONT"], ["USR1", "CONT"], ["CONT"], ["KILL"]])
@pytest.mark.parametrize("is_apart", [False, True], ids=["in our group", "in its own"])
def test_signals_to_a_group(monkeypatch, names, is_apart):
    """What has been stopped goes on, and gets the signal."""
    numbers = [getattr(signal, "SIG" + name) for name in names]
    one, group, alone = make_job()
    monkeypatch.setattr(os, "getpgid", lambda pid: os.getpgrp() + is_apart)
    monkeypatch.setattr(os, "killpg", lambda *args: group.append(args))
    one.send(numbers[0])
    assert group == [(0, number) for number in numbers]
    assert alone == (numbers if is_apart else [])


@pytest.mark.parametrize("options, name", [([], "STOP"), (["foreground"], "TERM")])
def test_signals_to_the_command_alone(monkeypatch, options, name):
    one, group, alone = make_job(*options)
    monkeypatch.setattr(os, "killpg", lambda *args: group.append(args))
    one.send(getattr(signal, "SIG" + name))
    assert (group, alone) == ([], [getattr(signal, "SIG" + name)])


def test_signals_are_passed_on_as_they_came():
    one, sent, _ = make_job()
    one._came, ends = [signal.SIGUSR2, signal.SIGUSR1], [False, True]
    one.send, one.reap, one._sleep = sent.append, lambda: ends.pop(0), lambda deadline: True
    one._wait(deadline.Deadline(None))
    assert sent == [signal.SIGUSR2, signal.SIGUSR1]


def test_one_signal_is_sent_when_the_time_is_up():
    one, sent, _ = make_job()
    one.send = sent.append
    assert one._end().remaining() is None and sent == [signal.SIGTERM]


def test_time_that_takes_several_sleeps(monkeypatch):
    """poll(2) takes at most 25 days."""
    monkeypatch.setattr(deadline, "_INT_MAX", 1)
    one, _, _ = make_job()
    one._reader, writer = os.pipe()
    try:
        assert one._sleep(deadline.Deadline(0.02)) is False
    finally:
        os.close(one._reader)
        os.close(writer)


BELL = """if True:
    import os, signal
    from {package}._deadline import Deadline
    from {package}.cli.run import Options
    from {package}.cli._job import Job
    make, made = os.pipe, []
    os.pipe = lambda: made.append(make()) or made[-1]
    signal.signal(signal.SIGUSR1, lambda *args: None)
    job = Job(Options({{}}), ["true"])
    job._open_bell()
    os.kill(os.getpid(), signal.SIGUSR1)
    print(job._sleep(Deadline(60)), job._sleep(Deadline(0)))
    for size in 4096, 1:
        try:
            while True:
                os.write(made[0][1], bytes(size))
        except BlockingIOError:
            pass
    os.kill(os.getpid(), signal.SIGUSR1)
    print(job._sleep(Deadline(60)))
"""


def test_bell():
    """A signal ends one sleep; where very many have come, nothing is said of that."""
    done = run_python(BELL.format(package=pidwait.__name__))
    assert done.stdout.split() == ["True", "False", "True"], done
    assert done.stderr == "" or sys.version_info < (3, 7)


def test_signals_that_are_ignored(monkeypatch):
    """By what Python knows, or by what /proc tells."""
    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        for told in False, True:
            monkeypatch.setattr(job, "is_ignored", lambda number, told=told: told)
            assert job._is_ignored(signal.SIGUSR1)
            assert job._is_ignored(signal.SIGUSR2) is told
    finally:
        signal.signal(signal.SIGUSR1, previous)


DIE = """if True:
    import os, resource, signal
    from {package}.cli import _job
    kill, hard = os.kill, resource.getrlimit(resource.RLIMIT_CORE)[1]
    def kill_with_core(pid, number):
        print(resource.getrlimit(resource.RLIMIT_CORE) == (0, hard), flush=True)
        kill(pid, number)
    os.kill = kill_with_core
    some = 4096 if hard == resource.RLIM_INFINITY else hard // 2
    resource.setrlimit(resource.RLIMIT_CORE, (some, hard))
    signal.signal(signal.SIGUSR1, lambda *args: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    _job.die_of(signal.SIGUSR1)
"""


def test_death_by_the_signal_of_the_command():
    """Without a second core dump; be the signal blocked or not."""
    done = run_python(DIE.format(package=pidwait.__name__))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGUSR1, "True\n", "")
