# SPDX-License-Identifier: BSD-3-Clause
"""Many at once: wait_procs, as_completed, and the kinds of objects that they accept."""

import gc
import importlib
import multiprocessing
import os
import signal
import threading
import time
import warnings

import pytest

from . import pidwait
from .conftest import not_on_kqueue, open_fds
from .processes import (
    FORK,
    HERD,
    WINDOWS,
    OnPurpose,
    become_zombie,
    exiting,
    exiting_when_told,
    gone_pid,
    not_on_windows,
    run_python,
    run_script,
    sleeping,
    state,
)

_engine = importlib.import_module(pidwait.__name__ + "._engine")


def test_wait_procs(variant, start, sleeper):
    children = [start(*exiting(code, 0.05 * code)) for code in (1, 2, 3)]
    seen = []
    exited, alive = pidwait.wait_procs(children, 60, lambda *exit: seen.append(exit))
    assert sorted(exited, key=lambda one: one[1]) == list(zip(children, (1, 2, 3)))
    assert alive == []
    assert seen == exited
    assert [child.returncode for child in children] == [1, 2, 3]
    exited, alive = pidwait.wait_procs([sleeper] + children, 0.01)
    assert exited == list(zip(children, (1, 2, 3)))
    assert alive == [sleeper]
    assert sleeper.returncode is None


@not_on_windows("/proc")
def test_nothing_stays_open_after_an_interrupted_call(variant, sleeper, monkeypatch):
    pidwait.wait_procs([sleeper], 0)
    before = open_fds()
    for method in "add", "collect":
        with monkeypatch.context() as patched:
            patched.setattr(_engine.Engine, method, interrupted)
            with pytest.raises(OnPurpose) as caught:
                pidwait.wait_procs([sleeper], 0)
        # Its traceback refers to the engine.
        assert open_fds() == before and caught.tb is not None


def interrupted(*arguments):
    raise OnPurpose


def test_in_the_order_of_exit(variant, herd):
    """Each process is ended once the exit of the one before it has been reported."""
    pids = [herd.fork(0) for _ in range(5)]
    left = pids[::-1]

    def end_next(*exit):
        if left:
            os.kill(left.pop(0), signal.SIGTERM)

    end_next()
    exited, alive = pidwait.wait_procs(pids, None, end_next)
    assert [pid for pid, _ in exited] == pids[::-1]
    assert alive == []


def test_empty_list_of_processes(variant):
    assert pidwait.wait_procs([]) == ([], [])
    assert pidwait.wait_procs(iter(()), timeout=0) == ([], [])
    assert list(pidwait.as_completed([])) == []


def test_alive_in_the_order_given(variant, herd):
    pids = [herd.fork(0) for _ in range(5)]
    assert pidwait.wait_procs(pids[::-1], 0) == ([], pids[::-1])
    assert pidwait.wait_procs(pids[::-1], -1) == ([], pids[::-1])


def test_gone_and_exited_ones_are_reported_at_once(variant, start):
    done = start(*exiting(5))
    done.wait()
    zombie = start(*exiting(6))
    become_zombie(zombie.pid)
    gone = gone_pid()
    exited, alive = pidwait.wait_procs([done, gone, zombie, zombie.pid], timeout=0)
    assert len(exited) == 4 and alive == []
    assert (done, 5) in exited and (gone, None) in exited and (zombie, 6) in exited
    code = next(code for one, code in exited if one == zombie.pid)
    assert code in (6, None)  # the Popen may have reaped it first


def test_given_twice(variant, start, sleeper):
    child = start(*exiting(3, after=0.1))
    become_zombie(child.pid)
    calls = []
    exited, alive = pidwait.wait_procs(
        [child, sleeper, child, sleeper.pid, sleeper.pid, child],
        0.01,
        lambda *exit: calls.append(exit),
    )
    assert exited == [(child, 3)] * 3 == calls
    assert alive == [sleeper, sleeper.pid, sleeper.pid]
    assert list(pidwait.as_completed([child, child])) == [(child, 3)] * 2


