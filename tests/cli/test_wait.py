# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait PID...: it waits, reports how each process ended, and exits accordingly."""

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from .. import pidwait, seam
from ..conftest import another_thread
from ..needs import needs
from ..processes import (
    INTERPRETER,
    WINDOWS,
    OnPurpose,
    codes,
    exiting,
    gone_pid,
    not_on_windows,
    sleeping,
    state,
    stop,
)
from .command_line import COMMAND, PROG, once_we_sleep, run, until_it_sleeps

# What the processes of exiting() and of sleeping() are called.
SH, SLEEP = (os.path.basename(INTERPRETER),) * 2 if WINDOWS else ("sh", "sleep")
ACCESS_VIOLATION = 0xC0000005  # how Windows ends a process

posix = not_on_windows("signals")
tells_zeros = needs("code 0 of a stranger's zombie")


def rows(text):
    """The objects of --json, by their pids."""
    found = [json.loads(line) for line in text.splitlines()]
    assert len({row["pid"] for row in found}) == len(found)
    return {row["pid"]: row for row in found}


@pytest.fixture
def zombie(zombie):
    """zombie(code) is the pid of a child that has exited."""
    return lambda code: zombie(code).pid


@pytest.mark.windows
@pytest.mark.kqueue
def test_it_waits_for_all_and_reaps_none(variant, herd, main):
    pids = [herd.fork(code, after=0.05 * code) for code in range(3)]
    assert main(*pids) == (0, "", "")
    assert [state(pid) for pid in pids] == ["Z"] * 3


@pytest.mark.windows
def test_each_exit_is_reported_at_once_with_how_it_ended(start, start_told, zombie):
    """The first line is for one that had exited: then the names of all are known."""
    given = codes(0, 3, -signal.SIGTERM, -40) + [ACCESS_VIOLATION] * WINDOWS
    ends = ["exited with 0", "exited with 3"]
    ends += ["exited with 0xC0000005"] if WINDOWS else ["killed by SIGTERM", "killed by signal 40"]
    children = [start_told(code) for code in given]
    pids = [str(child.pid) for child in children[::-1]] + [str(zombie(0))]
    command = start(*COMMAND + ["-v"] + pids, stdout=subprocess.PIPE, universal_newlines=True)
    assert command.stdout.readline().startswith(pids[-1])
    for child, end in zip(children, ends):
        child.stdin.close()
        line = command.stdout.readline()
        assert re.match(r"%d \(%s\): %s; waited \d+\.\d{3} s$" % (child.pid, SH, end), line)
    assert (command.stdout.read(), command.wait()) == ("", 0)


@pytest.mark.windows
@pytest.mark.kqueue
def test_json_has_an_object_for_each_process(variant, start, herd, main):
    exits, sleeper, gone = herd.fork(3, after=0.05), start(*sleeping(60)).pid, gone_pid()
    begin = time.monotonic()
    done = main("--json", "-c", "2", gone, sleeper, exits, gone)
    passed = time.monotonic() - begin
    nothing = dict.fromkeys(["name", "exited", "exitcode", "seconds"])
    found = rows(done.stdout)
    assert done.returncode == 1 and set(found) == {exits, sleeper, gone}
    assert 0 <= found[exits].pop("seconds") <= passed
    assert found[exits].pop("name") in (pidwait.ProcessInfo(os.getpid()).name(), None)
    assert found[exits] == {"pid": exits, "found": True, "exited": True, "exitcode": 3}
    assert found[gone] == dict(nothing, pid=gone, found=False)
    assert found[sleeper] == dict(nothing, pid=sleeper, name=SLEEP, found=True, exited=False)


@pytest.mark.windows
@pytest.mark.kqueue
@pytest.mark.parametrize(
    "timeout, seconds",
    [("0", 0), ("0.05", 0.05), ("0.05s", 0.05), ("50ms", 0.05), ("0m50ms", 0.05)]
    + [(".001m", 0.06), ("0.00001h", 0.036), ("0.000001d", 0.0864), (" +5e-2 ", 0.05)],
)
def test_a_time_out_is_never_cut_short(sleeper, main, timeout, seconds):
    begin = time.monotonic()
    done = main("-t", timeout, sleeper.pid)
    assert time.monotonic() - begin >= seconds
    message = "%s: timed out; still running: %d (%s)\n" % (PROG, sleeper.pid, SLEEP)
    assert done == (124, "", message)


