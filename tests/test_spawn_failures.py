# SPDX-License-Identifier: BSD-3-Clause
"""Where spawn fails, it raises what subprocess raises: the same class, errno and filename."""

import errno
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from . import pidwait
from .processes import run_python


def outcome(start, *args, **options):
    """The exit code, or the error's class, errno and filename."""
    try:
        child = start(*args, **options)
    except OSError as error:
        # Python 3.13 gives a path as a str if it uses posix_spawn itself.
        return type(error), error.errno, error.filename and os.fspath(error.filename)
    except (TypeError, ValueError) as error:
        return type(error)
    return child.wait()


def not_executable(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    return {"args": [str(path)]}


def no_format(tmp_path):
    path = tmp_path / "file"
    path.write_text("exit 3\n")
    path.chmod(0o755)
    return {"args": [str(path)]}


def no_interpreter(tmp_path):
    path = tmp_path / "file"
    path.write_text("#!/nonesuch\n")
    path.chmod(0o755)
    return {"args": [path]}


def cwd_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    return {"args": ["true"], "cwd": str(tmp_path / "file")}


def loop(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    return {"args": [str(tmp_path / "loop")]}


FAILURES = {
    "missing": lambda tmp: {"args": ["/nonesuch"]},
    "missing path": lambda tmp: {"args": [Path("/nonesuch")]},
    "missing bytes": lambda tmp: {"args": [b"/nonesuch", "x"]},
    "missing in PATH": lambda tmp: {"args": ["nonesuch"]},
    "no PATH": lambda tmp: {"args": ["nonesuch"], "env": {"PATH": ""}},
    "empty name": lambda tmp: {"args": [""]},
    "below a file": lambda tmp: {"args": ["/etc/passwd/x"]},
    "directory": lambda tmp: {"args": ["/etc"]},
    "not executable": not_executable,
    "no format": no_format,
    "no interpreter": no_interpreter,
    "loop": loop,
    "long name": lambda tmp: {"args": ["/" + "x" * 5000]},
    "cwd missing": lambda tmp: {"args": ["true"], "cwd": "/nonesuch"},
    "cwd missing path": lambda tmp: {"args": ["true"], "cwd": Path("/nonesuch")},
    "cwd is a file": cwd_is_a_file,
    "cwd and program missing": lambda tmp: {"args": ["/nonesuch"], "cwd": "/nonesuch"},
    "program missing in cwd": lambda tmp: {"args": ["./nonesuch"], "cwd": "/"},
    "arguments too long": lambda tmp: {"args": ["true", "x" * 200000]},
    "environment too long": lambda tmp: {"args": ["true"], "env": {"X": "x" * 3000000}},
    "NUL in the program": lambda tmp: {"args": ["tr\0ue"]},
    "NUL in an argument": lambda tmp: {"args": ["true", "\0"]},
    "NUL in cwd": lambda tmp: {"args": ["true"], "cwd": "/\0"},
    "NUL in the environment": lambda tmp: {"args": ["true"], "env": {"A": "\0"}},
    "= in a name": lambda tmp: {"args": ["true"], "env": {"A=B": ""}},
    "number as argument": lambda tmp: {"args": ["true", 1]},
    "number in the environment": lambda tmp: {"args": ["true"], "env": {"A": 1}},
    "number as cwd": lambda tmp: {"args": ["true"], "cwd": 3},
    "closed stdin": lambda tmp: {"args": ["true"], "stdin": 987},
    "closed pass_fds": lambda tmp: {"args": ["true"], "pass_fds": [987]},
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """original(name) returns the options of that failure, and its outcome with subprocess."""

    @functools.lru_cache(maxsize=None)
    def original(name):
        options = FAILURES[name](tmp_path_factory.mktemp("failure"))
        return options, outcome(subprocess.Popen, **options)

    return original


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_of_subprocess(library, name, original):
    options, expected = original(name)
    assert outcome(pidwait.spawn, **options) == expected
    assert expected != 0 or name == "closed pass_fds"


CLOSED = """if True:
    import os, subprocess, sys
    import {package} as pidwait

    STREAMS = "stdin", "stdout", "stderr"
    null, stderr = os.open(os.devnull, os.O_RDWR), os.dup(2)
    pidwait.spawn(["true"]).wait()  # opens what it needs, and would get the closed numbers
    found = []
    for closed in (0, 1), (0, 2), (0, 1, 2):
        for start in subprocess.Popen, pidwait.spawn:
            for fd in closed:
                os.close(fd)
            try:
                child = start(["/bin/true"], pass_fds=closed[-1:], **dict.fromkeys(STREAMS, null))
                found.append(child.wait())
            except OSError as error:
                found.append(error.errno)
            for fd in closed:
                os.dup2(stderr, fd)
    print(found, file=sys.stderr)
"""


def test_closed_stream_that_is_passed_and_replaced(binding):
    """A closed fd can't be passed, whatever takes its place in the child."""
    done = run_python(CLOSED.format(package=pidwait.__name__))
    assert done.stderr == "%s\n" % ([errno.EBADF] * 6), done


def test_cwd_that_may_not_be_entered(binding):
    code = """if True:
        import os, subprocess, sys
        import {} as pidwait
        subprocess.call(["true"])  # imports what the other user could not
        pidwait.spawn(["true"]).wait()
        if os.getuid() == 0:
            os.setuid(65534)
        for start in subprocess.Popen, pidwait.spawn:
            try:
                start(["/bin/true"], cwd=sys.argv[1])
            except OSError as error:
                print(error.errno, error.filename)
    """
    folder = tempfile.mkdtemp()  # other users may enter it, unlike pytest's
    try:
        os.chmod(folder, 0o755)
        locked = os.path.join(folder, "locked")
        os.mkdir(locked, 0o600)
        done = run_python(code.format(pidwait.__name__), locked)
        assert done.stdout.splitlines() == ["%d %s" % (errno.EACCES, locked)] * 2, done
    finally:
        shutil.rmtree(folder)
