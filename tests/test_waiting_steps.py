# SPDX-License-Identifier: BSD-3-Clause
"""wait_procs(), as_completed() and asyncio's, step by step: with stand-ins for the sets."""

import asyncio
import importlib
import os
import threading

import pytest

from . import pidwait
from .loops import engine_of
from .processes import held_by_a_thread_that_is_not_here
from .test_combined import Part
from .test_engine_steps import engine_with, plain

_deadline = importlib.import_module(pidwait.__name__ + "._deadline")
aio = importlib.import_module(pidwait.__name__ + ".aio")
waiting = importlib.import_module(pidwait.__name__ + ".waiting")
watching = importlib.import_module(pidwait.__name__ + ".watching")


def takes(engine):
    return [call[1] for call in engine.sets.best.calls if call[0] == "take"]


@pytest.mark.parametrize("is_copy", [False, True])
def test_iterator_goes_on_in_a_forked_child(is_copy):
    one, copy = plain(11), Part("copy")
    engine = engine_with(one, forked=copy)
    best = engine.sets.best
    engine.sets.polled = None
    if is_copy:
        engine.pid = -1
    (copy if is_copy else best).exits.append((one, 3))
    assert list(waiting._exits(engine, {}, _deadline.FOREVER, True)) == [(11, 3)]
    assert (("forked",) in best.calls) is is_copy
    assert engine.sets.best.calls[-1] == ("close",)


@pytest.mark.parametrize("raises", [False, True])
def test_last_look_is_when_the_time_is_up(raises):
    engine = engine_with(plain(11), plain(12))
    deadline, best = _deadline.Deadline(50), engine.sets.best

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            deadline._at = 0.0

    slept, best.sleep = [], sleep
    exits = waiting._exits(engine, {}, deadline, raises)
    if raises:
        with pytest.raises(pidwait.TimeoutExpired) as raised:
            next(exits)
        assert (raised.value.pid, raised.value.timeout) == (11, 50)
    else:
        assert list(exits) == []
    assert 40 < slept[0] <= 50 and slept[2:] == [0] and takes(engine) == [False, False, True]


def test_what_the_last_look_finds_is_followed_by_another_one():
    one, other = plain(11), plain(12)
    engine = engine_with(one, other)
    engine.sets.best.exits.append((one, 3))
    assert list(waiting._exits(engine, {}, _deadline.NOW, False)) == [(11, 3)]
    assert takes(engine) == [True, True]


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: list(pidwait.as_completed([11])), [(11, 3)]),
        (lambda: pidwait.wait_procs([11]), ([(11, 3)], [])),
    ],
)
def test_time_is_endless_unless_it_is_given(monkeypatch, call, expected):
    one = plain(11)
    engine = engine_with(one)
    best, slept = engine.sets.best, []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            best.exits.append((one, 3))

    best.sleep = sleep
    monkeypatch.setattr(waiting, "_engine_with", lambda procs: engine)
    assert call() == expected and slept == [None, None]


# asyncio


def run(coroutine):
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine(loop))
    finally:
        loop.close()


@pytest.mark.parametrize("exits, wanted, seconds", [(0, 1, 0), (1, 1, None), (1, 1, 5), (2, 1, 5)])
def test_group_sleeps_only_for_what_is_not_there(exits, wanted, seconds):
    async def main(loop):
        group = aio._Group(loop, [])
        group.exits.extend([None] * exits)
        with pytest.raises(StopIteration):
            group.sleep(wanted, seconds).send(None)

    run(main)


def test_code_that_comes_within_the_grace_after_the_time(monkeypatch):
    """wait_procs() looks once more then."""
    looks = []

    def look(loop):
        looks.append(1)
        if len(looks) == 2:
            for target in list(engine_of(loop)._engine):
                target.key.tell(5)
        return True

    async def main(loop):
        return await aio.wait_procs([os.getpid()], 0)

    monkeypatch.setattr(aio, "look", look)
    assert run(main) == ([(os.getpid(), 5)], []) and len(looks) == 2


def test_time_that_is_up_without_an_exit_is_up_at_once(monkeypatch):
    looks = []
    monkeypatch.setattr(aio, "look", looks.append)

    async def main(loop):
        waited = aio.wait_procs([os.getpid()], 0)
        with pytest.raises(StopIteration) as raised:
            waited.send(None)
        assert raised.value.value == ([], [os.getpid()]) and looks == [loop]

    run(main)


def test_iterator_that_was_never_made_is_freed():
    """A signal handler has raised."""
    aio._Completions.__new__(aio._Completions).__del__()


# watch()


def test_thread_that_is_coming_is_not_started_again(monkeypatch):
    started = []

    class Thread:
        def __init__(self, target, name):
            self.run = target

        def start(self):
            started.append(self)

    watcher = watching._Watcher(os.getpid())
    watches = [watching.Watch(watcher, os.getpid(), print) for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Thread", Thread)
        for watch in watches:
            watcher.add(watch)
    assert len(started) == 1 and started[0].daemon is True
    for watch in watches:
        watch.cancel()
    started[0].run()
    assert watcher._turn == [True] and not watcher._sets and not watcher._coming
    started[0].run()  # a second one
    assert watcher._turn == [True]


class Watches:
    """A set of watches whose wait is interrupted."""

    is_closed = False

    def close(self):
        self.is_closed = True

    def wait(self):
        raise KeyboardInterrupt


def test_set_that_a_signal_handler_makes_meanwhile_counts(monkeypatch):
    watcher, made, other = watching._Watcher(os.getpid()), Watches(), Watches()

    def make():
        watcher._sets[None] = other
        return made

    monkeypatch.setattr(watching, "_Watches", make)
    assert watcher._set() is other is watcher._set()
    assert made.is_closed and not other.is_closed


def test_thread_that_an_exception_ends_frees_the_turn(monkeypatch):
    watcher = watching._Watcher(os.getpid())
    watcher._sets[None] = Watches()
    monkeypatch.setattr(watcher, "_is_needed", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        watcher._run()
    assert watcher._turn == [True]


@pytest.mark.parametrize("kind, expected", [(KeyboardInterrupt, ""), (RuntimeError, "daemon")])
def test_thread_that_can_not_be_started(monkeypatch, kind, expected):
    def start(thread):
        raise kind("on purpose")

    watcher = watching._Watcher(os.getpid())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(kind, match=expected + ".*on purpose"):
            watcher._start()
    assert not watcher._coming


def test_watches_of_the_parent(monkeypatch):
    """Their lock may be held for ever."""
    watcher = watching._Watcher(-1)
    watcher._lock = held_by_a_thread_that_is_not_here()
    watching.Watch(watcher, os.getpid(), print).cancel()
    monkeypatch.setattr(watching, "_watchers", {-1: watcher})
    own = watching._watcher()
    assert watching._watchers == {os.getpid(): own} and watching._watcher() is own
