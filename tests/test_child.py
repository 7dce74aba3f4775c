# SPDX-License-Identifier: BSD-3-Clause
"""A Child is reaped once, and all its waiters get its code; no child stays unreaped."""

import gc
import importlib
import os
import select
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from . import pidwait
from .processes import (
    become_zombie,
    eventually,
    exiting,
    interrupted_by,
    not_on_windows,
    sleeping,
    state,
)

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
child_module = importlib.import_module(pidwait.__name__ + "._child")
outcome = importlib.import_module(pidwait.__name__ + "._outcome")
spawning = importlib.import_module(pidwait.__name__ + ".spawning")


class Overtaken:
    """A handle of a process that another thread reaps just before wait()."""

    def __init__(self, handle, reap):
        self.handle = handle
        self.reap = reap

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def wait(self, deadline, reap):
        self.reap()
        return


@not_on_windows("zombies, nor waitid")
def test_code_that_another_thread_is_about_to_have(monkeypatch):
    """That thread has reaped the child, but not stored its code, which nobody else can tell."""
    child = pidwait.spawn(exiting(8))
    handle = child._guard.resource
    become_zombie(child.pid)
    infos = []

    def reap():
        child._reaper["is"] = (0,)
        infos.append(calls.get("waitid")(linux.P_PID, child.pid, linux.WEXITED))

    def say_so(look, deadline):
        assert not look() and deadline.remaining() > 0
        reaper = child._reaper.pop("is")
        assert look()  # that thread is not reaping any more
        child._reaper["is"] = reaper
        child._infos.append(infos.pop())
        assert look()
        child._reaper.clear()
        return True

    child._guard.resource = Overtaken(handle, reap)
    monkeypatch.setattr(child_module, "poll", say_so)
    try:
        assert child.has_exited() and child.exitcode == 8
        assert child.reaped and not infos
    finally:
        child._guard.resource = handle
        child.close()


def test_looking_at_one_that_runs_does_not_wait_for_another_thread(monkeypatch):
    """That thread may be in a wait that blocks, and reaps at its end."""
    with pidwait.spawn(sleeping(60)) as child:
        child._reaper["is"] = (0,)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(child_module, "poll", None)
                assert not child.has_exited()
        finally:
            child._reaper.clear()
            child.kill()


@pytest.mark.parametrize(
    "seen, told, code",
    [(None, 5, 5), (4, None, 4), (4, 5, 4), (None, outcome.RUNNING, None)],
)
def test_code_is_that_of_the_exit_or_of_the_reaping(seen, told, code):
    child = pidwait.spawn(exiting(0))
    handle = child._guard.resource
    child._guard.resource = SimpleNamespace(
        pid=child.pid, backend="none", wait=lambda deadline, reap: told if reap else seen
    )
    try:
        assert child.wait(30) == code
    finally:
        child._guard.resource = handle
        pidwait.wait(child.pid, reap=True)
        child.close()


def test_wait_goes_on_until_a_tracer_lets_it_reap():
    tries = []

    def wait(deadline, reap):
        if reap:
            tries.append(True)
            if len(tries) < 3:
                raise outcome.NotYet
        return 3

    child = pidwait.spawn(exiting(0))
    handle = child._guard.resource
    child._guard.resource = SimpleNamespace(pid=child.pid, backend="none", wait=wait)
    try:
        assert child.wait(30) == 3 and child.reaped
        assert len(tries) == 3
    finally:
        child._guard.resource = handle
        pidwait.wait(child.pid, reap=True)
        child.close()


def test_nothing_is_reaped_twice():
    """By a pid that would be another process's; nor while another thread is reaping."""
    reaped = []
    with pidwait.spawn(exiting(0)) as child:
        child._reaper["is"] = (0,)
        child._reap(reaped.append, child)
        assert child._reaper == {"is": (0,)}
        child._reaper.clear()
        child.wait(30)
        child._reap(reaped.append, child)
    assert reaped == [] and child._reaper == {}


def test_reaping_whose_end_ctrl_c_interrupts():
    """Nobody else could reap if it left its mark."""

    class Reaper(dict):
        looks = 0

        def get(self, key):
            self.looks += 1
            if self.looks == 1:
                raise KeyboardInterrupt
            return dict.get(self, key)

    with pidwait.spawn(exiting(0)) as child:
        child._reaper = Reaper()
        with pytest.raises(KeyboardInterrupt):
            child._reap(lambda: None)
        assert child._reaper == {}


