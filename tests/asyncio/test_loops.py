# SPDX-License-Identifier: BSD-3-Clause
"""Event loops of all kinds, and what happens to them: closed, forked, interrupted, short of fds."""

import asyncio
import gc
import logging
import os
import resource
import select
import selectors
import signal
import time

import pytest

from .. import pidwait
from ..conftest import IMITATED, open_fds
from ..processes import Herd, OnPurpose, eventually, exiting, is_open
from .loops import (
    WAYS,
    Blind,
    aio,
    all_tasks,
    begun,
    ended,
    every_way,
    gathered,
    in_threads,
    nothing_left_in,
    run_in,
    some_turns,
)

pytestmark = pytest.mark.kqueue

# While it waits, and after


@every_way
def test_nothing_is_left_in_the_loop_after_the_last_wait(variant, loop, run, start_told, way):
    run(some_turns())
    before = open_fds()
    for code in range(3):
        child = start_told(code)
        assert run(ended(way, child, child.stdin.close)) == code
        nothing_left_in(loop)
        gc.collect()  # PyPy closes the pidfd at a collection
        assert open_fds() == before


class CountingSelector(selectors.DefaultSelector):
    count = 0

    def select(self, timeout=None):
        self.count += 1
        return super().select(timeout)


def test_the_loop_sleeps_until_there_is_something_to_do(variant, start_own):
    # Its own program: inotify reports each use of the shell by others, which is a turn more.
    child, selector = start_own(3), CountingSelector()

    async def main():
        waits = [await begun(way(child.pid)) for way in WAYS]
        before, began = selector.count, time.monotonic()
        await asyncio.sleep(0.5)
        count, took = selector.count - before, time.monotonic() - began
        child.stdin.close()
        assert await gathered(waits) == [3, 3, 3]
        return count, took

    # Nothing wakes it; but each way looks at a polled process every 40 ms.
    count, took = run_in(asyncio.SelectorEventLoop(selector), main())
    assert count < (5 if variant.startswith(("pidfd", "kqueue")) else 200 * took)


@every_way
@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Blind])
def test_a_task_that_nobody_refers_to(variant, start_told, way, kind):
    """An event loop refers to its tasks weakly; a garbage collection must not end the wait."""
    child, codes = start_told(3), []

    async def note():
        codes.append(await way(child))

    async def main():
        asyncio.ensure_future(note())  # noqa: RUF006
        await some_turns()
        gc.collect()
        child.stdin.close()
        while not codes:
            await asyncio.sleep(0.001)

    run_in(kind(), main())
    assert codes == [3]


@every_way
def test_a_loop_that_is_closed_while_it_waits(variant, sleeper, way, capfd):
    """The file descriptors go with it; asyncio itself says that the task is still pending."""
    gc.collect()
    before = open_fds()
    loop = asyncio.new_event_loop()
    messages = []
    loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))
    loop.run_until_complete(begun(way(sleeper)))
    loop.close()
    eventually(lambda: open_fds() == before or gc.collect() and open_fds() == before)
    del loop
    eventually(lambda: (gc.collect(), messages)[1])
    assert messages == ["Task was destroyed but it is pending!"]
    assert capfd.readouterr() == ("", "")


def test_nothing_is_logged_in_debug_mode(variant, loop, run, start, sleeper, caplog):
    """Nor is there a warning: each would fail the test."""
    loop.set_debug(True)
    loop.slow_callback_duration = float("inf")
    children = [start(*exiting(3)) for _ in range(5)]

    async def main():
        exited, alive = await aio.wait_procs([sleeper] + children, 0.01)
        assert await gathered(map(aio.wait, children)) == [3] * 5
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.wait(sleeper), 0.01)
        async for _ in aio.as_completed([sleeper] + children):
            break
        async with aio.spawn(exiting(3)):
            sleeper.kill()
            assert await aio.wait(sleeper) == -9

    run(main())
    nothing_left_in(loop)
    assert caplog.text == ""


# Kinds of loops


