# SPDX-License-Identifier: BSD-3-Clause
"""aio.wait(), and what all waits in an event loop have in common."""

import _thread
import asyncio
import errno
import gc
import os
import random
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from .. import pidwait
from ..conftest import IMITATED, open_fds
from ..needs import need_quick_looks
from ..processes import (
    become_gone,
    become_zombie,
    eventually,
    exiting,
    exiting_when_told,
    gone_pid,
    run_script,
    state,
)
from .loops import (
    WAYS,
    aio,
    begun,
    ended,
    every_way,
    gathered,
    is_cancelled,
    nothing_left_in,
    run_in,
    some_turns,
)

pytestmark = pytest.mark.kqueue
not_on_kqueue = pytest.mark.skipif(IMITATED, reason="the stand-in does not reach that far")


@every_way
@pytest.mark.parametrize("code", [pytest.param(3, marks=pytest.mark.windows), 0, 255, -9])
def test_the_exit_code_comes_once_the_process_exits(variant, run, start_told, way, code):
    child = start_told(code)
    assert run(ended(way, child.pid, child.stdin.close)) == code
    assert state(child.pid) == "Z"  # a pid is never reaped


@every_way
def test_a_process_that_has_exited_before_the_wait(variant, run, zombie, way):
    child = zombie(3)
    assert run(way(child.pid)) == 3
    assert run(way(child)) == 3 == child.returncode
    assert state(child.pid) is None
    assert run(way(child)) == 3  # it knows its code


@pytest.mark.skipif(IMITATED, reason="what is a zombie already is polled by ps, and late")
@every_way
def test_an_owner_where_nobody_can_look_without_reaping(variant, backend, run, zombie, seam, way):
    if backend == "pidfd":
        seam.hide_zombies()
        seam.refuse("ioctl")
    seam.refuse("waitid", errno.ENOSYS)
    child = zombie(3)
    assert run(way(child)) == 3 == child.returncode


@every_way
def test_a_process_that_exits_before_the_loop_looks(variant, run, start_told, way):
    child = start_told(3)
    end = lambda: (child.stdin.close(), become_zombie(child.pid))  # noqa: E731
    assert run(ended(way, child, end, turns=1)) == 3


@pytest.mark.windows
@every_way
def test_a_pid_that_is_gone_returns_none_at_once(variant, run, way):
    assert run(way(gone_pid())) is None


NOT_STARTED = SimpleNamespace(pid=None)
BAD = [(0, ValueError), (-1, ValueError), (2**31, ValueError), (NOT_STARTED, ValueError)]
BAD += [(True, TypeError), (1.5, TypeError), ("1", TypeError), (None, TypeError), ([1], TypeError)]


@pytest.mark.windows
@every_way
@pytest.mark.parametrize("proc, error", BAD, ids=[repr(one) for one, _ in BAD])
def test_what_stands_for_no_process_is_refused(run, way, proc, error):
    with pytest.raises(error):
        run(way(proc))


def test_a_thousand_waits_take_no_thread(variant, run, herd):
    need_quick_looks(variant)
    pids = [herd.fork(0) for _ in range(20)]
    before = threading.active_count(), _thread._count()

    async def main():
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in pids for _ in range(50)]
        await some_turns()
        assert (threading.active_count(), _thread._count()) == before
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return await gathered(waits)

    assert run(main()) == [-9] * 1000


# Time-outs and cancelled waits


async def by_wait_for(waiting):
    await asyncio.wait_for(waiting, 0.01)


async def by_timeout(waiting):
    async with asyncio.timeout(0.01):
        await waiting


@every_way
@pytest.mark.parametrize("limit", [by_wait_for] + [by_timeout] * hasattr(asyncio, "timeout"))
def test_asyncios_time_outs_end_the_wait_alone(variant, run, sleeper, way, limit):
    with pytest.raises(asyncio.TimeoutError):
        run(limit(way(sleeper)))
    assert state(sleeper.pid) not in ("Z", None) and sleeper.returncode is None


