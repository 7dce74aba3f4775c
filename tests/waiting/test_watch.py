# SPDX-License-Identifier: BSD-3-Clause
"""watch(): callbacks when processes exit, on one thread for all of them."""

import _thread
import os
import queue
import sys
import threading

import pytest

from .. import pidwait
from ..needs import needs
from ..processes import (
    OnPurpose,
    become_zombie,
    eventually,
    everywhere,
    gone_pid,
    interrupted_by,
    run_python,
)
from ..seam import get
from .threads import Thread

pytestmark = pytest.mark.threads


@pytest.fixture(autouse=True)
def others(request):
    """others() are the threads that the test has started; all of them end by themselves."""
    if "variant" in request.fixturenames:
        request.getfixturevalue("variant")  # its teardown has to come after the threads' end
    before = set(threading.enumerate())

    def others():
        return set(threading.enumerate()) - before

    yield others
    eventually(lambda: not others())


@pytest.fixture
def told():
    """A queue of what its callback was called with."""
    told = queue.Queue()
    told.callback = lambda *exit: told.put(exit)
    return told


@everywhere
def test_the_callback_gets_the_process_and_its_exit_code(
    variant, start_told, sleeper, told, others
):
    """One daemon thread calls all callbacks. It ends after the last watch, and can come again."""
    children = [start_told(code) for code in (3, 4, 5)]
    last = pidwait.watch(sleeper, told.callback)
    for child in children:
        watch = pidwait.watch(child, told.callback)
        assert watch.proc is child
    (thread,) = others()
    assert thread.daemon
    for number in 1, 2, 0:
        children[number].stdin.close()
        assert told.get() == (children[number], number + 3)
        assert children[number].returncode == number + 3
    assert others() == {thread}
    last.cancel()
    last.cancel()
    eventually(lambda: not others())
    pidwait.watch(children[0], told.callback)
    assert told.get() == (children[0], 3)


@everywhere
def test_what_has_exited_is_reported_at_once(variant, zombie, told):
    for pid, code in (zombie(4).pid, 4), (gone_pid(), None):
        pidwait.watch(pid, told.callback)
        assert told.get() == (pid, code)


@everywhere
def test_cancel(variant, start_told, told, others):
    """Of one watch of several on the same process, and of the only one."""
    child = start_told(3)
    watches = [pidwait.watch(child.pid, told.callback) for _ in range(3)]
    assert watches[0].cancel() and watches[0].cancel()
    child.stdin.close()
    assert [told.get(), told.get()] == [(child.pid, 3)] * 2
    assert watches[0].cancel() and not (watches[1].cancel() or watches[2].cancel())
    child = start_told(4)
    pidwait.watch(child, told.callback).cancel()
    child.stdin.close()
    become_zombie(child.pid)
    eventually(lambda: not others())
    assert told.empty()


@pytest.mark.kqueue
def test_a_callback_may_cancel_and_watch_again(variant, start_told, sleeper, told):
    """And close what it has got, and wait itself."""
    children = [start_told(code) for code in (3, 4, 5)]

    def callback(proc, code):
        mine.cancel()
        other.cancel()
        children[1].stdin.close()
        told.put(pidwait.wait(children[1]))
        pidwait.watch(children[2], told.callback)
        children[2].stdin.close()

    other = pidwait.watch(sleeper, told.callback)
    mine = pidwait.watch(children[0], callback)
    children[0].stdin.close()
    assert told.get() == 4
    assert told.get() == (children[2], 5)


@pytest.mark.kqueue
def test_a_callback_that_blocks(variant, start_told, told):
    """Other threads may watch and cancel meanwhile; cancel() does not wait for its end."""
    children = [start_told(code) for code in (3, 4, 5)]
    entered, released = threading.Event(), threading.Event()
    first = pidwait.watch(children[0], lambda *exit: (entered.set(), released.wait()))
    second = pidwait.watch(children[1], told.callback)
    children[0].stdin.close()
    entered.wait()
    pidwait.watch(children[2], told.callback)
    for watch, child in (second, children[1]), (first, children[2]):
        assert watch.cancel() == (watch is second)
        child.stdin.close()
    released.set()
    assert told.get() == (children[2], 5)
    assert told.empty()


