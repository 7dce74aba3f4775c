# SPDX-License-Identifier: BSD-3-Clause
"""Cases in which our Popen once differed from the standard one: both have to do the same.

tests/matrix/fuzz.py looks for more of them.
"""

import errno
import gc
import importlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from . import pidwait
from .processes import eventually, interrupted_by, is_open

ours = importlib.import_module(pidwait.__name__ + ".subprocess")
starting = importlib.import_module(pidwait.__name__ + "._posix_spawn")


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)


def outcome(Popen, options):
    try:
        child = Popen(**options)
    except Exception as error:
        names = "args", "errno", "filename"
        return [type(error)] + [getattr(error, name, None) for name in names]
    with child:
        told = child.communicate(timeout=30)
    return child.returncode, told


class Fileno:
    def __init__(self, fd):
        self.fd = fd

    def __repr__(self):
        return "Fileno(%r)" % (self.fd,)

    def fileno(self):
        return self.fd


class Failing(os.PathLike):
    def __repr__(self):
        return "Failing()"

    def __fspath__(self):
        raise LookupError("on purpose")


SHELL = "/bin/sh"


@pytest.mark.parametrize(
    "options",
    [
        {"start_new_session": ""},
        {"start_new_session": None},
        {"start_new_session": 2**40},
        {"restore_signals": "x"},
        {"restore_signals": 1.5},
        {"process_group": 1.5},
        {"umask": "x"},
        {"umask": -2},
        {"args": Path("/bin/true")},
        {"args": ["nonesuch", SHELL], "executable": SHELL},
        {"process_group": 1},
        {"process_group": 0, "start_new_session": True},
        {"stdin": Fileno(-3)},  # not DEVNULL
        {"stdout": Fileno(-7)},
        {"stderr": Fileno(None)},
        {"args": ["true", Failing()]},
        dict(dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE), pass_fds=(-1,)),
        {"pass_fds": (2000,), "args": ["nonesuch"]},
        {"pass_fds": (2**32 + 1,)},
        {"pass_fds": ([],)},
        {"pass_fds": ([],), "args": bytearray(b"true")},
        {"stdin": 2000, "args": ["nonesuch"]},
        {"stdin": 2000, "cwd": "/nonesuch"},
    ],
    ids=repr,
)
def test_what_the_standard_code_may_refuse(options):
    if "process_group" in options and not ours._HAS_PROCESS_GROUP:
        return  # see test_bad_process_group
    options = dict({"args": ["true"]}, **options)
    assert outcome(ours.Popen, options) == outcome(subprocess.Popen, options)


def test_path_is_read_only_to_look_for_a_program():
    for env in {"PATH": Path("/bin")}, {"PATH": "/bin", b"PATH": b"/bin"}:
        with pidwait.spawn(["/bin/sh", "-c", "exit 3"], env=env) as child:
            assert child.wait(30) == 3
    with pytest.raises(ValueError, match="PATH"):
        pidwait.spawn("true", env=env)


def test_closed_file_descriptor_is_not_the_fault_of_the_program():
    kept = os.dup(0)
    os.close(0)
    try:
        for options in {"stdin": 2000}, {"pass_fds": [2000]}, {"stdin": 0}:
            with pytest.raises(OSError) as caught:
                pidwait.spawn("nonesuch", **options)
            assert (caught.value.errno, caught.value.filename) == (errno.EBADF, None)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_end_of_a_pipe_is_not_passed():
    """The end has the number of a closed file descriptor that was to be passed."""
    told = []
    for Popen in subprocess.Popen, ours.Popen:
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        command = ["sh", "-c", "[ -e /proc/$$/fd/%d ]" % free]
        with Popen(command, stdout=subprocess.PIPE, pass_fds=(free,)) as child:
            assert child.stdout.fileno() == free
            told.append(child.wait(30))
    assert told == [1, 1]


def test_end_of_a_pipe_is_no_stream():
    """The end has the number of a closed file descriptor given as a stream: that is an error."""
    told = []
    for Popen in subprocess.Popen, ours.Popen:
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        options = {"args": ["true"], "stdout": subprocess.PIPE, "stderr": free}
        told.append(outcome(Popen, options))
    assert told[0] == told[1]
    assert told[0][0] is OSError


def test_end_for_the_child_is_closed_even_if_it_is_0():
    kept = os.dup(0)
    try:
        for Popen in subprocess.Popen, ours.Popen:
            os.close(0)
            with Popen(["cat"], stdin=subprocess.PIPE) as child:
                assert child.stdin.fileno() != 0 and not is_open(0)
            assert child.returncode == 0
            os.dup2(kept, 0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_child_that_is_forgotten_while_it_runs():
    for Popen in subprocess.Popen, ours.Popen:
        child = Popen(["sleep", "60"])
        pid = child.pid
        with pytest.warns(ResourceWarning, match="is still running"):
            del child
            gc.collect()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: subprocess._cleanup() or not pidwait.pid_exists(pid))


def test_signal_handler_that_raises_before_there_is_a_child(monkeypatch):
    """What it raises is not posix_spawn's refusal: the standard code starts nothing."""
    with interrupted_by(ValueError("on purpose")) as interrupted:
        monkeypatch.setattr(starting, "start", lambda request: interrupted())
        with pytest.raises(ValueError, match="on purpose"):
            ours.Popen(["true"])


def test_passed_stream_has_to_be_open():
    """Even where another file descriptor takes its place in the child."""
    kept = [os.dup(fd) for fd in range(3)]
    options = {"args": ["true"], "stderr": kept[2], "pass_fds": (2,)}
    told = []
    for Popen in subprocess.Popen, ours.Popen:
        os.closerange(0, 3)
        try:
            told.append(outcome(Popen, options))
        finally:
            for fd in range(3):
                os.dup2(kept[fd], fd)
    for fd in kept:
        os.close(fd)
    assert told[0] == told[1]
    assert (told[0][0], told[0][2]) == (OSError, errno.EBADF)