@every_way
def test_a_loop_that_can_not_watch_a_file_descriptor(variant, start_told, way, caplog):
    """It looks at intervals; the logger says why."""
    child = start_told(3)
    with caplog.at_level(logging.INFO, pidwait.__name__):
        assert run_in(Blind(), ended(way, child, child.stdin.close)) == 3
    assert "polling" in variant or "watch" in caplog.text


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Blind])
def test_a_process_that_is_closed_while_a_loop_waits_for_it(variant, sleeper, kind):
    """The wait goes on, to its time-out."""

    async def main():
        process = pidwait.Process(sleeper.pid)
        waiting = asyncio.ensure_future(aio.wait(process, 0.1))
        await some_turns()
        process.close()
        with pytest.raises(pidwait.TimeoutExpired):
            await waiting

    run_in(kind(), main())


class Strong:
    """Like a handle of rloop: it allows no weak references."""

    __slots__ = ("_cancelled", "cancel")

    def __init__(self, handle):
        self.cancel = handle.cancel


class StrongLoop(asyncio.SelectorEventLoop):
    def call_later(self, *args, **more):
        return Strong(super().call_later(*args, **more))


@every_way
def test_a_loop_whose_handles_allow_no_weak_references(variant, zombie, start_told, way):
    done, child = zombie(3), start_told(4)
    loop = StrongLoop()
    waits = [way(done), ended(way, child, child.stdin.close)]
    assert run_in(loop, gathered(waits)) == [3, 4]


def test_the_running_loop_is_found_as_asyncio_finds_it(loop, run, monkeypatch, zombie):
    """trio_asyncio replaces these functions when it is imported, perhaps after us."""
    name = "get_running_loop" if hasattr(asyncio, "get_running_loop") else "get_event_loop"
    original = getattr(asyncio, name)
    asked = []
    monkeypatch.setattr(asyncio, name, lambda: (asked.append(name), original())[1])
    assert run(aio.wait(zombie(3))) == 3 and asked == [name]


class Interrupted(asyncio.SelectorEventLoop):
    """A signal handler raises before or after it watches a file descriptor, or no longer does."""

    at = None

    def _call(self, name, method, *args):
        result = None
        for when in "before", "after":
            if self.at == (name, when):
                self.at = None
                raise OnPurpose
            if when == "before":
                result = method(*args)
        return result

    def add_reader(self, *args):
        return self._call("add", super().add_reader, *args)

    def remove_reader(self, *args):
        return self._call("remove", super().remove_reader, *args)


@every_way
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["add", "remove"])
def test_a_handler_that_raises_while_the_loop_begins_or_ends(variant, start_told, way, name, when):
    """The next wait in the loop has no part in that."""
    loop, (first, second) = Interrupted(), [start_told(code) for code in (3, 4)]
    loop.run_until_complete(some_turns())
    raised = []
    loop.set_exception_handler(lambda loop, context: raised.append(type(context["exception"])))

    async def interrupted():
        task = asyncio.ensure_future(way(first))
        await some_turns()
        first.stdin.close()
        try:
            return await task
        except OnPurpose as error:
            return type(error)

    loop.at = name, when
    found = loop.run_until_complete(interrupted())
    loop.run_until_complete(some_turns())
    assert loop.at is None
    assert (found, raised) == ((OnPurpose, []) if name == "add" else (3, [OnPurpose]))
    assert loop.run_until_complete(ended(way, second, second.stdin.close)) == 4
    loop.close()  # if it has not come to remove_reader(), a file descriptor is open until now


SELECTORS = [name + "Selector" for name in ("Select", "Poll", "Epoll")]


@pytest.mark.parametrize("name", [name for name in SELECTORS if hasattr(selectors, name)])
def test_a_loop_with_another_selector(variant, start_told, name):
    child = start_told(3)
    loop = asyncio.SelectorEventLoop(getattr(selectors, name)())
    assert run_in(loop, gathered([ended(way, child, child.stdin.close) for way in WAYS])) == [3] * 3