@every_way
@pytest.mark.parametrize("turns", [0, 5], ids=["before its first step", "while it waits"])
def test_a_cancelled_wait_leaves_nothing_behind(variant, loop, run, start_told, way, turns):
    child = start_told(3)
    nothing_left_in(loop)
    before = open_fds()

    async def main():
        task = asyncio.ensure_future(way(child))
        await some_turns(turns)
        assert await is_cancelled(task)

    run(main())
    nothing_left_in(loop)
    eventually(lambda: open_fds() == before or gc.collect() and open_fds() == before)
    assert state(child.pid) not in ("Z", None)
    assert run(ended(way, child, child.stdin.close)) == 3 == child.returncode


def test_other_waits_for_the_same_process_go_on(variant, run, start_told):
    child = start_told(3)

    async def main():
        tasks = [await begun(way(child)) for way in WAYS * 3]
        for task in tasks[3:6]:
            assert await is_cancelled(task)
        child.stdin.close()
        return await gathered(tasks[:3] + tasks[6:])

    assert run(main()) == [3] * 6


@every_way
@pytest.mark.parametrize("turns", [None, 0, 1, 2, 3, 4])
def test_an_exit_and_a_cancel_at_the_same_time(variant, run, start, way, turns):
    """Either the task has the code or it is cancelled; the Popen can be waited for again."""
    child = start("sleep", "60")

    async def main():
        task = await begun(way(child))
        child.kill()
        if turns is not None:
            become_zombie(child.pid)
            await some_turns(turns)
        return await is_cancelled(task) or task.result() == -9

    assert run(main())
    assert run(way(child)) == -9 == child.returncode


def test_waits_that_are_cancelled_at_any_moment(variant, run, herd):
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)

    async def cancelled(way, pid, pause):
        task = asyncio.ensure_future(way(pid))
        await some_turns(pause)
        if pause > 20:
            await asyncio.sleep(draw.random() / 200)
        assert await is_cancelled(task) or task.result() == 3

    async def main():
        for _ in range(8):
            pids = [herd.fork(3, after=draw.random() / 200) for _ in range(5)]
            tasks = [cancelled(draw.choice(WAYS), pid, draw.randrange(30)) for pid in pids]
            kept = asyncio.ensure_future(aio.wait_procs(pids))
            await gathered(tasks)
            assert sorted((await kept)[0]) == [(pid, 3) for pid in sorted(pids)]

    run(main())


# Who reaps


@every_way
def test_a_process_is_not_reaped(variant, run, start_told, way):
    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        assert run(ended(way, process, child.stdin.close)) == 3 == process.exitcode
        assert state(child.pid) == "Z"
    assert run(way(process)) == 3  # closed, but it knows its code


@every_way
def test_a_process_of_somebody_else(variant, run, keeper, tmp_path, way):
    pid = keeper.start_told(3, tmp_path / "fifo")
    code = run(ended(way, pid, (tmp_path / "fifo").open("w").close))
    assert code == 3 and state(pid) == "Z"


OWNERS = """if True:
    import asyncio, multiprocessing, subprocess, sys
    import {package} as pidwait
    from {package} import aio

    def process(method):
        process = multiprocessing.get_context(method).Process(target=sys.exit, args=(3,))
        process.start()
        return process

    async def main():
        asyncios = await asyncio.create_subprocess_exec(*{command})
        child = pidwait.spawn({command})
        popen = subprocess.Popen({command})
        processes = [process("fork"), process("forkserver")]
        procs = [asyncios, child, aio.spawn({command}), popen, *processes, popen]
        one_by_one = asyncio.gather(*map(aio.wait, procs))
        exited, alive = await aio.wait_procs(procs)
        assert alive == [] and len(exited) == len(procs)
        codes = [next(code for one, code in exited if one is proc) for proc in procs]
        # asyncio's loop may have reaped it before we could look.
        assert codes[0] in (3, None) and codes[1:] == [3] * 6, codes
        assert (await one_by_one)[1:] == codes[1:]
        assert popen.returncode == child.exitcode == 3
        assert [process.exitcode for process in processes] == [3, 3]
        assert multiprocessing.active_children() == []
        assert await asyncios.wait() == await aio.wait(asyncios) == 3

    if __name__ == "__main__":
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
"""