@pytest.mark.kqueue
def test_a_callback_may_cancel_what_has_exited_too(variant, start_told, told, others):
    """Two exits are found together: of two callbacks that cancel each other, one is called."""
    children, watches = [start_told(code) for code in (3, 4, 5)], []
    entered, released = threading.Event(), threading.Event()

    def cancel_all(proc, code):
        for watch in watches:
            watch.cancel()
        told.put(code)

    pidwait.watch(children[0], lambda *exit: (entered.set(), released.wait()))
    children[0].stdin.close()
    entered.wait()
    watches += [pidwait.watch(child.pid, cancel_all) for child in children[1:]]
    for child in children[1:]:
        child.stdin.close()
        become_zombie(child.pid)
    released.set()
    code = told.get()
    eventually(lambda: not others())
    assert code in (4, 5) and told.empty()


ERRORS = ValueError("on purpose"), KeyboardInterrupt("on purpose"), SystemExit()


@pytest.mark.kqueue
@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
@pytest.mark.parametrize("has_hook", [hasattr(threading, "excepthook"), False])
def test_an_exception_of_a_callback_ends_nothing_else(
    variant, start_told, told, monkeypatch, error, has_hook
):
    """It goes to threading.excepthook(), before Python 3.8 to sys.excepthook(), as in any thread:
    SystemExit too, which only the default hook ignores."""
    raised, children = [], (start_told(1), start_told(2))
    if has_hook:
        monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    else:
        monkeypatch.setattr(sys, "excepthook", lambda type_, value, trace: raised.append(value))

    def callback(proc, code):
        children[1].stdin.close()
        if not has_hook:
            monkeypatch.delattr(threading, "excepthook", raising=False)
        raise error

    pidwait.watch(children[0], callback)
    pidwait.watch(children[1], told.callback)
    children[0].stdin.close()
    assert told.get() == (children[1], 2)
    assert raised == ([] if isinstance(error, SystemExit) and not has_hook else [error])


def test_a_hook_for_exceptions_that_raises_ends_nothing_else(
    variant, start_told, told, monkeypatch
):
    children, called = (start_told(1), start_told(2)), []

    def raise_again(*args):
        called.append(args)
        raise OnPurpose

    monkeypatch.setattr(threading, "excepthook", raise_again, raising=False)
    pidwait.watch(children[0], raise_again)
    pidwait.watch(children[1], told.callback)
    children[0].stdin.close()
    eventually(lambda: called)
    children[1].stdin.close()
    assert told.get(timeout=60) == (children[1], 2)


@pytest.mark.windows
@pytest.mark.parametrize(
    "arguments, error",
    [((os.getpid(), None), TypeError), ((0, print), ValueError), (("1", print), TypeError)],
)
def test_bad_arguments(arguments, error, others):
    with pytest.raises(error):
        pidwait.watch(*arguments)
    assert not others()


@pytest.mark.kqueue
def test_watches_from_many_threads_are_served_by_one(variant, herd, told, others):
    pids = [herd.fork(0) for _ in range(10)]
    watches = [Thread(pidwait.watch, pid, told.callback) for pid in pids]
    for watch in watches:
        watch.result()
    eventually(lambda: len(others()) == 1)
    for pid in pids:
        os.kill(pid, 9)
    assert sorted(told.get() for _ in pids) == sorted((pid, -9) for pid in pids)


def test_a_handler_that_raises_or_watches_in_the_middle_of_a_watch(
    by_pidfd, seam, start_told, told, others
):
    """Nothing is left of the watch that it interrupts; what it makes itself is served, too."""
    children, real = [start_told(code) for code in (3, 4, 5)], get("pidfd_open")
    with interrupted_by(OnPurpose()) as interrupted:
        seam.put("pidfd_open", interrupted)
        with pytest.raises(OnPurpose):
            pidwait.watch(children[0].pid, told.callback)
    seam.put("pidfd_open", real)
    eventually(lambda: not others())

    def watch_another(*args):
        seam.put("pidfd_open", real)
        pidwait.watch(children[1].pid, told.callback)
        return real(*args)

    seam.put("pidfd_open", watch_another)
    pidwait.watch(children[2].pid, told.callback)
    assert len(others()) == 1
    for number in 0, 2, 1:
        children[number].stdin.close()
        if number:
            assert told.get() == (children[number].pid, number + 3)
    assert told.empty()