@every_way
def test_select_where_all_low_file_descriptors_are_taken(variant, start_told, way):
    """select() takes none from 1024 on: each turn of the loop would raise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this user may not open 1024 file descriptors")
    child = start_told(3)
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    taken = [os.dup(0)]
    try:
        while taken[-1] < 1024:
            taken.append(os.dup(0))
        with pytest.raises(ValueError):
            select.select(taken[-1:], [], [], 0)
        assert run_in(loop, ended(way, child, child.stdin.close)) == 3
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.threads
def test_loops_in_threads_wait_for_the_same_processes(variant, herd):
    """In each thread a loop waits for some of them, is closed, and another one is made."""
    codes = {herd.fork(code, after=code / 200.0): code for code in range(24)}
    pids = list(codes)

    def play(number):
        found = []
        for start in range(0, 24, 6):
            waits = map(WAYS[number % 3], pids[start : start + 6])
            found += run_in(asyncio.new_event_loop(), gathered(waits))
        return found

    assert in_threads(play, range(4)) == [list(codes.values())] * 4


@pytest.mark.threads
def test_loops_in_threads_start_and_run_commands(variant):
    """On Python 3.6 and 3.7, asyncio's own subprocesses need the main thread's loop."""

    async def main(code):
        done = await aio.run(exiting(code))
        async with aio.spawn(exiting(code)) as child:
            return done.returncode, await aio.wait(child)

    found = in_threads(lambda code: run_in(asyncio.new_event_loop(), main(code)), (3, 4, 5))
    assert found == [(3, 3), (4, 4), (5, 5)]


# Forks


class InChild(Exception):
    """It leaves the loop's run in a forked child."""


@every_way
def test_a_forked_child_waits_on_its_own(variant, loop, run, herd, way):
    """It must not take the parent's waits from the epoll that both share."""
    pid, other = herd.fork(0), herd.fork(0)
    reader, ready = os.pipe()

    async def main():
        waits = [await begun(way(one)) for one in (pid, other)]
        child = os.fork()
        if child == 0:
            raise InChild
        assert os.read(reader, 1) == b"."
        os.kill(pid, signal.SIGKILL)
        assert await waits[0] == -9
        assert await aio.wait(child) == 0 == os.waitpid(child, 0)[1]
        os.kill(other, signal.SIGKILL)
        assert await waits[1] == -9

    async def in_child():
        waiting = await begun(way(pid))
        os.write(ready, b".")
        # It is not the parent of the process, and some users may not see codes of others'.
        assert await waiting in ((-9,) if os.getuid() == 0 else (-9, None))

    try:
        run(main())
    except InChild:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(100)  # ends what would hang
            run_in(asyncio.new_event_loop(), in_child())
            for task in all_tasks(loop):
                task.cancel()
            run(some_turns())
            assert all(task.done() for task in all_tasks(loop))
            status = 0
        finally:
            os._exit(status)
    os.close(reader)
    os.close(ready)


# Few file descriptors


@pytest.mark.parametrize("limit", ["none", "few", "few low ones"])
def test_there_are_too_few_file_descriptors(variant, limit):
    """They may be none even for the first wait. Of the low ones, the program keeps its own."""
    from ..trouble import forked

    if IMITATED and limit == "none":
        pytest.skip("the stand-in needs file descriptors")

    async def main(herd):
        await some_turns()
        pids = [herd.fork(0) for _ in range(20)]
        soft = 0 if limit == "none" else max(fd for fd in range(200) if is_open(fd)) + 11
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if limit == "few low ones" else soft
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waits = [await begun(way(pid)) for pid in pids for way in WAYS]
        assert await aio.wait_procs(pids, 0) == ([], pids)
        if limit == "few low ones":
            for fd in [os.dup(0) for _ in range(5)]:
                os.close(fd)
        for some in pids[:10], pids[10:]:
            for pid in some:
                os.kill(pid, signal.SIGKILL)
            assert await gathered(waits[:30]) == [-9] * 30
            del waits[:30]

    def play():
        herd = Herd()
        try:
            run_in(asyncio.new_event_loop(), main(herd))
        finally:
            herd.close()

    forked(play)


# Signal handlers


@pytest.mark.parametrize("error", [KeyboardInterrupt, OnPurpose])
def test_a_handler_that_raises_while_the_loop_sleeps(variant, loop, start_told, no_garbage, error):
    """The exception leaves the loop, and no wait is lost."""
    child = start_told(3)

    def handler(number, frame):
        if frame.f_globals["__name__"] == "selectors":
            raise error

    old = signal.signal(signal.SIGALRM, handler)
    try:
        tasks = [loop.run_until_complete(begun(way(child))) for way in WAYS]
        for _ in range(5):
            pause = loop.create_task(asyncio.sleep(600))
            with pytest.raises(error):
                signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
                loop.run_until_complete(pause)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pause.cancel()
            loop.run_until_complete(some_turns())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert not any(task.done() for task in tasks)
    child.stdin.close()
    assert loop.run_until_complete(gathered(tasks)) == [3, 3, 3]
