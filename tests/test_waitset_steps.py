# SPDX-License-Identifier: BSD-3-Clause
"""A wait on a set, step by step: with stand-ins for what sleeps, and for other threads."""

import importlib
import threading
import warnings

import pytest

from . import pidwait
from .processes import WINDOWS, held_by_a_thread_that_is_not_here
from .test_combined import Part, made
from .test_engine_steps import Owned, exit_of, plain

_turn = importlib.import_module(pidwait.__name__ + "._turn")
_waitset = importlib.import_module(pidwait.__name__ + "._waitset")


@pytest.fixture
def make():
    """make(targets...) is a set of these, with a stand-in for what it sleeps in."""
    sets = []

    def make(*targets, **answers):
        waiting = pidwait.WaitSet()
        sets.append(waiting)
        waiting._engine.sets.close()
        waiting._engine.sets = made(Part("best", **answers))
        waiting._engine.add(targets)
        return waiting

    yield make
    for waiting in sets:
        waiting.close()


def best_of(waiting):
    return waiting._engine.sets.best


def sleeps_until(waiting, *exits, wanted=1, raising=None):
    """Its sleeps do nothing, until one of them has these exits; return their time-outs."""
    best, slept = best_of(waiting), []

    def sleep(seconds):
        assert waiting._sleeping and waiting._waiting
        best.calls.append(("sleep", seconds))
        slept.append(seconds)
        if len(slept) == wanted:
            if raising is not None:
                raise raising
            best.exits.extend(exits)

    best.sleep = sleep
    return slept


def kinds(waiting):
    return [call[0] for call in best_of(waiting).calls]


@pytest.mark.parametrize("timeout", [None, 50])
def test_alarm_is_off_before_the_sleep(make, timeout):
    """It has ended another sleep, and would end this one at once."""
    one = plain("a")
    waiting = make(one)
    waiting._engine.alarm(0)
    slept = sleeps_until(waiting, (one, 3), wanted=3)
    assert waiting.wait(timeout) == [("a", 3)] and len(slept) == 3
    assert timeout == 50 or WINDOWS or slept == [None] * 3
    if not (WINDOWS and timeout is None):
        alarms = [call for call in best_of(waiting).calls if call[0] in ("alarm", "sleep")]
        assert alarms[:2] == [("alarm", 0), ("alarm", None)]
        assert [kind for kind, _ in alarms[2:]] == ["sleep"] * 3
    assert not waiting._sleeping and not waiting._waiting


@pytest.mark.parametrize("timeout", [None, 50])
def test_nothing_sleeps_once_nothing_is_left(make, timeout):
    waiting = make(plain(11), plain(12))
    slept = sleeps_until(waiting)
    waiting.discard(11)

    def take(report, last):
        assert not waiting._sleeping
        waiting.discard(12)  # as another thread may

    best_of(waiting).take = take
    assert waiting.wait(timeout) == [] and len(slept) == 1
    assert waiting.wait(timeout) == [] and len(slept) == 1


