# SPDX-License-Identifier: BSD-3-Clause
"""Processes of event loops: their loop reaps them, while threads wait for them."""

import asyncio

from .kinds import command

LOOPS = {}


def loop(function):
    LOOPS[function.__name__] = function
    return function


def by_asyncio(check):
    async def start(fifo, code):
        return await asyncio.create_subprocess_exec(*command(fifo, code))

    async def main():
        await check(start, asyncio.to_thread)

    asyncio.run(main())


@loop
def asyncio_loop(check):
    by_asyncio(check)


@loop
def asyncio_pidfd_watcher(check):
    # Since Python 3.12 it is the default.
    if hasattr(asyncio, "set_child_watcher"):
        policy = asyncio.get_event_loop_policy()
        loop = asyncio.new_event_loop()
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(loop)
        loop.close()
        policy.set_child_watcher(watcher)
    by_asyncio(check)


@loop
def uvloop(check):
    from uvloop import EventLoopPolicy

    asyncio.set_event_loop_policy(EventLoopPolicy())
    by_asyncio(check)


@loop
def trio(check):
    import trio

    async def start(fifo, code):
        return await trio.lowlevel.open_process(command(fifo, code))

    trio.run(check, start, trio.to_thread.run_sync)


def by_anyio(check, backend):
    import anyio

    async def start(fifo, code):
        return await anyio.open_process(command(fifo, code), stdin=None, stdout=None, stderr=None)

    anyio.run(check, start, anyio.to_thread.run_sync, backend=backend)


@loop
def anyio_on_asyncio(check):
    by_anyio(check, "asyncio")


@loop
def anyio_on_trio(check):
    by_anyio(check, "trio")
