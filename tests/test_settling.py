# SPDX-License-Identifier: BSD-3-Clause
"""What targets answer, step by step, for objects and a system that are scripted."""

import errno
import importlib
import threading
from types import SimpleNamespace

import pytest

from . import pidwait

_kinds = importlib.import_module(pidwait.__name__ + "._kinds")
_targets = importlib.import_module(pidwait.__name__ + "._targets")
RUNNING = _kinds.RUNNING
PID = 77


@pytest.fixture
def system(monkeypatch):
    """What it tells about the pid: ``child`` is what a look at our child returns or raises."""
    system = SimpleNamespace(ours=False, sibling=False, child=ChildProcessError(), imported=True)

    def look_at_child(pid):
        assert pid == PID
        if isinstance(system.child, Exception):
            raise system.child
        return system.child

    answers = SimpleNamespace(
        is_our_child=lambda pid: system.ours,
        is_our_sibling=lambda pid: system.sibling,
        look_at_child=look_at_child,
    )
    monkeypatch.setattr(_kinds, "exitcodes", answers)
    monkeypatch.setattr(_targets, "exitcodes", answers)
    monkeypatch.setattr(_kinds, "importer", SimpleNamespace(is_me=lambda: system.imported))
    return system


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(_targets, "monotonic", lambda: clock.now)
    return clock


def like(**attributes):
    return _kinds.find(SimpleNamespace(pid=PID, **attributes))


# A pid, and any object with one


def test_pid_that_nobody_else_knows_of():
    for proc in (PID, SimpleNamespace(pid=PID)):
        target = _kinds.find(proc)
        assert type(target) is _kinds.Target
        assert target.known() is target.confirm() is RUNNING
        assert target.settle(3) == 3 and target.settle(None) is None
        assert target.is_child is False and target.is_member is False
        assert target.pid == PID and target.proc is proc


def test_keys():
    """By default a pid has its own, and any other object too, equal to another one or not."""
    job = SimpleNamespace(pid=PID)
    assert _kinds.find(PID).key == PID
    assert _kinds.find(job).key == _kinds.find(job).key == _targets.key_of(job)
    assert _kinds.find(job).key != _kinds.find(SimpleNamespace(pid=PID)).key
    assert _kinds.find(PID, "key").key == _kinds.find(job, "key").key == "key"


# Owners


def test_patience(system, clock):
    """A second after the process is gone, the owner has no code: then ours counts."""
    target = like(returncode=None, poll=lambda: None)
    assert target.not_told(3, False) is RUNNING
    assert target.not_told(None, False) is target.not_told(None, True) is RUNNING
    clock.now += 0.99
    assert target.not_reaped(3, False) is RUNNING
    assert target.not_reaped(None, True) is RUNNING
    assert target.not_reaped(3, True) == 3 and target.not_told(0, True) == 0
    clock.now += 0.02
    assert target.not_reaped(3, False) == 3
    assert target.not_reaped(None, False) is None
    system.ours = True
    assert target.not_reaped(3, True) is RUNNING  # it is still there to be reaped


@pytest.mark.parametrize(
    "error, is_asked_again",
    [
        (OSError(errno.EMFILE, "no fds"), True),
        (OSError(errno.ENOMEM, "no memory"), True),
        (ImportError("no fds"), True),
        (OSError(errno.EIO, "x"), False),
        (ValueError("closed"), False),
    ],
)
def test_owner_that_fails(system, clock, error, is_asked_again):
    def poll():
        raise error

    target = like(returncode=None, poll=poll)
    assert target.settle(3) is (RUNNING if is_asked_again else 3)
    assert target.settle(3, True) == 3
    assert target.settle(None) is (RUNNING if is_asked_again else None)
    system.ours = True
    assert target.settle(3, True) is (RUNNING if is_asked_again else 3)


@pytest.mark.parametrize("step", ["known", "confirm"])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no fds"), ValueError("closed")])
def test_owner_that_fails_before_the_exit(system, clock, step, error):
    class Fails:
        pid = PID
        fails = False

        @property
        def exitcode(self):
            if self.fails:
                raise error

        def join(self, timeout):
            raise AssertionError("there is no code yet")

    owner = Fails()
    target = _kinds.find(owner)
    owner.fails = True
    assert getattr(target, step)() is RUNNING


