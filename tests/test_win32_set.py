# SPDX-License-Identifier: BSD-3-Clause
"""Many at once on Windows: groups of handles, and their threads."""

import _thread
import _winapi
import gc
import importlib
import os
import threading

import pytest

from . import pidwait
from .conftest import open_handles
from .processes import eventually
from .test_windows import PRESS_CTRL_C, calls, in_a_console, no_call_waits

win32_set = importlib.import_module(pidwait.__name__ + "._backends.win32_set")
key_of = importlib.import_module(pidwait.__name__ + "._targets").key_of

CREATE_SUSPENDED = 0x4


def threads():
    """How many Python has started: those of the system's own come and go."""
    return _thread._count()


@pytest.fixture
def herd(start):
    """herd(count) starts processes that stay suspended, which is cheap; end() ends them."""
    return lambda count: [start("cmd", creationflags=CREATE_SUSPENDED) for _ in range(count)]


def end(child, code):
    _winapi.TerminateProcess(int(child._handle), code)


@pytest.fixture
def small(monkeypatch):
    """Groups of two."""

    class Small(win32_set._Group):
        def __init__(self, call):
            super().__init__(call)
            self.size = 2

    monkeypatch.setattr(win32_set, "_Group", Small)


def count_waits(monkeypatch):
    seen = []

    def counted(call):
        wait = calls.get(call)

        def counting(handles, wait_all, milliseconds):
            if milliseconds:  # else it is a look
                seen.append(handles)
            return wait(handles, wait_all, milliseconds)

        return counting

    for call in ("WaitForMultipleObjects", "WaitForMultipleObjectsEx"):
        monkeypatch.setitem(calls._resolved, call, counted(call))
    return seen


@pytest.mark.timeout(300)  # starting them takes a while
def test_five_hundred(use_variant, herd, monkeypatch):
    """Eight threads wait, this one among them, and none does anything before an exit."""
    use_variant("win32-own")
    before, waits = threads(), count_waits(monkeypatch)
    codes = {child.pid: (child, number) for number, child in enumerate(herd(500))}
    with pidwait.WaitSet(codes) as waiting:
        assert waiting.wait(0) == []
        assert not waiting._engine.sets.polled
        eventually(lambda: threads() - before == 7)

        def is_quiet():
            count = len(waits)
            # One wait of this thread, and at its end one or two looks, as the clocks differ.
            return waiting.wait(0.5) == [] and len(waits) - count <= 3

        eventually(is_quiet)  # once each thread knows all of its group
        for child, number in codes.values():
            end(child, number)
        exits = []
        while waiting:
            exits += waiting.wait(60)
        eventually(lambda: threads() == before)
    assert sorted(exits) == sorted((pid, number) for pid, (_, number) in codes.items())


def test_thread_ends_with_its_group(variant, backend, small, herd):
    before, children = threads(), herd(5)
    with pidwait.WaitSet(children) as waiting:
        eventually(lambda: threads() - before == (0 if backend == "polling" else 2))
        waiting.discard(children[4])
        eventually(lambda: threads() - before == (0 if backend == "polling" else 1))
        end(children[2], 7)
        assert waiting.wait(60) == [(children[2], 7)]
        waiting.add(children[4])
        eventually(lambda: threads() - before == (0 if backend == "polling" else 1))
        end(children[4], 8)
        assert waiting.wait(60) == [(children[4], 8)]
    eventually(lambda: threads() == before)


def test_added_to_a_group_on_which_its_thread_sleeps(variant, small, herd):
    children = herd(4)
    with pidwait.WaitSet(children[:3]) as waiting:
        assert waiting.wait(0.05) == []
        waiting.add(children[3])
        end(children[3], 3)
        assert waiting.wait(60) == [(children[3], 3)]


def test_handed_over_before_anybody_waits(use_variant, small, herd):
    use_variant("win32-own")
    children = herd(3)
    with pidwait.WaitSet(children) as waiting:
        end(children[2], 6)
        eventually(lambda: waiting._engine.sets.best._exited)
        assert waiting.wait(60) == [(children[2], 6)]


def test_handle_is_closed_though_a_thread_sleeps_on_it(use_variant, small, herd):
    use_variant("win32-own")
    children = herd(4)
    with pidwait.WaitSet(children) as waiting:
        handle = waiting._engine.members[key_of(children[3])].ticket.handle
        os.get_handle_inheritable(handle)
        waiting.discard(children[3])
        eventually(lambda: is_closed(handle))


