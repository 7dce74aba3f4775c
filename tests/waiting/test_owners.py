# SPDX-License-Identifier: BSD-3-Clause
"""Objects that stand for a process: a wait ends with the owner having reaped, by its own means.

They are told by what they have: Popen, multiprocessing, psutil, asyncio's, and whatever is like
them. Their own code may raise, block, or wait itself. Those of other packages are in plays.
"""

import contextlib
import errno
import gc
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
import types
from unittest import mock

import pytest

from .. import pidwait
from ..processes import (
    WINDOWS,
    become_zombie,
    codes,
    everywhere,
    exiting,
    exiting_when_told,
    gone_pid,
    need_packages,
    not_on_windows,
    run_python,
    run_script,
    sleeping,
    state,
)
from .threads import Thread
from .ways import WAYS, by_as_completed, by_set, by_wait, every_way


class Owner:
    """An object with a pid, and these attributes."""

    def __init__(self, pid, **attributes):
        self.pid = pid
        vars(self).update(attributes)


@everywhere
@every_way
def test_an_object_with_a_pid_does_not_reap(variant, way, start):
    class LikeInvoke(Owner):
        def returncode(self):
            raise AssertionError("its own thread reaps")

        poll = returncode

    child = start(*exiting(2))
    for job in Owner(child.pid), LikeInvoke(child.pid):
        assert way(job) == 2 and state(child.pid) == "Z"
    assert child.wait() == 2
    assert way(Owner(gone_pid())) is None


@everywhere
@pytest.mark.parametrize("code", codes(0, 3, -signal.SIGTERM))
def test_popen_has_reaped_when_the_wait_ends(variant, start_told, code):
    child = start_told(code)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(child, 0.01)
    assert child.returncode is None
    threading.Timer(0.02, child.stdin.close).start()
    assert pidwait.wait(child, 30) == code
    assert child.returncode == code  # without another call
    assert WINDOWS or state(child.pid) is None
    assert pidwait.wait(child) == pidwait.wait(child, 0) == code


@everywhere
def test_popen_has_reaped_though_the_wait_was_to_reap(variant, start_told):
    child = start_told(3)
    threading.Timer(0.02, child.stdin.close).start()
    assert pidwait.wait(child, 30, reap=True) == child.returncode == 3


@pytest.mark.kqueue
@every_way
@pytest.mark.parametrize("code", [0, 3, -9])
def test_popen_whose_child_is_a_zombie(variant, way, zombie, code):
    child = zombie(code)
    assert way(child) == child.returncode == code
    assert state(child.pid) is None and way(child) == code


@everywhere
@pytest.mark.threads
@pytest.mark.parametrize("timeout", [None, 60])
def test_popen_that_another_thread_waits_for(variant, start_told, timeout):
    child = start_told(9)
    waiters = [Thread(child.wait).asleep(), Thread(pidwait.wait, child, timeout).asleep()]
    child.stdin.close()
    assert [waiter.result() for waiter in waiters] == [9, 9]


@not_on_windows("lock that Popen.poll() takes")
def test_popen_that_another_thread_polls(variant, zombie):
    """poll() returns None while another thread is inside: that does not mean that it runs."""
    child = zombie(4)
    with child._waitpid_lock:
        # It has exited: there is no time-out, and the code that was seen is the answer.
        assert pidwait.wait(child, 0) == pidwait.wait(child, 0.02) == 4
        assert child.returncode is None
        waiter = Thread(pidwait.wait, child, 60).asleep()
    assert waiter.result() == 4
    assert pidwait.wait(child) == child.returncode == 4


@not_on_windows("fork")
@every_way
def test_multiprocessing_whose_pid_is_a_strangers_by_now(variant, way, keeper):
    """Somebody else has reaped its child, and the pid was given to another process."""
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    process.start()
    os.waitpid(process.pid, 0)
    process._popen.pid = keeper.start(*sleeping(60))
    assert way(process) is None
    assert state(process.pid) not in (None, "Z")
    process._popen.returncode = 0
    process.join()


