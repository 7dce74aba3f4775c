# SPDX-License-Identifier: BSD-3-Clause
"""Many at once on Windows, for an event loop: the system's threads wait, and call."""

import _thread
import asyncio
import gc
import importlib
import logging
import sys
import threading

import pytest

from . import pidwait
from .conftest import open_handles
from .processes import eventually, run_python
from .test_win32_set import CREATE_SUSPENDED, end, is_closed
from .test_windows import calls

pool = importlib.import_module(pidwait.__name__ + "._backends.win32_pool_set")
engine_of = importlib.import_module(pidwait.__name__ + "._engine").Engine
find = importlib.import_module(pidwait.__name__ + "._kinds").find


@pytest.fixture
def herd(start):
    """herd(count) starts processes that stay suspended; end() ends them."""
    return lambda count: [start("cmd", creationflags=CREATE_SUSPENDED) for _ in range(count)]


class Loop:
    """An engine, and what an event loop does with it."""

    def __init__(self):
        self.woken = threading.Event()
        self.threads = set()
        self.engine = engine_of(False, self.wake)
        self.set = self.engine.sets.best
        assert isinstance(self.set, pool.Win32PoolSet)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.engine.close()

    def wake(self):
        self.threads.add(_thread.get_ident())
        self.woken.set()

    def add(self, children):
        self.engine.add([find(child) for child in children])

    def look(self, last=False):
        """The pids and exit codes of those that have exited."""
        exits = []
        self.engine.sets.sleep(0)
        self.engine.collect(exits, last)
        return [(target.pid, code) for target, code in exits]

    def wait(self):
        """The exits that a loop sees when it is next woken."""
        assert self.woken.wait(50)
        self.woken.clear()
        return self.look()


def handle_of(child):
    (handle,) = (handle for handle, _ in pool._told.values() if handle.pid == child.pid)
    return handle.handle


@pytest.mark.timeout(300)  # starting them takes a while
def test_two_hundred(binding, herd):
    """Each is told with its code, in no thread of Python's; and nothing is polled."""
    children = herd(200)
    codes = {child.pid: number for number, child in enumerate(children)}
    gc.collect()  # garbage of earlier tests
    count, active = _thread._count(), threading.active_count()
    with Loop() as loop:
        loop.add(codes)
        assert not loop.engine.sets.polled
        assert loop.look() == [] and not loop.woken.is_set()
        assert loop.engine.delay() is None
        exits = []
        for child in children:
            end(child, codes[child.pid])
        while loop.engine.members:
            exits += loop.wait()
            assert (_thread._count(), threading.active_count()) == (count, active)
    assert sorted(exits) == sorted(codes.items())
    assert loop.threads and _thread.get_ident() not in loop.threads
    assert not pool._waits and not pool._told


def test_exit_before_it_is_added(binding, herd):
    (child,) = herd(1)
    end(child, 259)  # STILL_ACTIVE
    child.wait()
    with Loop() as loop:
        loop.add([child.pid])
        assert loop.wait() == [(child.pid, 259)]


def test_exit_that_is_told_before_the_registration_returns(binding, herd, monkeypatch):
    (child,) = herd(1)
    with Loop() as loop:
        register = loop.set._register

        def registering(*args):
            register(*args)
            end(child, 6)
            assert loop.woken.wait(50)

        monkeypatch.setattr(loop.set, "_register", registering)
        loop.add([child.pid])
        assert loop.engine.delay() == 0
        assert loop.wait() == [(child.pid, 6)]
        assert loop.engine.delay() is None


def test_last_look_sees_what_no_thread_has_told(binding, herd, monkeypatch):
    children = herd(2)
    with Loop() as loop:
        monkeypatch.setattr(loop.set, "_register", lambda *args: None)
        loop.add([child.pid for child in children])
        end(children[1], 7)
        children[1].wait()
        assert loop.look() == []
        assert loop.engine.members[children[1].pid].ticket in loop.set._members
        assert loop.set.has_exited(loop.engine.members[children[1].pid])
        assert not loop.set.has_exited(loop.engine.members[children[0].pid])
        assert loop.look(last=True) == [(children[1].pid, 7)]
        assert not loop.woken.is_set()