def test_each_pid_is_reported_as_it_was_given(variant, start):
    class Number(int):
        pass

    child = start(*exiting(0))
    become_zombie(child.pid)
    (first, second), _ = pidwait.wait_procs([child.pid, Number(child.pid)])
    assert {type(first[0]), type(second[0])} == {int, Number}


def test_unhashable(variant, start):
    class Job:
        __hash__ = None

        def __init__(self, pid):
            self.pid = pid

        def __eq__(self, other):
            return True

    one, other = Job(start(*exiting(3)).pid), Job(start(*sleeping(60)).pid)
    become_zombie(one.pid)
    exited, alive = pidwait.wait_procs([one, other, one], 0.01)
    assert [(proc is one, code) for proc, code in exited] == [(True, 3)] * 2
    assert len(alive) == 1 and alive[0] is other


def test_callback_that_raises_ends_the_call(variant, herd):
    pids = [herd.fork(0, after=0.01), herd.fork(0)]

    def callback(proc, code):
        raise OnPurpose(proc, code)

    with pytest.raises(OnPurpose) as caught:
        pidwait.wait_procs(pids, callback=callback)
    assert caught.value.args == (pids[0], 0)


@pytest.mark.parametrize(
    "procs, error",
    [([0], ValueError), ([-1], ValueError), (["1"], TypeError), ([None], TypeError)]
    + [([True], TypeError), (1, TypeError), ([os.getpid(), object()], TypeError)],
)
def test_bad_processes(procs, error):
    with pytest.raises(error):
        pidwait.wait_procs(procs, 0)
    with pytest.raises(error):
        pidwait.as_completed(procs)  # at the call, not at the first next()
    with pytest.raises(error):
        pidwait.WaitSet(procs)


def test_bad_arguments():
    with pytest.raises(ValueError, match="NaN"):
        pidwait.wait_procs([os.getpid()], float("nan"))
    with pytest.raises(TypeError, match="callback must be callable, not int"):
        pidwait.wait_procs([os.getpid()], 0, 1)
    with pytest.raises(TypeError, match="timeout"):
        pidwait.as_completed([os.getpid()], "1")


def test_herd(variant, herd):
    """They exit at once, later or never: none is reported twice or lost, all codes are right."""
    codes = {herd.fork(number, after=number % 5 / 50.0): number for number in range(HERD)}
    alive = [herd.fork(0) for _ in range(3)]
    with pidwait.WaitSet(list(codes) + alive) as waiting:
        seen = []
        while len(waiting) > len(alive):
            seen += waiting.wait(60)
        assert sorted(seen) == sorted(codes.items())
        assert list(waiting) == alive


def test_time_out_in_the_middle(variant, herd):
    """All that exited before a call are in its `exited`."""
    codes = {herd.fork(number % 256): number for number in range(HERD)}
    pids = list(codes)
    ended = set()

    def end():
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
            ended.add(pid)
            time.sleep(0.002)

    thread = threading.Thread(target=end)
    thread.start()
    seen, left = [], pids
    while left:
        before = set(ended)
        exited, left = pidwait.wait_procs(left, 0.01)
        seen += [pid for pid, _ in exited]
        assert before <= set(seen)
    thread.join()
    assert sorted(seen) == sorted(pids)


# as_completed


def test_as_completed(variant, herd):
    codes = {herd.fork(code, after=0.05 * code): code for code in (1, 2, 3)}
    assert sorted(pidwait.as_completed(codes, 60)) == sorted(codes.items())


def test_as_completed_times_out(variant, start, sleeper):
    child = start(*exiting(4))
    become_zombie(child.pid)
    completed = pidwait.as_completed([sleeper, child], 0.05)
    assert next(completed) == (child, 4)
    with pytest.raises(pidwait.TimeoutExpired) as caught:
        next(completed)
    assert caught.value.pid == sleeper.pid and caught.value.timeout == 0.05


def test_as_completed_watches_from_the_call_on(variant, start):
    child = start(*exiting(7, after=0.1))
    completed = pidwait.as_completed([child.pid])
    become_zombie(child.pid)
    assert next(completed) == (child.pid, 7)
    assert list(completed) == []


