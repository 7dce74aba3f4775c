# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait run: as GNU timeout does, by signals of its own and by those that it gets.

What is to come after something is stepped: SIGALRM is the end of the time, for both programs.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from .. import pidwait
from ..needs import THERE, needs
from ..processes import (
    PYTHON,
    WINDOWS,
    eventually,
    exiting,
    gone_pid,
    need_program,
    not_on_windows,
    sleeping,
    state,
)
from .command_line import COMMAND, PROG, run, until_it_sleeps

RUN = COMMAND + ["run"]
posix = not_on_windows("signals")
READS = "echo ready; read line; exit 4"
STUBBORN = "trap '' TERM; echo ready; sleep 60; sleep 60"


def traps(name):
    return "trap 'exit 5' %s; echo ready; read line" % name


# Options, script, exit status, the signals that -v reports. Once it says that it is ready, the
# time is up; what exits with 4 does so once the first signal is told of.
SAME = {
    "in time": ("-k 50 -t 50", "exit 7", 7, ""),
    "time out": ("-t 0.05", "sleep 60", 124, "TERM"),
    "for ever": ("-t 0", "sleep 0.1; exit 3", 3, ""),
    "infinite": ("-t inf", "sleep 0.1; exit 3", 3, ""),
    "whole group": ("-t 0.05", "sleep 60 & sleep 60 & wait", 124, "TERM"),
    "group of its own": ("-t 0.05", "exec setsid -w sleep 60", 124, "TERM"),
    "signal": ("-s INT -p", traps("INT"), 5, "INT"),
    "--signal": ("--signal=sigint -p", traps("INT"), 5, "INT"),
    "number": ("-s 2 -p", traps("INT"), 5, "INT"),
    "real time": ("-s RTMIN+1 -t 0.05", "sleep 60", 124, "RTMIN+1"),
    "from the last": ("-s SIGRTMAX-1 -t 0.05", "sleep 60", 124, "RTMAX-1"),
    "the last": ("-s 64 -t 0.05", "sleep 60", 124, "RTMAX"),
    "alarm": ("-s ALRM -t 0.05", "sleep 60", 124, "ALRM"),
    "none": ("-s 0", READS, 124, "EXIT"),
    "none, but kill": ("-s EXIT -k 0.05 -t 0.05", "sleep 60", -9, "EXIT KILL"),
    "continue": ("-s CONT", READS, 124, "CONT"),
    "kill": ("-s KILL -t 0.05", "sleep 60", -9, "KILL"),
    "kill, foreground": ("--foreground -s KILL -t 0.05", "exec sleep 60", 137, "KILL"),
    "kill after": ("-k 0.05", STUBBORN, -9, "TERM KILL"),
    "kill after 0": ("--kill-after=0", "trap '' TERM; " + READS, 124, "TERM"),
    "kill after, foreground": (
        "--foreground -k 0.05",
        "trap '' TERM; echo ready; read line",
        137,
        "TERM KILL",
    ),
    "foreground": ("--foreground", traps("TERM"), 124, "TERM"),
    "preserved": ("--preserve-status", traps("TERM"), 5, "TERM"),
    "preserved signal": ("--preserve-status -t 0.05", "sleep 60", 143, "TERM"),
    "dies of a signal": ("-t 50", "kill -USR1 $$", -10, ""),
    "dies of a hang-up": ("-t 50", "kill -HUP $$", -1, ""),
    "dies of a real-time one": ("-t 50", "kill -40 $$", -40, ""),
    "kills itself": ("-t 50", "kill -KILL $$", -9, ""),
    "kills the group": ("-t 50", "kill -KILL 0", -9, ""),
}
OURS = {
    "stop, which stops the peer itself": ("-s STOP -k 0.05 -t 0.05", "sleep 60", -9, "STOP KILL"),
    "child, which the peer ignores from then on": ("-s CHLD", READS, 124, "CHLD"),
    "as coreutils 9.5 has it": ("-p -f -t 0.05", "exec sleep 60", 143, "TERM"),
    "milliseconds": ("-t 0m50ms", "sleep 60", 124, "TERM"),
    "tree": ("--tree -t 0.05", "setsid sleep 60 & wait", 124, "TERM"),
    "tree, stop": ("--tree -s STOP -k 0.05 -t 0.05", "sleep 60", 137, "STOP KILL"),
    "tree, kill after": ("--tree -k 0.05", STUBBORN, 137, "TERM KILL"),
    "tree, dies of a signal": ("--tree", "kill -USR1 $$", -10, ""),
}  # fmt: skip


