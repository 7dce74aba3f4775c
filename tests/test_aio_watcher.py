# SPDX-License-Identifier: BSD-3-Clause
"""aio.ChildWatcher: asyncio's own subprocesses, up to Python 3.13."""

import asyncio
import contextlib
import errno
import gc
import importlib
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest

from . import pidwait
from .conftest import open_fds
from .loops import Blind
from .processes import (
    become_zombie,
    eventually,
    exiting,
    exiting_when_told,
    interrupted_by,
    run_python,
    state,
)

aio = importlib.import_module(pidwait.__name__ + ".aio")
child_watcher = importlib.import_module(pidwait.__name__ + "._child_watcher")
loops = importlib.import_module(pidwait.__name__ + "._loops")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
pidfd = importlib.import_module(pidwait.__name__ + "._backends.pidfd")
_checks = importlib.import_module(pidwait.__name__ + "._checks")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")

HAS_WATCHERS = hasattr(asyncio, "AbstractChildWatcher")


def with_watchers(tests):
    """Collect the tests only where asyncio has watchers; elsewhere there is nothing to test."""
    tests.__test__ = HAS_WATCHERS
    return tests


# Of asyncio itself, for each call that sets or gets a watcher.
pytestmark = pytest.mark.filterwarnings(
    "ignore:'[gs]et_child_watcher':DeprecationWarning",
    "ignore:.*event_loop_policy:DeprecationWarning",
)
TIMEOUT = 50


@pytest.fixture
def watcher():
    """The watcher of every loop, in any thread."""
    policy = asyncio.get_event_loop_policy()
    mine = asyncio.DefaultEventLoopPolicy()
    asyncio.set_event_loop_policy(mine)
    watcher = aio.ChildWatcher()
    mine.set_child_watcher(watcher)
    yield watcher
    asyncio.set_event_loop_policy(policy)
    assert len(watcher._handlers) == 0