def ended_popen(code):
    return subprocess.Popen(exiting(code))


def ended_child(code):
    return pidwait.spawn(exiting(code))


def ended_multiprocessing(code):
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(code,))
    process.start()
    return process


@pytest.mark.kqueue
@not_on_windows("zombies")
@pytest.mark.parametrize("way", [*WAYS, by_as_completed])
@pytest.mark.parametrize("make", [ended_popen, ended_child, ended_multiprocessing])
def test_an_owner_where_nobody_can_look_without_reaping(variant, backend, way, make, seam):
    """It reaps before the wait ends, and its code is the answer."""
    if backend == "pidfd":
        seam.hide_zombies()
        seam.refuse("ioctl")
    seam.refuse("waitid", errno.ENOSYS)
    for code in 0, 7:
        proc = make(code)
        become_zombie(proc.pid)
        assert way(proc) == code and state(proc.pid) is None
        assert (proc.returncode if make is ended_popen else proc.exitcode) == code


def told_popen():
    child = subprocess.Popen(exiting_when_told(3), stdin=subprocess.PIPE)
    return child, child.stdin.close, lambda: child.returncode


def told_child():
    stdin, told = os.pipe()
    child = pidwait.spawn(exiting_when_told(3), stdin=stdin)
    os.close(stdin)
    return child, lambda: os.close(told), lambda: child.exitcode if child.reaped else None


@not_on_windows("exits that another thread can reap first")
@pytest.mark.threads
@pytest.mark.parametrize("make", [told_popen, told_child])
def test_an_owner_in_whose_wait_another_thread_is_has_its_code_reported(variant, make):
    """Also at the deadline, if its thread stores the code within the 10 ms of grace."""
    for timeout in 0, 0.0002, 0.002:
        codes = []
        for _ in range(4):
            owner, end, code = make()
            with owner, pidwait.WaitSet([owner]) as waiting:
                thread = Thread(owner.wait).asleep()
                end()
                exits = []
                while not exits:
                    exits = pidwait.wait_procs([owner], timeout)[0]
                codes.append(exits[0][1])
                assert waiting.wait(20) == [(owner, 3)] and thread.result() == code() == 3
        assert 3 in codes and {3, None}.issuperset(codes)


@every_way
def test_popen_whose_pid_is_a_strangers_by_now(variant, way, keeper, start):
    """Somebody else has reaped its child, and the pid was given to another process."""
    child = start(*exiting(3))
    os.waitpid(child.pid, 0)
    child.pid = keeper.start(*sleeping(60))
    assert way(child) is None
    assert state(child.pid) not in (None, "Z")
    child.returncode = 0


class Busy(Owner):
    """Like a Popen that another thread uses, which may have reaped: a later poll() has the code."""

    returncode = None

    def poll(self):
        if self.reaps:
            os.waitpid(self.pid, 0)
            self.reaps = False
        self.left -= 1
        if self.left < 0:
            self.returncode = self.code
        return self.returncode


@every_way
@pytest.mark.parametrize("reaps", [False, True])
def test_popen_whose_code_comes_a_moment_later(variant, way, zombie, reaps):
    owner = Busy(zombie(3).pid, left=3, reaps=reaps, code=3)
    assert way(owner) == owner.returncode == 3


@pytest.mark.parametrize("way", [by_wait, by_set])
def test_popen_whose_code_never_comes_does_not_hold_up_a_wait(way, zombie):
    """After a second what the system has told counts."""
    assert way(Busy(zombie(3).pid, left=10**9, reaps=True, code=4)) == 3


@every_way
@pytest.mark.parametrize("code", [5, 0])
def test_popen_without_a_lock_makes_up_no_code(variant, way, code):
    """gevent's: its loop has reaped the child before, and poll() tells the code."""
    assert way(Busy(gone_pid(), left=0, reaps=False, code=code)) == code


