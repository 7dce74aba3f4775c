# SPDX-License-Identifier: BSD-3-Clause
"""Many processes at once on Windows, where a completion port reports exits."""

import _thread
import gc
import signal
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait
from ..processes import eventually, run_python
from .windows import CREATE_SUSPENDED, end, open_handles, refusing

pytest.importorskip("ctypes")
pytestmark = pytest.mark.windows

MANY = 66  # more than one call can wait for


class Job:
    """An object that stands for a process, so that one process can be in a set many times."""

    def __init__(self, pid):
        self.pid = pid


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


def test_each_comes_with_its_code(variant, backend, crowd, suspended, caplog):
    """In the order of exit; and no thread is started."""
    threads = _thread._count()
    caplog.set_level("INFO", pidwait.__name__)
    children = suspended(5)
    codes = [0, 259, 7, 0x80000000, 0xFFFFFFFF]
    with pidwait.WaitSet(crowd + children) as waiting:
        assert waiting.wait(0.05) == [] and len(waiting) == MANY + 5
        for child, code in zip(children, codes):
            end(child, code)
            assert waiting.wait() == [(child, code)]
        assert _thread._count() <= threads
    assert ("polled" in caplog.text) == (backend == "polling")


def test_many_exit_at_once(variant, suspended):
    children = suspended(200)
    with pidwait.WaitSet(children) as waiting:
        assert waiting.wait(0) == []
        for code, child in enumerate(children):
            end(child, code)
        exits = dict(all_exits(waiting, 0))
    assert [exits[child] for child in children] == list(range(200))


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


def test_each_thread_that_sleeps_sees_the_end(variant, suspended):
    """The exit of the last process ends the waits of all of them."""
    (child,) = suspended(1)
    exits = []
    with pidwait.WaitSet([child]) as waiting:
        waiters = [threading.Thread(target=lambda: exits.append(waiting.wait())) for _ in range(6)]
        for waiter in waiters:
            waiter.start()
        assert waiting.wait(0.2) == []
        end(child, 5)
        for waiter in waiters:
            waiter.join(2)
            assert not waiter.is_alive()
    assert sorted(exits) == [[]] * 5 + [[(child, 5)]]


def test_a_set_without_a_port_polls(use_variant, seam, suspended):
    """Where an interpreter's _overlapped lacks what asyncio needs, or is missing."""
    use_variant("win32-own")
    for name in "RegisterWaitWithQueue", "CreateIoCompletionPort":
        seam.put(name, refusing(50))
        children = suspended(3)
        with pidwait.WaitSet(children) as waiting:
            assert waiting.wait(0.01) == []
            for child in children:
                end(child, 3)
            assert sorted(code for _, code in all_exits(waiting, 0)) == [3, 3, 3]


@pytest.mark.parametrize("takes", [False, True])
def test_where_a_wait_for_a_port_does_not_show_its_packets(use_variant, seam, suspended, takes):
    """Or takes one of them: then the set sleeps for short times, and probe() says so."""
    use_variant("win32-own")
    (child,) = suspended(1)
    names = "CreateIoCompletionPort", "WaitForMultipleObjects", "GetQueuedCompletionStatus"
    create, wait, receive = map(seam.get, names)
    ports = []

    def created(*args):
        ports.append(create(*args))
        return ports[-1]

    def waited(handles, *args):
        if handles[0] not in ports:
            return wait(handles, *args)
        answer = wait(handles, *args) if takes else 258
        if answer == 0:
            receive(handles[0], 0)
        return answer

    seam.put(names[0], created)
    seam.put(names[1], waited)
    row = pidwait.probe()["calls"]["completion port"]
    assert not row["available"] and "packet" in row["reason"]
    with pidwait.WaitSet([child]) as waiting:
        began = time.monotonic()
        ending = threading.Timer(0.5, end, (child, 3))
        ending.start()
        assert waiting.wait(100) == [(child, 3)]
        ending.join()
    assert time.monotonic() - began < 50


def test_a_polled_member_keeps_no_thread_busy(use_variant, seam, suspended):
    """It comes while others sleep: each of them notices once."""
    use_variant("win32-own")
    one, other = suspended(2)
    with pidwait.WaitSet([one]) as waiting:

        def wait():
            while waiting:
                waiting.wait()

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        assert waiting.wait(0.1) == []
        seam.put("RegisterWaitWithQueue", refusing(8))
        waiting.add(other)
        spent = time.process_time()
        time.sleep(1)
        spent = time.process_time() - spent
        end(other, 1)
        end(one, 1)
        for waiter in waiters:
            waiter.join()
    assert spent < 0.25