def is_closed(handle):
    try:
        os.get_handle_inheritable(handle)
    except OSError:
        return True
    return False


def test_closed_set_leaves_no_handle(variant, small, herd):
    children = herd(5)

    def use():
        waiting = pidwait.WaitSet(children)
        assert waiting.wait(0) == []
        waiting.close()
        return waiting

    gc.collect()  # what earlier tests left
    count = threads()
    kept = [use()]  # what is opened once and kept
    eventually(lambda: threads() <= count)  # each thread keeps its handles until it has woken up
    before = len(open_handles())
    kept += [use() for _ in range(10)]
    eventually(lambda: len(open_handles()) <= before)


def test_several_threads_wait(variant, small, herd):
    children = herd(9)
    exits = []
    with pidwait.WaitSet(children) as waiting:

        def wait():
            while waiting:
                exits.extend(waiting.wait(60))

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        for number, child in enumerate(children):
            end(child, number)
        for waiter in waiters:
            waiter.join()
    assert sorted(code for _, code in exits) == list(range(9))


def test_without_threads(use_variant, small, herd, monkeypatch):
    use_variant("win32-own")

    def forbidden(*args):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(win32_set._thread, "start_new_thread", forbidden)
    children = herd(3)
    with pidwait.WaitSet(children) as waiting:
        assert len(waiting._engine.sets.polled) == 1
        for number, child in enumerate(children):
            end(child, number)
        exits = []
        while waiting:
            exits += waiting.wait(60)
    assert sorted(code for _, code in exits) == [0, 1, 2]


def test_handle_that_somebody_else_has_closed(use_variant, small, herd):
    """Its exit can't be seen any more; those of the others in its group can."""
    use_variant("win32-own")
    for place in (0, 2):  # in the first group, and in a thread's group
        children = herd(4)
        with pidwait.WaitSet(children) as waiting:
            owner = waiting._engine.members[key_of(children[place])]
            _winapi.CloseHandle(owner.ticket.handle)
            assert waiting.wait(0.05) == []
            end(children[place + 1], 5)
            assert waiting.wait(60) == [(children[place + 1], 5)]


CTRL_C = (
    PRESS_CTRL_C
    + """
    flags = NO_WINDOW | SUSPENDED
    herd = [subprocess.Popen("cmd", creationflags=flags) for _ in range(70)]
    try:
        took = [least(0.5, pidwait.wait_procs, herd),
                least(0.5, lambda: list(pidwait.as_completed(herd, 10)))]
    finally:
        for child in herd:
            child.kill()
            child.wait()
    with open(sys.argv[1], "w") as file:
        print(*took, file=file)
"""
)


def test_ctrl_c_interrupts_a_wait_for_many(variant, tmp_path):
    (took,) = in_a_console(CTRL_C.format(package=pidwait.__name__), tmp_path)
    assert len(took.split()) == 2
    assert max(map(float, took.split())) < 0.5, took


TWO_THREADS = (
    PRESS_CTRL_C
    + """
    def press_once_two_wait():
        while len(waiting._waiting) < 2:  # until the main thread waits, too
            time.sleep(0.001)
        press()

    child = subprocess.Popen("cmd", creationflags=NO_WINDOW | SUSPENDED)
    waiting = pidwait.WaitSet([child])
    exits = []
    sleeper = threading.Thread(target=lambda: exits.extend(waiting.wait()))
    sleeper.start()
    presser = threading.Thread(target=press_once_two_wait)
    try:
        while not waiting._sleeping:
            time.sleep(0.001)
        presser.start()
        try:
            waiting.wait(20)
        except KeyboardInterrupt:
            took = time.perf_counter() - sent[0]
        presser.join()
        assert sleeper.is_alive() and not exits
    finally:
        child.kill()
        sleeper.join()
    assert exits == [(child, 1)], exits
    with open(sys.argv[1], "w") as file:
        print(took, file=file)
"""
)


def test_ctrl_c_interrupts_the_wait_for_another_threads_turn(use_variant, tmp_path):
    use_variant("win32-own")
    (took,) = in_a_console(TWO_THREADS.format(package=pidwait.__name__), tmp_path)
    assert float(took) < 2


def between_look_and_hand_over(monkeypatch, do):
    """Call ``do()`` when a thread's wait has seen an exit, and it has not handed it over yet."""
    wait = calls.get("WaitForMultipleObjectsEx")
    done = []

    def stepped(handles, wait_all, milliseconds):
        index = wait(handles, wait_all, milliseconds)
        if milliseconds and index < len(handles) - 1 and not done:
            done.append(index)
            do()
        return index

    monkeypatch.setitem(calls._resolved, "WaitForMultipleObjectsEx", stepped)