USAGES = {
    "": ("exit 3", 3, "exited with 3"),
    "-t 50": ("kill -KILL $$", -9, "killed by SIGKILL"),
    "-t 0.05": ("exec sleep 60", 124, "killed by SIGTERM"),
    "-p -t 0.05": ("exec sleep 60", 143, "killed by SIGTERM"),
    "--tree": ("exit 3", 3, "exited with 3"),
    "--tree -t 0.05": ("setsid sleep 60 & wait", 124, "killed by SIGTERM"),
}


def heed_hang_ups():
    # Under nohup they are ignored, which children inherit.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def start_job(start):
    """start_job(command) runs it; if it is not reaped, its group is killed, too."""
    jobs = []

    def start_job(*command, prepare=heed_hang_ups, **options):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        jobs.append(start(*command, preexec_fn=prepare, **dict(pipes, **options)))
        return jobs[-1]

    yield start_job
    for job in jobs:
        if job.returncode is None:
            # It has not made a group yet, or is a zombie: on macOS that is EPERM.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGKILL)


def outcome(job, script, ready=lambda pid: None):
    """The exit status, and the signals that it reports."""
    told = b""
    if "echo ready" in script:
        assert job.stdout.readline() == b"ready\n"
        ready(job.pid)
        job.send_signal(signal.SIGALRM)
        told = job.stderr.readline() if "exit 4" in script else job.stderr.read()
    told += job.communicate()[1]
    signals = re.findall(rb"^.*: sending signal (\S+) to command", told, re.M)
    return job.returncode, b" ".join(signals).decode()


@posix
@pytest.mark.parametrize("options", USAGES)
def test_it_reports_what_the_command_has_used(options, start_job):
    script, status, text = USAGES[options]
    job = start_job(*RUN, "--usage", *options.split(), "sh", "-c", script)
    told = job.communicate()[1].decode()
    numbers = r"; \d+\.\d{3} s, user \d+\.\d{3} s, system \d+\.\d{3} s, \d+\.\d MB\n"
    assert re.match(re.escape(text) + numbers + "$", told.splitlines(True)[-1])
    assert job.returncode == status


@posix
@pytest.mark.parametrize("name", sorted(SAME) + sorted(OURS))
def test_how_a_command_is_ended(start_job, name):
    options, script, *expected = SAME.get(name) or OURS[name]
    job = start_job(*RUN, "-v", *options.split(), "sh", "-c", script)
    assert list(outcome(job, script)) == expected


@posix
@pytest.mark.peers
@pytest.mark.parametrize("name", sorted(SAME))
def test_gnu_timeout_ends_it_so(start_job, name):
    options, script, *expected = SAME[name]
    *options, seconds = (options if "-t" in options else options + " -t 50").split()
    options = ["--preserve-status" if one == "-p" else one for one in options[:-1]]
    timeout = need_program("timeout")
    job = start_job(timeout, "-v", *options, seconds, "sh", "-c", script)
    # It ends at once if the time is up before it knows of its child.
    assert list(outcome(job, script, until_it_sleeps)) == expected


@pytest.mark.parametrize(
    "text",
    ["-1", "", "x", "SIG", "_IGN", "SIG_DFL", "65", "1_5", "130", "265", "RTMIN+99", "RTMIN-1"]
    + [str(int(getattr(signal, "SIGRTMIN", 99)) - 1)],  # the C library keeps it for itself
)
def test_what_is_no_signal_is_refused(main, text):
    done = main("run", "--signal=" + text, "true")
    assert done[:2] == (125, "") and ": --signal: %r is not a signal" % text in done.stderr