def test_ctrl_c_gives_the_child_a_moment(monkeypatch):
    """As long as a Popen would."""
    timeouts = []
    with pytest.raises(KeyboardInterrupt), pidwait.spawn(exiting(0)) as child:
        wait = child.wait
        monkeypatch.setattr(child, "wait", lambda timeout: timeouts.append(timeout) or wait(30))
        raise KeyboardInterrupt
    (timeout,) = timeouts
    assert 0 < timeout < 1


def test_one_that_was_started_by_other_means(start):
    popen = start(*exiting(3))
    with pidwait.Child(popen.pid) as child:
        assert child.args is None
        assert child.wait() == 3 and child.reaped
    popen.returncode = 3


def test_one_that_runs_keeps_no_other_unreaped():
    first, second = (pidwait.spawn(sleeping(60)) for _ in range(2))
    with pidwait.Process(first.pid) as one, pidwait.Process(second.pid) as two:
        first.close()
        second.close()
        one.kill()
        one.wait()
        child_module.reap_left()
        assert [handle.pid for handle in child_module.left] == [second.pid]
        two.kill()
        two.wait()
        child_module.reap_left()
    assert child_module.left == []


def test_closed_while_it_runs_without_a_pid():
    """As in another PID namespace: there is nothing by which to reap it later."""
    child = pidwait.spawn(sleeping(60))
    handle = child._guard.resource
    with pidwait.Process(child.pid) as process:
        child._guard.resource = SimpleNamespace(
            pid=None, backend="none", wait=lambda deadline, reap: outcome.RUNNING, close=bool
        )
        child.close()
        assert child_module.left == []
        process.kill()
        assert process.wait(reap=True) is not None
    handle.close()


def test_one_whose_tracer_has_not_let_it_go(monkeypatch):
    closed = []

    class Traced:
        def wait(self, deadline, reap):
            raise outcome.NotYet

        def close(self):
            closed.append(self)

    left = [Traced()]
    monkeypatch.setattr(child_module, "left", left)
    child_module.reap_left()
    assert len(left) == 1 and closed == []


@not_on_windows("signals")
@pytest.mark.parametrize("timeout", [None, 30])
def test_signal_handler_that_waits_for_it_too(variant, timeout):
    """The wait that the handler interrupts can't reap before the handler returns."""
    codes, done = [], []

    def handle(signum, frame):
        child.kill()
        codes.append(child.wait(timeout))

    def interrupt():
        eventually(lambda: child._guard._users)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not (codes or done):
            # The signal may have come just before the system call, which another one ends.
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR1, handle)
    before_2 = signal.signal(signal.SIGUSR2, lambda signum, frame: None)
    interrupter = threading.Thread(target=interrupt)
    try:
        with pidwait.spawn(sleeping(60)) as child:
            interrupter.start()
            codes.append(child.wait(timeout))
    finally:
        done.append(True)
        interrupter.join()
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, before_2)
    assert codes == [-signal.SIGKILL] * 2


@not_on_windows("zombies")
def test_wait_by_threads_with_and_without_time_out(variant):
    for _ in range(10):
        with pidwait.spawn(exiting(7, after=0.01)) as child, ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(child.wait, [None, 30] * 4))
        assert codes == [7] * 8
        assert state(child.pid) is None


class Interrupt(Exception):
    """An exception as a signal handler may raise it."""


def interrupted_at(step):
    """Start a process and raise at the step-th line of our code; return whether there is one."""
    folder = os.path.dirname(spawning.__file__)
    # An exception there loses the pidfd that has just been opened: see README.
    binding = os.path.dirname(calls.__file__)
    lines = []

    def trace(frame, event, argument):
        file = frame.f_code.co_filename
        if not file.startswith(folder) or file.startswith(binding):
            return None
        if frame.f_code.co_name == "__del__":  # an exception there is only printed
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == step:
                sys.settrace(None)
                raise Interrupt
        return trace

    try:
        sys.settrace(trace)
        child = pidwait.spawn(["true"])
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    with child:
        return False