def test_a_look_takes_few_calls(use_variant, seam, crowd, suspended):
    """Two for 124 members, at the end of a time-out; of more, the next look takes others."""
    use_variant("win32-own")
    calls, packets = [], []

    def count(name):
        real = seam.get(name)

        def counted(*args):
            calls.append(name)
            return real(*args)

        seam.put(name, counted)

    (child,) = suspended(1)
    jobs = [Job(pid) for pid in crowd for _ in range(5)]
    with pidwait.WaitSet(crowd) as few, pidwait.WaitSet([*jobs[:150], child, *jobs[150:]]) as many:
        assert few.wait(0.05) == many.wait(0.05) == []
        real = seam.get("GetQueuedCompletionStatus")
        # The pool is late: it has not posted the packet.
        seam.put("GetQueuedCompletionStatus", lambda *args: packets.append(real(*args)))
        for name in "WaitForMultipleObjects", "WaitForSingleObject":
            count(name)
        assert few.wait(0) == [] and calls == ["WaitForMultipleObjects"] * 2
        end(child, 3)
        child.wait()
        del calls[:]
        looks = [many.wait(0) for _ in range(3)]
        assert sorted(looks) == [[], [], [(child, 3)]]
        assert calls.count("WaitForMultipleObjects") == 6


def test_an_exception_of_a_handler_leaves_no_handle(use_variant, suspended):
    """It may come right after the call that opens one, or while one is closed; it is not lost."""
    use_variant("win32-own")
    (child,) = suspended(1)
    armed, is_over = [], []

    class Raised(Exception):
        pass

    def handler(*args):
        if armed:
            armed.clear()
            raise Raised

    def interrupt():
        while not is_over:
            _thread.interrupt_main()
            time.sleep(0.001)

    def use():
        assert pidwait.wait_procs([child.pid], 0) == ([], [child.pid])
        waiting.add(child.pid)
        waiting.discard(child.pid)

    interrupter = threading.Thread(target=interrupt)
    with pidwait.WaitSet() as waiting:
        use()
        gc.collect()
        before, former = set(open_handles()), signal.signal(signal.SIGINT, handler)
        try:
            interrupter.start()
            for _ in range(200):
                with pytest.raises(Raised):
                    armed.append(True)
                    while True:
                        use()
                waiting.discard(child.pid)
        finally:
            is_over.append(True)
            interrupter.join()
            signal.signal(signal.SIGINT, former)
        gc.collect()
        assert set(open_handles()) <= before


SUBINTERPRETER = """if True:
    try:
        import _interpreters
    except ImportError:
        import _xxsubinterpreters as _interpreters
    code = '''if True:
        import subprocess
        import {package} as pidwait
        children = [subprocess.Popen("cmd", creationflags=4) for _ in range(15)]
        with pidwait.WaitSet(children) as waiting:
            assert waiting.wait(0) == []
            for child in children:
                child.terminate()
            while waiting:
                assert all(code == 1 for _, code in waiting.wait())
        waiting = pidwait.WaitSet([subprocess.Popen("cmd", creationflags=4) for _ in range(15)])
        for child in waiting:
            child.terminate()  # told while the interpreter ends, if at all
        print("done", flush=True)
    '''
    interpreter = _interpreters.create({config})
    _interpreters.{run}(interpreter, code)
    _interpreters.destroy(interpreter)
    print("ended", flush=True)
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="its interpreters share too much")
def test_an_isolated_interpreter_that_has_waited_ends():
    """No thread of the system's runs Python, which would crash when the program ends."""
    modern = sys.version_info >= (3, 13)
    code = SUBINTERPRETER.format(
        package=pidwait.__name__,
        config="'isolated'" if modern else "isolated=True",
        run="exec" if modern else "run_string",
    )
    done = run_python(code, "-W", "ignore")
    assert (done.returncode, done.stdout.split()) == (0, ["done", "ended"]), done


def test_a_set_whose_wait_the_system_refuses_polls(use_variant, seam, suspended):
    use_variant("win32-own")
    children = suspended(2)
    with pidwait.WaitSet(children) as waiting:
        seam.refuse("WaitForMultipleObjects", 12)
        assert waiting.wait(0.01) == []
        for child in children:
            end(child, 3)
        assert sorted(code for _, code in all_exits(waiting, 0)) == [3, 3]
