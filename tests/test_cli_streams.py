# SPDX-License-Identifier: BSD-3-Clause
"""The command line where stdin, stdout or stderr is closed, full, or read no more."""

import importlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

from . import pidwait
from .command_line import COMMAND
from .processes import eventually, exiting, gone_pid, sleeping, state

output = importlib.import_module(pidwait.__name__ + ".cli._output")
readers = importlib.import_module(pidwait.__name__ + ".cli._readers")
family = importlib.import_module(pidwait.__name__ + ".cli._family")
deadline = importlib.import_module(pidwait.__name__ + "._deadline")
PYTHON = " ".join(map(shlex.quote, COMMAND)) + " "
PYPY = sys.implementation.name == "pypy"  # it catches SIGINT that is to be ignored, too


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


def read_no_more(args):
    """The command's exit status and stderr, when nobody reads its stdout."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(COMMAND + args, stdout=writer, stderr=subprocess.PIPE, env=BUFFERED)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


WRITING = {
    "--help": 1,
    "--version": 1,
    "--probe": 1,
    "--probe --json": 1,
    "-v {exited}": 1,
    "--json {exited}": 1,
    "--json -t 0 {sleeper}": 124,
    "run --help": 125,
    "run --version": 125,
    "patch --help": 1,
}


@pytest.fixture(params=sorted(WRITING))
def writing(request, start, sleeper):
    """What is to write to stdout, and the exit status if that fails."""
    args = request.param.format(exited=start(*exiting(0)).pid, sleeper=sleeper.pid)
    return args, WRITING[request.param]


@pytest.mark.parametrize(
    "stdout, why", [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_stdout_that_takes_nothing(writing, stdout, why):
    args, status = writing
    done = shell(PYTHON + args + stdout)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = [line for line in done.stderr.splitlines() if "still running" not in line]
    assert line.startswith("python -m %s" % pidwait.__name__) and line.endswith("stdout: " + why)
    silent = shell(PYTHON + args + stdout + " 2>&-")
    assert (silent.returncode, silent.stdout, silent.stderr) == (status, "", "")


def test_stdout_that_nobody_reads(writing):
    args, _ = writing
    status, message = read_no_more(args.split())
    assert status == 141 and (message == b"" or message.count(b"\n") == message.count(b"running"))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_that_are_not_needed(start, closed):
    child = start(*sleeping(0.2))
    done = shell(PYTHON + "%d %s" % (child.pid, closed))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    "args, status",
    [
        ("--json {gone}", 1),
        ("-t 0 {sleeper}", 124),
        ("--nonesuch", 2),
        ("run --nonesuch", 125),
        ("run /nonesuch", 127),
        ("run -v -t 0.1 sleep 60", 124),
        ("patch", 2),
        ("patch /nonesuch", 2),
    ],
)
def test_message_that_gets_lost(sleeper, args, status, stderr):
    """It changes no status, and does not come out elsewhere."""
    args = args.format(gone=gone_pid(), sleeper=sleeper.pid)
    done = shell(PYTHON + args + " " + stderr)
    assert (done.returncode, done.stderr) == (status, "")
    assert [json.loads(line)["found"] for line in done.stdout.splitlines()] == (
        [False] if "--json" in args else []
    )


@pytest.mark.parametrize("args", ["-t 0.5 {pid}", "run -v -t 0.5 sleep 60", "--nonesuch"])
def test_message_into_a_file_that_took_the_number(sleeper, tmp_path, args):
    """The number 2 may be another file's, which the program has opened since."""
    code = """if True:
        import os, sys
        with open(sys.argv.pop(1), "w") as file:
            assert file.fileno() == 2
            from {package} import cli
            cli.main()
    """.format(package=pidwait.__name__)
    path = tmp_path / "file"
    command = [sys.executable, "-c", code, str(path)] + args.format(pid=sleeper.pid).split()
    done = shell(" ".join(map(shlex.quote, command)) + " 2>&-")
    assert done.returncode in (2, 124) and path.read_text() == done.stdout == ""


def test_wait_goes_on_without_its_output(start):
    child = start(*sleeping(0.5))
    done = shell(PYTHON + "-v 2>&1 >/dev/full %d %d" % (start(*exiting(0)).pid, child.pid))
    assert done.returncode == 1 and done.stdout.count("stdout:") == 1
    assert child.poll() == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&-"])
def test_command_finds_its_streams_closed(tmp_path, closed):
    path = tmp_path / "streams"
    command = "sh -c 'for n in 0 1 2; do [ -e /proc/self/fd/$n ] && echo $n >> %s; done; exit 4'"
    done = shell("%s run -t 50 %s %s" % (PYTHON, command % path, closed))
    assert (done.returncode, done.stderr) == (4, "")
    names = {"<&-": "0", ">&-": "1", "2>&-": "2"}
    closed = [names[one] for one in closed.split()]
    assert path.read_text().split() == [n for n in "012" if n not in closed]


