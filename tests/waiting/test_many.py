# SPDX-License-Identifier: BSD-3-Clause
"""Many processes in one call: wait_procs() and as_completed()."""

import gc
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import time
import warnings
import weakref

import pytest

from .. import pidwait
from ..conftest import open_fds
from ..processes import (
    HERD,
    WINDOWS,
    Job,
    OnPurpose,
    become_zombie,
    eventually,
    everywhere,
    exiting,
    gone_pid,
)
from .crowd import in_a_fork, those_that_may_be_told
from .threads import Thread

# wait_procs()


@everywhere
def test_exited_is_in_the_order_of_exit_and_the_callback_is_called_at_each_exit(
    variant, start_told
):
    """Each process is ended by the callback for the one before it."""
    children = [start_told(code) for code in (3, 4, 5)]
    expected = [(children[1], 4), (children[2], 5), (children[0], 3)]
    left, seen = [child for child, _ in expected], []

    def callback(*exit):
        seen.append(exit)
        if left:
            left.pop(0).stdin.close()

    left.pop(0).stdin.close()
    assert pidwait.wait_procs(children, None, callback) == (expected, [])
    assert seen == expected
    assert [child.returncode for child in children] == [3, 4, 5]


@pytest.mark.kqueue
def test_exits_that_come_together_are_in_their_order_too(backend, herd):
    if backend not in ("pidfd", "kqueue"):
        pytest.skip("looks do not tell the order")
    pids = [herd.fork(0) for _ in range(5)]
    completed = pidwait.as_completed(pids)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGTERM)
        become_zombie(pid)
    assert list(completed) == [(pid, -signal.SIGTERM) for pid in reversed(pids)]


@everywhere
@pytest.mark.parametrize("timeout", [0, -1, 0.02])
def test_alive_is_in_the_order_given(variant, zombie, herd, timeout):
    """The time-out is no error. What has exited is found, however short it is."""
    pids = [herd.fork(0) for _ in range(3)]
    done, child, gone = zombie(5), zombie(6), gone_pid()
    done.wait()
    began = time.monotonic()
    exited, alive = pidwait.wait_procs([pids[2], child, pids[0], done, gone, pids[1]], timeout)
    assert time.monotonic() - began >= timeout
    assert sorted(exited, key=str) == sorted([(child, 6), (done, 5), (gone, None)], key=str)
    assert alive == [pids[2], pids[0], pids[1]]
    assert child.returncode == 6


@everywhere
def test_nothing_to_wait_for(variant):
    assert pidwait.wait_procs([]) == ([], [])
    assert pidwait.wait_procs(iter(()), timeout=0) == ([], [])
    assert list(pidwait.as_completed([])) == []


@everywhere
def test_what_was_given_twice_is_reported_twice_and_waited_for_once(variant, zombie, sleeper):
    child, seen = zombie(3), []
    exited, alive = pidwait.wait_procs(
        [child, sleeper, child, sleeper.pid, sleeper.pid, child],
        0.01,
        lambda *exit: seen.append(exit),
    )
    assert exited == [(child, 3)] * 3 == seen
    assert alive == [sleeper, sleeper.pid, sleeper.pid]
    assert list(pidwait.as_completed([child, child])) == [(child, 3)] * 2


@pytest.mark.kqueue
def test_a_process_given_as_a_pid_and_as_its_popen_is_reported_as_both(variant, start_told):
    child = start_told(3)
    completed = pidwait.as_completed([child.pid, child])
    child.stdin.close()
    codes = dict(completed)
    assert codes[child] == child.returncode == 3
    # The Popen may have reaped it before the pid was looked at, and not every system tells then.
    assert set(codes) == {child, child.pid} and codes[child.pid] in (3, None)


OBJECTS = {
    "pid": lambda popen: popen.pid,
    "Process": lambda popen: pidwait.Process(popen.pid),
    "Popen": lambda popen: popen,
}
if hasattr(pidwait, "ProcessInfo"):  # a single file has none
    OBJECTS["ProcessInfo"] = lambda popen: pidwait.ProcessInfo(popen.pid)


def begin_by_watch(objects):
    """Return what waits for the exits."""
    told = queue.Queue()
    for one in objects:
        pidwait.watch(one, lambda *exit: told.put(exit))
    return lambda: [told.get(timeout=60) for _ in objects]


def begin_by_as_completed(objects):
    completed = pidwait.as_completed(objects, 60)
    return lambda: list(completed)


def begin_by_wait_procs(objects):
    return Thread(lambda: pidwait.wait_procs(objects, 60)[0]).asleep().result


BEGIN = begin_by_watch, begin_by_as_completed, begin_by_wait_procs


