# SPDX-License-Identifier: BSD-3-Clause
"""Many processes at once on Windows, where one call waits for 64 HANDLEs at most."""

import _thread
import gc
import subprocess
import threading

import pytest

from .. import pidwait
from ..processes import eventually
from .windows import CREATE_SUSPENDED, end, open_handles

pytest.importorskip("ctypes")
pytestmark = pytest.mark.windows

MANY = 66  # more than one call can wait for


@pytest.fixture(scope="module")
def crowd():
    """Processes that run nothing, which is cheap: for the places before a test's own."""
    children = [subprocess.Popen("cmd", creationflags=CREATE_SUSPENDED) for _ in range(MANY)]
    yield [child.pid for child in children]
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def suspended(start):
    """suspended(count) starts more of them; end() ends them."""
    return lambda count: [start("cmd", creationflags=CREATE_SUSPENDED) for _ in range(count)]


def all_exits(waiting, left):
    exits = []
    while len(waiting) > left:
        exits += waiting.wait()
    return exits


def test_more_than_one_call_can_wait_for(variant, crowd, suspended, caplog):
    """Each comes with its code, in the order of exit, and no thread is left."""
    threads = _thread._count()
    caplog.set_level("INFO", pidwait.__name__)
    children = suspended(5)
    codes = [0, 259, 7, 0x80000000, 0xFFFFFFFF]
    with pidwait.WaitSet(crowd + children) as waiting:
        assert waiting.wait(0.05) == [] and len(waiting) == MANY + 5
        for child, code in zip(children, codes):
            end(child, code)
            assert waiting.wait() == [(child, code)]
    assert "polled" not in caplog.text
    eventually(lambda: _thread._count() <= threads)


def test_a_change_is_seen_by_a_thread_that_sleeps(variant, crowd, suspended):
    """An addition, and what was discarded is not reported."""
    early, late, gone, other = suspended(4)
    exits = []
    with pidwait.WaitSet(crowd + [early, gone]) as waiting:

        def wait():
            while len(exits) < 3:
                exits.extend(waiting.wait())

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        waiting.discard(gone)
        end(gone, 1)
        waiting.add(late)
        end(late, 2)
        eventually(lambda: exits == [(late, 2)])
        end(early, 3)
        eventually(lambda: exits[1:] == [(early, 3)])
        for child in [other] + crowd:  # each of the threads has to wake up once more
            waiting.discard(child)
        waiting.add(other)
        end(other, 4)
        for waiter in waiters:
            waiter.join()
    assert exits == [(late, 2), (early, 3), (other, 4)]


@pytest.mark.parametrize("how", ["discard", "close", "exit"])
def test_a_set_leaves_no_handle(variant, backend, crowd, suspended, how):
    closed = MANY if backend == "win32" else 0  # a polled member has none

    def use():
        child, *others = suspended(2)
        with pidwait.WaitSet(crowd + [child]) as waiting:
            assert waiting.wait(0) == []
            if how == "discard":
                there = len(open_handles())
                for one in crowd:
                    waiting.discard(one)
                # A thread keeps its HANDLEs until it has woken up.
                eventually(lambda: len(open_handles()) <= there - closed)
            elif how == "exit":
                end(child, 6)
                assert waiting.wait() == [(child, 6)]
        for one in [child] + others:
            end(one, 0)
            one.wait()
            one._handle.Close()

    use()  # what is opened once and kept
    gc.collect()  # what earlier tests left
    before = len(open_handles())
    use()
    use()
    eventually(lambda: len(open_handles()) <= before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_handle_that_somebody_else_has_closed_harms_no_other_member(use_variant, suspended):
    """The exit of its own process can't be seen any more."""
    import _winapi

    use_variant("win32-own")
    one, other = suspended(2)
    before = set(open_handles(["Process"]))
    with pidwait.WaitSet([one]) as waiting:
        for handle in set(open_handles(["Process"])) - before:
            _winapi.CloseHandle(handle)
        waiting.add(other)
        assert waiting.wait(0.05) == []
        end(other, 5)
        assert waiting.wait() == [(other, 5)]


def test_a_set_waits_where_no_thread_can_be_started(use_variant, crowd, suspended, monkeypatch):
    use_variant("win32-own")

    def refuse(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    (child,) = suspended(1)
    with pidwait.WaitSet(crowd + [child]) as waiting:
        assert waiting.wait(0.01) == []
        end(child, 4)
        assert waiting.wait() == [(child, 4)]


def test_a_set_whose_wait_the_system_refuses_polls(use_variant, seam, suspended):
    use_variant("win32-own")
    children = suspended(2)
    with pidwait.WaitSet(children) as waiting:
        seam.refuse("WaitForMultipleObjects", 12)
        assert waiting.wait(0.01) == []
        for child in children:
            end(child, 3)
        assert sorted(code for _, code in all_exits(waiting, 0)) == [3, 3]