INTERRUPTED = """if True:
    import os, signal, sys

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name.endswith({at!r}):
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Finder())
    from {package} import cli
    print("main", flush=True)
    cli.main()
"""


@pytest.mark.parametrize(
    "args, at",
    [
        ("-v 1", "cli.wait"),
        ("-v 1", "getopt"),
        ("-v 1", "waiting"),
        ("--json -e 99999999", "json"),
        ("--probe", "cli.probe"),
        ("run true", "cli.run"),
        ("run true", "spawning"),
        ("run true", "cli._job"),
        ("patch -m this", "cli.patch"),
        ("patch -m this", "subprocess"),
    ],
)
def test_ctrl_c_while_it_loads(args, at):
    done = subprocess.run(
        [sys.executable, "-S", "-c", INTERRUPTED.format(at=at, package=pidwait.__name__)]
        + args.split(),
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"main\n", b"")


@pytest.fixture(params=["script", "module"])
def patched(request, tmp_path):
    """patched(text, signal handler) runs a script or module under patch."""

    def patched(text, ctrl_c):
        path = tmp_path / "a_program.py"
        path.write_text(text)
        return subprocess.run(
            COMMAND + ["patch"] + ([str(path)] if request.param == "script" else ["-m", path.stem]),
            env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path)] + sys.path)),
            stdout=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, ctrl_c),
        )

    return patched


def test_patched_program_has_ctrl_c(patched):
    done = patched(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('caught')\n",
        signal.SIG_DFL,
    )
    assert (done.returncode, done.stdout) == (0, b"caught\n")


if not PYPY:

    def test_patched_program_in_the_background_has_no_ctrl_c(patched):
        """A shell has it ignored there."""
        done = patched(
            "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('goes on')\n",
            signal.SIG_IGN,
        )
        assert (done.returncode, done.stdout) == (0, b"goes on\n")


def test_ctrl_c_of_a_program_that_calls_main():
    """Its handlers are its own."""
    code = """if True:
        import os, signal, threading
        from {package} import cli
        caught = threading.Event()
        def interrupt(pause=0.2):
            # Python handles a signal that comes right before poll(2) after it: then another.
            while not caught.wait(pause):
                os.kill(os.getpid(), signal.SIGINT)
                pause *= 4
        threading.Thread(target=interrupt).start()
        try:
            cli.main([str(os.getppid())])
        except KeyboardInterrupt:
            caught.set()
            print("caught")
    """.format(package=pidwait.__name__)
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout == b"caught\n"


class Ends:
    """Both ends of what is to be a command's stdout or stderr."""

    def __init__(self, kind):
        if kind == "socket":
            self.ours, self.theirs = socket.socketpair()
        else:
            reader, writer = os.pipe()
            self.ours, self.theirs = os.fdopen(reader, "rb"), os.fdopen(writer, "wb")


def waits(popen):
    """Whether it sleeps, with a set; or has exited, against what a test wants."""
    if popen.poll() is not None:
        return True
    folder = "/proc/%d/fd/" % popen.pid
    try:
        links = [os.readlink(folder + fd) for fd in os.listdir(folder)]
    except FileNotFoundError:  # one is closed meanwhile
        return False
    sets = {"anon_inode:[eventpoll]", "anon_inode:[timerfd]"}  # the latter polls
    return state(popen.pid) == "S" and not sets.isdisjoint(links)


@pytest.fixture
def waiter(start):
    """Start a command with these streams, and wait until it waits."""

    def start_it(args, stdout, stderr, **kwargs):
        popen = start(*COMMAND + args, stdout=stdout, stderr=stderr, **kwargs)
        eventually(lambda: waits(popen))
        return popen

    return start_it