SCRIPT = """if True:
    import multiprocessing, sys, time
    import {package} as pidwait

    def expect(error, *args):
        try:
            pidwait.wait(*args)
        except error:
            return
        raise AssertionError("no %s" % error)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        process = context.Process(target=sys.exit, args=(7,))
        expect(ValueError, process)  # not started
        process.start()
        assert pidwait.wait(process, 30) == 7
        assert process._popen.returncode == 7  # joined, without another call
        assert process not in multiprocessing.process._children
        assert pidwait.wait(process) == 7
        sleeper = context.Process(target=time.sleep, args=(60,))
        sleeper.start()
        expect(pidwait.TimeoutExpired, sleeper, 0.01)
        sleeper.terminate()
        ((_, code),), alive = pidwait.wait_procs([sleeper], 30)
        assert code in {codes} and pidwait.wait(sleeper) in {codes}, code
        if hasattr(process, "close"):
            process.close()
            expect(ValueError, process)
"""


@pytest.mark.windows
@pytest.mark.parametrize("method", sorted(multiprocessing.get_all_start_methods()))
def test_multiprocessing_has_joined_when_the_wait_ends(variant, method, tmp_path):
    """Also for a fork server's processes, which are not our children."""
    right = [int(-signal.SIGTERM)]
    if method == "forkserver":
        from multiprocessing import forkserver

        if not hasattr(forkserver, "read_signed"):
            right.append(None)  # Python 3.6: the server hides signals
    run_script(tmp_path / "script.py", SCRIPT.format(package=pidwait.__name__, codes=right), method)


class LikeMultiprocessing(Owner):
    """join() finds the code that it was made with."""

    def __init__(self, pid, told, method=None, exitcode=None):
        super().__init__(pid, told=told, exitcode=exitcode, joins=0)
        if method:
            self._popen, self._parent_pid = types.SimpleNamespace(method=method), os.getpid()

    def join(self, timeout=None):
        self.joins += 1
        self.exitcode = self.told


@every_way
def test_multiprocessing_whose_fork_server_could_not_tell(variant, way, zombie, sleeper):
    """It then reports 255, which is no exit code."""
    assert way(LikeMultiprocessing(zombie(3).pid, 255, "forkserver")) == 3
    assert way(LikeMultiprocessing(zombie(3).pid, 255, "fork")) == 255
    assert pidwait.wait(LikeMultiprocessing(gone_pid(), 255, "forkserver"), 30) is None
    # Whoever has the pid now is not waited for.
    assert pidwait.wait(LikeMultiprocessing(sleeper.pid, 255, "forkserver", 255), 0) is None
    assert pidwait.wait(LikeMultiprocessing(sleeper.pid, 255, "fork", 255), 0) == 255
    assert pidwait.wait(LikeMultiprocessing(sleeper.pid, 254, "forkserver", 254), 0) == 254


@pytest.mark.kqueue
def test_multiprocessing_that_knows_no_code(variant, zombie):
    assert pidwait.wait(LikeMultiprocessing(gone_pid(), None), 0) is None
    assert pidwait.wait(LikeMultiprocessing(zombie(3).pid, None), 30) == 3
    late = LikeMultiprocessing(gone_pid(), None, "fork")
    # Another thread may be about to store the code; there is no time-out, as it has exited.
    assert pidwait.wait(late, 0) is None
    late.told = 5
    assert pidwait.wait(late, 30) == 5
    late.exitcode, late.told, late.joins = None, None, 0
    assert pidwait.wait(late, 30) is None and late.joins < 20  # soon: a second takes some 60
    late._parent_pid += 1  # in a forked child nobody will
    assert pidwait.wait(late, 0) is None


@every_way
def test_multiprocessing_is_joined_after_it_knows_its_code(variant, way, zombie):
    """Else multiprocessing would keep it among its children."""

    class Late(LikeMultiprocessing):
        exitcode = property(lambda self: 3 if self.joins else None, lambda self, code: None)

    process = Late(zombie(3).pid, 3)
    assert way(process) == 3
    assert process.joins >= 2


