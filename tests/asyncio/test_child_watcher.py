# SPDX-License-Identifier: BSD-3-Clause
"""aio.ChildWatcher: asyncio's own subprocesses, where asyncio has child watchers."""

import asyncio
import errno
import gc
import os
import resource
import signal
import subprocess
import threading

import pytest

from .. import pidwait
from ..conftest import CHOSEN, EVENT, KQUEUES, open_fds
from ..needs import needs
from ..processes import become_zombie, eventually, exiting, exiting_when_told, state
from .loops import Blind, aio, in_threads, run_in, some_turns

HAS_WATCHERS = hasattr(asyncio, "AbstractChildWatcher")
pytestmark = [
    pytest.mark.kqueue,
    # Of asyncio itself, for each call that sets or gets a watcher.
    pytest.mark.filterwarnings("ignore:'[gs]et_child_watcher':DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*event_loop_policy:DeprecationWarning"),
]


@pytest.fixture
def watcher():
    """The watcher of every loop, in any thread."""
    if not HAS_WATCHERS:
        pytest.skip("asyncio has no child watchers")
    policy = asyncio.get_event_loop_policy()
    mine = asyncio.DefaultEventLoopPolicy()
    asyncio.set_event_loop_policy(mine)
    watcher = aio.ChildWatcher()
    mine.set_child_watcher(watcher)
    yield watcher
    asyncio.set_event_loop_policy(policy)


@pytest.fixture(params=CHOSEN + ([] if KQUEUES else ["no fd for it"]))
def way(request, use_variant, seam, watcher):
    """How children are watched."""
    if request.param in CHOSEN:
        use_variant(request.param)
    else:
        seam.refuse("pidfd_open", errno.EMFILE)
    return request.param


class Callback(list):
    """It notes what it is called with; done() returns that once it has been called."""

    def __init__(self, loop):
        self.called = loop.create_future()

    def __call__(self, *args):
        self.append(args)
        if not self.called.done():
            self.called.set_result(self)

    async def done(self):
        return await self.called


@pytest.fixture
def callback(loop):
    return Callback(loop)


@pytest.fixture
def add(watcher, run):
    """Adds a handler in the loop, which does not run before and after it."""

    async def in_loop(*args):
        watcher.add_child_handler(*args)

    return lambda *args: run(in_loop(*args))


async def exits_of(watcher, pid, end=lambda: None):
    """What a handler is called with for a process that ends while the loop does not run."""
    callback = Callback(asyncio.get_event_loop())
    watcher.add_child_handler(pid, callback, "more")
    end()
    return await callback.done()


async def code_of(*command, tell=None):
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE)
    if tell:
        tell()
    process.stdin.close()
    return await process.wait()


# asyncio's subprocesses


@pytest.mark.parametrize("code", [0, 1, 255, -9])
def test_the_return_code_is_the_exit_code(run, way, code):
    assert run(code_of(*exiting(code))) == code


def test_many_take_no_thread_and_leave_nothing(run, way):
    async def main():
        await code_of(*exiting(0))
        fds, threads = open_fds(), threading.active_count()
        codes = await asyncio.gather(*[code_of(*exiting(code)) for code in range(25)])
        assert threading.active_count() == threads
        while not set(open_fds()) <= set(fds):  # asyncio closes its pipes later
            gc.collect()  # PyPy closes pidfds then
            await asyncio.sleep(0.001)
        return codes

    assert run(main()) == list(range(25))


@pytest.mark.threads
def test_loops_in_threads_have_subprocesses(watcher, way):
    tell = threading.Barrier(3).wait

    def play(code):
        coroutine = code_of(*exiting_when_told(code), tell=tell)
        return run_in(asyncio.new_event_loop(), coroutine)

    assert in_threads(play, (3, 4, 5)) == [3, 4, 5]