if not PYPY:

    def test_wait_in_the_background_has_no_ctrl_c(waiter, sleeper):
        """A shell has it ignored there."""
        popen = waiter(
            [str(sleeper.pid)],
            None,
            None,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        popen.send_signal(signal.SIGINT)
        sleeper.kill()
        assert popen.wait() == 0


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("args", [[], ["-v"], ["-t", "600"]], ids=" ".join)
def test_wait_that_nobody_reads_any_more_ends(waiter, sleeper, kind, args, backend, monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", backend)
    out, err = Ends(kind), Ends(kind)
    with out.ours, out.theirs, err.ours, err.theirs:
        popen = waiter(args + [str(sleeper.pid)], out.theirs, err.theirs)
        out.theirs.close()
        err.theirs.close()
        if args != ["-v"]:
            assert popen.poll() is None
            err.ours.close()
        out.ours.close()
        assert popen.wait() == 141
    assert sleeper.poll() is None


@pytest.mark.parametrize("stderr", [None, subprocess.DEVNULL])
def test_wait_whose_only_reader_goes(waiter, sleeper, stderr):
    """stderr is closed, or goes nowhere."""
    out = Ends("pipe")
    close = None if stderr else lambda: os.close(2)
    with out.ours, out.theirs:
        popen = waiter([str(sleeper.pid)], out.theirs, stderr, preexec_fn=close)
        out.theirs.close()
        out.ours.close()
        assert popen.wait() == 141


@pytest.mark.parametrize("why", ["stderr is read", "stderr is a file", "nohup"])
def test_wait_that_goes_on_without_a_reader(waiter, sleeper, tmp_path, why):
    out, err = Ends("pipe"), Ends("pipe")
    with out.ours, out.theirs, err.ours, err.theirs, open(str(tmp_path / "file"), "w") as file:
        if why == "nohup":
            err.ours.close()
        popen = waiter(
            [str(sleeper.pid)],
            out.theirs,
            file if why == "stderr is a file" else err.theirs,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, ignored if why == "nohup" else default),
        )
        out.ours.close()
        time.sleep(0.1)  # it would end now
        sleeper.kill()
        assert popen.wait() == 0


ignored, default = signal.SIG_IGN, signal.SIG_DFL


def test_wait_that_goes_on_while_its_reader_writes(waiter, sleeper):
    """A server may have one socket for a command's stdin and stdout."""
    out = Ends("socket")
    with out.ours, out.theirs:
        out.ours.send(b"input")
        popen = waiter([str(sleeper.pid)], out.theirs, subprocess.DEVNULL)
        sleeper.kill()
        assert popen.wait() == 0


def test_hang_up_that_is_ignored(monkeypatch):
    """By what Python knows, or by what /proc tells."""
    for handler in default, ignored:
        previous = signal.signal(signal.SIGHUP, handler)
        try:
            for told in False, True:
                monkeypatch.setattr(family, "is_ignored", lambda number, told=told: told)
                assert readers._hang_up_is_ignored() is (told or handler is ignored)
        finally:
            signal.signal(signal.SIGHUP, previous)


class Idle:
    """A set of processes none of which exits; without a file descriptor, if that is None."""

    def __init__(self, fd):
        self.fd = fd
        self.waits = []

    def fileno(self):
        if self.fd is None:
            raise OSError
        return self.fd

    def wait(self, seconds):
        self.waits.append(seconds)
        return []


def test_wait_sleeps_while_one_of_two_readers_is_left():
    out, err, idle = Ends("pipe"), Ends("pipe"), Ends("pipe")
    with out.ours, out.theirs, err.ours, err.theirs, idle.ours, idle.theirs:
        one, waiting = readers.Readers.__new__(readers.Readers), Idle(idle.ours.fileno())
        one._fds = [out.theirs.fileno(), err.theirs.fileno()]
        out.ours.close()
        assert one.wait(waiting, 0.05) == [] and one._fds == [err.theirs.fileno()]
    assert len(waiting.waits) < 10 and set(waiting.waits) == {0}


def test_wait_without_a_file_descriptor_looks_at_the_readers():
    waiting = Idle(None)
    for seconds in None, 0.001:
        assert readers._sleep(None, waiting, deadline.Deadline(seconds)) == []
    assert waiting.waits[0] > 0.001 >= waiting.waits[1] >= 0


def test_stream_that_is_given_up(tmp_path):
    """From then on it leads nowhere, and nothing else is open."""
    with open(str(tmp_path / "file"), "w") as file:
        output._give_up(file)
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(os.devnull))


def test_wait_of_a_program_that_replaces_stdout(sleeper):
    code = """if True:
        import io, os, sys
        from {package} import cli
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)
        sys.stdout = io.StringIO()
        sys.exit(cli.main(["--json", "-t", "0.1", {pid!r}]) != 124 or not sys.stdout.getvalue())
    """.format(package=pidwait.__name__, pid=str(sleeper.pid))
    assert subprocess.call([sys.executable, "-c", code]) == 0


# Its fileno() fails where there is no timer: then it looks at the readers now and then.
NO_TIMER = "def fileno(self): raise OSError\n    WaitSet.fileno = fileno"


@pytest.mark.parametrize("change", ["pass", NO_TIMER, "sys.stderr = sys.stdout"])
def test_reader_of_a_program_goes(sleeper, change):
    reader, writer = os.pipe()
    code = """if True:
    import os, sys
    from {package} import WaitSet, cli
    {change}
    os.write(2, b"x")
    sys.exit(cli.main([{pid!r}]))
    """.format(package=pidwait.__name__, change=change, pid=str(sleeper.pid))
    popen = subprocess.Popen([sys.executable, "-c", code], stdout=writer, stderr=writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    assert popen.wait() == 141
