# SPDX-License-Identifier: BSD-3-Clause
"""Objects whose own code raises while a wait asks it about their process."""

import errno
import functools
import importlib
import os
import queue
import signal
import time

import pytest

from . import pidwait
from .processes import OnPurpose, become_zombie, exiting
from .ways import every_way

_errors = importlib.import_module(pidwait.__name__ + "._errors")
_engine = importlib.import_module(pidwait.__name__ + "._engine")
_kinds = importlib.import_module(pidwait.__name__ + "._kinds")


@pytest.fixture
def zombie(start):
    """The pid of a child that has exited with 3."""
    child = start(*exiting(3))
    become_zombie(child.pid)
    return child.pid


class Owner:
    """An object whose attributes of these names raise after arm()."""

    def __init__(self, pid, error, *names):
        self.pid_, self.error, self.names = pid, error, names
        self.is_armed = False

    def use(self, name, answer=None):
        if self.is_armed and name in self.names:
            raise self.error
        return answer

    pid = property(lambda self: self.use("pid", self.pid_))

    def arm(self):
        self.is_armed = True
        return self


class LikePopen(Owner):
    returncode = property(lambda self: self.use("returncode"))

    def poll(self):
        return self.use("poll", 3)


class LikeMultiprocessing(Owner):
    exitcode = property(lambda self: self.use("exitcode"))

    def join(self, timeout=None):
        return self.use("join")


class LikePsutil(Owner):
    def create_time(self):
        return self.use("create_time", 1.0)

    def is_running(self):
        return self.use("is_running", True)


class LikeProcess(Owner):
    backend = "other"
    exitcode = property(lambda self: self.use("exitcode"))

    def has_exited(self):
        return self.use("has_exited", False)


class LikeChild(Owner):
    reaped = property(lambda self: self.use("reaped"))
    exitcode = property(lambda self: self.use("exitcode"))

    def wait(self, timeout):
        return self.use("wait")


class LikeAsyncio(Owner):
    returncode = property(lambda self: self.use("returncode"))


FAULTY = [
    (LikePopen, "pid returncode"),
    (LikePopen, "pid poll"),
    (LikeMultiprocessing, "pid exitcode"),
    (LikeMultiprocessing, "pid join"),
    (LikePsutil, "pid is_running create_time"),
    (LikeProcess, "pid has_exited"),
    (LikeChild, "pid reaped"),
    (LikeChild, "pid wait"),
    (LikeAsyncio, "pid returncode"),
]
ERRORS = [
    ValueError("closed"),
    AssertionError(),
    OSError(5, "x"),
    RuntimeError(),
    ZeroDivisionError(),
]


@pytest.mark.parametrize("kind, names", FAULTY)
def test_owner_that_raises(either, zombie, kind, names):
    """Only its answer is lost: the exit is reported all the same."""
    for error in ERRORS:
        owner = kind(zombie, error, *names.split())
        target = _kinds.find(owner, "key")
        owner.arm()
        engine = _engine.Engine(False)
        try:
            engine.add([target])
            exits = []
            while engine:
                engine.sets.sleep(20)
                engine.collect(exits)
        finally:
            engine.close()
        assert exits == [(target, 3)]


@every_way
@pytest.mark.parametrize("kind, names", [(LikePopen, "poll"), (LikeMultiprocessing, "join")])
def test_owner_that_raises_at_the_exit(either, zombie, way, kind, names):
    assert way(kind(zombie, AssertionError("not a child"), *names.split()).arm()) == 3


def test_owner_that_raises_once_it_is_in_a_set(either, start_told):
    """After close(), all attributes of a multiprocessing.Process raise ValueError."""
    child, other = start_told(3), start_told(4)
    owner = LikeMultiprocessing(child.pid, ValueError("process object is closed"), "exitcode")
    told = queue.Queue()
    with pidwait.WaitSet([owner, other]) as waiting:
        watch = pidwait.watch(owner, lambda *exit: told.put(exit))
        pidwait.watch(other, lambda *exit: told.put(exit))
        owner.arm()
        child.stdin.close()
        assert waiting.wait(20) == [(owner, 3)]
        assert told.get(timeout=20) == (owner, 3)
        waiting.discard(owner)
        watch.cancel()
        other.stdin.close()
        assert waiting.wait(20) == [(other, 4)]
        assert told.get(timeout=20) == (other, 4)