@not_on_windows("zombies")
@pytest.mark.filterwarnings("ignore:unclosed <Child")
def test_start_that_is_interrupted_leaves_no_child_without_an_owner(children_of_ours):
    with pidwait.spawn(["true"]):  # which imports all that a start needs
        pass
    step = 1
    while interrupted_at(step):
        step += 1
    assert step > 30
    for _ in range(3):  # without reference counts, each round finds what the last one left
        gc.collect()
    eventually(lambda: child_module.reap_left() or child_module.left == [])
    assert children_of_ours() == set()


@not_on_windows("signals")
def test_time_out_of_a_signal_handler_ends_the_block():
    """It is not that of our own wait after Ctrl-C."""
    child = pidwait.spawn(["true"])
    child.wait()
    interrupting, raises = interrupted_by(TimeoutError("on purpose")), pytest.raises(TimeoutError)
    with interrupting as child.wait, raises, child:
        pass
    assert "closed" in repr(child)


@not_on_windows("signals")
def test_one_that_runs_may_be_closed_twice():
    child = pidwait.spawn(sleeping(60))
    try:
        for _ in range(2):
            child.close()
            assert [handle.pid for handle in child_module.left].count(child.pid) == 1
    finally:
        os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: child_module.reap_left() or child_module.left == [])


@not_on_windows("signals")
def test_handle_of_one_that_was_left_is_closed(monkeypatch):
    closed = []
    child = pidwait.spawn(sleeping(60))
    try:
        child.close()
        (handle,) = [one for one in child_module.left if one.pid == child.pid]
        close = type(handle).close
        monkeypatch.setattr(type(handle), "close", lambda one: closed.append(one) or close(one))
    finally:
        os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: child_module.reap_left() or child_module.left == [])
    assert any(one is handle for one in closed)


def test_what_later_starts_need_is_loaded_once(monkeypatch):
    prepared, prepare = [], spawning._prepare
    monkeypatch.setattr(spawning, "_prepared", [])
    monkeypatch.setattr(spawning, "_prepare", lambda: (prepared.append(True), prepare()))
    for _ in range(2):
        with pidwait.spawn(exiting(0)):
            assert prepared == [True]


@not_on_windows("zombies")
def test_start_with_a_wrong_backend_starts_nothing(monkeypatch, children_of_ours):
    probe = importlib.import_module(pidwait.__name__ + "._probe")
    monkeypatch.setenv("PIDWAIT_BACKEND", "foo")
    probe.forget()
    try:
        with pytest.raises(ValueError, match="PIDWAIT_BACKEND"):
            pidwait.spawn(["true"])
    finally:
        monkeypatch.undo()
        probe.forget()
    assert children_of_ours() == set()


@pytest.fixture
def children_of_ours():
    """The new children of this process, zombies or not."""
    before = children()
    return lambda: children() - before


def children():
    pids = filter(str.isdigit, os.listdir("/proc"))
    return {pid for pid in map(int, pids) if parent(pid) == os.getpid()}


def parent(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:  # the name may be any bytes
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


@not_on_windows("select.poll")
@pytest.mark.parametrize("wait", [pidwait.Child.wait, pidwait.wait])
def test_poll_that_lets_others_run_meanwhile(use_variant, monkeypatch, wait):
    """Such as gevent's: the wait has to block in it, and not in waitid(2)."""
    use_variant("pidfd-ctypes")
    polls, poll = [], select.poll

    def patched():
        polls.append(poll())
        return polls[-1]

    with pidwait.spawn(exiting(3)) as child:
        monkeypatch.setattr(select, "poll", patched)
        assert wait(child) == 3
        assert polls
        monkeypatch.undo()


def test_is_compared_late(variant):
    """A start asks for nothing that only a comparison needs."""
    pidwait.Process(os.getpid()).close()  # finds out whether pidfds have inodes
    with pidwait.spawn(sleeping(60)) as child:
        keeps = child._guard.resource.keeps_identity()
        assert (child._identity is None) == keeps
        with pidwait.Process(child.pid) as process, pidwait.Process(os.getpid()) as other:
            assert child == process != other and child != other
            child.kill()
            child.wait()
    assert child == process


def test_closed_before_it_was_compared(variant):
    pidwait.Process(os.getpid()).close()
    with pidwait.spawn(sleeping(60)) as child, pidwait.Process(child.pid) as process:
        keeps = child._guard.resource.keeps_identity()
        child.kill()
        child.wait()
        child.close()
        assert (child == process) is not keeps
        assert child == child and child in {child, process}
