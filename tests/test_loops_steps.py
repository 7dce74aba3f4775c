# SPDX-License-Identifier: BSD-3-Clause
"""The engine of an event loop, step by step: with stand-ins for the loop and for the sets."""

import errno
import gc
import importlib
import io
import selectors
import weakref

import pytest

from . import pidwait
from .test_combined import Part, failed, made

_loops = importlib.import_module(pidwait.__name__ + "._loops")
_targets = importlib.import_module(pidwait.__name__ + "._targets")

LONGEST = importlib.import_module(pidwait.__name__ + "._deadline").LONGEST


class Handle:
    def __init__(self, when, callback):
        self.when, self.callback, self.is_cancelled = when, callback, False

    def cancel(self):
        self.is_cancelled = True


class Loop:
    """An event loop that notes what it is asked, and whose clock stands still."""

    def __init__(self):
        self.now, self.handles, self.calls, self.soon = 1000.0, [], [], []
        self.closed = self.is_blind = False

    def time(self):
        return self.now

    def call_later(self, delay, callback):
        self.handles.append(Handle(self.now + delay, callback))
        return self.handles[-1]

    def call_soon(self, callback):
        self.soon.append(callback)
        return self.call_later(0, callback)

    def call_soon_threadsafe(self, *arguments):
        if self.closed:
            raise RuntimeError("on purpose")
        self.calls.append(arguments)

    def is_closed(self):
        return self.closed

    def add_reader(self, fd, callback):
        if self.is_blind:
            raise NotImplementedError
        self.calls.append(("add_reader", fd))

    def remove_reader(self, fd):
        self.calls.append(("remove_reader", fd))

    def timers(self):
        """When it calls, but for what has been cancelled."""
        return [round(one.when - self.now, 9) for one in self.handles if not one.is_cancelled]


class Waiter:
    """What has been told is in ``told``."""

    def __init__(self, told, raising=None):
        self.told, self.raising = told, raising

    def tell(self, code):
        if self.raising is not None:
            raising, self.raising = self.raising, None
            raise raising
        self.told.append(code)


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def make(loop):
    """make(targets...) is an engine of the loop with stand-ins for its sets, and these targets."""
    engines = []

    def make(*waiters, polled=None, **answers):
        engine = _loops.LoopEngine(loop)
        engines.append(engine)
        engine._engine.sets.close()
        answers.setdefault("fileno", 7)
        engine._engine.sets = made(Part("best", **answers), polled)
        engine.targets = [_targets.Target(11, 11, waiter) for waiter in waiters]
        engine.add(engine.targets)
        return engine

    yield make
    for engine in engines:
        engine.close()


def best_of(engine):
    return engine._engine.sets.best


def exit_of(engine, number, code):
    best_of(engine).exits.append((engine.targets[number], code))


def test_reader_from_the_first_wait_to_the_last(make, loop):
    told = []
    first, second = Waiter(told), Waiter(told)
    engine = make(first, second)
    assert loop.calls == [("add_reader", 7)] and loop.timers() == []
    assert ("fileno", False) in best_of(engine).calls
    exit_of(engine, 0, 3)
    del best_of(engine).calls[:]
    assert engine.look() is True and told == [3] and loop.soon == []
    assert best_of(engine).calls[:2] == [("sleep", 0), ("take", False)]
    assert engine.look() is False
    engine.discard([second])
    assert loop.calls == [("add_reader", 7), ("remove_reader", 7)]
    assert best_of(engine).calls[-1] == ("close",) and not engine.is_of(loop)
    del best_of(engine).calls[:]
    assert engine.look() is False and best_of(engine).calls == []
    engine.close()
    assert loop.calls == [("add_reader", 7), ("remove_reader", 7)]


def test_engine_is_closed_once_those_it_told_have_gone_on(make, loop):
    told = []
    engine = make(Waiter(told))
    exit_of(engine, 0, 3)
    assert engine.look() is True and told == [3]
    (close,) = loop.soon
    assert engine.is_of(loop)
    engine.add([_targets.Target(12, 12, Waiter(told))])
    close()
    assert engine.is_of(loop)
    engine._engine.members.clear()
    close()
    assert not engine.is_of(loop)


def test_discard_of_what_is_polled(make, loop):
    polled = Part("polled", delay=5)
    first, second = Waiter([]), Waiter([])
    engine = make(first, second, polled=polled)
    polled.answers["delay"] = None
    engine.discard([first])
    assert loop.timers() == [] and engine.is_of(loop)
    engine.discard([second])
    assert not engine.is_of(loop)


