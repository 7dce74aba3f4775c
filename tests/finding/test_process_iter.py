# SPDX-License-Identifier: BSD-3-Clause
"""Listing processes, and looking at one of them: what holds on every system."""

import asyncio
import copy
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from subprocess import PIPE

import pytest

from .. import pidwait
from ..conftest import KQUEUES, open_fds
from ..processes import (
    HERD,
    INTERPRETER,
    PYTHON,
    WINDOWS,
    become_gone,
    become_zombie,
    eventually,
    exiting,
    gone_pid,
)

pytestmark = [pytest.mark.windows, pytest.mark.kqueue]

ALL = "pid name ppid cmdline status create_time username uids".split()


@pytest.fixture(autouse=True, params=KQUEUES or ["own"])
def system(request):
    """This system; or, with their ps, each of those that the stand-in has."""
    if KQUEUES:
        request.getfixturevalue("use_variant")("kqueue-%s-own" % request.param)


def find(pid, *args):
    (found,) = [info for info in pidwait.process_iter(*args) if info.pid == pid]
    return found


# The list


def test_every_process_is_listed_once_in_the_order_of_pids(sleeper):
    pids = [info.pid for info in pidwait.process_iter()]
    assert pids == sorted(set(pids)) and pids[0] > 0
    assert {os.getpid(), sleeper.pid} <= set(pids)


@pytest.mark.parametrize(
    "attrs, names",
    [(None, []), (["pid", "ppid"], ["pid", "ppid"]), ([], ALL), ((), ALL), (set(), ALL)],
    ids=["none", "two", "list", "tuple", "set"],
)
def test_info_has_the_attrs_that_were_asked_for_and_all_for_an_empty_list(sleeper, attrs, names):
    info = find(sleeper.pid, attrs)
    assert sorted(info.info) == sorted(names)
    for name, value in (("pid", sleeper.pid), ("ppid", os.getpid())):
        assert info.info.get(name, value) == value


@pytest.mark.parametrize(
    "attrs, error",
    [
        (["pid", "nonsense"], ValueError("attrs has 'nonsense', not one of pid, name")),
        (["is_running"], ValueError("attrs has 'is_running', not one of pid, name")),
        ("name", TypeError("attrs must be a list of names, not str")),
    ],
)
def test_attrs_that_are_no_names_of_attributes_are_refused_at_the_call(attrs, error):
    for function in (pidwait.process_iter, pidwait.ProcessInfo(os.getpid()).as_dict):
        with pytest.raises(type(error), match=str(error)):
            function(attrs)


@pytest.mark.skipif(WINDOWS, reason="this looks into /proc")
def test_nothing_is_left_open_between_two_processes():
    list(pidwait.process_iter([]))  # what is loaded first
    before = open_fds()
    for number, _ in enumerate(pidwait.process_iter([])):
        assert open_fds() == before
        if number == 3:  # and leave it there
            break


# One process


def test_a_process_is_equal_to_itself_however_it_was_found(sleeper):
    info = find(sleeper.pid, ["name"])
    assert info == pidwait.ProcessInfo(sleeper.pid)
    assert hash(info) == hash(pidwait.ProcessInfo(sleeper.pid))
    assert info != pidwait.ProcessInfo(os.getpid())
    assert info != sleeper.pid
    assert repr(info) == "<ProcessInfo pid=%d name=%r>" % (info.pid, info.info["name"])
    assert repr(pidwait.ProcessInfo(info.pid)) == "<ProcessInfo pid=%d>" % info.pid


def test_listings_without_attrs_tell_what_has_come_and_gone(start_told):
    first = start_told(3)
    before = set(pidwait.process_iter())
    second = start_told(3)
    after = set(pidwait.process_iter())
    come = {info.pid for info in after - before}
    assert second.pid in come and first.pid not in come
    if not WINDOWS:  # there a Popen keeps its pid
        first.kill()
        first.wait()
        gone = {info.pid for info in before - set(pidwait.process_iter())}
        assert first.pid in gone and os.getpid() not in gone


