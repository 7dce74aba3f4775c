# SPDX-License-Identifier: BSD-3-Clause
"""In an event loop: every kind of object, its owner's reaping, and codes that are hard to get."""

import asyncio
import importlib
import multiprocessing
import os
import signal
import subprocess

import pytest

from . import faults, pidwait
from .conftest import not_on_kqueue
from .loops import aio, engine_of, every_way, gathered, until_watched
from .processes import become_gone, become_zombie, exiting, exiting_when_told, run_script, state

exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
pidfd_set = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")


async def code_of(way, proc, end):
    """The exit code of a process that ends once it is waited for."""
    waiting = asyncio.ensure_future(way(proc))
    await until_watched(proc)
    end()
    return await waiting


@every_way
def test_popen(variant, run, start_told, way):
    child = start_told(3)
    assert run(code_of(way, child, child.stdin.close)) == 3 == child.returncode
    assert state(child.pid) is None


@every_way
def test_our_child(variant, run, way):
    reader, writer = os.pipe()
    with pidwait.spawn(exiting_when_told(3), stdin=reader) as child:
        os.close(reader)
        assert run(code_of(way, child, lambda: os.close(writer))) == 3 == child.exitcode
        assert child.reaped


@every_way
def test_our_process(variant, run, start_told, way):
    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        assert run(code_of(way, process, child.stdin.close)) == 3 == process.exitcode
        assert state(child.pid) == "Z"
    assert run(way(process)) == 3  # closed, but it knows its code


@every_way
def test_psutil(variant, run, start_told, way):
    psutil = pytest.importorskip("psutil")
    child = start_told(3)
    assert run(code_of(way, psutil.Process(child.pid), child.stdin.close)) == 3
    assert state(child.pid) == "Z"
    popen = psutil.Popen(exiting_when_told(4), stdin=subprocess.PIPE)
    assert run(code_of(way, popen, popen.stdin.close)) == 4 == popen.returncode


@every_way
def test_stranger(variant, run, keeper, tmp_path, way):
    pid = keeper.start_told(3, tmp_path / "fifo")
    code = run(code_of(way, pid, (tmp_path / "fifo").open("w").close))
    assert code == (None if "kqueue-darwin" in variant else 3)
    assert state(pid) == "Z"


@every_way
def test_multiprocessing(variant, run, way):
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(False)
    process = context.Process(target=exits_when_told, args=(reader,))
    process.start()
    assert run(code_of(way, process, lambda: writer.send(3))) == 3 == process.exitcode
    assert state(process.pid) is None
    assert process not in multiprocessing.active_children()
    reader.close()
    writer.close()
    del process


def exits_when_told(reader):
    os._exit(reader.recv())


MIXED = """if True:
    import asyncio, multiprocessing, os, subprocess, sys, time
    import {package} as pidwait
    from {package} import aio

    def exit_with(code, after):
        time.sleep(after)
        sys.exit(code)

    async def main():
        command = {command}
        asyncios = await asyncio.create_subprocess_exec(*command)
        popen = subprocess.Popen(command)
        number = subprocess.Popen(command)
        handle = pidwait.Process(number.pid)
        child = aio.spawn(command)
        context = multiprocessing.get_context(sys.argv[1])
        process = context.Process(target=exit_with, args=(3, 0.1))
        process.start()
        gone = subprocess.Popen(command)
        gone.wait()
        procs = [asyncios, popen, process, number.pid, handle, gone, popen, child]
        one_by_one = asyncio.gather(*[aio.wait(proc) for proc in procs])
        exited, alive = await aio.wait_procs(procs)
        assert alive == [] and len(exited) == len(procs)
        for proc in procs:
            code = next(code for one, code in exited if one is proc)
            # asyncio's watcher may have reaped it before we could look.
            assert code == 3 or proc is asyncios and code is None, (proc, code)
        codes = await one_by_one
        assert set(codes[1:]) == {{3}} and codes[0] in (3, None), codes
        assert popen.returncode == 3
        process.join()  # a fork server may tell it late
        assert process.exitcode == 3
        assert await asyncios.wait() == 3
        assert await aio.wait(asyncios) == 3
        assert number.wait() == 3
        handle.close()
        child.close()

    if __name__ == "__main__":
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
"""


@pytest.mark.parametrize("method", sorted(multiprocessing.get_all_start_methods()))
def test_mixed(variant, method, tmp_path):
    code = MIXED.format(package=pidwait.__name__, command=exiting(3, 0.1))
    assert run_script(tmp_path / "script.py", code, method) == ""


def test_several_waits_for_one_popen(variant, run, start_told):
    """Each has its own target; only one of them reaps."""
    child = start_told(3)

    async def main():
        waits = [asyncio.ensure_future(aio.wait(child)) for _ in range(5)]
        await until_watched(child)
        child.stdin.close()
        return await gathered(waits)

    assert run(main()) == [3] * 5


def test_somebody_else_reaps(variant, run, start_told):
    """The code is told if it is certain, else None, in bounded time."""
    child = start_told(3)

    def end():
        child.stdin.close()
        assert os.waitpid(child.pid, 0)[1] == 3 << 8

    code = run(code_of(aio.wait, child, end))
    assert code in (3, None)
    if "pidfd" in variant and faults.kernel_tells():
        assert code == 3
    child.returncode = 3


@every_way
def test_sigchld_ignored(variant, run, way):
    """The kernel reaps at the exit: there is no zombie."""
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        child = subprocess.Popen(exiting_when_told(3), stdin=subprocess.PIPE)
        code = run(code_of(way, child.pid, child.stdin.close))
        become_gone(child.pid)
        assert run(way(child.pid)) is None
        child.wait()
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert code in (3, None)
    if "pidfd" in variant and faults.kernel_tells():
        assert code == 3


# Exit codes that only the reaping tells


@pytest.fixture
def hidden(use_variant, monkeypatch, keeper):
    """A zombie that is not our child; its code, 5, can't be read in /proc."""
    use_variant("pidfd-ctypes")
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(5))
    become_zombie(pid)
    return pid


@not_on_kqueue
@every_way
def test_zombie_that_nobody_reaps(hidden, run, way):
    assert run(way(hidden)) is None


@not_on_kqueue
def test_time_is_up_before_the_reaping(hidden, run):
    assert run(aio.wait_procs([hidden], 0)) == ([(hidden, None)], [])
    assert run(aio.wait_procs([hidden], 0.001)) == ([(hidden, None)], [])


@not_on_kqueue
@every_way
def test_zombie_that_is_reaped_a_moment_later(hidden, loop, run, way, keeper, monkeypatch):
    if not faults.kernel_tells():
        pytest.skip("before Linux 6.15 the reaping tells no code")
    monkeypatch.setattr(pidfd_set, "GRACE", 50.0)

    async def main():
        waiting = asyncio.ensure_future(way(hidden))
        while not (engine_of(loop) and engine_of(loop).is_settling()):
            await asyncio.sleep(0)
        keeper.reap(hidden)
        return await waiting

    assert run(main()) == 5


def test_owner_that_reaps_later(variant, run, start):
    """Another thread holds the Popen's lock: its poll() can't reap until that is released."""
    child = start(*exiting(3))
    become_zombie(child.pid)

    async def main():
        child._waitpid_lock.acquire()
        try:
            waiting = asyncio.ensure_future(aio.wait(child))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert not waiting.done()
        finally:
            child._waitpid_lock.release()
        return await waiting

    assert run(main()) == 3 == child.returncode