def test_discarded(binding, herd):
    children = herd(3)
    with Loop() as loop:
        loop.add([child.pid for child in children])
        number = handle_of(children[1])
        loop.engine.discard(children[1].pid)
        assert is_closed(number) and len(pool._waits) == len(pool._told) == 2
        end(children[1], 5)
        end(children[2], 6)
        assert loop.wait() == [(children[2].pid, 6)]
        loop.add([children[1].pid])
        assert loop.wait() == [(children[1].pid, 5)]


@pytest.mark.parametrize("how", ["discard", "close"])
def test_call_that_comes_too_late(binding, herd, monkeypatch, how):
    """The wait is unregistered while a thread of the system's is in _tell()."""
    (child,) = herd(1)
    with Loop() as loop:
        tell, told, go_on = loop.set.tell, threading.Event(), threading.Event()
        done = threading.Event()

        def late(handle):
            told.set()
            go_on.wait(50)
            tell(handle)
            done.set()

        monkeypatch.setattr(loop.set, "tell", late)
        loop.add([child.pid])
        number = handle_of(child)
        end(child, 5)
        assert told.wait(50)
        if how == "discard":
            loop.engine.discard(child.pid)
        else:
            loop.engine.close()
        assert not pool._waits and not pool._told
        assert not is_closed(number)  # late() has it
        go_on.set()
        assert done.wait(50)
        eventually(lambda: is_closed(number))
        assert not loop.woken.is_set() and loop.set.delay() is None


def test_number_that_is_not_known_any_more(binding):
    assert pool._tell(2**40, 0) is None


def test_closed_set_leaves_no_handle(binding, herd):
    children = herd(70)

    def use():
        with Loop() as loop:
            loop.add([child.pid for child in children])
            assert loop.look() == []
            loop.engine.discard(children[3].pid)
            kept = list(loop.set._members.values())  # not freed at once, as on PyPy
        assert kept and not pool._waits and not pool._told

    use()  # what is opened once and kept
    gc.collect()  # what earlier tests left
    before = len(open_handles())
    for _ in range(5):
        use()
    eventually(lambda: len(open_handles()) <= before)


@pytest.fixture
def ended(binding, monkeypatch):
    """Whether the HANDLE was closed already, for each wait that is unregistered."""
    handles, ended = {}, []
    register = calls.get("RegisterWaitForSingleObject")
    unregister = calls.get("UnregisterWaitEx")

    def registering(wait, handle, *args):
        register(wait, handle, *args)
        handles[int.from_bytes(wait, "little")] = handle

    def unregistering(wait, event):
        ended.append(is_closed(handles[wait]))
        return unregister(wait, event)

    monkeypatch.setitem(calls._resolved, "RegisterWaitForSingleObject", registering)
    monkeypatch.setitem(calls._resolved, "UnregisterWaitEx", unregistering)
    return ended


def test_set_that_is_forgotten(ended, herd):
    """A loop, its engine and its waits are a cycle, which is freed in any order."""
    children = herd(3)
    loop = Loop()
    loop.add([child.pid for child in children])
    numbers = [handle_of(child) for child in children]
    gc.collect()
    assert len(pool._waits) == 3
    del loop
    gc.collect()
    assert not pool._waits and not pool._told
    assert all(map(is_closed, numbers))
    assert ended == [False, False, False]


def test_each_wait_is_unregistered_once(ended, herd):
    children = herd(4)
    with Loop() as loop:
        loop.add([child.pid for child in children])
        loop.engine.discard(children[0].pid)
        end(children[1], 3)
        assert loop.wait() == [(children[1].pid, 3)]
    loop.engine.close()
    del loop
    gc.collect()
    assert ended == [False, False, False, False]


def test_registration_that_fails(binding, herd, monkeypatch):
    """The member is polled."""
    children, failed = herd(2), []
    with Loop() as loop:
        register = loop.set._register

        def failing(wait, handle, *args):
            if len(loop.set._members) == 2:
                failed.append(handle)
                raise OSError(12, "on purpose")
            register(wait, handle, *args)

        monkeypatch.setattr(loop.set, "_register", failing)
        loop.add([child.pid for child in children])
        assert len(loop.engine.sets.polled) == len(pool._waits) == len(pool._told) == 1
        assert is_closed(*failed)
        assert loop.engine.delay() is not None
        end(children[1], 4)
        exits = []
        while not exits:
            exits = loop.look()
        assert exits == [(children[1].pid, 4)]
        end(children[0], 3)
        assert loop.wait() == [(children[0].pid, 3)]