@pytest.mark.windows
@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_status_is_the_commands(code):
    done = run("run", "-t", "50", *exiting(code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.windows
def test_a_time_out_is_told_with_v_alone():
    done = run("run", "-s", "KILL" if os.name == "nt" else "TERM", "-t", "0.2", *sleeping(60))
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "")
    done = run("run", "-p", "-v", "-t", "0.2", *sleeping(60))
    assert done.returncode not in (0, 124)
    text = "%s run: sending signal TERM to command %r\n" % (PROG, sleeping(60)[0])
    assert (done.stdout, done.stderr) == ("", text)


@pytest.mark.windows
@pytest.mark.parametrize("separator", [[], ["--"]], ids=" ".join)
def test_the_options_of_the_command_are_its_own(separator):
    script = "import sys; print(sys.argv[1:])"
    done = run("run", *separator, *PYTHON, "-c", script, "-t", "--", "-h")
    assert done.stdout == "['-t', '--', '-h']\n", done


SHOWS_FDS = """if True:
    import contextlib, os
    found = []
    for fd in range(%d):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            found.append(fd)
    print(found)
"""


@posix
@pytest.mark.parametrize("by", ["", "./script"])
def test_a_command_has_the_file_descriptors_that_were_passed(tmp_path, by):
    """So `run diff <(a) <(b)` works, as do the jobs of make. Those of `run` itself are closed."""
    tmp_path.joinpath("script").write_text('exec "$@"\n')  # without #!
    tmp_path.joinpath("script").chmod(0o755)
    reader, writer = os.pipe()
    try:
        command = [*by.split(), *PYTHON, "-c", SHOWS_FDS % (reader + 50)]
        done = subprocess.check_output(RUN + command, pass_fds=[reader], cwd=str(tmp_path))
    finally:
        os.close(reader)
        os.close(writer)
    assert done.decode() == "[0, 1, 2, %d]\n" % reader


# Commands that can't be started

STARTS = {
    "not there": ("{}/nonesuch", 127),
    "not in PATH": ("nonesuch", 127),
    "empty name": ("", 127),
    "a folder": ("{}", 126),
    "below a file": ("{}/shell-script/x", 126),
    "loop of links": ("{}/loop", 126),
    "long name": ("x" * 300, 126),
    "without #!": ("{}/shell-script 9", 9),
    "without #!, in PATH": ("shell-script 9", 9),
    "without its interpreter": ("{}/bad", 127),
    "not executable": ("{}/no-exec", 126),
    "not executable, in PATH": ("no-exec", 126),
    "empty file": ("{}/empty", 0),
    "no binary": ("{}/binary", 127),
}


@pytest.fixture
def programs(tmp_path, monkeypatch):
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
    # os.defpath of 3.6 has "."; a folder that one may not search would be an error of its own.
    monkeypatch.setenv("PATH", "/bin:/usr/bin:%s" % tmp_path)
    return tmp_path


@posix
@pytest.mark.parametrize("name", sorted(STARTS))
def test_a_command_that_can_not_be_started(programs, name):
    command, status = STARTS[name]
    done = run("run", *command.format(programs).split() or [""])
    assert (done.returncode, done.stdout) == (status, "")
    about = "%s run: can't start '" % PROG
    assert done.stderr.startswith(about) or status in (0, 9) or name == "no binary", done


@pytest.mark.windows
@pytest.mark.parametrize("tree", ["nonesuch", "group" if WINDOWS else "job"])
def test_a_tree_by_a_mechanism_that_is_not_there_is_an_error(monkeypatch, tree):
    monkeypatch.setenv("PIDWAIT_TREE", tree)
    done = run("run", "--tree", sys.executable, "-c", "0")
    why = "must be one of auto, reaper, job, group, not 'nonesuch'\n"
    about = "%s run: can't start %r: PIDWAIT_TREE " % (PROG, sys.executable)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert done.stderr.startswith(about + (why if tree == "nonesuch" else "is %s: " % tree))


@posix
def test_a_time_in_the_place_of_the_command_is_told_where_it_goes(programs):
    """It is where GNU timeout has it. There may be a program by that name."""
    done = run("run", "1.5m", "true")
    text = "%s run: can't start '1.5m': No such file or directory"
    assert done.returncode == 127
    assert done.stderr == text % PROG + " (to set a time-out, use -t 1.5m)\n"
    assert not any("-t" in run("run", one).stderr for one in ("nonesuch", "{}/1".format(programs)))
    programs.joinpath("7").write_text("exit 7\n")
    programs.joinpath("7").chmod(0o755)
    assert run("run", "7", "true").returncode == 7


@posix
@pytest.mark.peers
def test_gnu_timeout_starts_the_same(programs):
    timeout = need_program("timeout")
    for name, (command, status) in sorted(STARTS.items()):
        words = command.format(programs).split() or [""]
        found = subprocess.call([timeout, "5"] + words, stderr=subprocess.DEVNULL)
        assert found == status, name


# Signals that it gets


@posix
@pytest.mark.parametrize("options", ["", "--tree", "--foreground", "setsid -w"])
def test_signals_are_passed_on(start_job, options):
    names = ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"]
    script = "".join("trap 'echo %s' %s; " % (name, name) for name in names)
    script += "echo ready; while [ x$line != xend ]; do read line; done"
    job = start_job(*RUN, *options.split(), "sh", "-c", script)
    assert job.stdout.readline() == b"ready\n"
    for name in names:
        job.send_signal(getattr(signal, "SIG" + name))
        assert job.stdout.readline().decode() == name + "\n"
    out, err = job.communicate(b"end\n")
    assert (out, job.returncode) == (b"", 0)
    assert err == b"" or (options == "--tree" and not THERE["keeper of trees"])  # which is told


@posix
def test_signals_that_come_at_once_are_all_passed_on(start_job):
    script = "trap 'echo 1' USR1; trap 'echo 2' USR2; echo ready; while [ x$line != xend ]; do "
    job = start_job(*RUN, "--foreground", "sh", "-c", script + "read line; done")
    assert job.stdout.readline() == b"ready\n"
    for name in "STOP", "USR1", "USR2", "CONT":
        job.send_signal(getattr(signal, "SIG" + name))
        if name == "STOP":
            eventually(lambda: state(job.pid) == "T")
    assert {job.stdout.readline(), job.stdout.readline()} == {b"1\n", b"2\n"}
    assert job.communicate(b"end\n") == (b"", b"") and job.returncode == 0


@posix
def test_kill_after_counts_from_a_signal_that_is_passed_on(start_job):
    job = start_job(*RUN, "-k", "0.1", "sh", "-c", STUBBORN)
    assert job.stdout.readline() == b"ready\n"
    job.terminate()
    assert job.wait() == -signal.SIGKILL
    # It is no time-out, if the command itself has died of the signal.
    rest = "sleep 60 & echo ready; exec sleep 60"
    job = start_job(*RUN, "--tree", "-k", "0.1", "sh", "-c", rest)
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(signal.SIGINT)
    assert job.wait() == -signal.SIGINT


@posix
@pytest.mark.parametrize("tree", [[], ["--tree"]], ids=["", "tree"])
def test_a_command_that_is_stopped_goes_on_to_its_end(start_job, tree):
    job = start_job(*RUN, *tree, "sh", "-c", "echo $$; kill -STOP $$; sleep 60")
    pid = int(job.stdout.readline())
    eventually(lambda: state(pid) == "T")
    job.send_signal(signal.SIGALRM)
    assert job.wait() == 124 and state(pid) is None


@posix
@pytest.mark.parametrize("options", ["-s INT", "-s HUP", "", "--tree", "-f"])
@pytest.mark.parametrize("peer", [False, pytest.param(True, marks=pytest.mark.peers)])
def test_a_signal_that_was_ignored_ends_the_command(start_job, options, peer):
    """As INT is for the jobs that a script has in the background, and TERM after trap '' TERM."""

    def ignore():
        for number in signal.SIGINT, signal.SIGHUP, signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)

    command = RUN + options.split() + ["-t"]
    if peer:
        if options == "--tree":
            pytest.skip("GNU timeout has none")
        command = [need_program("timeout"), *options.replace("-f", "--foreground").split()]
    job = start_job(*command, "0.05", "sleep", "60", prepare=ignore)
    assert job.wait() == 124