LOADS = "import pickle, sys; print(pickle.load(sys.stdin.buffer).info['uids'])"


def test_one_can_be_sent_to_another_python(sleeper):
    """It has not made the types of the values yet."""
    info = find(sleeper.pid, [])
    assert pickle.loads(pickle.dumps(info)) == info == copy.deepcopy(info)
    assert copy.copy(info).info == info.info
    done = subprocess.run(
        [INTERPRETER, "-c", LOADS],
        input=pickle.dumps(info),
        stdout=PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path))),
        check=True,
    )
    assert done.stdout.decode().strip() == str(info.info["uids"])


def test_a_pid_that_is_gone_raises_process_lookup_error():
    pid = gone_pid()
    with pytest.raises(ProcessLookupError, match="pid %d" % pid):
        pidwait.ProcessInfo(pid)


def test_a_zombie_is_told_and_after_the_reaping_all_raises_process_lookup_error(start):
    child = start(*exiting(0))
    become_zombie(child.pid)
    info = pidwait.ProcessInfo(child.pid)
    assert info.is_running()
    assert (info.status(), info.cmdline()) == ("zombie", [])
    assert child.wait() == 0
    if WINDOWS:
        child._handle.Close()  # which keeps the pid
    become_gone(child.pid)
    assert not info.is_running()
    for function in [getattr(info, name) for name in ALL[1:]] + [info.as_dict, info.children]:
        with pytest.raises(ProcessLookupError):
            function()
    with pytest.raises(ProcessLookupError), info.oneshot():
        pytest.fail("nothing can be read here")


def test_as_dict_tells_what_the_methods_tell(worker):
    info = pidwait.ProcessInfo(worker("word", "other").pid)
    # On Linux it is empty for a moment after a start by vfork.
    eventually(lambda: info.cmdline()[-2:] == ["word", "other"])
    told = info.as_dict(ad_value="not told")
    assert sorted(told) == sorted(ALL)
    for name in ALL[1:]:
        if told[name] != "not told":
            assert getattr(info, name)() == told[name], name
    assert info.as_dict(["ppid", "pid"]) == {"pid": info.pid, "ppid": os.getpid()}


def test_create_time_is_when_it_was_started(start_told):
    before = time.time()
    info = pidwait.ProcessInfo(start_told(0).pid)
    slack = 2.1 if KQUEUES else 0.1  # BSD's ps tells whole seconds; Linux counts ticks
    assert before - slack <= info.create_time() <= time.time() + slack
    assert pidwait.ProcessInfo(os.getpid()).create_time() <= info.create_time()