def test_as_completed_that_is_dropped(variant, sleeper):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pidwait.as_completed([sleeper])
        with pytest.raises(pidwait.TimeoutExpired):
            next(pidwait.as_completed([sleeper], 0))
        gc.collect()


# Mixed sets


def test_process_handles(variant, start, sleeper):
    child = start(*exiting(3))
    become_zombie(child.pid)
    with pidwait.Process(child.pid) as process, pidwait.Process(sleeper.pid) as other:
        exited, alive = pidwait.wait_procs([process, other, child.pid], 0.01)
        assert sorted(exited, key=str) == sorted([(process, 3), (child.pid, 3)], key=str)
        assert alive == [other]
        assert process.exitcode == 3
        child.wait()
        assert pidwait.wait_procs([process]) == ([(process, 3)], [])
    assert pidwait.wait_procs([process]) == ([(process, 3)], [])  # closed, but it knows its code


def test_handle_that_is_closed_while_it_is_waited_for(variant, start):
    child = start(*exiting(3, after=0.1))
    with pidwait.Process(child.pid) as process:
        waiting = pidwait.WaitSet([process])
    with waiting:
        assert waiting.wait() == [(process, 3)]


def test_children_are_reaped(variant):
    with pidwait.spawn(exiting(4)) as early, pidwait.spawn(exiting(5, after=0.1)) as late:
        become_zombie(early.pid)
        assert pidwait.wait_procs([early, late]) == ([(early, 4), (late, 5)], [])
        assert early.reaped and late.reaped
        assert pidwait.wait_procs([late, early]) == ([(late, 5), (early, 4)], [])


def test_child_that_is_closed_while_it_is_waited_for(variant):
    reader, writer = os.pipe()
    child = pidwait.spawn(exiting_when_told(3), stdin=reader)
    os.close(reader)
    with pidwait.WaitSet([child]) as waiting:
        child.close()
        os.close(writer)
        assert waiting.wait() == [(child, 3)]
    pidwait.spawn(exiting(0)).__exit__(None, None, None)  # reaps the closed child


@not_on_windows("pidfds")
@not_on_kqueue
def test_pidfd_from_elsewhere(use_variant, start):
    use_variant("pidfd-own")
    child = start(*exiting(3, after=0.1))
    with pidwait.Process.from_fd(os.pidfd_open(child.pid)) as process:
        process._guard.resource.pid = None  # as from another PID namespace
        with pidwait.WaitSet([process]) as waiting:
            assert waiting.wait() == [(process, 3)]


MIXED = """if True:
    import asyncio, multiprocessing, os, subprocess, sys, time
    import {package} as pidwait

    def exit_with(code, after):
        time.sleep(after)
        sys.exit(code)

    async def main():
        command = {command}
        asyncios = await asyncio.create_subprocess_exec(*command)
        popen = subprocess.Popen(command)
        number = subprocess.Popen(command)
        handle = pidwait.Process(number.pid)
        context = multiprocessing.get_context(sys.argv[1])
        process = context.Process(target=exit_with, args=(3, 0.1))
        process.start()
        gone = subprocess.Popen(command)
        gone.wait()
        procs = [asyncios, popen, process, number.pid, handle, gone, popen]
        loop = asyncio.get_event_loop()
        exited, alive = await loop.run_in_executor(None, pidwait.wait_procs, procs, 60)
        assert alive == []
        assert len(exited) == len(procs)
        for proc in procs:
            code = next(code for one, code in exited if one is proc)
            # asyncio's watcher may have reaped it before the other thread could look.
            assert code == 3 or proc is asyncios and code is None, (proc, code)
        assert popen.returncode == 3
        process.join()  # a fork server may tell it late
        assert process.exitcode == 3
        assert await asyncios.wait() == 3
        assert number.wait() == 3
        handle.close()

    if __name__ == "__main__":
        # Windows' default before Python 3.8 starts no processes.
        new_loop = getattr(asyncio, "ProactorEventLoop", asyncio.new_event_loop)
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
"""


@pytest.mark.parametrize("method", sorted(multiprocessing.get_all_start_methods()))
def test_mixed(variant, method, tmp_path):
    code = MIXED.format(package=pidwait.__name__, command=exiting(3, 0.1))
    assert run_script(tmp_path / "script.py", code, method) == ""


