# SPDX-License-Identifier: BSD-3-Clause
"""The engine of an event loop: it goes with the loop, and with the last wait in it."""

import _thread
import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading

import pytest

from . import pidwait
from .conftest import open_fds
from .loops import (
    Blind,
    _loops,
    aio,
    engine_of,
    every_way,
    gathered,
    nothing_left_in,
    readers,
    turns,
    until_watched,
)
from .processes import eventually, exiting, gone_pid

PYPY = sys.implementation.name == "pypy"


# The engine goes when nothing is left to wait for


def test_engine_goes_with_the_last_wait(variant, loop, run, start_told, sleeper):
    child = start_told(3)

    async def main():
        first = asyncio.ensure_future(aio.wait(child))
        second = asyncio.ensure_future(aio.wait(sleeper))
        await until_watched(child, sleeper)
        engine = engine_of(loop)
        child.stdin.close()
        assert await first == 3
        await asyncio.sleep(0)
        assert engine_of(loop) is engine
        sleeper.kill()
        assert await second == -9

    run(main())
    turns(loop, 1)
    assert engine_of(loop) is None and readers(loop) == []


def test_engine_serves_a_task_that_goes_on_waiting(variant, loop, run, start_told):
    """It is not opened anew for each of a row of waits."""
    engines = []

    def end(child):
        engines.append(engine_of(loop))
        child.stdin.close()

    async def main():
        for code in range(3):
            child = start_told(code)
            loop.call_later(0.001, end, child)
            assert await aio.wait(child) == code

    run(main())
    assert len(engines) == 3 and len(set(engines)) == 1
    turns(loop, 1)
    assert engines[0]._is_closed


def test_loop_sleeps_between_two_looks(use_variant, loop, run, sleeper, monkeypatch):
    use_variant("polling")
    looks, look = [], _loops.LoopEngine.look
    monkeypatch.setattr(
        _loops.LoopEngine, "look", lambda *arguments: looks.append(0) or look(*arguments)
    )

    async def main():
        waiting = asyncio.ensure_future(aio.wait(sleeper.pid))
        await asyncio.sleep(0.5)
        waiting.cancel()

    run(main())
    assert 0 < len(looks) < 200


# The loop is closed


@every_way
def test_loop_that_is_closed_while_it_waits(variant, sleeper, way, capfd):
    """The file descriptors are closed with it; asyncio says that the task is still pending."""
    gc.collect()
    before = open_fds()
    loop = asyncio.new_event_loop()
    messages = []
    loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))

    async def main():
        task = asyncio.ensure_future(way(sleeper))
        await until_watched(sleeper)
        del task

    loop.run_until_complete(main())
    loop.close()
    if PYPY:
        eventually(lambda: (gc.collect(), open_fds() == before)[1])
    assert open_fds() == before
    assert engine_of(loop) is None
    del loop
    eventually(lambda: (gc.collect(), messages)[1])
    assert messages == ["Task was destroyed but it is pending!"]
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_closed_loop_that_is_still_referred_to(variant, loop, sleeper):
    """Its engine is closed at the next wait in any loop, where objects are freed late."""
    other = asyncio.new_event_loop()

    async def main():
        task = asyncio.ensure_future(aio.wait(sleeper))
        await until_watched(sleeper)
        return task, engine_of(other)

    task, engine = other.run_until_complete(main())
    other.close()
    assert not engine._is_closed
    loop.run_until_complete(aio.wait(gone_pid()))
    assert engine._is_closed
    task._log_destroy_pending = False
    del task
    gc.collect()


def test_nothing_is_told_after_the_loop_is_closed(variant, start_told):
    child = start_told(3)
    loop = asyncio.new_event_loop()
    told = []

    async def wait():
        told.append(await aio.wait(child))

    async def main():
        task = asyncio.ensure_future(wait())
        await until_watched(child)
        task._log_destroy_pending = False

    loop.run_until_complete(main())
    loop.close()
    child.stdin.close()
    assert child.wait() == 3
    del loop
    gc.collect()
    assert told == []


# Threads


def in_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    return thread, results


def run_in_new_loop(make):
    loop = asyncio.new_event_loop()
    try:
        result = loop.run_until_complete(make())
        nothing_left_in(loop)
        return result
    finally:
        loop.close()


def test_loop_in_a_thread(variant, start):
    child = start(*exiting(3, after=0.01))
    thread, results = in_thread(run_in_new_loop, lambda: aio.wait(child))
    thread.join()
    assert results == [3]