@pytest.mark.windows
@pytest.mark.parametrize("timeout", ["1h30m", "0.01h", "0.5m", "9999d", "inf", "1e999"])
def test_a_long_time_out_is_not_over_at_once(herd, main, timeout):
    assert main("-t", timeout, herd.fork(0, after=0.05)) == (0, "", "")


def test_a_time_out_names_three_that_still_run_or_with_v_all(herd, main):
    """Each once."""
    pids = [herd.fork(0) for _ in range(4)]
    name = pidwait.ProcessInfo(os.getpid()).name()
    names = ["%d (%s)" % (pid, name) for pid in pids]
    for count, more in (3, ""), (4, ", and 1 more"):
        done = main("-t", "0", *pids[:count])
        assert done.stderr.endswith(": %s%s\n" % (", ".join(names[:3]), more))
        done = main("-v", "-t", "0", *pids[:count])
        assert done.stdout.splitlines() == [one + ": still running" for one in names[:count]]
        assert done.stderr == PROG + ": timed out\n"


@pytest.mark.windows
def test_pids_may_come_as_other_programs_print_them(zombie, main):
    """With white space, a sign, options between them, and twice."""
    pid = zombie(0)
    args = " %d" % pid, "-v", "%d\n%d\n" % (pid, pid), "-t", "50", "\t+%d " % pid, "-e", ""
    done = main(*args)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


@pytest.mark.windows
@pytest.mark.kqueue
@pytest.mark.parametrize("args", [["-t", "5", "--json"], ["--any", "-v", ""], ["-c", "2"]])
def test_no_pid_is_allowed_with_e(main, args):
    assert main("-e", *args) == (0, "", "")