@posix
def test_ignored_signals_stay_ignored(start_job):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    script = "kill -HUP $PPID; kill -HUP $$; sleep 0.1; exit 3"
    assert start_job(*RUN, "sh", "-c", script, prepare=ignore).wait() == 3


@posix
@pytest.mark.parametrize("way", ["blocked", "ignored"])
def test_sigchld_of_the_parent_does_not_matter(start_job, way):
    def prepare():
        heed_hang_ups()
        if way == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGALRM])
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    for script, status in ("sleep 0.1; exit 5", 5), ("sleep 60", 124):
        timeout = "0.2" if status == 124 else "50"
        job = start_job(*RUN, "-t", timeout, "sh", "-c", script, prepare=prepare)
        assert job.wait() == status


@posix
def test_the_leader_of_a_session_can_have_a_time_out(start_job):
    """It can't leave its group."""
    job = start_job(*RUN, "-t", "0.05", "sleep", "60", start_new_session=True)
    assert job.wait() == 124


@posix
def test_foreground_leaves_the_group_alone(start_job):
    """What the command has started is sent nothing, and all are in the group of the caller."""
    job = start_job(*RUN, "--foreground", "sh", "-c", "sleep 60 & echo $!; exec sleep 60")
    pid = int(job.stdout.readline())
    try:
        assert os.getpgid(pid) == os.getpgid(job.pid) == os.getpgrp()
        job.send_signal(signal.SIGALRM)
        assert job.wait() == 124
        eventually(lambda: state(pid) == "S")  # it may have just begun
    finally:
        os.kill(pid, signal.SIGKILL)