def run(coroutine):
    """Like asyncio.run(), which Python 3.6 lacks."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(coroutine, TIMEOUT))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def code_of(*command):
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait()


def in_thread(function, *args):
    """What the function returns, or raises, in a thread of its own."""
    results = []

    def target():
        try:
            results.append((True, function(*args)))
        except BaseException as error:
            results.append((False, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    ((good, result),) = results
    if not good:
        raise result
    return result


@pytest.fixture
def told(start):
    """told(code) runs a child that exits with the code once it is told to; it is not reaped."""
    ours = []

    def told(code):
        child = start(*exiting_when_told(code), stdin=subprocess.PIPE)
        ours.append(child)
        return child

    yield told
    for child in ours:  # the watcher has reaped those that nobody else has
        if child.returncode is None and state(child.pid) is None:
            child.returncode = 0


def end(child):
    """Tell the child to exit."""
    child.stdin.close()


class Interrupt(Exception):
    pass


@pytest.fixture
def interrupt_at():
    """with interrupt_at(n) as lines: at the n-th line of the watcher a signal handler raises."""

    def raising(number, frame):
        raise Interrupt

    @contextlib.contextmanager
    def interrupt_at(wanted):
        lines = []

        def trace(frame, event, arg):
            if frame.f_code.co_filename != child_watcher.__file__:
                return None
            if event == "line":
                lines.append(frame.f_lineno)
                if len(lines) == wanted:
                    os.kill(os.getpid(), signal.SIGUSR1)
            return trace

        sys.settrace(trace)
        try:
            yield lines
        finally:
            sys.settrace(None)

    old = signal.signal(signal.SIGUSR1, raising)
    yield interrupt_at
    signal.signal(signal.SIGUSR1, old)


def test_handler_that_its_callback_has_replaced_stays():
    told, handlers = [], {}
    handlers[5] = other = child_watcher._Handler(handlers, None, 5, print, ())
    child_watcher._Handler(handlers, None, 5, lambda *args: told.append(args), ()).tell(3)
    assert told == [(5, 3)] and handlers == {5: other}


def test_handler_that_never_had_a_file_descriptor_removes_none():
    removed = []
    loop = SimpleNamespace(remove_reader=removed.append)
    child_watcher._Handler({}, loop, os.getpid(), print, ())._end()
    assert removed == []


@pytest.mark.parametrize("look, method", [("look_at_child", "confirm"), ("reap_child", "settle")])
def test_lost_child_that_a_signal_handler_raises(monkeypatch, start, look, method):
    """It says nothing about the child that is waited for."""
    pid = start(*exiting(3)).pid
    target = child_watcher._WatchedTarget(pid, pid, pid)
    with interrupted_by(ChildProcessError("on purpose")) as interrupted:
        monkeypatch.setattr(exitcodes, look, interrupted)
        with pytest.raises(ChildProcessError, match="on purpose"):
            target.confirm() if method == "confirm" else target.settle(None)


class StandIn:
    """A handle; ``items`` are what reaps, ``outcome`` is what its wait returns, or raises."""

    def __init__(self, items=None, outcome=None):
        self.items, self.outcome, self.calls = items, outcome, []

    def reaping(self, block):
        self.calls.append(("reaping", block))
        return self.items

    def wait(self, deadline, reap):
        self.calls.append(("wait", reap))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def event(monkeypatch):
    """event(handle) has a handler get its event; returns the handler, and what has been told."""
    added = []
    monkeypatch.setattr(child_watcher, "add", lambda loop, targets: added.extend(targets))

    def event(handle, callback=None, **attributes):
        told, handlers = [], {}
        callback = callback or (lambda *args: told.append(args))
        loop = SimpleNamespace(remove_reader=lambda fd: told.append(fd))
        handler = child_watcher._Handler(handlers, loop, 5, callback, ("more",))
        handler._handle, handler._fd = handle, 7
        vars(handler).update(attributes)
        handler._on_event()
        assert handlers == {}
        return handler, told

    event.added = added
    return event


def failing(error):
    raise error
    yield


def test_event_of_a_child_that_is_reaped_in_one_step(event, caplog):
    caplog.set_level(logging.INFO, pidwait.__name__)
    handle = StandIn([SimpleNamespace(si_status=3, si_code=1)])
    handler, told = event(handle)
    assert told == [(5, 3, "more"), 7] and handle.calls == [("reaping", False), ("close",)]
    assert handler._handle is None and not handler.is_wanted
    handler._on_event()  # the loop had it already
    handler._end()
    assert len(told) == 2 and len(handle.calls) == 2 and caplog.text == "" and not event.added


def test_event_that_comes_again_once_the_child_is_reaped(event):
    """A signal handler has raised before the exit was told."""
    handle = StandIn()
    _, told = event(handle, _infos=[SimpleNamespace(si_status=9, si_code=2)])
    assert told == [(5, -9, "more"), 7] and handle.calls == [("close",)]


@pytest.mark.parametrize("is_tried", [False, True])
def test_event_of_a_child_that_waitid_does_not_reap(event, is_tried):
    handle = StandIn(failing(OSError(errno.ECHILD, "on purpose")) if is_tried else None, 4)
    _, told = event(handle)
    assert told == [(5, 4, "more"), 7]
    assert handle.calls == [("reaping", False), ("wait", True), ("close",)]


@pytest.mark.parametrize("items", [None, [None]])
def test_event_of_a_child_that_a_tracer_keeps(event, items):
    handle = StandIn(items, child_watcher.NotYet())
    _, told = event(handle)
    waits = [("wait", True)] if items is None else []
    assert handle.calls == [("reaping", False), *waits, ("close",)]
    assert told == [7] and [target.pid for target in event.added] == [5]


@pytest.mark.parametrize("attributes", [{"creator": -1}, {"is_wanted": False}])
def test_event_that_is_not_told(event, attributes):
    """In a forked child it is the parent's; and the handler may have been removed."""
    handle = StandIn([SimpleNamespace(si_status=3, si_code=1)])
    _, told = event(handle, **attributes)
    assert told == ([] if "creator" in attributes else [7])
    assert handle.calls == ([] if "creator" in attributes else [("close",)])