def test_a_pid_that_the_system_gives_out_again(by_pidfd, seam, start_told, told):
    """While the thread runs a callback, the first process's exit has not been reported yet."""
    pid, real, (first, second, other) = gone_pid(), get("pidfd_open"), map(start_told, (1, 2, 9))
    numbers, entered, released = {pid: first.pid}, threading.Event(), threading.Event()
    seam.put("pidfd_open", lambda pid, flags: real(numbers.get(pid, pid), flags))
    pidwait.watch(other, lambda *exit: (entered.set(), released.wait()))
    pidwait.watch(pid, lambda *exit: told.put(("first", exit)))
    other.stdin.close()
    entered.wait()
    first.stdin.close()
    become_zombie(first.pid)
    numbers[pid] = second.pid
    pidwait.watch(pid, lambda *exit: told.put(("second", exit)))
    released.set()
    assert told.get() == ("first", (pid, 1))
    second.stdin.close()
    assert told.get() == ("second", (pid, 2))


def test_where_threads_are_forbidden(sleeper, monkeypatch, told):
    """Nothing is left of the watch, and the next one works."""

    def forbidden(self):
        raise RuntimeError("thread is not supported for isolated subinterpreters")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", forbidden)
        with pytest.raises(RuntimeError, match="thread is not supported"):
            pidwait.watch(sleeper, print)
    gone = gone_pid()
    pidwait.watch(gone, told.callback)
    assert told.get() == (gone, None)


def test_what_ends_the_thread_is_reported_and_the_next_watch_starts_a_new_one(
    by_pidfd, seam, sleeper, start_told, told, monkeypatch
):
    reported, real, broken = queue.Queue(), get("waitid"), []
    if hasattr(threading, "excepthook"):
        monkeypatch.setattr(threading, "excepthook", reported.put)
    monkeypatch.setattr(sys, "excepthook", lambda *error: reported.put(error))

    def waitid(*args):
        if not broken:
            broken.append(args)
            raise MemoryError
        return real(*args)

    pidwait.watch(sleeper.pid, told.callback)
    seam.put("waitid", waitid)
    child = start_told(3)
    pidwait.watch(child.pid, told.callback)
    child.stdin.close()
    assert reported.get(timeout=60)[0] is MemoryError
    gone = gone_pid()
    pidwait.watch(gone, told.callback)
    exits = [told.get(timeout=60), told.get(timeout=60)]
    assert sorted(exits, key=str) == sorted([(child.pid, 3), (gone, None)], key=str)
    sleeper.kill()
    assert told.get(timeout=60) == (sleeper.pid, -9)
    assert reported.empty()


# In interpreters of their own: what is printed there counts


IN_A_SUBINTERPRETER = """if True:
    try:
        import _interpreters as interpreters
        made = interpreters.create("{kind}")
    except ImportError:
        import _xxsubinterpreters as interpreters
        made = interpreters.create(isolated="{kind}" == "isolated")
    interpreters.run_string(made, '''if True:
        import os
        import {package} as pidwait

        os.environ["PIDWAIT_TREE"] = "group"
        command = ["sh", "-c", "echo it has started"]
        for trees in range({starts}):
            try:
                if trees:
                    from {package} import subprocess
                    subprocess.run(command, tree=True)
                else:
                    pidwait.watch({pid}, print)
            except RuntimeError as error:
                print(error, len(os.listdir("/proc/self/task")))
    ''')
    interpreters.destroy(made)
"""


@pytest.mark.skipif(
    not hasattr(_thread, "_is_main_interpreter"), reason="before Python 3.12 nothing tells it"
)
@needs("/proc")
@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_a_subinterpreter_refuses_a_thread_that_would_abort_the_program(variant, kind):
    """Also that of a tree by "group", before its command starts."""
    if kind == "isolated" and variant.endswith("cffi"):
        pytest.skip("cffi can't be loaded in an isolated subinterpreter")
    starts = 1 + hasattr(pidwait, "__path__")  # a single file starts no trees
    names = {"package": pidwait.__name__, "pid": os.getpid(), "kind": kind, "starts": starts}
    done = run_python(IN_A_SUBINTERPRETER.format(**names))
    text = "a daemon thread would abort the program at this interpreter's end 1\n"
    assert (done.stdout, done.stderr, done.returncode) == (text * starts, "", 0)


AT_THE_END = """if True:
    import os, threading
    import {package} as pidwait

    entered = threading.Event()
    pidwait.watch(os.getpid(), print)
    pidwait.watch({gone}, lambda *exit: (entered.set(), threading.Event().wait()))
    entered.wait()
"""


@everywhere
def test_the_interpreter_ends_though_a_watch_is_left(variant):
    """Also while a callback runs; nothing is printed."""
    done = run_python(AT_THE_END.format(package=pidwait.__name__, gone=gone_pid()))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