@pytest.mark.parametrize("timeout", [None, 50])
def test_exception_in_the_sleep(make, timeout):
    one = plain("a")
    waiting = make(one)
    sleeps_until(waiting, raising=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        waiting.wait(timeout)
    assert not waiting._sleeping and not waiting._waiting
    sleeps_until(waiting, (one, 3))
    assert waiting.wait(timeout) == [("a", 3)]
    assert kinds(waiting).count("recover") == 1


@pytest.mark.parametrize("timeout", [None, 50])
def test_set_that_is_closed_in_the_sleep_is_closed_after_the_wait(make, timeout):
    one = plain("a")
    waiting = make(one)
    sleeps_until(waiting, raising=KeyboardInterrupt())
    best_of(waiting).take = lambda report, last: waiting.close()
    with pytest.raises(KeyboardInterrupt):
        waiting.wait(timeout)
    slept = sleeps_until(waiting)
    best_of(waiting).exits.append((one, 3))

    def take(report, last):
        waiting.close()
        assert "close" not in kinds(waiting)
        report((one, 3))

    best_of(waiting).take = take
    waiting._engine.sets._has_lost = False
    assert waiting.wait(timeout) == [("a", 3)] and len(slept) == 1
    assert kinds(waiting)[-1] == "close"


def test_look_at_the_end_of_the_time_is_at_all(make):
    waiting = make(plain("a"))
    assert waiting.wait(0) == [] == waiting.wait(-1)
    assert [call for call in best_of(waiting).calls if call[0] == "take"] == [("take", True)] * 2
    one = plain("b")
    waiting._engine.add([one])
    slept = sleeps_until(waiting, (one, 3))
    assert waiting.wait(50) == [("b", 3)] and 40 < slept[0] <= 50
    assert best_of(waiting).calls[-1] == ("take", False)


def test_program_that_polls_the_fileno_is_told_of_the_next_look(make):
    waiting = make(plain(11), fileno=7, delay=5)
    for use, expected in (waiting.fileno, 7), (lambda: waiting.wait(0), []):
        assert use() == expected
        assert best_of(waiting).calls[-1] == ("alarm", 5)
        waiting._engine.sets.is_alarmed = False


USES = {
    "wait": lambda waiting: waiting.wait(0),
    "add": lambda waiting: waiting._add([plain(12)]),
    "discard": lambda waiting: waiting.discard(12),
    "fileno": lambda waiting: waiting.fileno(),
}


@pytest.mark.parametrize("name", sorted(USES))
def test_copy_leaves_the_threads_of_the_parent_alone(make, name):
    """Their lock, their turn and their entries are not theirs any more."""
    copy = Part("copy", fileno=7)
    waiting = make(plain(11), forked=copy)
    waiting._engine._lock = held_by_a_thread_that_is_not_here()
    waiting._turn.lock = held_by_a_thread_that_is_not_here()
    waiting._waiting["a thread of the parent"] = waiting._sleeping["a thread"] = None
    waiting._pid = waiting._engine.pid = -1
    USES[name](waiting)
    assert best_of(waiting) is copy and not waiting._waiting and not waiting._sleeping
    waiting.close()
    assert copy.calls[-1] == ("close",)


def test_work_that_a_thread_leaves_wakes_the_next_one(make):
    """Its collect() may have found that the owner has to be asked again."""
    owned = Owned("a")
    waiting = make(owned)
    waiting._sleeping["another thread"] = None
    exit_of(waiting._engine, owned)
    assert waiting.wait(0) == [] and waiting._engine.is_settling()
    assert best_of(waiting).calls[-1] == ("alarm", 0)


def test_exits_are_told_later_if_they_can_not_be_returned(make, monkeypatch):
    one = plain("a")
    waiting = make(one)
    exit_of(waiting._engine, one)
    waiting._sleeping["another thread"] = None

    def rearm():
        rearmed.append(len(waiting))
        if len(rearmed) == 1:
            raise KeyboardInterrupt

    rearmed = []
    monkeypatch.setattr(waiting, "_rearm", rearm)
    with pytest.raises(KeyboardInterrupt):
        waiting.wait(0)
    assert rearmed == [0, 1] and list(waiting) == ["a"]
    assert waiting.wait(0) == [("a", 3)]


SOON, LATER = 2.0, 5.0
NEVER = float("inf")


@pytest.mark.parametrize(
    "sleeps, is_shown, delay, wakes_in, is_alarmed, alarm",
    [
        (True, False, None, NEVER, False, []),
        (True, False, None, NEVER, True, [None]),
        (True, False, SOON, NEVER, False, [0]),
        (True, False, SOON, LATER, False, [0]),
        (True, False, LATER, SOON, False, []),
        (True, True, LATER, SOON, False, [LATER]),
        (True, True, SOON, LATER, False, [0]),
        (False, False, SOON, NEVER, False, []),
        (False, False, SOON, NEVER, True, [None]),
        (False, True, SOON, NEVER, False, [SOON]),
        (False, True, None, NEVER, False, []),
        (False, True, None, NEVER, True, [None]),
    ],
)
def test_alarm_for_those_who_sleep(
    make, monkeypatch, sleeps, is_shown, delay, wakes_in, is_alarmed, alarm
):
    """A thread that sleeps longer is woken; a program that polls the fileno is told in time."""
    monkeypatch.setattr(_waitset, "monotonic", lambda: 1000.0)
    waiting = make(plain("a"), delay=delay)
    engine = waiting._engine
    engine.sets.wakes_at, engine.sets.is_alarmed = 1000.0 + wakes_in, is_alarmed
    waiting._is_shown = is_shown
    waiting._sleeping.update({"another thread": None} if sleeps else {})
    waiting._rearm()
    assert [call[1] for call in best_of(waiting).calls if call[0] == "alarm"] == alarm


def test_thread_that_sleeps_is_woken_when_nothing_is_left(make):
    waiting = make(plain(11))
    waiting._sleeping["another thread"] = None
    waiting.discard(11)
    assert best_of(waiting).calls[-1] == ("alarm", 0)


def test_change_that_fails_wakes_all_the_same(make, monkeypatch):
    """Part of it may have been done."""
    waiting, rearmed = make(plain("a")), []
    monkeypatch.setattr(waiting, "_rearm", lambda: rearmed.append(1))

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting._engine, "add", interrupt)
    monkeypatch.setattr(waiting._engine, "discard", interrupt)
    for use in waiting.add, waiting.discard:
        with pytest.raises(KeyboardInterrupt):
            use(11)
    assert rearmed == [1, 1]