@pytest.mark.kqueue
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("begin", BEGIN)
@pytest.mark.parametrize("kinds", list(itertools.combinations_with_replacement(OBJECTS, 2)))
def test_any_two_objects_for_one_process_are_both_reported(
    variant, start_told, zombie, kinds, begin, runs
):
    child = start_told(3) if runs else zombie(3)
    objects = [OBJECTS[kind](child) for kind in kinds]
    result = begin(objects)
    if runs:
        child.stdin.close()
    exited = result()
    assert sorted(map(id, objects)) == sorted(id(one) for one, _ in exited)
    # The Popen may have reaped before another one was added, and not every system tells then.
    assert {code for _, code in exited} <= ({3, None} if child in objects else {3})
    assert [code for one, code in exited if one is child] == [3] * objects.count(child)
    for one in objects:
        getattr(one, "close", int)()


@pytest.mark.parametrize("begin", BEGIN)
def test_hundreds_of_objects_for_one_process(variant, start_told, begin):
    child = start_told(3)
    objects = [pidwait.Process(child.pid) for _ in range(400)]
    result = begin(objects)
    child.stdin.close()
    exited = result()
    assert sorted(map(id, objects)) == sorted(id(one) for one, _ in exited)
    assert {code for _, code in exited} == {3}
    for one in objects:
        one.close()


@pytest.mark.kqueue
def test_each_is_reported_as_it_was_given(variant, zombie, sleeper):
    """Subclasses of int, and objects that are equal to each other and have no hash."""

    class Number(int):
        pass

    pid = zombie(3).pid
    (first, second), _ = pidwait.wait_procs([pid, Number(pid)])
    assert {type(first[0]), type(second[0])} == {int, Number}
    one, other = Job(pid), Job(sleeper.pid)
    exited, alive = pidwait.wait_procs([one, other, one], 0.01)
    assert [(proc is one, code) for proc, code in exited] == [(True, 3)] * 2
    assert len(alive) == 1 and alive[0] is other


@everywhere
def test_an_exception_of_the_callback_ends_the_call(variant, zombie, start_told):
    """What has not been reported can be waited for again."""
    children = zombie(3), start_told(4)

    def callback(proc, code):
        raise OnPurpose(proc, code)

    with pytest.raises(OnPurpose) as caught:
        pidwait.wait_procs(children, callback=callback)
    assert caught.value.args == (children[0], 3)
    children[1].stdin.close()
    assert pidwait.wait_procs(children[1:]) == ([(children[1], 4)], [])


@everywhere
@pytest.mark.parametrize(
    "args, error, words",
    [
        ([[os.getpid(), 0]], ValueError, "positive"),
        ([["1"]], TypeError, "not str"),
        ([[[os.getpid()]]], TypeError, "use wait_procs.. for several"),
        ([1], TypeError, "iterable"),
        ([[os.getpid()], "1"], TypeError, "timeout"),
        ([[os.getpid()], 0, 1], TypeError, "callback must be callable, not int"),
    ],
    ids=lambda value: "",
)
def test_bad_arguments_are_errors_at_the_call(args, error, words):
    with pytest.raises(error, match=words):
        pidwait.wait_procs(*args)
    if len(args) < 3:
        with pytest.raises(error, match=words):
            pidwait.as_completed(*args)


@pytest.mark.kqueue
def test_what_exited_before_a_call_is_among_its_exited(variant, herd):
    """However short the time-out is, and whatever exits meanwhile."""
    pids = [herd.fork(0) for _ in range(HERD)]
    ended = set()

    def end():
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
            ended.add(pid)

    thread = Thread(end)
    seen, left = [], pids
    while left:
        before = set(ended)
        exited, left = pidwait.wait_procs(left, 0.001)
        seen += [pid for pid, _ in exited]
        assert before <= set(seen)
    thread.result()
    assert sorted(seen) == sorted(pids)


# as_completed()


@everywhere
def test_as_completed_reports_each_when_it_exits(variant, start_told):
    children = [start_told(code) for code in (3, 4, 5)]
    completed = pidwait.as_completed(children, 60)
    for number in 2, 0, 1:
        children[number].stdin.close()
        assert next(completed) == (children[number], number + 3)
        assert children[number].returncode == number + 3
    with pytest.raises(StopIteration):
        next(completed)


@everywhere
def test_as_completed_raises_when_the_time_is_up(variant, zombie, sleeper):
    """The time counts from the call on; what has exited is reported before."""
    child = zombie(4)
    began = time.monotonic()
    completed = pidwait.as_completed([sleeper, child], 0.05)
    assert next(completed) == (child, 4)
    with pytest.raises(pidwait.TimeoutExpired) as caught:
        next(completed)
    assert time.monotonic() - began >= 0.05
    assert caught.value.pid == sleeper.pid and caught.value.timeout == 0.05
    completed = pidwait.as_completed([sleeper, child], 0)
    assert next(completed) == (child, 4)
    with pytest.raises(pidwait.TimeoutExpired):
        next(completed)


