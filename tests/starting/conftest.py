# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import errno
import importlib
import os
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from .. import LINUX, pidwait
from .cloexec_default import FLAG, StandIn

pidwait.spawn  # noqa: B018 - which makes posix_spawn's calls known to the seam
ours = importlib.import_module(pidwait.__name__ + ".subprocess")

CLOSEFROM = "posix_spawn_file_actions_addclosefrom_np"
CHDIR = "posix_spawn_file_actions_addchdir_np"
SETSID = 0x80  # POSIX_SPAWN_SETSID on Linux
# C libraries: id: (the binding, or None for the first that works; functions that it lacks)
LIBRARIES = {
    "new by ctypes": ("ctypes", ()),
    "new by cffi": ("cffi", ()),
    "before closefrom": (None, (CLOSEFROM,)),
    "before chdir": (None, (CLOSEFROM, CHDIR)),
    "before setsid": (None, (CLOSEFROM, CHDIR)),
    "without posix_spawn": (None, ("posix_spawn",)),
    "as on macOS": (None, (CLOSEFROM,)),
}
if not LINUX:  # it has its own alone
    for name in set(LIBRARIES) - {"new by ctypes", "new by cffi", "without posix_spawn"}:
        del LIBRARIES[name]


@pytest.fixture
def limit():
    """limit(number) lowers or raises the soft limit of file descriptors."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(number):
        if before[1] != resource.RLIM_INFINITY and number > before[1]:
            pytest.skip("the hard limit of file descriptors is %d" % before[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def library(request, seam, limit):
    """A C library, new or old; the test runs once with each."""
    name = request.param
    force, lacking = LIBRARIES[name]
    if force:
        monkeypatch = request.getfixturevalue("monkeypatch")
        reason = pidwait.probe()["bindings"][force]["reason"]
        if reason:
            pytest.skip(reason)
        monkeypatch.setenv("PIDWAIT_FFI", force)
    seam.hide(*lacking)
    limit(1024)  # the usual one where there is no closefrom
    if name == "before setsid":
        own = seam.get("posix_spawnattr_setflags")
        seam.put(
            "posix_spawnattr_setflags",
            lambda attributes, flags: errno.EINVAL if flags & SETSID else own(attributes, flags),
        )
    elif name == "as on macOS":
        seam.set_spawn_flag("CLOEXEC_DEFAULT", FLAG)
        for call, function in StandIn(seam.get).functions().items():
            seam.put(call, function)
    return name


every_library = pytest.mark.parametrize("library", list(LIBRARIES), indirect=True)
CLOSING = "new by ctypes", "new by cffi", "before closefrom", "as on macOS"
closing_library = pytest.mark.parametrize(
    "library", [name for name in LIBRARIES if name in CLOSING], indirect=True
)


@pytest.fixture
def starts(request, seam):
    """A list of what each call of posix_spawn answers from now on: 0, or an errno."""
    if "library" in request.fixturenames:
        request.getfixturevalue("library")
    return note_starts(seam)


def note_starts(seam):
    answers = []
    try:
        own = seam.get("posix_spawn")
    except OSError:
        return answers  # there is no such call

    def posix_spawn(*arguments):
        answers.append(own(*arguments))
        return answers[-1]

    seam.put("posix_spawn", posix_spawn)
    return answers


@pytest.fixture
def forks(monkeypatch):
    """The standard library is told not to use vfork: then our Popen uses posix_spawn."""
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)


@pytest.fixture
def no_sleep(monkeypatch):
    """Make the standard code's busy loop fail."""
    names = {name: value for name, value in vars(time).items() if name != "sleep"}
    monkeypatch.setattr(subprocess, "time", SimpleNamespace(**names))


@pytest.fixture
def forked():
    """forked(function) runs it in a forked child, where 0, 1, 2 and the user may change."""
    from ..trouble import forked

    return forked


def output(*args, **options):
    """What a program started by spawn() writes to its stdout; it has to exit with 0."""
    reader, writer = os.pipe()
    try:
        child = pidwait.spawn(args, stdout=writer, **options)
    finally:
        os.close(writer)
    with child, open(reader, "rb") as pipe:
        text = pipe.read()
    assert child.exitcode == 0
    return text.decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def signalled(handler):
    """In the block, this thread gets a signal again and again: the first may come too early."""
    done, me = threading.Event(), threading.get_ident()

    def send():
        while not done.wait(0.02):
            signal.pthread_kill(me, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: handler())
    sender = threading.Thread(target=send)
    try:
        sender.start()
        yield
    finally:
        done.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