@not_on_kqueue
def test_owners_reap_their_own(variant, tmp_path):
    """multiprocessing's are joined; those of asyncio are left to its loop."""
    code = OWNERS.format(package=pidwait.__name__, command=exiting(3, 0.1))
    assert run_script(tmp_path / "script.py", code) == ""


PIPE = """if True:
    import asyncio, os, signal
    from {package} import aio

    async def main():
        command = "sleep 60 & echo $!; exit 3"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("sh", "-c", command, stdout=pipe)
        holder = int(await process.stdout.readline())
        assert await aio.wait(process) in (3, None)  # asyncio may have reaped it before
        os.kill(holder, signal.SIGKILL)  # it still runs
        assert await process.wait() == 3

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
    loop.close()
"""


@not_on_kqueue
def test_a_process_of_asyncio_whose_pipe_is_still_open(variant, tmp_path):
    """From Python 3.11 to 3.13 its own wait() lasts until the pipe is closed."""
    run_script(tmp_path / "script.py", PIPE.format(package=pidwait.__name__))


def test_another_thread_of_the_owner_reaps(variant, run, zombie):
    """It holds the Popen's lock, as between its waitpid() and noting the code."""
    child = zombie(3)

    async def main():
        began = time.monotonic()
        with child._waitpid_lock:
            waiting = asyncio.ensure_future(aio.wait(child))
            await some_turns()
            # An owner is given a second.
            assert not waiting.done() or time.monotonic() - began > 0.9
        code = await waiting
        assert child.returncode == 3 or time.monotonic() - began > 0.9
        return code

    assert run(main()) == 3


@pytest.mark.parametrize("timeout", [0, 0.02])
def test_an_exit_that_was_seen_is_no_time_out(variant, run, zombie, sleeper, timeout):
    """Its Popen's lock is held, so the code counts that was seen."""
    child = zombie(3)

    async def main():
        took = 2.0
        with child._waitpid_lock:
            while took > 1.9:  # if each wait takes a second, it never ends
                began = time.monotonic()
                codes = await gathered([aio.wait(child, timeout) for _ in range(2)])
                exits = await aio.wait_procs([sleeper, child], timeout)
                assert (codes, exits) == ([3, 3], ([(child, 3)], [sleeper]))
                took = time.monotonic() - began

    run(main())


# Codes that are hard to get


def certain(variant):
    """Whether the system tells the code of a child that somebody else has reaped."""
    from ..trouble import kernel_tells

    return "pidfd" in variant and kernel_tells()


@every_way
def test_somebody_else_reaps(variant, run, start_told, way):
    child = start_told(3)

    def end():
        child.stdin.close()
        child.returncode = os.waitpid(child.pid, 0)[1] >> 8

    assert run(ended(way, child.pid, end)) in ((3,) if certain(variant) else (3, None))


@every_way
def test_sigchld_is_ignored(variant, run, way):
    """The kernel reaps at the exit: there is no zombie."""
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        child = subprocess.Popen(exiting_when_told(3), stdin=subprocess.PIPE)
        code = run(ended(way, child.pid, child.stdin.close))
        become_gone(child.pid)
        assert run(way(child.pid)) is None
        child.wait()
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert code in ((3,) if certain(variant) else (3, None))


@pytest.mark.root
@not_on_kqueue
@every_way
def test_a_code_that_may_not_be_read_before_the_reaping(variant, keeper, way):
    """A wait goes on for a second, in case it comes; a look may answer with nothing meanwhile."""
    from ..trouble import forked, system

    is_told = certain(variant)

    async def main():
        pid = keeper.start(*exiting(5))
        become_zombie(pid)
        assert await way(pid) is None
        assert await aio.wait_procs([pid], 0) in (([], [pid]), ([(pid, None)], []))
        code = None
        while is_told and code is None:  # the machine was too busy to be that quick
            pid = keeper.start(*exiting(5))
            become_zombie(pid)
            waiting = asyncio.ensure_future(way(pid))
            await some_turns()
            await aio.wait_procs([os.getpid()], 0)  # the end of one wait is not that of others
            keeper.reap(pid)
            code = await waiting
        assert code == (5 if is_told else None)

    def as_nobody():
        system.become(65534)
        run_in(asyncio.new_event_loop(), main())

    forked(as_nobody)