@pytest.mark.parametrize("step", ["open_handle", "reaping"])
def test_error_of_a_signal_handler_is_not_the_systems(event, monkeypatch, step):
    error = OSError("on purpose")
    with interrupted_by(error) as interrupted:
        monkeypatch.setattr(child_watcher, "open_handle", interrupted)
        with pytest.raises(OSError, match="on purpose") as raised:
            if step == "reaping":
                event(StandIn(map(interrupted, [1])))
            else:
                child_watcher._Handler({}, None, 5, print, ()).start()
    assert raised.value is error and not event.added


def test_handler_that_is_stopped_leaves_nothing_in_the_loop(event, monkeypatch):
    discarded, handle = [], StandIn()
    monkeypatch.setattr(child_watcher, "discard", lambda loop, keys: discarded.extend(keys))
    handler, told = event(handle, creator=-1)
    handler.stop()
    assert discarded == [handler] and told == [7] and handle.calls == [("close",)]


@pytest.mark.parametrize("is_ours", [False, True])
def test_child_that_can_not_be_reaped_yet(monkeypatch, is_ours):
    """It is asked for again, for as long as it is our zombie."""
    reaped = [child_watcher.RUNNING, child_watcher.RUNNING, 5]
    monkeypatch.setattr(exitcodes, "reap_child", lambda pid: reaped.pop(0))
    monkeypatch.setattr(exitcodes, "is_our_child", lambda pid: is_ours)
    target = child_watcher._WatchedTarget(5, 5, 5)
    assert target.settle(3) is child_watcher.RUNNING
    assert target.settle(3, True) == (child_watcher.RUNNING if is_ours else 3)
    assert target.settle(3) == 5


def test_handlers_that_are_freed_while_the_watcher_is_closed():
    watcher = aio.ChildWatcher.__new__(aio.ChildWatcher)
    watcher._handlers = SimpleNamespace(valuerefs=lambda: [lambda: None])
    watcher.close()


def test_call_in_the_loop_is_made_at_once_but_in_another_threads_loop():
    called, soon = [], []
    loop = asyncio.new_event_loop()

    async def main():
        child_watcher._call(loop, called.append, 1)
        assert called == [1]

    loop.run_until_complete(main())
    child_watcher._call(loop, called.append, 2)
    assert called == [1, 2]
    loop.close()
    other = SimpleNamespace(
        is_running=lambda: True, call_soon_threadsafe=lambda *args: soon.append(args)
    )
    child_watcher._call(other, print, 3)
    assert soon == [(print, 3)]


class Callbacks:
    """Notes what a child handler is called with; done() returns once all have been told."""

    def __init__(self, wanted=1):
        self.told = []
        self.wanted = wanted
        self.future = asyncio.get_event_loop().create_future()

    def __call__(self, *args):
        self.told.append(args)
        if len(self.told) == self.wanted:
            self.future.set_result(None)

    async def done(self):
        await self.future
        return self.told


def no_room(monkeypatch):
    """Have the child's own file descriptor refused, as if there were none left."""

    def open_handle(pid):
        raise OSError(errno.EMFILE, "none is left")

    monkeypatch.setattr(child_watcher, "open_handle", open_handle)


@pytest.fixture(params=["itself", "engine", "polling"])
def way(request, monkeypatch, use_variant):
    """Each way in which a child is watched."""
    if request.param == "engine":
        no_room(monkeypatch)
    elif request.param == "polling":
        use_variant("polling")
    return request.param