def test_a_child_for_which_no_file_descriptor_is_left(run, way, monkeypatch):
    """It runs already."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    add = aio.ChildWatcher.add_child_handler

    def add_with_none_left(*args):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        add(*args)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    run(code_of(*exiting(0)))  # loads what asyncio needs
    monkeypatch.setattr(aio.ChildWatcher, "add_child_handler", add_with_none_left)
    assert run(code_of(*exiting(3))) == 3


def test_a_loop_that_is_closed_while_a_child_runs(run, loop, way, watcher):
    process = run(asyncio.create_subprocess_exec("sleep", "60"))
    loop.close()
    watcher.remove_child_handler(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert os.waitpid(process.pid, 0)[1] == signal.SIGKILL
    process._transport._proc.returncode = -9
    process._transport.close()
    assert run_in(asyncio.new_event_loop(), code_of(*exiting(3))) == 3


# Somebody else reaps: the code if it is certain, else 255, as with asyncio's own watchers


@pytest.fixture
def certain(way):
    from ..trouble import kernel_tells

    return (7,) if "pidfd" in way and kernel_tells() else (7, 255)


def test_somebody_else_reaps_before_the_loop_looks(run, way, certain, watcher, start_told):
    child = start_told(7)
    end = lambda: (child.stdin.close(), os.waitpid(child.pid, 0))  # noqa: E731
    ((pid, code, more),) = run(exits_of(watcher, child.pid, end))
    assert (pid, more) == (child.pid, "more") and code in certain


@pytest.mark.skipif(EVENT != "pidfd", reason="it is about what a pidfd tells")
def test_somebody_else_reaps_where_the_system_tells_no_code(run, seam, watcher, start_told):
    seam.refuse("ioctl", errno.ENOTTY)  # as before Linux 6.13
    test_somebody_else_reaps_before_the_loop_looks(run, None, (255,), watcher, start_told)


def test_sigchld_is_ignored(run, way, certain):
    """The kernel itself reaps."""
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run(code_of(*exiting_when_told(7))) in certain
    finally:
        signal.signal(signal.SIGCHLD, old)


def test_a_child_that_is_reaped_before_it_is_added(run, way, watcher, start_told, keeper):
    """Or whose pid a process of somebody else has by then."""
    child, pid = start_told(7), keeper.start("sleep", "60")
    child.stdin.close()
    os.waitpid(child.pid, 0)
    assert run(exits_of(watcher, child.pid)) == [(child.pid, 255, "more")]
    assert run(exits_of(watcher, pid)) == [(pid, 255, "more")]
    assert state(pid) not in (None, "Z")


@pytest.mark.root
@needs("PTRACE_SEIZE")
def test_a_tracer_prevents_the_reaping(run, way, add, callback, start_told):
    """The exit is reported once the child can be reaped; the loop goes on meanwhile."""
    from ..trouble.test_tracers import Tracer

    child = start_told(3)
    tracer = Tracer(child.pid)
    try:
        add(child.pid, callback)
        os.write(child.stdin.fileno(), b"\n")  # the tracer has inherited this end
        become_zombie(child.pid)
        run(asyncio.sleep(0.05))
        assert callback == []
    finally:
        tracer.exit()
    assert run(callback.done()) == [(child.pid, 3)]
    assert state(child.pid) is None


# Handlers


def test_a_callback_that_raises_ends_its_own_report_only(run, loop, way, watcher, add, start_told):
    bad, good, contexts = start_told(1), start_told(2), []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    add(bad.pid, lambda *args: 1 // 0)
    bad.stdin.close()
    while not contexts:
        run(asyncio.sleep(0.001))
    assert [type(one["exception"]) for one in contexts] == [ZeroDivisionError]
    assert state(bad.pid) is None
    assert run(exits_of(watcher, good.pid, good.stdin.close)) == [(good.pid, 2, "more")]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_leaves_the_loop(run, loop, way, add, callback, start_told, error):
    """The next run of the loop goes on; what was interrupted may be called again."""
    first, second, calls = start_told(1), start_told(2), []

    def leave(*args):
        calls.append(args)
        if len(calls) == 1:
            raise error

    add(first.pid, leave)
    add(second.pid, callback)
    first.stdin.close()
    with pytest.raises(error):
        loop.run_forever()
    second.stdin.close()
    assert run(callback.done()) == [(second.pid, 2)]
    assert set(calls) == {(first.pid, 1)} and state(first.pid) is None


@pytest.mark.parametrize("has_exited", [False, True], ids=["", "after the exit"])
@pytest.mark.parametrize("how", ["removed", "removed in a thread", "closed"])
def test_a_removed_handler_is_not_called(run, way, watcher, callback, start_told, has_exited, how):
    """Nor is the child reaped."""
    child = start_told(1)

    async def main():
        watcher.add_child_handler(child.pid, callback)
        if has_exited:
            child.stdin.close()
            become_zombie(child.pid)  # the loop has not run meanwhile
        if how == "closed":
            watcher.close()
        else:
            play = in_threads if "thread" in how else map
            assert list(play(watcher.remove_child_handler, [child.pid])) == [True]
        assert watcher.remove_child_handler(child.pid) is False
        await some_turns()
        child.stdin.close()
        await asyncio.sleep(0.05)

    run(main())
    assert callback == []
    if not (has_exited and "thread" in how):  # else it may be reaped before the loop is told
        assert child.wait() == 1


def test_a_handler_for_the_same_pid_replaces_the_first(
    run, way, watcher, add, callback, start_told
):
    child = start_told(3)
    add(child.pid, callback)
    exits = run(exits_of(watcher, child.pid, child.stdin.close))
    assert (callback, exits) == ([], [(child.pid, 3, "more")])


def test_a_callback_may_add_a_handler_for_the_same_pid(
    run, way, watcher, add, callback, start_told
):
    """A new child may have it. Here it is still the old one's."""
    child, again = start_told(3), watcher.add_child_handler
    add(child.pid, lambda pid, code: again(pid, callback, code))
    child.stdin.close()
    assert run(callback.done()) == [(child.pid, 255, 3)]