# Popen


class Popen:
    """poll() sets the returncode to the next one."""

    pid = PID

    def __init__(self, *codes, **attributes):
        self.returncode, self.codes, self.polls = None, list(codes), 0
        vars(self).update(attributes)

    def poll(self):
        self.polls += 1
        self.returncode = self.codes.pop(0)
        return self.returncode


def popen(*codes, **attributes):
    return _kinds.find(Popen(*codes, **attributes))


def test_popen_that_knows_its_code(system):
    for code in (0, 3, -9):
        target = popen(returncode=code)
        assert target.known() == target.confirm() == code
        assert target.is_child is False
    assert popen().known() is RUNNING


def test_popen_whose_child_is_there(system):
    for system.child in (RUNNING, 0, 3, None):
        target = popen()
        assert target.is_child is False
        assert target.confirm() is system.child
        assert target.is_child is True


@pytest.mark.parametrize(
    "error, imported, sibling, outcome",
    [
        (ChildProcessError(), True, True, None),
        (ChildProcessError(), False, False, None),
        (ChildProcessError(), False, True, RUNNING),
        (PermissionError(), True, False, RUNNING),
        (PermissionError(), False, False, RUNNING),
    ],
)
def test_popen_whose_child_is_not_ours(system, clock, error, imported, sibling, outcome):
    """Somebody else has reaped it, unless it is the Popen of our parent, which reaps."""
    system.child, system.imported, system.sibling = error, imported, sibling
    target = popen(None)
    assert target.confirm() is outcome and target.is_child is False
    is_inherited = isinstance(error, ChildProcessError) and outcome is RUNNING
    assert target.settle(3) is (3 if is_inherited else RUNNING)
    assert target.proc.polls == (0 if is_inherited else 1)


@pytest.mark.parametrize(
    "seen, told, code",
    [(None, 3, 3), (None, 0, 0), (3, 3, 3), (3, 0, 3), (0, 0, 0), (0, 3, 3), (-9, 0, -9)],
)
def test_popen_that_reaps(system, seen, told, code):
    """A look may have shown 0, of a thread; a Popen whose child is lost makes up a 0."""
    system.ours = True
    assert popen(told, _waitpid_lock=threading.Lock()).settle(seen) == code


def test_popen_that_does_not_reap_yet(system, clock):
    target = popen(None, None, None, 4)
    system.ours = True
    assert target.settle(3) is target.settle(3, True) is RUNNING
    system.ours = False
    assert target.settle(None, True) is RUNNING
    assert target.settle(None) == 4


@pytest.mark.parametrize(
    "ours, has_lock, held, known, code",
    [
        (False, True, False, None, None),
        (True, True, False, None, 0),
        (None, True, False, None, None),
        (False, True, True, None, 0),
        (False, True, False, 0, 0),
        (False, False, False, None, 0),
    ],
)
def test_popen_that_makes_up_a_code(system, ours, has_lock, held, known, code):
    """If somebody else has reaped its child, its 0 is no exit code."""
    lock = threading.Lock()
    target = popen(0, **({"_waitpid_lock": lock} if has_lock else {}))
    system.ours = ours
    if held:
        lock.acquire()
    target.proc.returncode = known
    assert target.settle(None) is code
    assert lock.locked() is held
    assert target.proc.polls == 1


# multiprocessing.Process


class Multiprocessing:
    """``codes`` are those that exitcode tells in turn, the last one again and again."""

    pid = PID

    def __init__(self, *codes, **attributes):
        self.codes, self.joins = list(codes), []
        self.method = attributes.pop("method", "fork")
        vars(self).update(attributes)
        if self.method:
            self._popen = self

    @property
    def exitcode(self):
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]

    def join(self, timeout):
        self.joins.append(timeout)
        if self.method == "forked":
            raise AssertionError("can only join a child process")


def multiprocessing(*codes, **attributes):
    # find() asks for the exit code, too.
    return _kinds.find(Multiprocessing(codes[0], *codes, **attributes))