@pytest.mark.windows
@pytest.mark.kqueue
def test_a_pid_that_is_gone_is_an_error_after_the_others_have_exited(herd, main):
    gone, child = gone_pid(), herd.fork(2, after=0.05)
    done = main("-v", gone, child)
    assert done.returncode == 1 and done.stderr.endswith(
        "no such process: %d (use -e to ignore)\n" % gone
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("%d (" % child) and "): exited with 2; waited " in line
    assert main(gone) == (1, "", done.stderr)
    assert main("-e", gone) == (0, "", "")
    assert main("-e", "-v", gone) == (0, "%d: no such process\n" % gone, "")


@posix
def test_a_thread_is_no_process(main):
    with another_thread() as tid:
        done = main(tid)
        assert done[:2] == (1, "") and "no such process: %d" % tid in done.stderr
        assert main("-l", tid)[:2] == (1, "")


@pytest.mark.windows
@pytest.mark.parametrize(
    "text", ["%d", " %d\n", "%d\n/var/lib/data\n1700000000\n", "%d" + " x" * 999]
)
def test_a_pid_can_come_from_a_file(zombie, sleeper, main, tmp_path, text):
    """Some programs write more than it."""
    path = tmp_path / "file"
    path.write_text(text % zombie(3))
    for option in ["-F", path], ["--pidfile=%s" % path]:
        assert main("--exit-code", *option) == (3, "", "")
    assert main("-t", "0", "-F", path, sleeper.pid).returncode == 124


@pytest.mark.windows
@pytest.mark.parametrize(
    "text", [b"", b"\n \n", b"x", b"1x", b"-1", b"0", b"9" * 11, b"\xff", b"\0" * 99]
)
def test_a_file_without_a_pid_is_refused(main, tmp_path, text):
    path = tmp_path / "file"
    path.write_bytes(text)
    done = main("-e", "-F", path)
    assert done == (1, "", "%s: --pidfile: %s does not begin with a PID\n" % (PROG, path))
    path.unlink()
    for option, status in ("-e", 1), ("--exit-code", 127):
        done = main(option, "-F", path)
        assert done == (status, "", "%s: --pidfile: %s: No such file or directory\n" % (PROG, path))
    assert main("--pid", "123").stderr.endswith(" (a PID needs no option)\n")


@pytest.mark.windows
@pytest.mark.kqueue
@pytest.mark.parametrize("option", [("--any",), ("-c", "1"), ("--count=1",)])
def test_a_wait_can_be_for_any(herd, main, option):
    sleeper, child, gone = herd.fork(0), herd.fork(3, after=0.05), gone_pid()
    done = main("-v", sleeper, child, *option)
    (line,) = done.stdout.splitlines()
    assert done.returncode == 0 and line.startswith("%d" % child) and "exited with 3" in line
    assert main("-e", sleeper, gone, *option) == (0, "", "")  # one that is gone has exited
    assert main("-t", "0", sleeper, *option).returncode == 124


@pytest.mark.windows
def test_a_wait_can_be_for_a_number_of_them(herd, zombie, main):
    pids = [zombie(0), zombie(0), herd.fork(0)]
    assert main("-c", "2", *pids) == main("-c", "2", *pids[:2]) == (0, "", "")
    assert main("-t", "0", "-c", "3", *pids).returncode == 124


@pytest.mark.windows
@pytest.mark.parametrize("option", [[], ["-e"], ["--exit-code", "-t", "0"]], ids=" ".join)
def test_more_than_are_given_can_not_be_waited_for(zombie, main, option):
    pid = zombie(0)
    done = main("-c", "2", *option + [pid, pid])
    assert done[:2] == (2, "") and ": --count 2 is more than the number of PIDs: 1 (" in done.stderr


# --exit-code


@pytest.mark.windows
@pytest.mark.kqueue
@pytest.mark.parametrize("after", [0, 0.05], ids=["exited", "running"])
@pytest.mark.parametrize("code", codes(0, 3, 255, -signal.SIGTERM, -9, -40))
def test_the_exit_status_is_that_of_the_process(variant, start, zombie, main, code, after):
    pid = start(*exiting(code, after)).pid if after else zombie(code)
    assert main("--exit-code", pid) == (code if code >= 0 else 128 - code, "", "")


@pytest.mark.windows
@tells_zeros
def test_the_exit_status_of_a_process_that_is_no_child(zombie):
    given = codes(0, 3, -signal.SIGTERM) + [ACCESS_VIOLATION] * WINDOWS
    for code in given:
        status = run("--exit-code", zombie(code)).returncode
        assert status == (code if code >= 0 else 128 - code)


@pytest.mark.windows
@tells_zeros
def test_the_first_to_exit_with_an_error_gives_the_status(start, start_told, zombie):
    """As they exit, not as they are given."""
    late = [start_told(code) for code in (3, 4)]
    pids = [str(one.pid) for one in late] + [str(zombie(0))]
    command = start(*COMMAND + ["-v", "--exit-code"] + pids, stdout=subprocess.PIPE)
    for child in (None,) + tuple(late[::-1]):
        if child is not None:
            child.stdin.close()
        assert command.stdout.readline()
    assert command.wait() == 4


@pytest.mark.windows
def test_what_else_the_exit_status_can_be_with_exit_code(zombie, herd, main):
    sleeper, gone, failed = herd.fork(0), gone_pid(), zombie(6)
    assert main("--exit-code", zombie(0), zombie(0)).returncode == 0
    assert main("--exit-code", "--any", sleeper, failed).returncode == 6
    assert main("--exit-code", "-c", "1", sleeper, zombie(0)).returncode == 0
    assert main("--exit-code", "-t", "0", failed, sleeper).returncode == 124
    for pids in [gone], [gone, failed]:
        done = main("--exit-code", *pids)
        assert done.returncode == 127 and "no such process: %d" % gone in done.stderr
    assert main("--exit-code", "-e", gone) == (0, "", "")
    assert main("--exit-code", "-e", gone, failed).returncode == 6


@posix
def test_an_exit_code_that_the_system_does_not_tell_is_125(monkeypatch, start, zombie):
    """It is reaped while nobody looks: polling sees that it is gone, and no more."""
    monkeypatch.setenv("PIDWAIT_BACKEND", "polling")
    first, child = zombie(0), start("sleep", "60")
    command = start(
        *COMMAND + ["-v", "--exit-code", str(child.pid), str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        start_new_session=True,
    )
    assert command.stdout.readline().startswith("%d " % first)
    stop(command.pid)
    child.kill()
    child.wait()
    command.send_signal(signal.SIGCONT)
    out, message = command.communicate()
    assert command.returncode == 125
    assert out.startswith("%d (sleep): exited; waited " % child.pid)
    assert "the exit code is not known: %d (sleep)" % child.pid in message


# What can't be done


@pytest.mark.windows
@pytest.mark.kqueue
@pytest.mark.parametrize(
    "args, message",
    [
        ([], "give at least one PID"),
        (["-l"], "give at least one PID, or --name"),
        (["1.5"], "PID: '1.5' is not a number"),
        (["1x"], "PID: '1x' is not a number"),
        (["1_000"], "PID: '1_000' is not a number"),
        (["\u0661"], "PID: "),
        (["0"], "PID must be positive"),
        (["--", "-5"], "PID: '-5' is not a number"),
        (["2147483648"], "PID must be at most 2147483647"),
        (["99999999999"], "PID must be at most 2147483647"),
        (["9" * 5000], "is not a number"),
        (["--probe", "1"], "--probe takes no PID"),
        (["--nonesuch"], "--nonesuch not recognized"),
        (["-t"], "-t requires argument"),
        (["--any", "-c", "2", "1"], "--any can't be combined with --count"),
        (["-c", "0", "1"], "--count: '0' is not a number greater than 0"),
        (["--count=-1", "1"], "--count: '-1' is not a number greater than 0"),
        (["--count=", "1"], "--count: '' is not a number greater than 0"),
        (["-c", "1_0", "1"], "--count: '1_0' is not a number greater than 0"),
        (["-c", "x", "--name", "x"], "--count: 'x' is not a number greater than 0"),
        (["1", "make"], "PID: 'make' is not a number; to wait by name: --name make"),
        (["-f", "make"], "PID: 'make' is not a number; to wait by name: --name make"),
        (["-u", "me", "make"], "; to wait by name: --name make"),
        (["vendr", "x"], "; did you mean vendor, or --name vendr?"),
        (["runn", "-k", "1", "true"], "-k not recognized; did you mean run, or --name runn?"),
        (["--tree", "run", "true"], "--tree not recognized; put the options of run after the word"),
        (["-k", "1", "run", "true"], "-k not recognized; put the options of run after the word"),
        (["-s", "KILL", "run", "true"], "; put the options of run after the word run"),
        (["-F", "a", "-F", "b"], "--pidfile can't be given twice"),
        (["--name", "a", "--name=b"], "--name can't be given twice"),
        (["-t", "5", "run", "true"], "put the options of run after the word run, as in run -h"),
        (["run", "-t", "x", "-k", "5", "true"], "--timeout: 'x' is not a duration"),
        (["run", "-t", "5", "-k", "x", "true"], "--kill-after: 'x' is not a duration"),
        (["run", "--tree", "--rest", "x", "true"], "--rest: 'x' is not kill, wait or leave"),
        (["run", "--nonesuch", "true"], "--nonesuch not recognized"),
        (["run", "--parent", "x", "true"], "--parent: 'x' is not a number"),
        (["run"], "give a COMMAND"),
    ],
)
def test_wrong_arguments_are_told_apart_from_bad_luck(main, args, message):
    done = main(*args)
    (line,) = done.stderr.splitlines()
    command = " ".join([PROG] + [one for one in args[:1] if one == "run"])
    assert line.startswith(command + ": ") and message in line
    assert line.endswith(" (see %s -h)" % command)
    assert done[:2] == (125 if "run" in args[:1] else 2, "")


@pytest.mark.windows
@pytest.mark.parametrize(
    "text",
    ["", " ", "1x", "-1", "s", "1.5.2", "1.5.2s", "nan", "1 s", "1S", "30m1h", "1h30", "1m1m"]
    + ["e1", "1_000", "1_000s", "\u0661", "\u0661s", "1\u00a0", "_"],
)
def test_what_is_no_duration_is_refused(main, text):
    """Of the digits of all scripts, and of Python's ways to write a number, few are taken."""
    done = main("--timeout=" + text, os.getpid())
    assert done[:2] == (2, "") and ": --timeout: " in done.stderr
    assert "%r is not a duration" % text in done.stderr or not text.isprintable() or text > "~"


@pytest.mark.windows
@pytest.mark.parametrize("variable", ["BACKEND", "FFI"])
@pytest.mark.parametrize(
    "args, status",
    [(["-t", "0", 1], 2), (["--name", "x"], 2), (["--probe"], 2)]
    + [(["run", sys.executable, "-c", "0"], 125)],
)
def test_a_bad_environment_variable_is_an_error(monkeypatch, main, variable, args, status):
    monkeypatch.setenv("PIDWAIT_" + variable, "nonesuch")
    seam.forget()
    try:
        done = main(*args)
        expected = r"PIDWAIT_%s must be one of auto, .*, not 'nonesuch'\n\Z" % variable
        assert done[:2] == (status, "") and done.stderr.count("\n") == 1
        assert re.search(expected, done.stderr)
        assert main(*args[: args[0] == "run"] + ["--help"]).returncode == 0
    finally:
        monkeypatch.undo()
        seam.forget()


@pytest.mark.windows
@pytest.mark.parametrize("command", [[], ["run"]], ids=" ".join)
def test_help_and_version(main, command):
    assert main(*command + ["-V"]) == (0, "%s %s\n" % (PROG, pidwait.__version__), "")
    done = main(*command + ["--help"])
    usage, _, text = done.stdout.partition("\n\n")
    assert usage.startswith("usage: " + " ".join([PROG] + command)) and done.stderr == ""
    assert max(map(len, done.stdout.replace(PROG, "python -m pidwait").splitlines())) <= 80
    if not command:
        for line in "run [OPTION...] COMMAND", "vendor":
            assert "\n       %s %s" % (PROG, line) in usage
        assert "--name PATTERN" in usage and "Python regular expression" in text


# A wait that could never end is refused.


@pytest.mark.windows
@pytest.mark.parametrize("args", [[], ["-t", "0"], ["-e"], ["--any", "1"]], ids=" ".join)
def test_it_does_not_wait_for_itself(main, args):
    done = main(*args + [os.getpid()])
    assert done[:2] == (2, "")
    assert "%d is this process, which can't wait for itself" % os.getpid() in done.stderr


# What it prints, and Ctrl-C


@posix
@pytest.mark.parametrize("encoding, shown", [("ascii", b"\\xe9"), ("utf-8", "\u00e9".encode())])
def test_a_name_does_not_talk_to_the_terminal(monkeypatch, named, main, encoding, shown):
    """A process can have any bytes for its name, and stdout any encoding."""
    child = named("\x1b[31m\u00e9", 0.1)
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stdout)
    main("-v", child.pid)
    monkeypatch.undo()
    line = stdout.buffer.getvalue()
    assert line.startswith(b"%d (?[31m%s): exited with 0; waited" % (child.pid, shown))


@posix
def test_ctrl_c_ends_it_without_a_word(start, sleeper):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = start(*COMMAND + ["-v", str(sleeper.pid)], **pipes)
    until_it_sleeps(command.pid)
    command.send_signal(signal.SIGINT)
    assert command.communicate() == (b"", b"")
    assert command.returncode == -signal.SIGINT


@posix
def test_a_program_that_calls_main_keeps_its_signal_handlers(variant, start, sleeper, main):
    """What one raises comes through, also while the wait sleeps; nothing stays open."""

    def handler(number, frame):
        raise OnPurpose

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD)}
    previous = signal.signal(signal.SIGUSR1, handler)
    pid = os.getpid()
    try:
        with once_we_sleep(lambda: os.kill(pid, signal.SIGUSR1)), pytest.raises(OnPurpose):
            main("-v", sleeper.pid)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.windows
@pytest.mark.parametrize(
    "path, name",
    [
        ("dir/app.pyz", "app.pyz"),
        ("-", PROG.split()[0] + " -"),
        ("", PROG),
        ("-c", PROG),
        ("dir/__main__.py", PROG),
    ],
)
def test_without_arguments_main_is_the_program_and_exits(monkeypatch, capsys, sleeper, path, name):
    """As a zipapp calls it, which drops what it returns. It goes by the name of its file."""
    monkeypatch.setattr(sys, "argv", [path, "-t", "0", str(sleeper.pid)])
    cli = importlib.import_module(pidwait.__name__ + ".cli")
    previous = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as caught:
            cli.main()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert caught.value.code == 124
    assert capsys.readouterr().err.startswith(name + ": timed out")