@posix
def test_foreground_reads_from_the_terminal_and_gets_ctrl_c():
    """Where a script runs it."""
    import pty

    script = "trap : INT; '%s' -m %s run --foreground -t 50 sh -c '%s'; echo $?; exit 0"
    command = 'trap "exit 9" INT; echo ready; read line; echo got $line; read line'
    pid, fd = pty.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            path = os.pathsep.join(sys.path)
            args = "sh", "-c", script % (sys.executable, pidwait.__name__, command)
            os.execvpe("sh", args, dict(os.environ, PYTHONPATH=path))
        finally:
            os._exit(127)
    seen = b""
    try:
        for shown, answer in (b"ready", b"a line\n"), (b"got a line", b"\x03"):
            while shown not in seen:
                seen += os.read(fd, 1024)
            os.write(fd, answer)
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while True:
                seen += os.read(fd, 1024)
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    assert seen.rstrip().endswith(b"9"), seen


@posix
@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="nobody tells who sends a signal")
@pytest.mark.parametrize("way", ["key", "kill -INT 0"])
@pytest.mark.parametrize(
    "options", ["", "-f", "--tree", "--tree -f", "group --tree", "setsid -w", "--tree setsid -w"]
)
def test_ctrl_c_comes_once(options, way):
    """Whether the command has it from the terminal, from its group or from us. USR1 comes later."""
    import pty

    if options == "--tree setsid -w" and not THERE["keeper of trees"]:
        pytest.skip("setsid(1) forks there: a command without a keeper leads a group of its own")
    *group, options = options.rpartition("group ")
    traps = "trap 'echo INT' INT; trap 'echo USR1; exit 5' USR1; trap 'kill -INT 0' USR2; "
    script = traps + "echo ready; i=0; while [ $((i += 1)) -lt 9000 ]; do sleep 0.01; done"
    pid, fd = pty.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.environ.update(PYTHONPATH=os.pathsep.join(sys.path))
            os.environ.update({"PIDWAIT_TREE": "group"} if any(group) else {})
            os.execvp(RUN[0], [*RUN, *options.split(), "sh", "-c", script])
        finally:
            os._exit(127)
    seen = b""
    try:
        while b"ready" not in seen:
            seen += os.read(fd, 1024)
        until_it_sleeps(pid)
        os.write(fd, b"\x03") if way == "key" else os.kill(pid, signal.SIGUSR2)
        while b"INT" not in seen:
            seen += os.read(fd, 1024)
        os.kill(pid, signal.SIGUSR1)
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while True:
                seen += os.read(fd, 1024)
    finally:
        os.close(fd)
        status = os.waitpid(pid, 0)[1]
    assert (seen.count(b"INT"), os.WEXITSTATUS(status)) == (1, 5), seen


