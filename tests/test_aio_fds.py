# SPDX-License-Identifier: BSD-3-Clause
"""Event loops where file descriptors are few, in an interpreter of their own."""

import gc
import importlib
import sys

import pytest

from . import pidwait
from .conftest import not_on_kqueue, open_fds
from .loops import aio, asyncio, engine_of, until_watched
from .processes import FORK, run_python

RUNNING = importlib.import_module(pidwait.__name__ + "._outcome").RUNNING

START = (
    """if True:
    import _thread, asyncio, os, resource, signal, sys
    import {package} as pidwait
    from {package} import aio, _loops
"""
    + FORK
    + """
    async def until(waits):
        while engine_of() is None or len(engine_of()) < waits:
            await asyncio.sleep(0)

    def engine_of():
        engine = _loops._engines.get(id(loop))
        return engine and engine._engine

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    loop = asyncio.new_event_loop()
    pidwait.probe()
"""
)

PAST_THE_LIMIT = """
    async def main():
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in codes]
        await until(120)
        polled = len(engine_of().sets.polled)
        assert 80 < polled < 120, polled
        assert os.dup(0) == lowest
        os.close(lowest)
        for pid in list(codes)[:10]:
            os.kill(pid, signal.SIGUSR1)
        assert await asyncio.gather(*waits[:10]) == list(range(10))
        # Their file descriptors went to others.
        assert len(engine_of().sets.polled) == polled - 10
        for pid in list(codes)[10:]:
            os.kill(pid, signal.SIGUSR1)
        assert await asyncio.gather(*waits) == list(codes.values())

    codes = {fork(code): code for code in range(120)}
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    loop.run_until_complete(main())
    loop.close()
    for pid in codes:
        os.waitpid(pid, 0)
"""

NONE_LEFT = """
    async def main():
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in codes]
        await until(5)
        exited, alive = await aio.wait_procs(codes, 0)
        assert (exited, alive) == ([], list(codes))
        for pid in codes:
            os.kill(pid, signal.SIGUSR1)
        assert await asyncio.gather(*waits) == list(codes.values())

    codes = {fork(code): code for code in range(5)}
    loop.run_until_complete(asyncio.sleep(0))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    loop.run_until_complete(main())
    loop.close()
    for pid in codes:
        os.waitpid(pid, 0)
"""

THOUSAND = """
    async def main():
        before = _thread._count()
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in codes for _ in range(50)]
        await until(1000)
        assert os.dup(0) == lowest
        os.close(lowest)
        assert _thread._count() == before == 0
        for pid in codes:
            os.kill(pid, signal.SIGUSR1)
        assert sum(await asyncio.gather(*waits)) == 50 * sum(codes.values())

    codes = {fork(code): code for code in range(20)}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    loop.run_until_complete(main())
    loop.close()
    for pid in codes:
        os.waitpid(pid, 0)
"""


@not_on_kqueue
@pytest.mark.parametrize(
    "code", [PAST_THE_LIMIT, NONE_LEFT, THOUSAND], ids=["some", "none", "a thousand"]
)
def test_few_file_descriptors(use_variant, code):
    use_variant("pidfd-ctypes")
    done = run_python(START.format(package=pidwait.__name__) + code)
    assert (done.stderr, done.returncode) == ("", 0)


def test_loop_that_is_closed_while_it_has_a_timer(variant, sleeper, monkeypatch):
    """The timer and the engine refer to each other; nothing waits for a collection of garbage."""
    before = open_fds()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)

    async def main():
        task = asyncio.ensure_future(aio.wait(sleeper.pid))
        await until_watched(sleeper)
        engine = engine_of(loop)
        engine._engine.sets.add_look(next(iter(engine._engine)), lambda: RUNNING)
        engine._arm()
        return task

    gc.collect()
    gc.disable()
    try:
        task = loop.run_until_complete(main())
        loop.close()
        for _ in range(3 if sys.implementation.name == "pypy" else 0):
            gc.collect()
        assert engine_of(loop) is None
        assert open_fds() == before
    finally:
        gc.enable()
    del task