def test_close_in_a_forked_child(run, way, watcher, add, callback, start_told):
    """It leaves the parent's handlers alone, though both share the epoll of the loop."""
    child = start_told(3)
    add(child.pid, callback)
    pid = os.fork()
    if pid == 0:
        try:
            watcher.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    child.stdin.close()
    assert run(callback.done()) == [(child.pid, 3)]


def test_a_loop_that_can_not_watch_a_file_descriptor(way, watcher, start_told):
    child = start_told(3)
    exits = run_in(Blind(), exits_of(watcher, child.pid, child.stdin.close))
    assert exits == [(child.pid, 3, "more")]


def test_what_can_not_be_watched_is_refused(run, watcher):
    with pytest.raises(ValueError):
        run(exits_of(watcher, 0))
    with pytest.raises(TypeError):
        run(exits_of(watcher, "1"))
    asyncio.set_event_loop(None)
    with pytest.raises(RuntimeError):  # no loop is running
        watcher.add_child_handler(1, print)


def test_it_is_one_of_asyncios_watchers(watcher):
    assert isinstance(watcher, asyncio.AbstractChildWatcher)
    with watcher as same:
        assert same is watcher and watcher.is_active()


@pytest.mark.skipif(HAS_WATCHERS, reason="asyncio has child watchers")
def test_where_asyncio_has_no_watchers_it_can_not_be_made():
    with pytest.raises(NotImplementedError):
        aio.ChildWatcher()


def test_a_loop_that_is_closed_leaves_no_zombie(variant, loop, add, start):
    """Its child runs on, and is reaped once it exits."""
    child = start(*exiting(3, 0.2))
    add(child.pid, print)
    loop.close()
    gc.collect()
    eventually(lambda: not pidwait.pid_exists(child.pid))
    child.returncode = 3
