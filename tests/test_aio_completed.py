# SPDX-License-Identifier: BSD-3-Clause
"""as_completed in asyncio's event loops: how its iterator begins, ends and is left."""

import asyncio

import pytest

from .loops import aio, nothing_left_in, seen_in
from .processes import become_zombie, exiting


def test_as_completed(variant, run, herd):
    codes = {herd.fork(code, after=0.05 * code): code for code in (1, 2, 3)}

    async def main():
        return await seen_in(aio.as_completed(codes))

    assert sorted(run(main())) == sorted(codes.items())


def test_as_completed_watches_from_the_call_on(variant, run, start_told):
    """Its process is gone before the iteration, so that only an earlier watch knows the code."""
    child, other = start_told(7), start_told(8)

    async def main():
        completed = aio.as_completed([child.pid])
        child.stdin.close()
        become_zombie(child.pid)
        await asyncio.sleep(0.05)
        code = await aio.wait(child)  # reaps it
        return code, await seen_in(completed)

    assert run(main()) == (7, [(child.pid, 7)])
    other.stdin.close()


def test_as_completed_again_after_the_end(variant, run, start):
    child = start(*exiting(3))

    async def main():
        completed = aio.as_completed([child])
        assert completed.__aiter__() is completed
        seen = await seen_in(completed)
        assert await seen_in(completed) == []
        with pytest.raises(StopAsyncIteration):
            await completed.__anext__()
        return seen

    assert run(main()) == [(child, 3)]


def test_leaving_as_completed_early(variant, loop, run, start, herd):
    child, sleeping = start(*exiting(3)), herd.fork(0)

    async def main():
        async for one in aio.as_completed([child, sleeping]):
            assert one == (child, 3)
            break

    run(main())
    nothing_left_in(loop)


def test_as_completed_that_is_dropped(variant, loop, run, herd):
    async def main():
        aio.as_completed([herd.fork(0)])

    run(main())
    nothing_left_in(loop)


def test_two_tasks_on_one_iterator(variant, run, start_told):
    child = start_told(3)

    async def main():
        completed = aio.as_completed([child])
        first = asyncio.ensure_future(completed.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task is waiting"):
            await completed.__anext__()
        child.stdin.close()
        return await first

    assert run(main()) == (child, 3)


def test_as_completed_goes_on_after_a_cancelled_step(variant, run, start_told):
    child = start_told(3)

    async def main():
        completed = aio.as_completed([child])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(completed.__anext__(), 0.01)
        child.stdin.close()
        return await seen_in(completed)

    assert run(main()) == [(child, 3)]


def test_as_completed_of_one_given_twice(variant, run, start):
    child = start(*exiting(3))

    async def main():
        return await seen_in(aio.as_completed([child, child]))

    assert run(main()) == [(child, 3)] * 2
