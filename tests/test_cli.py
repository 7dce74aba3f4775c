# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import types
from errno import ENOSPC, EPIPE

import pytest

from . import pidwait
from .command_line import COMMAND, run
from .copies import SOURCES
from .processes import (
    WINDOWS,
    OnPurpose,
    become_zombie,
    codes,
    eventually,
    exiting,
    gone_pid,
    not_on_windows,
    run_python,
    sleeping,
    state,
)

cli = importlib.import_module(pidwait.__name__ + ".cli")
probe = importlib.import_module(pidwait.__name__ + ".cli.probe")
waited = importlib.import_module(pidwait.__name__ + ".cli._waited")
waiting = importlib.import_module(pidwait.__name__ + ".cli._waiting")
deadline = importlib.import_module(pidwait.__name__ + "._deadline")

# What the processes of exiting() and of sleeping() are called.
SH, SLEEP = (os.path.basename(sys.executable),) * 2 if WINDOWS else ("sh", "sleep")


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


def test_pid_with_a_sign(start_told):
    assert run("-t", 0, "+%d" % start_told(0).pid).returncode == 124


def test_verbose(start, start_told):
    children = [start_told(code) for code in codes(0, 3, -signal.SIGTERM, -40)]
    status, lines = run_told(start, children, "-v")
    assert status == 0
    ends = ["exited with 0", "exited with 3", "killed by SIGTERM", "killed by signal 40"]
    assert len(lines) == len(children)
    for line, child, end in zip(lines, children, ends):
        assert re.match(r"%d \(%s\): %s; waited \d+\.\d{3} s$" % (child.pid, SH, end), line)


