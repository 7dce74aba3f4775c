# SPDX-License-Identifier: BSD-3-Clause
"""The command line where stdin, stdout or stderr is closed, full, or read no more."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from . import pidwait
from .command_line import COMMAND
from .processes import exiting, gone_pid, sleeping

PYTHON = " ".join(map(shlex.quote, COMMAND)) + " "


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


def test_patched_script_has_ctrl_c(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('caught')\n"
    )
    done = subprocess.run(
        COMMAND + ["patch", str(path)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout) == (0, b"caught\n")


def test_ctrl_c_of_a_program_that_calls_main():
    """Its handlers are its own."""
    code = """if True:
        import os, signal, threading
        from {package} import cli
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            cli.main([str(os.getppid())])
        except KeyboardInterrupt:
            print("caught")
    """.format(package=pidwait.__name__)
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout == b"caught\n"