def test_closed_set_has_no_fileno_though_a_thread_still_waits(make):
    waiting = make(plain("a"), fileno=7)
    waiting._waiting["another thread"] = None
    waiting.close()
    assert "close" not in kinds(waiting)
    for use in waiting.fileno, waiting.wait, lambda: waiting.add(11), lambda: waiting.discard(11):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert list(waiting._waiting) == ["another thread"]
    waiting._waiting.clear()
    waiting.close()
    assert kinds(waiting)[-1] == "close"


def test_forgotten_set_is_closed(make):
    waiting = make(plain("a"))
    with pytest.warns(ResourceWarning, match="1 processes, open"):
        waiting.__del__()
    assert kinds(waiting) == ["close"]
    waiting.__del__()
    pidwait.WaitSet.__new__(pidwait.WaitSet).__del__()  # a signal handler raised in __init__()


def test_copy_of_a_forgotten_set_is_closed_without_a_warning(make):
    waiting = make(plain("a"))
    waiting._waiting["a thread of the parent"] = None
    waiting._pid = -1
    waiting.__del__()
    assert kinds(waiting) == ["close"]


def test_set_that_can_not_be_made_is_closed(monkeypatch):
    engines, kind = [], _waitset.Engine
    monkeypatch.setattr(
        _waitset, "Engine", lambda shared: engines.append(kind(shared)) or engines[0]
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(TypeError):
            pidwait.WaitSet(["x"])
        (engine,) = engines
        with pytest.raises(ValueError, match="closed"):
            engine.fileno()
    assert not [one for one in warned if one.category is ResourceWarning]


# The turn


class Lock:
    """Another thread has it."""

    def __init__(self):
        self.asked = []

    def acquire(self, *args):
        self.asked.append(args)
        return False


@pytest.mark.parametrize("seconds", [None, 0.05, 1e9])
def test_turn_of_another_thread_is_waited_for(seconds):
    """At once as long as it may take, but on Windows, where Ctrl-C would have to wait, too."""
    turn, held = _turn.Turn(), []
    turn.lock = Lock()
    turn.take(held, seconds)
    longest = 0.1 if WINDOWS else threading.TIMEOUT_MAX
    expected = longest if seconds is None else min(seconds, longest)
    assert held == [] and turn.lock.asked == [(False,), (True, expected)]


def test_turn_is_given_as_often_as_it_was_taken():
    turn, held = _turn.Turn(), []
    turn.take(held, None)
    assert held == [turn.lock]
    turn.give(held)
    turn.give(held)
    assert held == []
    taken = []
    thread = threading.Thread(target=lambda: taken.append(turn.lock.acquire(False)))
    thread.start()
    thread.join()
    assert taken == [True]


@pytest.mark.parametrize("seconds", [None, 0, 1, 2.5])
@pytest.mark.parametrize("is_alarmed", [False, True])
def test_sleep_in_the_turn(make, seconds, is_alarmed):
    """A look alone leaves the alarm to the program that polls the fileno."""
    waiting, sleeping = make(plain("a")), {}
    engine, best = waiting._engine, best_of(waiting)
    engine.sets.is_alarmed = is_alarmed

    def sleep(seconds):
        assert sleeping == {"me": None}
        best.calls.append(("sleep", seconds))

    best.sleep = sleep
    waiting._turn.sleep(engine, sleeping, "me", seconds)
    alarms = [("alarm", None)] if is_alarmed and seconds != 0 else []
    assert best.calls == [*alarms, ("sleep", seconds)] and sleeping == {}
    del best.calls[:]
    engine.discard("a")
    waiting._turn.sleep(engine, sleeping, "me", seconds)
    assert ("sleep", seconds) not in best.calls


def test_no_sleep_without_the_turn(make):
    waiting, sleeping = make(plain("a")), {}
    waiting._turn.lock = Lock()
    waiting._turn.sleep(waiting._engine, sleeping, "me", 0.05)
    assert best_of(waiting).calls == [] and sleeping == {}