ASYNCIO = """if True:
    import asyncio
    import {package} as pidwait

    async def main():
        process = await asyncio.create_subprocess_exec(*{command})
        code = await loop.run_in_executor(None, pidwait.wait, process, 30)
        return code, await process.wait(), pidwait.wait(process, 0)

    # Windows' default before Python 3.8 starts no processes.
    new_loop = getattr(asyncio, "ProactorEventLoop", asyncio.new_event_loop)
    loop = new_loop()
    asyncio.set_event_loop(loop)
    code, *rest = loop.run_until_complete(main())
    # Its watcher may have reaped it before the other thread could look.
    assert code in (3, None) and rest == [3, 3], (code, rest)
    loop.close()
"""


@pytest.mark.windows
def test_asyncios_process_is_left_to_its_loop(variant):
    done = run_python(ASYNCIO.format(package=pidwait.__name__, command=exiting(3, 0.02)))
    assert (done.stderr, done.returncode) == ("", 0)


class LikeTrio:
    """Asked for its code, it reaps, and then raises: it is not in its loop's thread."""

    def __init__(self, popen):
        self.pid, self._proc = popen.pid, popen

    @property
    def returncode(self):
        if self._proc.poll() is not None:
            raise RuntimeError("must be called from async context")

    def poll(self):
        return self.returncode

    async def wait(self):
        raise AssertionError("its loop waits for it")


@every_way
def test_a_loop_that_reaps_and_then_raises(variant, way, zombie, start_told):
    child, running = zombie(3), start_told(4)
    process = LikeTrio(child)
    assert way(process) == way(process) == 3  # it has been reaped
    process = LikeTrio(running)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(process, 0)
    threading.Timer(0.05, running.stdin.close).start()
    assert way(process) == 4
    assert state(running.pid) == "Z"


class Reaped(Owner):
    """As asyncio's, which a thread has reaped: the loop is told a little later."""

    @property
    def returncode(self):
        self.left -= 1
        return 3 if self.left < 0 else None


@every_way
@pytest.mark.parametrize("left", [0, 9])
def test_a_loop_that_is_about_to_be_told(variant, way, left):
    assert way(Reaped(gone_pid(), left=left)) == 3


def test_a_loop_that_is_never_told_does_not_hold_up_a_wait():
    assert pidwait.wait(Reaped(gone_pid(), left=10**9), 0) is None
    assert pidwait.wait(Reaped(gone_pid(), left=10**9), 30) is None


@pytest.mark.peers
@every_way
def test_psutils_popen_reaps_but_its_process_does_not(variant, way, start):
    need_packages("psutil")
    import psutil

    child, popen = start(*exiting(5)), psutil.Popen(exiting(3))
    process = psutil.Process(child.pid)
    assert way(popen) == popen.returncode == 3 and state(popen.pid) is None
    assert way(process) == 5 and state(child.pid) == "Z"
    assert child.wait() == 5 and way(process) is None


@everywhere
@every_way
def test_an_object_that_knows_of_its_exit_is_believed(variant, way, sleeper):
    """psutil's, whose pid is another process's by now; ours, of another copy of the package."""
    none = Owner(sleeper.pid, is_running=lambda: False, create_time=lambda: 0.0)
    four = Owner(sleeper.pid, backend="x", has_exited=lambda: True, exitcode=4)
    zero = Owner(sleeper.pid, reaped=True, exitcode=0, wait=None)
    assert [way(none), way(four), way(zero)] == [None, 4, 0]


@pytest.mark.parametrize("times, told, code", [(3, 4, 4), (0, None, 3), (0, 3, 3)])
def test_another_copys_child_reaps(variant, zombie, times, told, code):
    """It is asked again while its wait(0) times out."""
    late = [TimeoutError()] * times

    def wait(timeout):
        assert timeout <= 0
        if late:
            raise late.pop()
        return told

    assert pidwait.wait(Owner(zombie(3).pid, reaped=False, exitcode=None, wait=wait), 30) == code


