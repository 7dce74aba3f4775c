# SPDX-License-Identifier: BSD-3-Clause
"""Waits in an event loop that are cancelled: nothing of them is left, and others go on."""

import asyncio
import os
import random

import pytest

from .loops import (
    aio,
    engine_of,
    every_way,
    nothing_left_in,
    turns,
    until_watched,
    waits_for,
)
from .processes import become_zombie, exiting, state


async def is_cancelled(task):
    """Cancel the task, and wait for its end; return whether it says that it was cancelled."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


@every_way
def test_cancelled_task(variant, loop, run, sleeper, way):
    async def main():
        task = asyncio.ensure_future(way(sleeper))
        await until_watched(sleeper)
        return await is_cancelled(task)

    assert run(main())
    nothing_left_in(loop)
    assert state(sleeper.pid) not in ("Z", None) and sleeper.returncode is None


@every_way
def test_cancelled_before_its_first_step(variant, loop, run, sleeper, way):
    async def main():
        return await is_cancelled(asyncio.ensure_future(way(sleeper)))

    assert run(main())
    assert engine_of(loop) is None


@every_way
def test_wait_for(variant, loop, run, sleeper, way):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(way(sleeper), 0.01)

    run(main())
    nothing_left_in(loop)


TIMEOUT = """if True:
    async def main():
        try:
            async with asyncio.timeout(0.01):
                await way(sleeper)
        except TimeoutError:
            return True
"""
TASK_GROUP = """if True:
    async def main():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(way(sleeper))
                group.create_task(fail())
        except ExceptionGroup:
            return True
"""


def cancelled_by_a_block(variant, loop, run, sleeper, code):
    async def fail():
        await until_watched(sleeper)
        raise OSError("on purpose")

    for way in (aio.wait, lambda proc: aio.wait_procs([proc]), lambda proc: iterate([proc])):
        names = {"asyncio": asyncio, "sleeper": sleeper, "fail": fail, "way": way}
        exec(code, names)
        assert run(names["main"]()) is True
        nothing_left_in(loop)


if hasattr(asyncio, "TaskGroup"):  # and timeout()
    codes = pytest.mark.parametrize("code", [TIMEOUT, TASK_GROUP], ids=["timeout", "TaskGroup"])
    test_cancelled_by_a_block = codes(cancelled_by_a_block)


async def iterate(procs):
    async for _ in aio.as_completed(procs):
        pass


@every_way
def test_other_waits_for_the_same_process_go_on(variant, loop, run, start_told, way):
    child = start_told(3)

    async def main():
        tasks = [asyncio.ensure_future(way(child)) for _ in range(3)]
        await until_watched(child)
        while waits_for(loop) < 3:
            await asyncio.sleep(0)
        assert await is_cancelled(tasks[1])
        await asyncio.sleep(0)  # an iterator is freed a turn later
        child.stdin.close()
        return await tasks[0], await tasks[2]

    assert run(main()) == (3, 3)


@every_way
def test_exit_and_cancel_in_the_same_turn(variant, loop, run, start, way):
    """Either the exit is told or the task is cancelled; the Popen can be waited for again."""

    async def main(child, pause):
        task = asyncio.ensure_future(way(child))
        await until_watched(child)
        child.kill()
        if pause:
            become_zombie(child.pid)
        if pause == 2:
            await asyncio.sleep(0)
        return await is_cancelled(task) or task.result() == -9

    for pause in range(3):
        child = start("sleep", "60")
        assert run(main(child, pause))
        nothing_left_in(loop)
        assert run(aio.wait(child)) == -9


@every_way
def test_cancelled_once_it_has_been_told(variant, loop, run, start, way):
    """The task has not run since: what it was told is lost with it, and nothing is left."""
    child = start(*exiting(3))
    become_zombie(child.pid)

    async def main():
        task = asyncio.ensure_future(way(child))
        while child.returncode is None:
            await asyncio.sleep(0)
        await is_cancelled(task)

    run(main())
    nothing_left_in(loop)
    assert run(way(child)) == 3


def test_cancelled_at_any_moment(variant, loop, run, herd):
    """75 for each of the variants; a seed is printed if it fails."""
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    ways = (aio.wait, lambda pid: aio.wait_procs([pid]), lambda pid: iterate([pid]))

    async def cancelled(way, pid, pause):
        task = asyncio.ensure_future(way(pid))
        for _ in range(pause):
            await asyncio.sleep(0)
        if pause > 20:
            await asyncio.sleep(draw.random() / 200)
        await is_cancelled(task)

    async def main():
        for _ in range(15):
            pids = [herd.fork(3, after=draw.random() / 200) for _ in range(5)]
            tasks = [cancelled(draw.choice(ways), pid, draw.randrange(30)) for pid in pids]
            kept = asyncio.ensure_future(aio.wait_procs(pids))
            await asyncio.gather(*tasks)
            exited, alive = await kept
            assert sorted(exited) == [(pid, 3) for pid in sorted(pids)] and alive == []

    run(main())
    nothing_left_in(loop)
    for pid in herd.pids:
        assert os.waitpid(pid, 0)[1] == 3 << 8
    del herd.pids[:]


def test_group_that_is_cancelled_frees_its_file_descriptors(variant, loop, run, herd):
    from .conftest import open_fds

    pids = [herd.fork(0) for _ in range(20)]
    turns(loop)
    before = open_fds()

    async def main():
        tasks = [asyncio.ensure_future(aio.wait_procs(pids)) for _ in range(3)]
        await until_watched(*pids)
        for task in tasks:
            assert await is_cancelled(task)

    run(main())
    assert open_fds() == before