@with_watchers
class TestChildren:
    pytestmark = pytest.mark.usefixtures("watcher")

    @pytest.mark.parametrize("code", [0, 1, 255, -9, -15])
    def test_return_codes(self, way, code):
        assert run(code_of(*exiting(code))) == code

    def test_shell(self, way):
        async def main():
            process = await asyncio.create_subprocess_shell("exit 7")
            return await process.wait(), process.returncode

        assert run(main()) == (7, 7)

    def test_communicate(self, way):
        async def main():
            process = await asyncio.create_subprocess_exec(
                "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            out, _ = await process.communicate(b"x" * 200000)
            return len(out), process.returncode

        assert run(main()) == (200000, 0)

    @pytest.mark.parametrize("method, code", [("terminate", -15), ("kill", -9)])
    def test_signals(self, way, method, code):
        async def main():
            process = await asyncio.create_subprocess_exec("sleep", "60")
            getattr(process, method)()
            return await process.wait()

        assert run(main()) == code

    def test_thread_without_a_loop_in_the_main_thread(self, way):
        assert in_thread(run, code_of(*exiting(5))) == 5

    def test_two_loops_at_once(self, way):
        async def main(code):
            process = await asyncio.create_subprocess_exec(
                *exiting_when_told(code), stdin=subprocess.PIPE
            )
            started.wait()
            process.stdin.close()
            return await process.wait()

        started = threading.Barrier(2)
        codes = {}
        threads = [
            threading.Thread(target=lambda code=code: codes.update({code: run(main(code))}))
            for code in (3, 4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == {3: 3, 4: 4}

    def test_many(self, way):
        async def main():
            return await asyncio.gather(*[code_of(*exiting(code)) for code in range(40)])

        threads = threading.active_count()
        assert run(main()) == list(range(40))
        assert threading.active_count() == threads

    def test_one_after_the_other_leave_nothing(self, way):
        async def main():
            await code_of(*exiting(0))
            before = open_fds()
            for code in range(5):
                assert await code_of(*exiting(code)) == code
            await asyncio.sleep(0)
            assert set(open_fds()) <= set(before)

        run(main())

    def test_no_fd_is_left_for_it(self, monkeypatch):
        """The child runs already when its pidfd is opened."""
        start = asyncio.SubprocessTransport  # loaded: with no fd left nothing can be
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        add = aio.ChildWatcher.add_child_handler
        seen = []

        def add_with_none_left(self, pid, *args):
            highest = max(open_fds())
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
            taken = []
            try:
                with pytest.raises(OSError):
                    while True:
                        taken.append(os.dup(0))
                with pytest.raises(OSError) as raised:
                    pidfd.open_pidfd(pid)
                seen.append(raised.value.errno)
                add(self, pid, *args)
            finally:
                for fd in taken:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        async def main():
            process = await asyncio.create_subprocess_exec("sleep", "60")
            process.kill()
            return await process.wait()

        monkeypatch.setattr(aio.ChildWatcher, "add_child_handler", add_with_none_left)
        assert run(main()) == -9
        assert seen == [errno.EMFILE] and start is not None

    def test_cancelled_start(self, way, monkeypatch):
        """asyncio kills the child that it has just started, and waits for it."""
        pids = []
        add = aio.ChildWatcher.add_child_handler

        def noted(self, pid, *args):
            pids.append(pid)
            add(self, pid, *args)
            task.cancel()

        async def main():
            nonlocal task
            task = asyncio.ensure_future(
                asyncio.create_subprocess_exec("sleep", "60", stdout=subprocess.PIPE)
            )
            with pytest.raises(asyncio.CancelledError):
                await task
            (pid,) = pids
            while state(pid) is not None:
                await asyncio.sleep(0.001)

        task = None
        monkeypatch.setattr(aio.ChildWatcher, "add_child_handler", noted)
        run(main())

    def test_loop_is_closed_while_a_child_runs(self, way, watcher):
        async def main():
            return await asyncio.create_subprocess_exec("sleep", "60")

        loop = asyncio.new_event_loop()
        process = loop.run_until_complete(main())
        pid = process.pid
        assert len(watcher._handlers) == 1
        loop.close()
        watcher.remove_child_handler(pid)
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        process._transport._proc.returncode = -9
        process._transport.close()
        assert run(code_of(*exiting(3))) == 3


def reaped_elsewhere(watcher, child):
    """The exits told of a child that has been reaped by the time of the event."""

    async def main():
        callbacks = Callbacks()
        watcher.add_child_handler(child.pid, callbacks, "more")
        end(child)
        become_zombie(child.pid)  # the loop is not run meanwhile
        os.waitpid(child.pid, 0)
        return await callbacks.done()

    return run(main())


def tells_codes_of_the_reaped():
    """Whether the kernel does: Linux >= 6.15."""
    child = subprocess.Popen(exiting(9))
    handle = pidfd.PidfdHandle(child.pid)
    try:
        child.wait()
        return handle.get_info() == (True, 9)
    finally:
        handle.close()


@with_watchers
class TestReapedElsewhere:
    @pytest.fixture(autouse=True)
    def logged(self, caplog):
        caplog.set_level(logging.INFO, pidwait.__name__)
        return caplog

    def test_by_waitpid_where_the_system_tells(self, watcher, told):
        code = 7 if tells_codes_of_the_reaped() else 255
        child = told(7)
        assert reaped_elsewhere(watcher, child) == [(child.pid, code, "more")]

    def test_by_waitpid_where_it_does_not(self, watcher, told, monkeypatch, logged):
        monkeypatch.setattr(pidfd.PidfdHandle, "get_info", lambda self: None)
        child = told(7)
        assert reaped_elsewhere(watcher, child) == [(child.pid, 255, "more")]
        assert "pid %d: somebody else has reaped it" % child.pid in logged.text

    def test_the_way_of_the_engine(self, watcher, told, monkeypatch):
        no_room(monkeypatch)
        code = 7 if tells_codes_of_the_reaped() else 255
        child = told(7)
        assert reaped_elsewhere(watcher, child) == [(child.pid, code, "more")]

    def test_sigchld_is_ignored(self, watcher, monkeypatch):
        """The kernel itself reaps."""

        async def main():
            process = await asyncio.create_subprocess_exec(
                *exiting_when_told(7), stdin=subprocess.PIPE
            )
            process.stdin.close()
            return await process.wait()

        expected = 7 if tells_codes_of_the_reaped() else 255
        old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            assert run(main()) == expected
            monkeypatch.setattr(pidfd.PidfdHandle, "get_info", lambda self: None)
            assert run(main()) == 255
        finally:
            signal.signal(signal.SIGCHLD, old)

    @pytest.mark.parametrize("by", ["itself", "engine"])
    def test_before_it_is_added(self, watcher, told, monkeypatch, logged, by):
        if by == "engine":
            no_room(monkeypatch)
        child = told(7)
        end(child)
        os.waitpid(child.pid, 0)

        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            return await callbacks.done()

        assert run(main()) == [(child.pid, 255)]
        assert "somebody else has reaped it" in logged.text

    def test_pid_of_a_strangers_process(self, watcher, keeper):
        """As after a reaping: the pid has gone to a process that is not our child."""
        pid = keeper.start("sleep", "60")

        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(pid, callbacks)
            return await callbacks.done()

        assert run(main()) == [(pid, 255)]
        assert state(pid) not in (None, "Z")


@with_watchers
class TestHandlers:
    def test_callback_that_raises(self, watcher, way, told):
        async def main():
            loop = asyncio.get_event_loop()
            loop.set_exception_handler(lambda loop, context: contexts.append(context))
            callbacks = Callbacks()
            watcher.add_child_handler(bad.pid, lambda *args: 1 // 0)
            watcher.add_child_handler(good.pid, callbacks)
            end(bad)
            while not contexts:
                await asyncio.sleep(0.001)
            end(good)
            return await callbacks.done()

        contexts = []
        bad, good = told(1), told(2)
        assert run(main()) == [(good.pid, 2)]
        (context,) = contexts
        assert isinstance(context["exception"], ZeroDivisionError)
        assert state(bad.pid) is None

    def test_callback_that_exits(self, watcher, told, way):
        """SystemExit leaves the loop once, and the next run of the loop goes on."""

        async def main():
            watcher.add_child_handler(first.pid, leave)
            end(first)
            await asyncio.sleep(TIMEOUT)

        def leave(*args):
            raise SystemExit(4)

        async def more():
            callbacks = Callbacks()
            watcher.add_child_handler(second.pid, callbacks)
            end(second)
            return await callbacks.done()

        first, second = told(1), told(2)
        loop = asyncio.new_event_loop()
        task = loop.create_task(main())
        try:
            with pytest.raises(SystemExit):
                loop.run_until_complete(task)
            assert loop.run_until_complete(more()) == [(second.pid, 2)]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                loop.run_until_complete(task)
        finally:
            loop.close()

    def test_ctrl_c_in_a_callback_tells_again(self, watcher, told, way):
        """Unless the handler is removed before."""

        def play(is_removed):
            async def main():
                watcher.add_child_handler(child.pid, interrupted)
                end(child)
                await asyncio.sleep(TIMEOUT)

            def interrupted(*args):
                calls_.append(args)
                if len(calls_) == 1:
                    raise KeyboardInterrupt

            async def rest():
                await asyncio.sleep(0.05 * is_removed)
                while len(calls_) < 2 - is_removed:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0)

            calls_ = []
            child = told(6)
            loop = asyncio.new_event_loop()
            task = loop.create_task(main())
            try:
                with pytest.raises(KeyboardInterrupt):
                    loop.run_until_complete(task)
                if is_removed:
                    assert watcher.remove_child_handler(child.pid) is True
                loop.run_until_complete(rest())
                assert calls_ == [(child.pid, 6)] * (2 - is_removed)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    loop.run_until_complete(task)
            finally:
                loop.close()

        play(False)
        play(True)

    def test_remove_in_the_loop(self, watcher, way, told):
        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            assert watcher.remove_child_handler(child.pid) is True
            assert watcher.remove_child_handler(child.pid) is False
            end(child)
            become_zombie(child.pid)
            await asyncio.sleep(0.05)
            assert state(child.pid) == "Z"
            return callbacks.told

        child = told(1)
        assert run(main()) == []
        assert child.wait() == 1

    def test_remove_in_another_thread(self, watcher, way, told):
        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            assert in_thread(watcher.remove_child_handler, child.pid) is True
            await asyncio.sleep(0)
            end(child)
            become_zombie(child.pid)
            await asyncio.sleep(0.05)
            assert state(child.pid) == "Z"
            return callbacks.told

        child = told(1)
        assert run(main()) == []
        assert child.wait() == 1

    def test_removed_in_another_thread_after_the_exit(self, watcher, told):
        """The loop has the event before it is told of the removal."""

        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            end(child)
            become_zombie(child.pid)
            in_thread(watcher.remove_child_handler, child.pid)
            await asyncio.sleep(0.01)
            return callbacks.told

        child = told(1)
        assert run(main()) == []
        assert child.wait() == 1

    def test_the_same_pid_again(self, watcher, way, told):
        async def main():
            old, new = Callbacks(), Callbacks()
            watcher.add_child_handler(child.pid, old)
            watcher.add_child_handler(child.pid, new, "new")
            end(child)
            return old.told, await new.done()

        child = told(3)
        assert run(main()) == ([], [(child.pid, 3, "new")])

    def test_the_same_pid_again_in_a_callback(self, watcher, told):
        """It may have gone to a new child."""

        async def main():
            callbacks = Callbacks()

            def again(pid, code):
                watcher.add_child_handler(pid, callbacks, code)

            watcher.add_child_handler(child.pid, again)
            end(child)
            return await callbacks.done()

        child = told(3)
        assert run(main()) == [(child.pid, 255, 3)]

    def test_close(self, watcher, way, told):
        async def main():
            callbacks = Callbacks()
            for child in children:
                watcher.add_child_handler(child.pid, callbacks)
            watcher.close()
            for child in children:
                end(child)
                become_zombie(child.pid)
            await asyncio.sleep(0.05)
            return callbacks.told

        children = [told(1), told(2)]
        assert run(main()) == []
        assert [child.wait() for child in children] == [1, 2]

    def test_close_in_a_forked_child_leaves_the_parents_alone(self, watcher, told):
        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            pid = os.fork()
            if pid == 0:
                try:
                    watcher.close()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            end(child)
            return await callbacks.done()

        child = told(3)
        assert run(main()) == [(child.pid, 3)]

    def test_close_in_a_forked_child_whose_loop_does_not_run(self, watcher, told):
        """It must not remove anything from the parent's epoll, which it shares."""

        def told_once(*args):
            callbacks.append(args)
            loop.stop()

        loop = asyncio.new_event_loop()
        watcher.attach_loop(loop)
        callbacks = []
        child = told(3)
        try:
            watcher.add_child_handler(child.pid, told_once)
            pid = os.fork()
            if pid == 0:
                try:
                    watcher.close()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            end(child)
            loop.run_forever()
        finally:
            loop.close()
        assert callbacks == [(child.pid, 3)]

    def test_attached_loop(self, watcher, way, told):
        """Without a running loop."""

        def told_once(*args):
            callbacks.append(args)
            loop.stop()

        loop = asyncio.new_event_loop()
        callbacks = []
        child = told(3)
        try:
            with pytest.raises(RuntimeError):
                in_thread(watcher.add_child_handler, child.pid, callbacks.append)
            watcher.attach_loop(loop)
            watcher.add_child_handler(child.pid, told_once)
            end(child)
            loop.run_forever()
        finally:
            watcher.attach_loop(None)
            loop.close()
        assert callbacks == [(child.pid, 3)]

    def test_attached_loop_that_runs_in_another_thread(self, watcher, way, told):
        def told_once(*args):
            callbacks.append(args)
            loop.stop()

        loop = asyncio.new_event_loop()
        watcher.attach_loop(loop)
        callbacks = []
        child = told(3)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            eventually(loop.is_running)
            watcher.add_child_handler(child.pid, told_once)
            end(child)
        finally:
            thread.join()
            watcher.attach_loop(None)
            loop.close()
        assert callbacks == [(child.pid, 3)]

    def test_loop_is_closed_while_another_thread_removes(self, watcher, told):
        loop = asyncio.new_event_loop()
        watcher.attach_loop(loop)
        child = told(3)
        call = loop.call_soon_threadsafe

        def closed_just_before(*args):
            del loop.is_running
            loop.close()
            call(*args)

        try:
            watcher.add_child_handler(child.pid, print)
            loop.is_running = lambda: True
            loop.call_soon_threadsafe = closed_just_before
            assert watcher.remove_child_handler(child.pid) is True
        finally:
            watcher.attach_loop(None)
        assert loop.is_closed()
        end(child)
        assert child.wait() == 3

    def test_loop_that_cant_watch_a_file_descriptor(self, watcher, told):
        child = told(3)
        loop = Blind()

        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            end(child)
            return await callbacks.done()

        try:
            assert loop.run_until_complete(main()) == [(child.pid, 3)]
        finally:
            loop.close()

    def test_bad_pids(self, watcher):
        with pytest.raises(ValueError):
            watcher.add_child_handler(0, print)
        with pytest.raises(TypeError):
            watcher.add_child_handler("1", print)

    def test_a_tracer_prevents_the_reaping(self, watcher, told, monkeypatch):
        """The event would come for ever: the engine polls instead."""

        def reaping(self, block=True):
            looks.append(block)
            return [None]

        async def main():
            callbacks = Callbacks()
            watcher.add_child_handler(child.pid, callbacks)
            end(child)
            return await callbacks.done()

        looks = []
        monkeypatch.setattr(pidfd.PidfdHandle, "reaping", reaping)
        child = told(3)
        assert run(main()) == [(child.pid, 3)]
        assert looks == [False]

    def test_exit_is_told_wherever_a_signal_handler_raises(
        self, watcher, told, interrupt_at, monkeypatch
    ):
        def refuse(fd):
            raise OSError(errno.ENOTTY, "as before Linux 6.15")

        def run_with(wanted):
            child = told(3)
            callbacks = []
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda loop, context: None)
            try:
                watcher.attach_loop(loop)
                watcher.add_child_handler(child.pid, lambda *args: callbacks.append(args))
                end(child)
                become_zombie(child.pid)
                with interrupt_at(wanted) as seen:
                    while not callbacks and len(seen) < 1000:
                        loop.call_soon(loop.stop)
                        loop.run_forever()
            finally:
                watcher.attach_loop(None)
                loop.run_until_complete(asyncio.sleep(0))
                loop.close()
            assert callbacks and set(callbacks) <= {(child.pid, code) for code in codes}
            assert state(child.pid) is None
            return len(seen)

        codes = {3}
        lines = run_with(0)
        assert lines > 15
        for wanted in range(1, lines + 1):
            run_with(wanted)
        monkeypatch.setattr(exitcodes, "from_pidfd", refuse)
        if type(calls.get("waitid")) is not type(len):  # if it is not reaped in one step
            codes.add(255)
        for wanted in range(1, run_with(0) + 1):
            run_with(wanted)

    def test_nothing_is_left_of_an_interrupted_add(self, watcher, way, told, interrupt_at):
        def run_with(wanted):
            child = told(3)
            callbacks = []
            fds = open_fds()
            loop = asyncio.new_event_loop()
            try:
                watcher.attach_loop(loop)
                interrupted = False
                with interrupt_at(wanted) as seen:
                    try:
                        watcher.add_child_handler(child.pid, lambda *args: callbacks.append(args))
                    except Interrupt:
                        interrupted = True
                assert interrupted is (wanted > 0)
                if not interrupted:
                    assert watcher.remove_child_handler(child.pid)
                loop.run_until_complete(asyncio.sleep(0))
                assert len(watcher._handlers) == 0
                assert len(loop._selector.get_map()) == 1  # the loop's own pipe
            finally:
                watcher.attach_loop(None)
                loop.close()
            assert open_fds() == fds or gc.collect() or open_fds() == fds
            end(child)
            assert child.wait() == 3
            assert callbacks == []
            return len(seen)

        lines = run_with(0)
        assert lines > 15
        for wanted in range(1, lines + 1):
            run_with(wanted)


@with_watchers
class TestClass:
    def test_it_is_a_watcher_without_a_warning_of_ours(self):
        code = """if True:
            import warnings
            warnings.simplefilter("error")
            import asyncio
            from {0} import aio
            watcher = aio.ChildWatcher()
            assert isinstance(watcher, asyncio.AbstractChildWatcher)
            with watcher as same:
                assert same is watcher and watcher.is_active()
            print(aio.ChildWatcher.__module__)
        """
        done = run_python(code.format(pidwait.__name__))
        assert (done.stdout, done.stderr) == (aio.__name__ + "\n", "")


def test_without_watchers(monkeypatch):
    if HAS_WATCHERS:
        monkeypatch.setattr(child_watcher, "AbstractChildWatcher", None)
    with pytest.raises(NotImplementedError, match="no child watchers"):
        aio.ChildWatcher()


@with_watchers
class TestClose:
    def test_while_another_thread_adds(self, watcher):
        """At each line of the code that goes through the handlers."""
        loop = asyncio.new_event_loop()
        loop.close()
        kept = []

        def add():
            pid = 2**30 + len(kept)
            kept.append(child_watcher._Handler(watcher._handlers, loop, pid, print, ()))
            watcher._handlers[pid] = kept[-1]

        def trace(frame, event, arg):
            if frame.f_code.co_filename != weakref.__file__:
                return None if frame.f_code.co_filename != child_watcher.__file__ else trace
            if event == "line":
                add()
            return trace

        add()
        add()
        sys.settrace(trace)
        try:
            watcher.close()
        finally:
            sys.settrace(None)
        assert len(kept) > 2
        assert not kept[0].is_wanted and not kept[1].is_wanted
        watcher.close()