@everywhere
def test_a_timeout_of_several_says_how_many_still_run_and_names_a_few(variant, herd, sleeper):
    pids = [sleeper.pid] + [herd.fork(0) for _ in range(4)]
    with pytest.raises(pidwait.TimeoutExpired) as caught:
        list(pidwait.as_completed([sleeper] + pids[1:], 0))
    few = "%s %r, %s, %s, ..." % (sleeper.pid, sleeper.args, pids[1], pids[2])
    assert str(caught.value) == "5 processes (%s) were still running after 0 seconds" % few
    assert caught.value.pid == sleeper.pid and caught.value.timeout == 0
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.kqueue
def test_as_completed_watches_from_the_call_on(backend, start_told):
    """Also what has been reaped since then."""
    child = start_told(7)
    completed = pidwait.as_completed([child.pid])
    child.stdin.close()
    become_zombie(child.pid)
    pidwait.wait(child)
    ((pid, code),) = completed
    assert pid == child.pid and code in those_that_may_be_told(7, backend)


@pytest.mark.kqueue
def test_an_iterator_may_be_dropped(variant, zombie, sleeper):
    """Also in the middle: nothing stays open, and nothing warns."""
    child = zombie(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pidwait.as_completed([sleeper])
        assert next(pidwait.as_completed([sleeper, child])) == (child, 3)
        for pair in pidwait.as_completed([child, sleeper]):
            assert pair == (child, 3)
            break
        del pair
        gc.collect()


@pytest.mark.kqueue
def test_an_iterator_goes_on_in_a_forked_child(variant, herd):
    """Its parent's goes on, too. The processes are no children of the child's."""
    pids = [herd.fork(0) for _ in range(2)]
    completed = pidwait.as_completed(pids)

    def use():
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        codes = dict(completed)
        assert sorted(codes) == sorted(pids)
        assert set(codes.values()) <= {-signal.SIGTERM, None}

    assert in_a_fork(use)
    assert sorted(completed) == sorted((pid, -signal.SIGTERM) for pid in pids)


@pytest.mark.kqueue
def test_a_callback_may_fork(variant, herd):
    """Both processes go on, and each returns what it has seen."""
    pids, forks = [herd.fork(0, 0), herd.fork(0, 0.3)], []

    def fork(pid, code):
        if not forks:
            forks.append(os.fork())

    def use():
        exited, alive = pidwait.wait_procs(pids, 60, fork)
        assert (sorted(dict(exited)), alive) == (sorted(pids), [])
        assert forks == [0] or os.waitpid(forks[0], 0)[1] == 0

    assert in_a_fork(use)


class Given:
    def __init__(self, pid):
        self.pid = pid


def by_set(procs):
    with pidwait.WaitSet(procs) as waiting:
        waiting.wait()


def by_discard(procs):
    with pidwait.WaitSet(procs) as waiting:
        waiting.discard(procs[0])


@everywhere
@pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="PyPy frees nothing at once")
@pytest.mark.parametrize(
    "wait",
    [pidwait.wait_procs, lambda procs: list(pidwait.as_completed(procs)), by_set, by_discard],
)
def test_what_was_given_is_not_kept(variant, zombie, wait):
    """A Popen's pipes, say, are closed when the caller drops it, not at a garbage collection."""
    given = Given(zombie(3).pid)
    there = weakref.ref(given)
    gc.disable()
    try:
        wait([given])
        del given
        assert there() is None
    finally:
        gc.enable()


@everywhere
def test_all_kinds_together(variant, start_told, zombie, sleeper):
    """Owners have reaped, others have not; what knows its code answers with it, closed or not."""
    popen, number = start_told(3), zombie(5)
    context = multiprocessing.get_context("spawn" if WINDOWS else "fork")
    job = context.Process(target=time.sleep, args=(0.01,))
    job.start()
    with pidwait.Process(number.pid) as process, pidwait.spawn(exiting(4)) as child:
        popen.stdin.close()
        expected = [(popen, 3), (number.pid, 5), (job, 0), (process, 5), (child, 4)]
        exited, alive = pidwait.wait_procs([proc for proc, _ in expected])
        assert sorted(exited, key=str) == sorted(expected, key=str) and alive == []
        assert popen.returncode == 3 and child.reaped and process.exitcode == 5
        assert multiprocessing.active_children() == []
    exited, alive = pidwait.wait_procs([process, child, sleeper, popen], 0)
    assert sorted(exited, key=str) == sorted([(process, 5), (child, 4), (popen, 3)], key=str)
    assert alive == [sleeper] and number.returncode is None and number.wait() == 5


@pytest.mark.kqueue
def test_an_iterator_that_is_never_started_keeps_nothing(variant, herd):
    pid = herd.fork(0)
    pidwait.wait_procs([pid], 0)
    before = open_fds()
    completed = pidwait.as_completed([pid])
    del completed
    # PyPy needs a collection for each of what refers to another.
    eventually(lambda: [gc.collect()] and set(open_fds()) <= set(before))
