# SPDX-License-Identifier: BSD-3-Clause
"""spawn() in asyncio's event loops, and its Child."""

import asyncio
import importlib
import os
import signal
import subprocess

import pytest

from . import pidwait
from .loops import aio, all_tasks, every_way, nothing_left_in, until_watched
from .processes import OnPurpose, become_zombie, exiting, sleeping, state

_child = importlib.import_module(pidwait.__name__ + "._child")


@pytest.fixture
def left():
    """The children that are left running are reaped by the next start; here at the end."""
    pids = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        become_zombie(pid)
    pidwait.spawn(exiting(0)).__exit__(None, None, None)
    assert [state(pid) for pid in pids] == [None] * len(pids)


@pytest.mark.parametrize("code", [0, 3, -9])
def test_exit_code(variant, run, code):
    async def main():
        async with aio.spawn(exiting(code)) as child:
            assert child.exitcode is None
            assert await child.wait() == code == child.exitcode
            assert state(child.pid) is None
        assert await child.wait() == code  # closed, but it knows its code

    run(main())


def test_leaving_the_block_waits(variant, run):
    async def main():
        async with aio.spawn(exiting(3, after=0.05)) as child:
            pass
        assert (child.exitcode, state(child.pid)) == (3, None)

    run(main())


def test_error_in_the_block(variant, run):
    """An error like any other: the block waits, as Popen's does."""

    async def main():
        with pytest.raises(OnPurpose):
            async with aio.spawn(exiting(3, after=0.05)) as child:
                raise OnPurpose
        assert (child.exitcode, state(child.pid)) == (3, None)

    run(main())


def test_cancelled_block(variant, loop, run, left):
    """The child is left running: to cancel is not to kill."""

    async def main():
        async with aio.spawn(sleeping(60)) as child:
            left.append(child.pid)
            await asyncio.sleep(60)

    async def cancel():
        task = asyncio.ensure_future(main())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    nothing_left_in(loop)
    assert state(left[0]) not in ("Z", None)


def test_cancelled_while_the_end_of_the_block_waits(variant, loop, run, left):
    async def main():
        async with aio.spawn(sleeping(60)) as child:
            left.append(child.pid)

    async def cancel():
        task = asyncio.ensure_future(main())
        await asyncio.sleep(0)
        await until_watched(*left)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    nothing_left_in(loop)
    assert state(left[0]) not in ("Z", None)


def test_keyboard_interrupt_in_the_block(variant, loop, run, left):
    async def main():
        async with aio.spawn(sleeping(60)) as child:
            left.append(child.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert state(left[0]) not in ("Z", None)
    for task in all_tasks(loop):  # from Python 3.8 on the exception has gone to both
        assert task.done()


def test_left_child_is_reaped_by_the_next_spawn(variant, run):
    async def main():
        child = aio.spawn(sleeping(60))
        child.kill()
        become_zombie(child.pid)
        child.close()
        async with aio.spawn(exiting(0)):
            pass
        return state(child.pid)

    assert run(main()) is None


def test_options_pass_through(variant, run, tmp_path):
    async def main():
        with (tmp_path / "out").open("w") as file:
            command = ["sh", "-c", 'echo "$NAME" in "$PWD"; exit 4']
            env = dict(os.environ, NAME="something")
            async with aio.spawn(command, stdout=file, env=env, cwd=str(tmp_path)) as child:
                assert child.args == command
        return child.exitcode

    assert run(main()) == 4
    assert (tmp_path / "out").read_text() == "something in %s\n" % tmp_path


def test_bad_options(run):
    async def main():
        with pytest.raises(ValueError, match="spawn makes no pipes"):
            aio.spawn(exiting(0), stdout=subprocess.PIPE)
        with pytest.raises(TypeError):
            aio.spawn(exiting(0), shell=True)
        with pytest.raises(FileNotFoundError):
            aio.spawn(["/no such program"])

    run(main())


def test_signals(variant, run):
    async def main():
        for send, sig in (
            (lambda child: child.send_signal(signal.SIGUSR1), signal.SIGUSR1),
            (lambda child: child.terminate(), signal.SIGTERM),
            (lambda child: child.kill(), signal.SIGKILL),
        ):
            async with aio.spawn(sleeping(60)) as child:
                send(child)
                assert await child.wait() == -sig
                with pytest.raises(ProcessLookupError):
                    child.kill()

    run(main())


@every_way
def test_any_wait_reaps_it(variant, run, way):
    """As for the Child of the blocking spawn()."""

    async def main():
        async with aio.spawn(exiting(3)) as child:
            assert await way(child) == 3 == child.exitcode
            assert state(child.pid) is None

    run(main())


def test_repr(variant, run):
    async def main():
        async with aio.spawn(exiting(3)) as child:
            assert str(child.pid) in repr(child)

    run(main())


def test_two_tasks_wait_for_one_child(variant, run):
    async def main():
        async with aio.spawn(exiting(3, after=0.01)) as child:
            return await asyncio.gather(child.wait(), child.wait(), aio.wait(child.pid))

    assert run(main())[:2] == [3, 3]