def test_json(start, start_told, sleeper):
    child = start_told(3)
    status, lines = run_told(start, [child], "--json")
    (one,) = map(json.loads, lines)
    assert status == 0
    assert 0 <= one.pop("seconds") <= 60
    assert one == {"pid": child.pid, "name": SH, "found": True, "exited": True, "exitcode": 3}
    done = run("--json", "-t", "0", sleeper.pid)
    assert done.returncode == 124
    assert json.loads(done.stdout) == {
        "pid": sleeper.pid,
        "name": SLEEP,
        "found": True,
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


def test_pids_with_white_space_around_them(start):
    child = start(*exiting(0))
    assert run(" %d" % child.pid, "%d\n" % child.pid, "\t%d " % child.pid).returncode == 0
    # As "$(pgrep ...)" gives them: each on a line, or none.
    done = run("--json", "%d\n%d\n" % (child.pid, os.getpid()), "-t", "0")
    assert (done.returncode, done.stdout.count("\n")) == (124, 2)
    assert run("-e", "").returncode == 0


def test_options_between_pids(start):
    children = [start(*exiting(0)) for _ in range(2)]
    done = run("-t", "50", children[0].pid, "--json", children[1].pid, "-e")
    assert len(done.stdout.splitlines()) == 2, done


def test_no_pids():
    assert run("-e", "-t", "5", "--json").returncode == 0
    done = run("-e", "--any", "-v")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_json_of_each_pid_that_was_asked_for(start, sleeper):
    exited, gone = start(*exiting(0)), gone_pid()
    done = run("--json", "--any", gone, sleeper.pid, exited.pid, gone)
    rows = {row["pid"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 3
    nothing = dict.fromkeys(["name", "exitcode", "seconds"])
    assert rows[gone] == dict(nothing, pid=gone, found=False, exited=True)
    assert rows[sleeper.pid]["found"] and not rows[sleeper.pid]["exited"]
    assert set(rows) == {gone, sleeper.pid, exited.pid}
    done = run("--json", "-e", gone)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout) == rows[gone]


def test_verbose_of_what_is_gone():
    gone = gone_pid()
    assert run("-e", "-v", gone).stdout == "%d: no such process\n" % gone


if not WINDOWS:

    def test_what_a_pid_that_is_gone_loads():
        """Not what it takes to wait, and not what it takes to read options."""
        code = """if True:
            import sys
            before = set(sys.modules)
            from {0}.cli import main
            main([{1!r}])
            print(*sorted(set(sys.modules) - before))
        """
        done = run_python(code.format(pidwait.__name__, str(gone_pid())))
        loaded = done.stdout.split()
        assert pidwait.__name__ + ".cli._waiting" in loaded
        ours = [
            name[len(pidwait.__name__) + 1 :]
            for name in loaded
            if name.startswith(pidwait.__name__)
        ]
        heavy = "process waiting listing _targets _backends _ffi _sources cli._select cli._family"
        assert not set(heavy.split()) & set(ours)
        assert not {"getopt", "gettext", "json", "subprocess", "ctypes"} & set(loaded)


def test_main_of_a_program_that_calls_it(start):
    child = start(*exiting(0))
    become_zombie(child.pid)
    assert cli.main([str(child.pid)]) == 0


def test_wait_that_an_error_ends(sleeper):
    """The line on the terminal is wiped, and the handles are closed."""
    wiped, handles = [], []
    one = waiting.Wait({}, deadline.Deadline(None))
    one._progress = types.SimpleNamespace(clear=lambda: wiped.append(True))

    def fail(left):
        handles.extend(one._running)
        raise OnPurpose

    one._wait = fail
    with pytest.raises(OnPurpose):
        one.run([waited.Waited(sleeper.pid)], 1)
    (process,) = handles
    assert wiped == [True] and "closed" in repr(process)


@pytest.mark.parametrize("options", [{"json": ""}, {"verbose": ""}])
def test_report_that_stdout_does_not_take(monkeypatch, options):
    """A wait ends where its reader has gone, and goes on, but reports no more, on a full disk."""
    written, errors = [], [OSError(number, "on purpose") for number in (EPIPE, ENOSPC)]

    def write(text):
        written.append(text)
        raise waiting.Lost(errors.pop(0))

    monkeypatch.setattr(waiting, "write", write)
    one, this = waiting.Wait(options, deadline.Deadline(None)), waited.Waited(os.getpid())
    with pytest.raises(waiting.Lost):
        one._report(this)
    one._report(this)
    one._report(this)
    assert len(written) == 2 and errors == []


if not WINDOWS:

    def test_thread_is_no_process():
        threads, end = set(os.listdir("/proc/self/task")), threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        try:
            (number,) = set(os.listdir("/proc/self/task")) - threads
            for args in [], ["-l"]:
                done = run(*args, number)
                assert (done.returncode, done.stdout) == (1, "")
                assert "there is no process %s" % number in done.stderr
        finally:
            end.set()
            thread.join()


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
        (["1.5"], "'1.5' is not a process ID"),
        (["0"], "PID must be positive"),
        (["--", "-5"], "PID must be positive"),
        (["2147483648"], "PID must be at most 2147483647"),
        (["99999999999"], "PID must be at most 2147483647"),
        (["--probe", "1"], "--probe takes no PID"),
        (["--nonesuch"], "--nonesuch not recognized"),
        (["-t"], "-t requires argument"),
        (["--any", "-c", "2", "1"], "--any can't be combined with --count"),
        (["runn", "5"], 'no command "runn"; did you mean run?'),
        (["Patch"], 'no command "Patch"; did you mean patch?'),
        (["help"], 'no command "help"; did you mean --help?'),
        (["make"], 'no command "make", and a PID is a number'),
        (["-t", "5", "run", "true"], "options of run come after it"),
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
    prog = "python -m " + pidwait.__name__
    assert done.stdout.startswith("usage: %s " % " ".join([prog] + command))
    assert ("examples:" in done.stdout) is (not command)
    usage = done.stdout.partition("\n\n")[0]
    assert command or (prog + " run [OPTION...]" in usage and prog + " patch SCRIPT" in usage)
    lines = done.stdout.replace(prog, "python -m pidwait").splitlines()
    assert [line for line in lines if len(line) > 80] == []


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
    assert re.match(r"%d%s: exited with 3; waited \S+ s\n\Z" % (child.pid, name), done.stdout)
    assert run("-e", sleeper.pid, gone_pid(), *option).returncode == 0  # one has exited


def test_count(start, sleeper):
    children = [start(*exiting(0)) for _ in range(2)]
    pids = [child.pid for child in children] + [sleeper.pid]
    assert run("-c", "2", *pids).returncode == 0
    assert run("-c", "9", *pids[:2]).returncode == 0
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
    told, own = ("pid {}".format(pid) for pid in (r"\d+", os.getpid()))
    assert json.loads(re.sub(told, own, done.stdout)) == pidwait.probe()


def test_probe_of_what_is_missing(monkeypatch, capsys):
    known = pidwait.probe()
    row = {"available": False, "via": None, "reason": "a policy"}
    known["calls"]["nonesuch"] = row
    known["calls"]["such"] = dict(row, available=True, reason=None)
    known["calls"]["some"] = dict(row, available=True, reason=None, via="os")
    monkeypatch.setattr(probe._probe, "probe", lambda: known)
    assert cli.main(["--probe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(None, 1)[1] for line in lines[-3:]] == ["no: a policy", "yes", "yes (os)"]
    assert cli.main(["--probe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == known


def test_name_of_a_process_that_goes():
    assert waited.name_of(gone_pid()) is None


@pytest.mark.parametrize("variable", ["BACKEND", "FFI"])
@pytest.mark.parametrize(
    "args, status",
    [
        (["-t", "0", os.getpid()], 2),
        (["--probe"], 2),
        (["run", sys.executable, "-c", "0"], 125),
        (["patch", "-m", "this"], 2),
    ],
)
def test_bad_environment(monkeypatch, variable, args, status):
    monkeypatch.setenv("PIDWAIT_" + variable, "nonesuch")
    done = run(*args)
    assert (done.returncode, done.stdout) == (status, "")
    *usage, message = done.stderr.splitlines()
    expected = r"PIDWAIT_%s must be one of auto, .*, not 'nonesuch'$" % variable
    assert re.search(expected, message) and usage[0].startswith("usage: ")
    assert run(*args[: args[0] in ("run", "patch")] + ["--help"]).returncode == 0


def test_status_of_a_zipapp(tmp_path):
    import zipapp

    name = pidwait.__name__.rpartition(".")[2]
    for file, text in SOURCES.items():
        copy = tmp_path / "app" / name / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    path = str(tmp_path / "app.pyz")
    zipapp.create_archive(str(tmp_path / "app"), path, main=name + ".cli:main")
    for args, status in (["-t", "0", str(os.getpid())], 124), (["-e"], 0), (["x"], 2):
        done = subprocess.run([sys.executable, path] + args, stderr=subprocess.DEVNULL)
        assert done.returncode == status


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


def test_version():
    for command in [], ["run"], ["patch"]:
        done = run(*command + ["--version"])
        text = "python -m %s %s\n" % (pidwait.__name__, pidwait.__version__)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


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


def test_status_of_control_c_on_windows():
    """NTSTATUS STATUS_CONTROL_C_EXIT, as the signed number that sys.exit() takes."""
    assert cli.STATUS_CONTROL_C_EXIT.to_bytes(4, "big", signed=True) == b"\xc0\x00\x01\x3a"


@pytest.mark.parametrize(
    "exitcode, how",
    [
        (None, "exited"),
        (0, "exited with 0"),
        (2**31 - 1, "exited with 2147483647"),
        (2**31, "exited with 0x80000000"),
        (0xC0000005, "exited with 0xC0000005"),  # STATUS_ACCESS_VIOLATION
        (-1, "killed by CTRL_BREAK_EVENT" if WINDOWS else "killed by SIGHUP"),
        (-signal.SIGTERM, "killed by SIGTERM"),
        (-99, "killed by signal 99"),
    ],
)
def test_how_it_has_ended(exitcode, how):
    assert waited._how(exitcode) == how