def test_discarded_between_look_and_hand_over(use_variant, small, herd, monkeypatch):
    use_variant("win32-own")
    children = herd(4)
    discarded = threading.Event()

    def discard():
        waiting.discard(children[2])
        discarded.set()

    between_look_and_hand_over(monkeypatch, discard)
    with pidwait.WaitSet(children) as waiting:
        handle = waiting._engine.members[key_of(children[2])].ticket.handle
        end(children[2], 6)
        assert discarded.wait(30)
        eventually(lambda: waiting._engine.sets.best._exited)
        assert waiting.wait(0) == []
        assert not waiting._engine.sets.best._exited
        eventually(lambda: is_closed(handle))
        end(children[3], 7)
        assert waiting.wait(60) == [(children[3], 7)]


def test_exit_that_no_thread_has_handed_over_at_the_deadline(use_variant, small, herd, monkeypatch):
    use_variant("win32-own")
    children = herd(3)
    seen, reported = threading.Event(), threading.Event()

    def stand_still():
        seen.set()
        reported.wait()

    between_look_and_hand_over(monkeypatch, stand_still)
    with pidwait.WaitSet(children) as waiting:
        end(children[2], 6)
        assert seen.wait(30)
        assert waiting.wait(0) == [(children[2], 6)]
        reported.set()
        assert waiting.wait(0.05) == []
        assert len(waiting) == 2


@pytest.mark.parametrize("timeout", [None, 3600])
def test_no_call_of_a_set_is_long(use_variant, herd, monkeypatch, timeout):
    """A Ctrl-C that a call has swallowed is raised when the call ends."""
    use_variant("win32-own")
    waits = no_call_waits(monkeypatch)
    with pidwait.WaitSet(herd(1)) as waiting, pytest.raises(KeyboardInterrupt):
        waiting.wait(timeout)
    assert 0 < max(waits) <= 5000 and len(waits) == 2


def test_wait_that_a_signal_handler_interrupts_with_another(use_variant, small, herd, monkeypatch):
    """The inner wait must not use up the event that was meant for the outer one."""
    use_variant("win32-own")
    children = herd(2)
    wait = calls.get("WaitForMultipleObjects")
    nested = []

    def interrupted(*args):
        if not nested:
            nested.append(True)
            waiting.add(children[1])  # as another thread would
            assert waiting.wait(0.01) == []
            end(children[1], 5)
            # The outer call has an old list of the members.
            assert wait(args[0], False, 0) == len(args[0]) - 1
        return wait(*args)

    with pidwait.WaitSet(children[:1]) as waiting:
        group = waiting._engine.sets.best._groups[0]
        monkeypatch.setattr(group, "_wait", interrupted)
        assert waiting.wait(60) == [(children[1], 5)]


def test_thread_that_can_not_go_on(use_variant, small, herd, monkeypatch):
    """All members are polled from then on."""
    use_variant("win32-own")
    wait = calls.get("WaitForMultipleObjectsEx")

    def failing(handles, wait_all, milliseconds):
        if milliseconds:
            raise OSError(12, "on purpose")
        return wait(handles, wait_all, milliseconds)

    monkeypatch.setitem(calls._resolved, "WaitForMultipleObjectsEx", failing)
    children = herd(3)
    with pidwait.WaitSet(children) as waiting:
        assert waiting.wait(0.05) == []
        assert len(waiting._engine.sets.polled) == 3
        for number, child in enumerate(children):
            end(child, number)
        exits = []
        while waiting:
            exits += waiting.wait(60)
    assert sorted(code for _, code in exits) == [0, 1, 2]


def test_ctrl_c_before_the_thread_of_a_group_is_started(use_variant, small, herd, monkeypatch):
    use_variant("win32-own")
    start = win32_set._thread.start_new_thread

    def interrupted(*args):
        monkeypatch.setattr(win32_set._thread, "start_new_thread", start)
        raise KeyboardInterrupt

    monkeypatch.setattr(win32_set._thread, "start_new_thread", interrupted)
    children = herd(3)
    with pidwait.WaitSet(children[:2]) as waiting:
        with pytest.raises(KeyboardInterrupt):
            waiting.add(children[2])
        assert len(waiting) == 2
        waiting.add(children[2])
        end(children[2], 4)
        assert waiting.wait(60) == [(children[2], 4)]
