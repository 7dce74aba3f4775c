# SPDX-License-Identifier: BSD-3-Clause
"""aio.run() in the cancel scopes of anyio, Starlette and trio, which cancel in ways of their own.

anyio cancels a task in each turn of the event loop until the scope has none left. In a program
that has loaded anyio, asyncio's own scopes are tested here, too.
"""

import asyncio
import subprocess
import sys

import anyio
import pytest
import starlette.responses

from ..asyncio.loops import aio, run_in
from ..asyncio.test_loops import CountingSelector
from .event_loops import code_of

HANDLER = "trap 'echo term; sleep 0.5; echo handled; exit' TERM; echo ready; "
HANDLER += "while :; do sleep 0.01; done"


async def by_task_group(work, is_ready):
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await is_ready()
        group.cancel_scope.cancel()


async def by_deadline(work, is_ready):
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def set_deadline():
                await is_ready()
                scope.deadline = anyio.current_time()

            group.start_soon(set_deadline)
            await work()
    assert scope.cancelled_caught


async def by_disconnect(work, is_ready):
    """As a server does: the client goes while its answer is made."""

    async def body():
        yield b""
        await work()

    async def receive():
        await is_ready()
        return {"type": "http.disconnect"}

    async def send(message):
        assert message["type"].startswith("http.response")

    answer = starlette.responses.StreamingResponse(body())
    await answer({"type": "http", "asgi": {"spec_version": "2.0"}}, receive, send)


async def by_native_cancel(work, is_ready):
    task = asyncio.ensure_future(work())
    await is_ready()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_time_out_in_a_scope(work, is_ready):
    """The scope is cancelled later; so the exception is not its own."""
    with anyio.CancelScope() as scope:
        task = asyncio.current_task()

        async def cancel_both():
            await is_ready()
            task.cancel()
            await asyncio.sleep(0)
            scope.cancel()

        ending = asyncio.ensure_future(cancel_both())
        with pytest.raises(asyncio.CancelledError, match="^$"):
            await work()
        await ending
        if hasattr(task, "uncancel"):
            task.uncancel()


async def by_scope_in_a_time_out(work, is_ready):
    """The task is cancelled while the scope's cancel is under way, and must not go on."""
    reached = []

    async def scoped():
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await work()
        reached.append("end")

    scopes = []
    task = asyncio.ensure_future(scoped())
    await is_ready()
    scopes[0].cancel()
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached == []


SCOPES = [by_task_group, by_deadline, by_disconnect, by_native_cancel]
SCOPES += [by_time_out_in_a_scope]
if sys.version_info >= (3, 11):  # before, anyio takes each cancel for its own
    SCOPES += [by_scope_in_a_time_out]


def shell(path, is_tree):
    """A coroutine that runs it, and one that waits until it is ready."""

    async def work():
        if is_tree:
            with open(path, "wb") as output:
                await aio.run(["sh", "-c", HANDLER], stdout=output, tree=True, grace=60)
        else:  # the process that sleeps holds the pipe; `true` keeps the shell from becoming it
            script = 'echo ready > "$0"; sleep 1.5; true'
            await aio.run(["sh", "-c", script, str(path)], stdout=subprocess.PIPE)

    async def is_ready():
        while not path.exists() or path.read_text() != "ready\n":
            await asyncio.sleep(0.01)

    return work, is_ready


@pytest.mark.parametrize("scope", SCOPES)
def test_the_tree_gets_its_grace(scope, tmp_path):
    path = tmp_path / "output"
    run_in(asyncio.SelectorEventLoop(), scope(*shell(path, True)))
    assert path.read_text() == "ready\nterm\nhandled\n"


@pytest.mark.parametrize("scope", SCOPES)
def test_the_loop_sleeps_meanwhile(scope, tmp_path):
    """Without a tree, too, where somebody holds the pipe."""
    selector, counts = CountingSelector(), []
    work, is_ready = shell(tmp_path / "output", False)

    async def begin():
        await is_ready()
        counts.append(selector.count)

    run_in(asyncio.SelectorEventLoop(selector), scope(work, begin))
    assert selector.count - counts[0] < 100


TRIO = """if True:
    import sys
    from pathlib import Path
    from tests.plays.test_scopes import shell  # and so `aio`, before trio_asyncio
    import trio, trio_asyncio

    async def main():
        work, is_ready = map(trio_asyncio.aio_as_trio, shell(Path(sys.argv[1]), True))
        async with trio_asyncio.open_loop(), trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await is_ready()
            nursery.cancel_scope.cancel()
        assert nursery.cancel_scope.cancelled_caught

    trio.run(main)
"""


def test_a_cancel_scope_of_trio(tmp_path):
    """In an interpreter of its own: trio_asyncio replaces asyncio's functions."""
    path = tmp_path / "output"
    subprocess.check_call([sys.executable, "-c", TRIO, str(path)])
    assert path.read_text() == "ready\nterm\nhandled\n"


def test_recipe(tmp_path):
    filtered = code_of("In a server (anyio, Starlette)", 0).filtered
    assert run_in(asyncio.SelectorEventLoop(), filtered(["cat"], b"body")) == b"body"
    path = tmp_path / "output"
    command = ["sh", "-c", "exec > %s; %s" % (path, HANDLER)]
    for seconds in 0.5, 5, 50:  # a slow machine may not get to the handler
        with pytest.raises(TimeoutError):
            run_in(asyncio.SelectorEventLoop(), filtered(command, b"body", seconds))
        if path.exists() and path.read_text():
            break
    assert path.read_text() == "ready\nterm\nhandled\n"