def test_psutil_processes(variant, start, sleeper):
    psutil = pytest.importorskip("psutil")
    child = start(*exiting(5))
    become_zombie(child.pid)
    procs = [psutil.Process(child.pid), psutil.Process(sleeper.pid)]
    assert pidwait.wait_procs(procs, 0.01) == ([(procs[0], 5)], [procs[1]])
    assert state(child.pid) == "Z"
    child.wait()
    assert pidwait.wait_procs(procs, 0) == ([(procs[0], None)], [procs[1]])


def test_strangers(variant, keeper, tmp_path):
    if WINDOWS:
        pids = [keeper.start(*exiting(code, 1)) for code in (3, 4)]
        completed = pidwait.as_completed(pids, 30)
    else:
        pids = [keeper.start_told(code, tmp_path / str(code)) for code in (3, 4)]
        completed = pidwait.as_completed(pids, 30)
        for code in 3, 4:
            (tmp_path / str(code)).open("w").close()
    codes = (None, None) if "kqueue-darwin" in variant else (3, 4)
    assert sorted(completed) == sorted(zip(pids, codes))


# File descriptors


@not_on_windows("limit of file descriptors")
def test_low_file_descriptors_are_left_alone(variant, backend, herd):
    import resource

    pids = [herd.fork(0) for _ in range(HERD)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_fds()
    soft = min(limits[0], max(before) + HERD // 2, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limits[1]))
    try:
        with pidwait.WaitSet(pids) as waiting:
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, limits[1])
            new = set(open_fds()) - set(before)
            low = [fd for fd in new if fd < soft]
            assert len(low) <= (2 if backend == "kqueue" else 0)  # for all members together
            assert not any(map(os.get_inheritable, new))
            if backend == "pidfd":
                assert len(new) > HERD
                assert waiting.fileno() >= soft
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            seen = []
            while len(waiting):
                seen += waiting.wait(30)
            assert sorted(seen) == sorted((pid, -signal.SIGTERM) for pid in pids)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# In an interpreter of its own, since only root can raise a hard limit again.
PAST_THE_LIMIT = (
    """if True:
    import atexit, os, resource, signal, sys, time
    import {package} as pidwait
"""
    + FORK
    + """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    codes = {{fork(code): code for code in range(120)}}
    pids = list(codes)

    def end():  # where an assertion fails
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    atexit.register(end)
    pidwait.probe()
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    with pidwait.WaitSet(pids) as waiting:
        assert os.dup(0) == lowest
        os.close(lowest)
        polled = len(waiting._engine.sets.polled)
        assert 80 < polled < 120, polled
        assert not waiting._engine.sets.polled.lacks_room  # for events about them
        seen = []
        for pid in pids[:10]:
            os.kill(pid, signal.SIGUSR1)
        while len(seen) < 10:
            seen += waiting.wait(30)
        # Their file descriptors went to others.
        assert len(waiting._engine.sets.polled) == polled - 10
        for pid in pids[10:]:
            os.kill(pid, signal.SIGUSR1)
        while len(waiting):
            seen += waiting.wait(30)
        assert sorted(seen) == sorted(codes.items())
    for pid in pids:
        os.waitpid(pid, 0)
    atexit.unregister(end)
"""
)


# One number is free above the soft limit: it goes to the epoll.
ONE_NUMBER_ABOVE = """if True:
    import logging, os, resource
    import {package} as pidwait
    logging.basicConfig(level=logging.DEBUG)
    pidwait.probe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 61))
    with pidwait.WaitSet([os.getpid()]) as waiting:
        print(waiting.fileno())
"""


@not_on_windows("limit of file descriptors")
@not_on_kqueue
def test_past_the_hard_limit(use_variant):
    use_variant("pidfd-ctypes")
    done = run_python(PAST_THE_LIMIT.format(package=pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 0)
    done = run_python(ONE_NUMBER_ABOVE.format(package=pidwait.__name__))
    assert (done.stdout.split(), done.returncode) == (["60"], 0)
    assert "F_DUPFD_CLOEXEC, 60" in done.stderr