@pytest.mark.parametrize("method", ["_end_look", "_release"])
def test_end_that_a_signal_handler_interrupts_is_made_up_for(make, loop, monkeypatch, method):
    engine, raised = make(Waiter([])), []
    own = getattr(engine, method)

    def interrupted():
        if not raised:
            raised.append(1)
            raise KeyboardInterrupt
        own()

    monkeypatch.setattr(engine, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.look() if method == "_end_look" else engine.close()
    assert not engine._is_looking
    assert method == "_end_look" or best_of(engine).calls[-1] == ("close",)


def test_engine_that_is_told_nothing_stays_open(make, loop):
    engine = make(Waiter([]))
    assert engine.look() is False and engine.is_of(loop) and loop.soon == []
    assert not engine.is_of(Loop())
    engine._engine.pid = -1  # in a forked child
    assert not engine.is_of(loop) and engine.look() is False
    del loop.calls[:]
    engine.close()
    assert loop.calls == [] and best_of(engine).calls[-1] == ("close",)


def test_waiter_that_discards_another_while_it_is_told(make, loop):
    """The engine goes on with its look, and is closed after it."""
    told = []
    second = Waiter(told)

    class First(Waiter):
        def tell(self, code):
            engine.discard([second])
            assert engine.is_of(loop)

    engine = make(First(told), second)
    exit_of(engine, 0, 3)
    assert engine.look() is True and told == [] and len(loop.soon) == 1


def test_exits_that_are_not_told_are_told_later(make):
    told = []
    engine = make(Waiter(told), Waiter(told, KeyboardInterrupt()), Waiter(told))
    for number in range(3):
        exit_of(engine, number, number)
    with pytest.raises(KeyboardInterrupt):
        engine.look()
    assert told == [0] and len(engine._engine) == 2
    assert engine.look() is True and told == [0, 1, 2]


def test_polled_ones_are_looked_at_when_it_is_time_or_when_asked(make, loop):
    polled = Part("polled", delay=5)
    engine = make(Waiter([]), polled=polled)
    assert loop.timers() == [5, 5 + LONGEST]
    engine.look()
    assert [call[1] for call in polled.calls if call[0] == "look"] == [False]
    engine.look(True)
    assert [call[1] for call in polled.calls if call[0] == "look"] == [False, True, False]
    assert loop.timers() == [5, 5 + LONGEST]
    loop.now += 5
    polled.answers["delay"] = 2
    loop.handles[0].callback()
    assert loop.timers() == [2, 2 + LONGEST]
    polled.answers["delay"] = 1
    engine.look()
    assert loop.timers() == [1, 1 + LONGEST]
    polled.answers["delay"] = 0
    engine.look()
    assert loop.timers() == [0, LONGEST] and len(loop.soon) == 1
    polled.answers["delay"] = None
    engine.look()
    assert loop.timers() == []
    polled.answers["delay"] = 3
    engine.look()
    assert loop.timers() == [3, 3 + LONGEST]
    engine.close()
    assert loop.timers() == []


def test_change_that_fails_sets_the_timer_all_the_same(make, loop):
    polled = Part("polled", delay=5)
    engine = make(Waiter([]), polled=polled)
    polled.answers["delay"] = 2

    def add(targets):
        raise KeyboardInterrupt

    engine._engine.add = add
    with pytest.raises(KeyboardInterrupt):
        engine.add([])
    assert loop.timers() == [2, 2 + LONGEST]


@pytest.mark.parametrize(
    "delay, expected", [(None, LONGEST), (5, LONGEST), (LONGEST / 2, LONGEST / 2)]
)
def test_loop_that_can_watch_nothing_looks(make, loop, delay, expected):
    loop.is_blind = True
    engine = make(Waiter([]), delay=delay)
    assert loop.timers() == [expected, expected + LONGEST]
    engine.close()
    assert loop.calls == [] and loop.timers() == []


def test_other_set_is_watched_instead(make, loop):
    """All are polled from then on, say."""
    engine = make(Waiter([]), delay=None)
    engine._engine.sets.best = Part("other", fileno=8)
    engine.look()
    assert loop.calls == [("add_reader", 7), ("remove_reader", 7), ("add_reader", 8)]
    engine.look()
    assert len(loop.calls) == 3 and loop.timers() == []
    loop.is_blind = True
    engine._engine.sets.best = Part("another", fileno=9)
    engine.look()
    assert loop.calls[3:] == [("remove_reader", 8)]
    loop.is_blind, loop.now = False, loop.now + 1
    engine._engine.sets.best = Part("last", fileno=10)
    engine.look()
    assert loop.calls[4:] == [("add_reader", 10)]


def test_set_without_a_fileno_wakes_the_loop(make, loop):
    """A timer that is far away keeps the engine alive for as long as the loop."""
    engine = make(Waiter([]), fileno=io.UnsupportedOperation())
    (far,) = loop.timers()
    assert far > 3600 and loop.calls == []
    engine._engine.sets.polled = best_of(engine)
    engine._watch()
    assert loop.timers() == []  # what is polled has timers of its own
    wake = _loops._waker(weakref.ref(engine))
    wake()
    assert loop.calls == [(engine.look,)]
    _loops._waker(lambda: None)()


def test_loop_that_is_closed_keeps_its_reader(make, loop):
    """It has closed its selector."""
    engine = make(Waiter([]))
    loop.closed = True
    engine.close()
    assert loop.calls == [("add_reader", 7)]
    assert best_of(engine).calls[-1] == ("close",)


def test_forgotten_engine_is_closed(make):
    engine = make(Waiter([]))
    engine.__del__()
    assert best_of(engine).calls[-1] == ("close",)
    _loops.LoopEngine.__new__(_loops.LoopEngine).__del__()  # a signal handler raised in __init__()


def test_engine_that_was_never_used_removes_no_reader(make, loop):
    make().close()
    engine = _loops.LoopEngine(loop)
    del loop.calls[:]
    engine.close()
    assert loop.calls == []


def test_timers_that_are_gone_are_not_cancelled():
    handle = Handle(1, print)
    references = [weakref.ref(handle), weakref.ref(Handle(2, print))]
    gc.collect()
    _loops._cancel(references)
    assert handle.is_cancelled


# A file descriptor that the loop can't watch


@pytest.mark.parametrize("fd, can", [(1023, True), (1024, False), (5000, False)])
def test_select_watches_no_high_file_descriptor(loop, fd, can):
    _loops.add_reader(loop, fd, print)
    loop._selector = object()  # an epoll's, say
    _loops.add_reader(loop, fd, print)
    loop._selector = selectors.SelectSelector()
    if can:
        _loops.add_reader(loop, fd, print)
    else:
        with pytest.raises(OSError, match="select") as raised:
            _loops.add_reader(loop, fd, print)
        assert raised.value.errno == errno.EBADF
    loop._selector.close()
    assert loop.calls == [("add_reader", fd)] * (2 + can)


def test_loop_that_watches_no_file_descriptor(loop):
    loop.is_blind = True
    with pytest.raises(OSError, match="can't watch file descriptors") as raised:
        _loops.add_reader(loop, 7, print)
    assert raised.value.errno == errno.ENOSYS


def test_call_from_another_thread(loop):
    _loops.call_soon(loop, print, 1)
    assert loop.calls == [(print, 1)]
    loop.closed = True
    _loops.call_soon(loop, print, 2)
    assert loop.calls == [(print, 1)]

    def refuse(*arguments):
        raise RuntimeError("on purpose")

    loop.closed, loop.call_soon_threadsafe = False, refuse
    with pytest.raises(RuntimeError, match="on purpose"):
        _loops.call_soon(loop, print, 3)


# The engine of a loop


@pytest.fixture
def engines(monkeypatch):
    engines = {}
    monkeypatch.setattr(_loops, "_engines", weakref.WeakValueDictionary())
    return engines


def test_engines_of_loops(make, loop, engines):
    assert _loops._find(loop) is None and _loops.look(loop) is False
    _loops.add(loop, [])
    _loops.discard(loop, [Waiter([])])
    _loops.discard_soon(loop, [])
    assert _loops._find(loop) is None and loop.calls == []
    engine = _loops._get(loop)
    other = _loops._get(Loop())
    assert _loops._get(loop) is engine is _loops._find(loop) is not other
    assert other.is_of(other.loop)
    other.loop.closed = True
    engine.close()
    assert _loops._find(loop) is None
    again = _loops._get(loop)
    assert again is not engine and not other.is_of(other.loop)
    keys = [Waiter([])]
    _loops.discard_soon(loop, keys)
    assert loop.calls == [(_loops.discard, loop, keys)]
    again.close()


def test_look_goes_on_for_as_long_as_it_finds_exits(make, loop, engines):
    """One look takes a batch; then it tells whether one more is due any moment."""
    told, polled = [], Part("polled")
    engine = make(*(Waiter(told) for _ in range(2)), polled=polled, delay=None)
    _loops._engines[id(loop)] = engine
    other = _targets.Target(12, 12, Waiter(told))
    _loops.add(loop, [other])
    assert len(engine._engine) == 3
    best = best_of(engine)
    exits = [(target, 5) for target in engine.targets]
    best.take = lambda report, last: report(exits.pop(0)) if exits else None
    assert _loops.look(loop) is False and told == [5, 5]
    assert [call[1] for call in polled.calls if call[0] == "look"].count(True) == 1
    best.answers["delay"] = 1
    assert _loops.look(loop) is True
    best.calls.clear()
    _loops.discard(loop, [other.key])
    assert not engine.is_of(loop)


def test_error_of_the_reader_is_passed_over_once(make, loop):
    engine = make(Waiter([]), fileno=failed())
    assert loop.calls == [] and loop.timers() == [LONGEST, 2 * LONGEST]
    engine.close()
    assert loop.calls == []
