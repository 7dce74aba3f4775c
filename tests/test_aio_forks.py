# SPDX-License-Identifier: BSD-3-Clause
"""A fork in a coroutine: the child waits in a loop of its own, the parent's waits go on."""

import asyncio
import os
import select
import signal
import traceback

import pytest

from .loops import _loops, aio, engine_of, nothing_left_in, readers, until_watched
from .processes import become_zombie


def watched(loop):
    """What the engine's epoll and that of the loop watch, as the kernel says."""
    found = []
    for fd in readers(loop) + [loop._selector.fileno()]:
        with open("/proc/self/fdinfo/%d" % fd) as file:
            found += [line.split()[1] for line in file if line.startswith("tfd:")]
    return found


def fork(function, *args):
    """function(*args) in a forked child, whose loop does not go on; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(40)  # ends what would hang
        asyncio._set_running_loop(None)
        function(*args)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait_in_a_new_loop(parents, pid, ready):
    async def main():
        waiting = asyncio.ensure_future(aio.wait(pid))
        await until_watched(pid)
        os.write(ready, b".")
        return await waiting

    loop = asyncio.new_event_loop()
    # Some users may not see the status in /proc.
    assert loop.run_until_complete(main()) in ((-9,) if os.getuid() == 0 else (-9, None))
    nothing_left_in(loop)
    loop.close()


def close_the_copy(parents, pid, ready):
    engine_of(parents).close()
    wait_in_a_new_loop(parents, pid, ready)


def discard_from_the_copy(parents, pid, ready):
    keys = [target.key for target in engine_of(parents)._engine]
    _loops.discard(parents, keys)
    assert not _loops.look(parents)
    wait_in_a_new_loop(parents, pid, ready)


def look_at_the_copy(parents, pid, ready):
    os.kill(pid, signal.SIGKILL)
    become_zombie(pid)
    engine_of(parents).look(True)
    wait_in_a_new_loop(parents, pid, ready)


@pytest.mark.parametrize(
    "use", [wait_in_a_new_loop, close_the_copy, discard_from_the_copy, look_at_the_copy]
)
def test_fork_in_a_coroutine(either, loop, run, herd, use):
    pid, other = herd.fork(0), herd.fork(0)
    reader, ready = os.pipe()

    async def main():
        waits = [asyncio.ensure_future(aio.wait(one)) for one in (pid, other)]
        await until_watched(pid, other)
        before = watched(loop)
        child = fork(use, loop, pid, ready)
        assert os.read(reader, 1) == b"."
        assert watched(loop) == before
        os.kill(pid, signal.SIGKILL)
        assert await waits[0] == -9
        assert await aio.wait(child) == 0
        assert os.waitpid(child, 0)[1] == 0
        os.kill(other, signal.SIGKILL)
        assert await waits[1] == -9

    run(main())
    os.close(reader)
    os.close(ready)


def test_loop_that_a_forked_child_goes_on_with(either, run, herd):
    """Its engine is the parent's: a wait there gets another one."""
    pid = herd.fork(0)

    def add_there(loop):
        engine = engine_of(loop)
        assert not engine.is_of(loop) and _loops._find(loop) is None

    async def main():
        waiting = asyncio.ensure_future(aio.wait(pid))
        await until_watched(pid)
        child = fork(add_there, asyncio.get_event_loop())
        assert await aio.wait(child) == 0 and os.waitpid(child, 0)[1] == 0
        os.kill(pid, signal.SIGKILL)
        assert await waiting == -9

    run(main())


def test_iterator_that_a_forked_child_frees(either, loop, run, herd):
    """The loop's socketpair is the parent's: nothing is written there."""
    pid = herd.fork(0)

    async def main():
        completed = aio.as_completed([pid])

        def free():
            completed.__del__()

        child = fork(free)
        assert os.waitpid(child, 0)[1] == 0
        assert select.select([loop._ssock], [], [], 0)[0] == []
        os.kill(pid, signal.SIGKILL)
        return [code async for _, code in completed]

    assert run(main()) == [-9]
