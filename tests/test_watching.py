# SPDX-License-Identifier: BSD-3-Clause
"""watch: callbacks at exits."""

import importlib
import os
import queue
import sys
import threading

import pytest

from . import pidwait
from .processes import (
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    not_on_windows,
    run_python,
)

watching = importlib.import_module(pidwait.__name__ + ".watching")
THREAD = pidwait.__name__ + ".watching"


def threads():
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


@pytest.fixture(autouse=True)
def no_thread_left(request):
    if "variant" in request.fixturenames:
        request.getfixturevalue("variant")  # its teardown has to come after the thread's end
    yield
    eventually(lambda: not threads())


@pytest.fixture
def told():
    """A queue of the arguments with which its callback was called."""
    told = queue.Queue()
    told.callback = lambda *exit: told.put(exit)
    return told


def test_watch(variant, start, sleeper, told):
    children = [start(*exiting(code, after=0.05 * code)) for code in (1, 2, 3)]
    last = pidwait.watch(sleeper, told.callback)
    for child in children:
        watch = pidwait.watch(child, told.callback)
        assert watch.proc is child
    assert len(threads()) == 1
    assert sorted(told.get()[1] for _ in children) == [1, 2, 3]
    assert [child.returncode for child in children] == [1, 2, 3]
    last.cancel()
    last.cancel()
    eventually(lambda: not threads())
    # The thread is started again.
    pidwait.watch(children[0], told.callback)
    assert told.get() == (children[0], 1)


def test_one_thread_is_started(sleeper, told, monkeypatch):
    started, start = [], threading.Thread.start

    def counted(self):
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    watches = [pidwait.watch(sleeper.pid, told.callback) for _ in range(20)]
    assert [thread.name for thread in started] == [THREAD]
    for watch in watches:
        watch.cancel()


def test_watched_twice(variant, start_told, told):
    child = start_told(3)
    first = pidwait.watch(child.pid, told.callback)
    pidwait.watch(child.pid, told.callback)
    pidwait.watch(child.pid, told.callback)
    first.cancel()
    child.stdin.close()
    assert [told.get(), told.get()] == [(child.pid, 3)] * 2
    eventually(lambda: not threads())
    assert told.empty()


def test_watch_of_what_has_exited(variant, start, told):
    zombie, gone = start(*exiting(4)), gone_pid()
    become_zombie(zombie.pid)
    pidwait.watch(zombie.pid, told.callback)
    assert told.get() == (zombie.pid, 4)
    pidwait.watch(gone, told.callback)
    assert told.get() == (gone, None)


def test_cancelled(variant, start_told, told):
    child = start_told(4)
    pidwait.watch(child, told.callback).cancel()
    child.stdin.close()
    become_zombie(child.pid)
    eventually(lambda: not threads())
    assert told.empty()


@pytest.mark.parametrize(
    "error", [ValueError("on purpose"), KeyboardInterrupt("on purpose"), SystemExit()]
)
@pytest.mark.parametrize("has_hook", [hasattr(threading, "excepthook"), False])
def test_callback_that_raises(variant, start_told, told, monkeypatch, error, has_hook):
    raised = []
    if has_hook:
        monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    else:
        monkeypatch.setattr(sys, "excepthook", lambda type_, value, tb: raised.append(value))

    children = start_told(1), start_told(2)

    def callback(proc, code):
        children[1].stdin.close()
        if not has_hook:  # before Python 3.8
            monkeypatch.delattr(threading, "excepthook", raising=False)
        raise error

    pidwait.watch(children[0], callback)
    pidwait.watch(children[1], told.callback)
    children[0].stdin.close()
    assert told.get() == (children[1], 2)
    assert raised == ([] if isinstance(error, SystemExit) else [error])


def test_callback_that_watches_and_cancels(variant, start, sleeper, told):
    child, next_one = start(*exiting(1, after=0.1)), start(*exiting(2))

    def callback(proc, code):
        other.cancel()
        pidwait.watch(next_one, told.callback)

    other = pidwait.watch(sleeper, told.callback)
    pidwait.watch(child, callback)
    assert told.get() == (next_one, 2)


@pytest.mark.parametrize(
    "arguments, error",
    [((os.getpid(), None), TypeError), ((0, print), ValueError), (("1", print), TypeError)],
)
def test_bad_watches(arguments, error):
    with pytest.raises(error):
        pidwait.watch(*arguments)


AFTER_FORK = """if True:
    import os, subprocess, threading
    import {package} as pidwait

    def tells(proc):
        told = threading.Event()
        pidwait.watch(proc, lambda *exit: told.set())
        return told.wait(30)

    sleeper = subprocess.Popen(["sleep", "60"])
    watch = pidwait.watch(sleeper, lambda *exit: print("wrong"))
    pid = os.fork()
    if pid == 0:
        watch.cancel()  # it is the parent's
        right = tells(subprocess.Popen(["sleep", "0.05"]))
        os._exit(0 if right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert tells(subprocess.Popen(["sleep", "0.05"]))
    watch.cancel()
    sleeper.kill()
    sleeper.wait()
"""


@not_on_windows("fork")
def test_after_fork(variant):
    code = AFTER_FORK.format(package=pidwait.__name__)
    done = run_python("import warnings; warnings.simplefilter('ignore')\n" + code)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_where_threads_are_forbidden(sleeper, monkeypatch):
    def forbidden(self):
        raise RuntimeError("thread is not supported for isolated subinterpreters")

    monkeypatch.setattr(threading.Thread, "start", forbidden)
    with pytest.raises(RuntimeError, match="watch.. needs a daemon thread: thread is not supp"):
        pidwait.watch(sleeper, print)


# The README's recipe.
PARENT = """if True:
    import os, sys, threading
    import {package} as pidwait

    def when_parent_exits(stop):
        parent = os.getppid()
        watch = pidwait.watch(parent, lambda *exit: stop())
        if os.getppid() != parent:  # it exited before it was watched
            watch.cancel()
            stop()

    if sys.argv[1] == "exited before":
        numbers = iter([os.getppid()])
        getppid = os.getppid
        os.getppid = lambda: next(numbers, 1)
    stopped = threading.Event()
    when_parent_exits(stopped.set)
    sys.stdout.write("watching\\n")
    sys.stdout.flush()
    stopped.wait(60)
    print(stopped.is_set())
"""


@not_on_windows("getppid() that shows the parent's exit")
@pytest.mark.parametrize("when", ["exits", "exited before"])
def test_watching_the_parent(variant, when, start):
    code = PARENT.format(package=pidwait.__name__)
    shell = start(
        "sh",
        "-c",
        '"$@" & read line; exit 0',
        "sh",
        sys.executable,
        "-c",
        code,
        when,
        stdin=-1,
        stdout=-1,
        universal_newlines=True,
    )
    assert shell.stdout.readline() == "watching\n"
    shell.stdin.close()
    assert shell.stdout.readline() == "True\n"


def test_failed_watch_leaves_the_set_to_the_thread_that_comes():
    watcher = watching._Watcher(os.getpid())
    watches = watcher._set()
    watcher._coming.append(None)
    watch = watching.Watch(watcher, os.getpid(), print)
    watches.add_watch = None  # calling it fails
    with pytest.raises(TypeError):
        watcher.add(watch)
    assert list(watcher._sets.values()) == [watches]
    watches.wait()  # it has not been closed
    watches.close()