@pytest.mark.parametrize("step", ["known", "confirm"])
@pytest.mark.parametrize(
    "code, method, outcome",
    [
        (None, "fork", RUNNING),
        (0, "fork", 0),
        (3, "forked", 3),
        (255, "fork", 255),
        (255, None, 255),
        (254, "forkserver", 254),
        (255, "forkserver", None),
    ],
)
def test_multiprocessing_that_knows_its_code(system, step, code, method, outcome):
    """255 of a fork server is no answer, but the process has been reaped."""
    target = multiprocessing(code, method=method)
    is_known = code is not None and outcome is not None
    if step == "known" and outcome is None:
        outcome = RUNNING
    assert getattr(target, step)() is outcome
    assert target.proc.joins == ([0] if is_known else [])


@pytest.mark.parametrize(
    "codes, method, code, joins",
    [
        ([3], "fork", 3, 1),
        ([0], "fork", 0, 1),
        ([3], "forked", 3, 1),
        ([None, 3], "fork", 3, 2),
        ([None], None, 9, 1),
        ([None], "fork", RUNNING, 1),
        ([255], "fork", 255, 1),
        ([255], "forkserver", 9, 1),
        ([None, 255], "forkserver", 9, 2),
    ],
)
def test_multiprocessing_that_reaps(system, clock, codes, method, code, joins):
    target = multiprocessing(*codes, method=method)
    assert target.settle(9) is code
    assert target.proc.joins == [0] * joins
    assert target.settle(9, True) == (9 if code is RUNNING else code)


def test_multiprocessing_of_another_process_does_not_reap(system, clock):
    """In a forked child its code is never told."""
    target = multiprocessing(None, _parent_pid=_kinds.os.getpid() + 1)
    assert target.settle(9) == 9
    target = multiprocessing(None, _parent_pid=_kinds.os.getpid())
    assert target.settle(9) is RUNNING


# psutil.Process, Process, Child, a process of an event loop


def test_psutil():
    for is_running, outcome in ((True, RUNNING), (False, None)):
        target = like(is_running=lambda value=is_running: value, create_time=lambda: 1.0)
        assert target.known() is RUNNING and target.confirm() is outcome
        assert target.settle(3) == 3


@pytest.mark.parametrize(
    "has_exited, exitcode, known, settled",
    [(False, None, RUNNING, 9), (True, None, None, 9), (True, 3, 3, 3), (True, 0, 0, 0)],
)
def test_handle(has_exited, exitcode, known, settled):
    target = like(backend="other", has_exited=lambda: has_exited, exitcode=exitcode)
    assert target.known() is target.confirm() is known
    assert target.settle(9) == settled


def test_handle_without_a_pid():
    """It is for a pidfd from elsewhere."""
    for attributes in ({"backend": "x", "has_exited": None}, {"reaped": False}):
        proc = SimpleNamespace(pid=None, exitcode=None, **attributes)
        assert _kinds.find(proc).pid is None


def test_child(system, clock):
    def wait(timeout):
        assert timeout <= 0
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    answers = [TimeoutError(), TimeoutError(), None, 0, 4]
    for reaped, exitcode, known in ((False, None, RUNNING), (True, None, None), (True, 0, 0)):
        target = like(reaped=reaped, exitcode=exitcode, wait=wait)
        assert target.known() is target.confirm() is known
    assert target.settle(3) is RUNNING
    assert [target.settle(3, True) for _ in range(4)] == [3, 3, 0, 4]


def test_loops_have_a_returncode():
    """Only with that a coroutine means that a loop reaps; and it is no method."""

    class Job:
        pid = PID
        exitcode = None

        def join(self, timeout):
            raise AssertionError

        async def wait(self):
            raise AssertionError

    class Invoked:
        pid = PID

        def returncode(self):
            raise AssertionError

    assert type(_kinds.find(Job())) is _kinds.MultiprocessingTarget
    assert type(_kinds.find(Invoked())) is _kinds.Target


def test_process_of_an_event_loop(clock):
    proc = SimpleNamespace(pid=PID, returncode=None)
    target = _kinds.find(proc)
    assert target.known() is RUNNING
    assert target.settle(3) == 3 and target.settle(0) == 0
    assert target.settle(None) is target.settle(None, True) is RUNNING
    for proc.returncode in (0, 3):
        assert target.known() == target.settle(None) == proc.returncode
    proc.returncode = None
    clock.now += 1.01
    assert target.settle(None) is None
