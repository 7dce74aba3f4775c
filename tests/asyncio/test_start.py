# SPDX-License-Identifier: BSD-3-Clause
"""aio.spawn() and its Child."""

import asyncio
import os
import signal

import pytest

from .. import pidwait
from ..processes import (
    OnPurpose,
    become_gone,
    become_zombie,
    exiting,
    exiting_when_told,
    sleeping,
    state,
)
from ..waiting.ways import WAYS as BLOCKING
from .loops import WAYS, aio, begun, gathered, is_cancelled

pytestmark = pytest.mark.kqueue


@pytest.fixture
def left():
    """Children that were left running: the next start reaps them; here at the end."""
    pids = []
    yield pids
    for pid in pids:
        assert state(pid) not in ("Z", None)
        os.kill(pid, signal.SIGKILL)
        become_zombie(pid)
    with pidwait.spawn(exiting(0)):
        pass
    assert [state(pid) for pid in pids] == [None] * len(pids)


@pytest.mark.parametrize("wait", [aio.Child.wait] + WAYS)
@pytest.mark.parametrize("code", [0, 3, -9])
def test_any_wait_reaps_it_and_returns_the_exit_code(variant, run, code, wait):
    reader, writer = os.pipe()

    async def main():
        async with aio.spawn(exiting_when_told(code), stdin=reader) as child:
            waiting = await begun(gathered([wait(child), wait(child)]))
            assert child.exitcode is None and str(child.pid) in repr(child)
            os.close(writer)
            assert await waiting == [code, code]
            assert (child.exitcode, state(child.pid)) == (code, None)
        assert await child.wait() == code  # closed, but it knows its code

    run(main())
    os.close(reader)


@pytest.mark.windows
@pytest.mark.parametrize("by", BLOCKING)
@pytest.mark.parametrize("waited", [False, True], ids=["", "once more"])
def test_blocking_waits_know_its_code_and_reap_it_too(variant, run, by, waited):
    async def main():
        async with aio.spawn(exiting(3)) as child:
            if waited:
                await child.wait()
            assert by(child) == child.exitcode == 3 and pidwait.has_exited(child)
            become_gone(child.pid)
        assert by(child) == 3

    run(main())


@pytest.mark.windows
@pytest.mark.parametrize("raises", [False, True], ids=["", "by an error"])
def test_leaving_the_block_waits(variant, run, raises):
    async def main():
        try:
            async with aio.spawn(exiting(3, after=0.05)) as child:
                if raises:
                    raise OnPurpose
        except OnPurpose:
            assert raises
        assert child.exitcode == 3
        become_gone(child.pid)

    run(main())


@pytest.mark.parametrize("seconds", [60, 0], ids=["in the block", "at its end"])
def test_a_cancelled_block_leaves_the_child_running(variant, run, left, seconds):
    async def block():
        async with aio.spawn(sleeping(60)) as child:
            left.append(child.pid)
            await asyncio.sleep(seconds)

    async def main():
        return await is_cancelled(await begun(block()))

    assert run(main())


def test_ctrl_c_in_the_block_leaves_the_child_running(variant, run, left):
    async def main():
        async with aio.spawn(sleeping(60)) as child:
            left.append(child.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_a_closed_child_is_left_running(left):
    child = aio.spawn(sleeping(60))
    left.append(child.pid)
    child.close()


@pytest.mark.parametrize("name, sig", [("send_signal", 2), ("terminate", 15), ("kill", 9)])
def test_signals_go_to_the_child_and_none_after_its_exit(variant, run, name, sig):
    async def main():
        async with aio.spawn(sleeping(60)) as child:
            send, args = getattr(child, name), [sig] if name == "send_signal" else []
            send(*args)
            assert await child.wait() == -sig
            with pytest.raises(ProcessLookupError):
                send(*args)

    run(main())


def test_it_takes_what_spawn_takes(run, tmp_path):
    command = ["sh", "-c", 'echo "$NAME" in "$PWD"']
    env = dict(os.environ, NAME="something")

    async def main():
        with (tmp_path / "out").open("w") as file:
            async with aio.spawn(command, stdout=file, env=env, cwd=str(tmp_path)) as child:
                assert child.args == command
        with pytest.raises(TypeError):
            aio.spawn(command, shell=True)
        with pytest.raises(FileNotFoundError):
            aio.spawn(["/no such program"])

    run(main())
    assert (tmp_path / "out").read_text() == "something in %s\n" % tmp_path