def test_ctrl_c_in_the_middle_of_add(binding, herd, monkeypatch):
    children = herd(2)
    with Loop() as loop:
        loop.add([children[0].pid])
        register, numbers = loop.set._register, []

        def interrupted(wait, handle, *args):
            register(wait, handle, *args)
            numbers.append(handle)
            raise KeyboardInterrupt

        monkeypatch.setattr(loop.set, "_register", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.add([children[1].pid])
        assert len(pool._waits) == len(pool._told) == 1
        assert is_closed(*numbers)
        end(children[1], 1)
        end(children[0], 2)
        assert loop.wait() == [(children[0].pid, 2)]


def test_loop_that_can_not_be_woken(binding, herd, caplog):
    """It is closed. Nothing comes out of the system's thread."""
    caplog.set_level(logging.INFO, pidwait.__name__)
    (child,) = herd(1)
    loop = asyncio.new_event_loop()
    engine = engine_of(False, lambda: loop.call_soon_threadsafe(print))
    engine.add([find(child.pid)])
    loop.close()
    end(child, 3)
    eventually(lambda: "can't be woken: Event loop is closed" in caplog.text)
    exits = []
    engine.collect(exits)
    assert [code for _, code in exits] == [3]
    engine.close()


def test_error_of_a_signal_handler(binding, herd, monkeypatch):
    """It is not the system's answer: the member is not polled instead."""
    (child,) = herd(1)
    with Loop() as loop:

        def interrupted(*args):
            def handler(number, frame):
                raise OSError(0, "on purpose")

            handler(2, sys._getframe())

        monkeypatch.setattr(loop.set, "_register", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            loop.add([child.pid])
        assert not loop.engine.sets.polled and not loop.engine.members


@pytest.mark.parametrize("name", ["ProactorEventLoop", "SelectorEventLoop"])
def test_event_loops(binding, herd, name):
    children = herd(20)
    loop = getattr(asyncio, name)()
    exits = []

    def look():
        engine.sets.sleep(0)
        engine.collect(exits)
        if not engine.members:
            loop.stop()

    engine = engine_of(False, lambda: loop.call_soon_threadsafe(look))
    try:
        engine.add([find(child.pid) for child in children])
        for number, child in enumerate(children):
            loop.call_later(number / 1000, end, child, number)
        loop.run_forever()
    finally:
        engine.close()
        loop.close()
    assert sorted(code for _, code in exits) == list(range(20))


def test_alarm(binding):
    with Loop() as loop:
        with pytest.raises(OSError):
            loop.set.alarm(1)
        loop.set.alarm(None)
        assert not loop.woken.is_set()
        loop.set.alarm(0)
        assert loop.woken.is_set()


def test_no_binding_is_polled(use_variant, herd, monkeypatch):
    use_variant("win32-own")
    get = calls.get

    def lacking(name):
        if name == "RegisterWaitForSingleObject":
            raise OSError(38, "on purpose")
        return get(name)

    monkeypatch.setattr(calls, "get", lacking)
    (child,) = herd(1)
    engine = engine_of(False, print)
    engine.add([find(child.pid)])
    assert len(engine.sets.polled) == 1
    engine.close()


LEFT_OPEN = """if True:
    import atexit, subprocess
    from {package} import _engine, _kinds

    @atexit.register
    def after_all():
        children[3].kill()
        children[3].wait()
        engine.add([_kinds.find(child.pid) for child in children[4:]])
        for child in children[4:]:
            child.kill()
        print(len(win32_pool_set._waits), engine.sets.polled and len(engine.sets.polled), *woken)

    from {package}._backends import win32_pool_set

    woken = []
    children = [subprocess.Popen("cmd", creationflags=0x4) for _ in range(6)]
    engine = _engine.Engine(False, lambda: woken.append(True))
    engine.add([_kinds.find(child.pid) for child in children[:4]])
    for child in children[:3]:
        child.kill()
    while len(woken) < 3:
        pass
"""


def test_interpreter_that_ends(binding):
    """The system calls nothing any more, and what is added then is polled."""
    done = run_python(LEFT_OPEN.format(package=pidwait.__name__))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 2 True True True\n", "")