@everywhere
def test_a_mock_of_a_popen_answers_with_its_returncode(variant, sleeper):
    popen = mock.Mock(spec=subprocess.Popen, pid=sleeper.pid, returncode=0)
    assert pidwait.wait(popen) == pidwait.wait(popen, 0) == 0
    popen.returncode = None
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(popen, 0)


KINDS = {
    "Popen": {"returncode": None, "poll": lambda: 3},
    "multiprocessing": {"exitcode": None, "join": lambda timeout=None: None},
    "psutil": {"create_time": lambda: 1.0, "is_running": lambda: True},
    "Process": {"backend": "other", "exitcode": None, "has_exited": lambda: False},
    "Child": {"reaped": False, "exitcode": None, "wait": lambda timeout: None},
    "asyncio": {"returncode": None},
}


class Faulty:
    """An object of a kind whose attributes of these names call a function first, once armed."""

    def __init__(self, pid, kind, names, function, armed=True):
        self._all, self.armed = dict(KINDS[kind], pid=pid), armed

        def use(name, value=None, *args):
            if self.armed and name in names.split():
                function()
            return value(*args) if callable(value) else value

        self._use = use

    def __getattr__(self, name):
        if name not in self.__dict__.get("_all", ()):
            raise AttributeError(name)
        value = self._all[name]
        if callable(value):
            return lambda *args: self._use(name, value, *args)
        return self._use(name, value)


def raising(error):
    def function():
        raise error

    return function


FAULTY = [
    ("Popen", "returncode"),
    ("Popen", "poll"),
    ("multiprocessing", "exitcode"),
    ("multiprocessing", "join"),
    ("psutil", "is_running create_time"),
    ("Process", "has_exited"),
    ("Child", "reaped"),
    ("Child", "wait"),
    ("asyncio", "returncode"),
]
MEMORY = OSError(errno.ENOMEM, "x")
ERRORS = [ValueError("closed"), AssertionError(), OSError(errno.EIO, "x"), ZeroDivisionError()]


@pytest.mark.kqueue
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind, names", FAULTY)
def test_an_owner_that_raises_loses_only_its_own_answer(variant, zombie, kind, names, error):
    assert pidwait.wait(Faulty(zombie(3).pid, kind, names, raising(error)), 30) == 3


@pytest.mark.parametrize("kind, names", FAULTY)
def test_an_owner_that_raises_once_it_is_waited_for(variant, start_told, kind, names):
    """After close(), all attributes of a multiprocessing.Process raise ValueError."""
    child, other, told = start_told(3), start_told(4), queue.Queue()
    owner = Faulty(child.pid, kind, "pid " + names, raising(ValueError("closed")), False)
    with pidwait.WaitSet([owner, other]) as waiting:
        watch = pidwait.watch(owner, lambda *exit: told.put(exit))
        pidwait.watch(other, lambda *exit: told.put(exit))
        owner.armed = True
        child.stdin.close()
        assert waiting.wait(20) == [(owner, 3)]
        assert told.get(timeout=20) == (owner, 3)
        waiting.discard(owner)
        watch.cancel()
        other.stdin.close()
        assert waiting.wait(20) == [(other, 4)]
        assert told.get(timeout=20) == (other, 4)


def test_an_owner_that_exits_stops_nobody_else(variant, start_told):
    """The set's wait raises its SystemExit; both the set and watch() still report the other one."""
    child, other, told = start_told(3), start_told(4), queue.Queue()
    owner = Faulty(child.pid, "Popen", "poll", raising(SystemExit()))
    with pidwait.WaitSet([owner, other]) as waiting:
        pidwait.watch(owner, lambda *exit: told.put(exit))
        pidwait.watch(other, lambda *exit: told.put(exit))
        child.stdin.close()
        assert told.get(timeout=20) == (owner, 3)
        with pytest.raises(SystemExit):
            waiting.wait(20)
        other.stdin.close()
        assert told.get(timeout=20) == (other, 4)
        for _ in range(3):
            with contextlib.suppress(SystemExit):
                assert waiting.wait(20) == [(other, 4)]
        assert list(waiting) == [owner]