@posix
def test_signals_that_come_meanwhile_are_passed_on_once(start_job):
    """The first of them can't be told on a full pipe, and so not be passed on."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in 4096, 1:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n" * size)
    os.set_blocking(writer, True)
    script = "trap '' USR1 USR2; echo ready; read line"
    job = start_job(*RUN, "-v", "sh", "-c", script, stderr=writer)
    os.close(writer)
    with open(reader, "rb") as told:
        assert job.stdout.readline() == b"ready\n"
        until_it_sleeps(job.pid)
        for number in [signal.SIGUSR1, signal.SIGUSR2] * 50:
            job.send_signal(number)
        until_it_sleeps(job.pid)  # in write(2)
        job.stdin.close()
        assert 0 < told.read().count(b"sending signal") < 10


# --tree


@posix
@pytest.mark.parametrize("timeout", [[], ["-t", "50"]], ids=" ".join)
def test_a_tree_is_waited_for(start_job, tmp_path, timeout):
    """Also what goes to a session of its own, and loses its parent; else the command alone is."""
    fifo, mark = str(tmp_path / "fifo"), tmp_path / "mark"
    os.mkfifo(fifo)
    leaves = "(setsid sh -c 'exec >&- 2>&-; read line < %s; : > %s' &); echo $$; exit 4"
    command = timeout + ["sh", "-c", leaves % (fifo, mark)]
    assert start_job(*RUN, *command).wait() == 4
    job = start_job(*RUN, "--tree", *command)
    pid = int(job.stdout.readline())
    eventually(lambda: state(pid) == "Z")  # its pid stays its own
    assert job.poll() is None and not mark.exists()
    with open(fifo, "w") as file:
        file.write("\n\n")  # a line for each
        file.flush()
        assert job.wait() == 4 and mark.exists()


@needs("keeper of trees")
@pytest.mark.parametrize("trap, status", [("", 124), ("trap '' TERM; ", 137)])
def test_a_tree_is_ended(start_job, trap, status):
    """Also what has left, and what ignores the signal."""
    nested = trap + "sleep 60 & echo $$ $!; wait; wait; sleep 60"
    script = trap + '(setsid sh -c "$NESTED" &); ' + nested
    env = dict(os.environ, NESTED=nested)
    job = start_job(*RUN, "--tree", "-k", "0.2", "sh", "-c", script, env=env)
    pids = [int(pid) for _ in range(2) for pid in job.stdout.readline().split()]
    job.send_signal(signal.SIGALRM)
    assert job.wait() == status
    assert [state(pid) for pid in pids] == [None] * 4


@posix
@pytest.mark.parametrize("options", ["", "--tree", "--ancestors"])
def test_a_command_ends_with_the_parent_of_run(start_job, options):
    """Or, with --ancestors, with that of its parent, which lives on."""
    command = [*RUN, "--with-parent", *options.split(), "-k", "0.05"]
    command += ["sh", "-c", "trap '' TERM; echo $$; read x"]
    own = ["sh", "-c", 'sh -c "$0" sh "$@"; :'] if options == "--ancestors" else ["sh", "-c"]
    parent = start_job(*own, '"$@" & echo; wait', *["sh"] * (len(own) < 3), *command)
    pid = int(parent.stdout.readline() + parent.stdout.readline())
    parent.kill()
    eventually(lambda: state(pid) in (None, "Z"))


@posix
def test_a_parent_that_has_exited_ends_the_command_at_once(start_job):
    for options in ["--parent"], ["--ancestors", "--parent"]:
        assert start_job(*RUN, *options, str(gone_pid()), "sleep", "60").wait() == -signal.SIGTERM


NO_THREAD = """
import sys, threading
from {}.cli import main
threading.stack_size(1 << 47)
sys.exit(main())
"""


@posix
@pytest.mark.parametrize("mechanism", ["auto", "group"])
@pytest.mark.parametrize("options", ["--tree", "--with-parent"])
def test_it_refuses_to_start_a_command_that_it_could_not_end(options, mechanism, tmp_path):
    mark = tmp_path / "mark"
    code = NO_THREAD.format(pidwait.__name__)
    done = subprocess.run(
        [*PYTHON, "-c", code, "run", *options.split(), "touch", str(mark)],
        stdout=-1,
        stderr=-1,
        env=dict(os.environ, PIDWAIT_TREE=mechanism),
    )
    told = done.stderr.decode()
    assert (done.returncode, done.stdout, mark.exists()) == (125, b"", False), told
    assert "can't start new thread" in told and "Traceback" not in told