def test_oneshot_holds_one_moment_until_the_outermost_block_ends(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    block = info.oneshot()
    for _ in range(2):  # the same one may be used again
        with block:
            told = info.as_dict(ad_value="not told")
            with info.oneshot():
                assert info.ppid() == told["ppid"] == os.getpid()
            assert info.as_dict(ad_value="not told") == told
            # Another process's is its own.
            assert pidwait.ProcessInfo(os.getpid()).ppid() != os.getpid()
    assert info.ppid() == os.getpid()


def test_whatever_waits_takes_a_listed_process(start_told):
    child = start_told(3)
    info = find(child.pid)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(info, 0)
    assert pidwait.wait_procs([info], 0) == ([], [info])
    child.stdin.close()
    assert pidwait.wait(info, 60) == 3
    assert pidwait.wait_procs([info], 60) == ([(info, 3)], [])
    assert list(pidwait.as_completed([info], 60)) == [(info, 3)]
    with pidwait.WaitSet([info]) as waiting:
        assert waiting.wait(60) == [(info, 3)]
    called = threading.Event()
    told = []
    pidwait.watch(info, lambda *exit_: told.append(exit_) or called.set())
    called.wait()
    assert told == [(info, 3)]
    aio = importlib.import_module(pidwait.__name__ + ".aio")

    async def in_an_event_loop():
        assert await aio.wait(info) == 3
        assert await aio.wait_procs([info]) == ([(info, 3)], [])

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(in_an_event_loop())
    finally:
        loop.close()


# It runs its first argument, with the rest as arguments, as a child.
TREE = """if True:
    import os, subprocess, sys

    if sys.argv[1:]:
        command = [sys.executable, "-S", "-E", "-c"] + sys.argv[1:]
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
    if sys.argv[1:]:
        child.stdin.close()
        child.wait()
"""


def test_each_descendant_is_compared_a_few_times_however_many_there_are(herd, monkeypatch):
    pids = {herd.fork(0, 60) for _ in range(HERD)}
    compared, equal = [], pidwait.ProcessInfo.__eq__

    def counted(one, other):
        compared.append(one)
        return equal(one, other)

    monkeypatch.setattr(pidwait.ProcessInfo, "__eq__", counted)
    family = pidwait.ProcessInfo(os.getpid()).children(recursive=True)
    assert pids <= {info.pid for info in family}
    assert len(compared) <= 5 * (len(family) + 1)


def test_children_are_its_own_or_with_recursive_theirs_too(start):
    top = start(*PYTHON + ("-c", TREE, TREE, TREE), stdin=PIPE, stdout=PIPE)
    pids = {int(top.stdout.readline()) for _ in range(3)}
    info = pidwait.ProcessInfo(top.pid)
    (child,) = info.children()
    family = info.children(recursive=True)
    (innermost,) = child.children()
    assert family == [child, innermost] and innermost.children() == []
    assert {one.pid for one in family} == pids - {top.pid}
    assert (child.ppid(), innermost.ppid()) == (top.pid, child.pid)
    assert info in pidwait.ProcessInfo(os.getpid()).children()
    top.stdin.close()
    exited, alive = pidwait.wait_procs([info] + family, 60)
    assert not alive and {one for one, _ in exited} == {info, child, innermost}


@pytest.mark.parametrize("attrs", [None, ["name"]])
def test_what_was_found_can_be_ended_and_waited_for(start_told, attrs):
    for end in "terminate", "kill", "send_signal":
        popen = start_told(3)
        info = find(popen.pid, attrs)
        getattr(info, end)(*[signal.SIGTERM] * (end == "send_signal"))
        assert info.wait(60) == popen.wait()
        for name, *args in ["terminate"], ["kill"], ["send_signal", signal.SIGTERM]:
            with pytest.raises(ProcessLookupError):
                getattr(info, name)(*args)
        if not WINDOWS:  # there it is not gone before its Popen is
            assert info.wait(60) is None


@pytest.mark.parametrize("attrs", [None, ["name"]])
def test_a_handle_on_a_listed_process_is_for_that_very_process(start_told, attrs):
    popen = start_told(3)
    info = find(popen.pid, attrs)
    with pidwait.Process(info) as process:
        assert (process.pid, process.has_exited()) == (popen.pid, False)
    popen.kill()
    popen.wait()
    if not WINDOWS:
        with pytest.raises(ProcessLookupError):
            pidwait.Process(info)


@pytest.mark.threads
@pytest.mark.skipif(WINDOWS, reason="each look takes a snapshot of all processes")
def test_oneshots_of_several_threads_do_not_meet(sleeper):
    info, right = pidwait.ProcessInfo(sleeper.pid), []

    def look():
        for _ in range(2 if KQUEUES else 30):
            with info.oneshot():
                told = info.as_dict(["ppid", "create_time", "status"])
                right.append(info.as_dict(list(told)) == told and told["ppid"] == os.getpid())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for act in threading.Thread.start, threading.Thread.join:
        for thread in threads:
            act(thread)
    assert len(right) >= 8 and all(right)