@every_way
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "x"), ImportError(), MEMORY], ids=repr)
def test_an_owner_that_lacks_something_is_asked_again(variant, way, zombie, error):
    """Perhaps only an import inside its code failed."""

    class Lacking(LikeMultiprocessing):
        def join(self, timeout=None):
            super().join()
            if self.joins <= 3:
                self.exitcode = None
                raise error

    assert way(Lacking(zombie(3).pid, 9)) == 9


@every_way
def test_an_owner_that_blocks_holds_up_nobody_else(variant, way, zombie, start):
    """No lock is held while its code runs."""
    pid, inside, over = zombie(3).pid, threading.Event(), threading.Event()
    waiter = Thread(way, Faulty(pid, "Popen", "poll", lambda: inside.set() or over.wait()))
    inside.wait()
    child = start(*exiting(4))
    assert by_wait(child.pid) == by_set(child) == 4
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(os.getpid(), 0.001)
    assert waiter.is_alive()
    over.set()
    assert waiter.result() == 3


@every_way
def test_an_owner_that_waits_itself(variant, way, zombie, start):
    pid, child, seen = zombie(3).pid, start(*exiting(4)), []
    waits = Faulty(pid, "Popen", "poll", lambda: seen.append(by_wait(pid) + by_set(child)))
    assert way(waits) == 3 and set(seen) == {7}


# What is not what it seems


@everywhere
@every_way
def test_a_mock_of_a_popen_has_the_code_that_it_was_given(variant, way):
    """It has every attribute, and is a number, too."""
    popen = mock.MagicMock(pid=gone_pid(), returncode=3)
    popen.poll.return_value = 3
    assert way(popen) == 3


@everywhere
def test_the_pid_of_a_mock_is_refused():
    with mock.patch("subprocess.Popen") as popen:
        given = popen(["make"])
        uses = (pidwait.wait, given), (pidwait.WaitSet, [given]), (pidwait.Process, given.pid)
        for use, argument in uses:
            with pytest.raises(TypeError, match="must be an int, not MagicMock"):
                use(argument)


@everywhere
def test_a_number_with_a_pid_stands_for_the_pid(variant):
    class Number:
        pid = os.getpid()

        def __index__(self):
            return 1

    with pytest.raises(pidwait.TimeoutExpired) as caught:
        pidwait.wait(Number(), 0)
    assert caught.value.pid == os.getpid()


class OldPsutil:
    """psutil.Process before 7.1: a step of the clock moves all start times by whole seconds."""

    step = 0

    def __init__(self, pid):
        self.pid, self._created = pid, 1e9 + 0.37 + self.step

    def create_time(self):
        return self._created

    def is_running(self):
        return self == type(self)(self.pid)

    def __eq__(self, other):
        return self._created == other._created

    __hash__ = None


@everywhere
@every_way
def test_a_step_of_the_clock_is_no_exit(variant, way, start, monkeypatch):
    child = start(*exiting(3, 0.2))
    proc = OldPsutil(child.pid)
    monkeypatch.setattr(OldPsutil, "step", 60)
    assert not proc.is_running()
    assert way(proc) == 3


@everywhere
def test_a_join_that_is_a_coroutine_is_not_called(variant, start, recwarn):
    """As that of dask's AsyncProcess: nobody would wait for it."""
    child = start(*exiting(3))

    class Process:
        pid, exitcode = child.pid, None

        async def join(self):
            raise AssertionError

    assert pidwait.wait(Process(), 20) == 3
    gc.collect()
    assert not list(recwarn)