def handled_in_here(sig):
    os.kill(os.getpid(), sig)
    for _ in range(1000):  # a signal may come late
        time.sleep(0)


class Handler:
    def __call__(self, number, frame):
        raise OnPurpose

    def method(self, *arguments):
        raise OnPurpose


def raises(number, frame):
    raise OnPurpose


def puts_back(number, frame):
    """A handler that first removes itself, as that of a time-out by SIGALRM does."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    raise OnPurpose


HANDLERS = [raises, Handler().method, Handler(), functools.partial(raises), puts_back]


@pytest.mark.parametrize(
    "handler", HANDLERS, ids=["function", "method", "object", "partial", "once"]
)
@pytest.mark.parametrize("name", ["poll", "returncode"])
def test_exception_of_a_signal_handler_inside_an_owner(either, zombie, handler, name):
    """The exception is not taken for the owner's, and no exit is lost."""

    class Interrupted(LikePopen):
        def use(self, used, answer=None):
            if self.is_armed and used == name:
                self.is_armed = False
                handled_in_here(signal.SIGUSR1)
            return answer

    owner = Interrupted(zombie, None)
    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pidwait.WaitSet() as waiting:
            with pytest.raises(OnPurpose):
                if name == "poll":
                    waiting.add(owner)
                target = _kinds.find(owner)
                owner.arm()
                waiting.wait(20) if name == "poll" else waiting._add([target])
            assert not waiting._engine._settling
            owner.use = lambda used, answer=None: 3 if used == "poll" else answer
            waiting.add(owner)
            assert waiting.wait(20) == [(owner, 3)]
            assert waiting.wait(0) == [] and len(waiting) == 0
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_only_who_got_the_frame_is_a_handler():
    """Whatever else the variables of the code that raised are."""

    def fails(first, *more):
        raise OSError(first, more)

    for values in ((0,), (None,), (0, 0), (None, None, 0), ((None, 0),)):
        nothing, number, several = None, 0, (None, 0)
        with pytest.raises(OSError) as caught:
            fails(*values)
        assert not _errors.is_of_signal_handler(caught.value)
        assert not any(nothing or number or not several for _ in values)
    assert not _errors.is_of_signal_handler(OSError("never raised"))


@pytest.mark.parametrize("number", [0, 1])
def test_exception_of_a_signal_handler_while_the_kind_is_found(zombie, number):
    """An attribute that raises is asked for again; the handler may come at either look."""

    class Interrupted(LikePopen):
        def use(self, used, answer=None):
            if used != "returncode":
                return answer
            looks.append(0)
            if len(looks) == number + 1:
                handled_in_here(signal.SIGUSR1)
            raise RuntimeError("not in this thread")

    looks = []
    old = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises(OnPurpose):
            _kinds.find(Interrupted(zombie, None))
    finally:
        signal.signal(signal.SIGUSR1, old)


@every_way
@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, "no fds"), ImportError("no fds"), OSError(errno.ENOMEM, "no memory")],
    ids=["EMFILE", "ImportError", "ENOMEM"],
)
def test_owner_that_has_no_file_descriptor_left(either, way, zombie, error):
    """It is asked again: perhaps only an import inside its code failed."""

    class Owner(LikeMultiprocessing):
        left = 3
        told = None
        exitcode = property(lambda self: self.told)

        def join(self, timeout=None):
            self.left -= 1
            if self.left >= 0:
                raise error
            self.told = 9

    assert way(Owner(zombie, None)) == 9


def test_psutil_process_that_has_no_file_descriptor_left(either, sleeper):
    owner = LikePsutil(sleeper.pid, OSError(errno.EMFILE, "no fds"), "is_running").arm()
    with pidwait.WaitSet() as waiting:
        waiting.add(owner)
        assert waiting.wait(0) == [] and owner in waiting