def test_two_loops_in_two_threads_and_one_process(variant, start_told):
    child = start_told(3)
    waits = threading.Barrier(3)

    async def main():
        waiting = asyncio.ensure_future(aio.wait(child.pid))
        await until_watched(child)
        waits.wait()
        return await waiting

    threads = [in_thread(run_in_new_loop, main) for _ in range(2)]
    waits.wait()
    child.stdin.close()
    for thread, results in threads:
        thread.join()
        assert results == [3]


def test_thread_that_adds_its_engine_at_any_step_of_the_list(loop, run):
    """In older Pythons a WeakValueDictionary's values() must not change meanwhile."""
    other = asyncio.new_event_loop()
    engine = _loops.LoopEngine(other)
    data = _loops._engines.data
    added = []

    def trace(frame, event, argument):
        if frame.f_code.co_filename.endswith("weakref.py"):
            added.append(object())
            data[added[-1]] = data[id(other)]
            return trace
        return None

    async def main():
        sys.settrace(trace)
        try:
            return _loops._get(loop)
        finally:
            sys.settrace(None)

    _loops._engines[id(other)] = engine
    try:
        run(main()).close()
    finally:
        for key in added:
            del data[key]
        engine.close()
        other.close()
    assert added


def test_no_thread(variant, loop, run, herd):
    async def main():
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in herd.pids for _ in range(50)]
        await until_watched(*herd.pids)
        assert len(engine_of(loop)._engine) == 1000
        counts = threading.active_count(), _thread._count()
        for pid in herd.pids:
            os.kill(pid, 9)
        assert set(await gathered(waits)) == {-9}
        return counts

    for _ in range(20):
        herd.fork(0)
    before = threading.active_count(), _thread._count()
    assert run(main()) == before


# Other loops


@every_way
def test_loop_that_cant_watch_a_file_descriptor(variant, backend, start_told, way, caplog):
    """The engine looks at intervals; the logger tells why."""
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(way(child))
        await until_watched(child)
        await asyncio.sleep(0.1)
        child.stdin.close()
        return await waiting

    loop = Blind()
    with caplog.at_level(logging.INFO, pidwait.__name__):
        assert loop.run_until_complete(main()) == 3
    nothing_left_in(loop)
    loop.close()
    told = ["can't watch" in record.getMessage() for record in caplog.records]
    # A polled set has a file descriptor where events can be had.
    assert any(told) is (backend != "polling" or variant in ("polling", "polling-inotify"))


@pytest.mark.parametrize("name", ["SelectSelector", "PollSelector", "EpollSelector"])
def test_selector(variant, start_told, name):
    import selectors

    child = start_told(3)
    loop = asyncio.SelectorEventLoop(getattr(selectors, name)())

    async def main():
        waiting = asyncio.ensure_future(aio.wait(child))
        await until_watched(child)
        child.stdin.close()
        return await waiting

    assert loop.run_until_complete(main()) == 3
    nothing_left_in(loop)
    loop.close()


# Nothing is printed in debug mode

DEBUG = """if True:
    import asyncio, subprocess, sys
    import {package} as pidwait
    from {package} import aio

    async def main():
        command = {command}
        asyncio.get_event_loop().slow_callback_duration = float("inf")
        children = [subprocess.Popen(command) for _ in range(20)]
        assert await asyncio.gather(*map(aio.wait, children)) == [3] * 20
        sleeper = subprocess.Popen(["sleep", "60"])
        try:
            await asyncio.wait_for(aio.wait(sleeper), 0.01)
        except asyncio.TimeoutError:
            pass
        exited, alive = await aio.wait_procs([sleeper, *children], 0.01)
        assert len(exited) == 20 and alive == [sleeper]
        async for proc, code in aio.as_completed([sleeper, *children]):
            break
        async with aio.spawn(command) as child:
            pass
        sleeper.kill()
        assert await aio.wait(sleeper) == -9

    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.run_until_complete(main())
    loop.close()
"""


def test_debug_mode(variant):
    code = DEBUG.format(package=pidwait.__name__, command=exiting(3))
    options = ["-W", "error"]
    if sys.version_info >= (3, 7):
        options += ["-X", "dev"]
    done = subprocess.run(
        [sys.executable] + options + ["-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=dict(os.environ, PYTHONASYNCIODEBUG="1"),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
