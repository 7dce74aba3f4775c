# SPDX-License-Identifier: BSD-3-Clause
"""Storms of signals, and handlers that do what handlers should not."""

import functools
import gc
import os
import signal
import time

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger
from ..processes import eventually, state, stop

pytest.importorskip("ctypes")


class on_signal:
    """In the block, a signal has that handler."""

    def __init__(self, sig, handler):
        self._signal = sig
        self._handler = handler

    def __enter__(self):
        self._before = signal.signal(self._signal, self._handler)

    def __exit__(self, *exc_info):
        signal.signal(self._signal, self._before)


class storm(on_signal):
    """In the block a signal comes every half millisecond, whatever is running."""

    def __init__(self, handler):
        super().__init__(signal.SIGALRM, handler)

    def __enter__(self):
        super().__enter__()
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)

    def __exit__(self, *exc_info):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().__exit__(*exc_info)


def end_soon(process, code):
    """Have another process end it in a moment; return that process's pid."""

    def tell():
        time.sleep(0.03)
        process.end(code)
        return 0

    return faults.fork(tell)


def last(count, action):
    """An iterator over count steps: None, and at last the action, once even in nested handlers."""
    return iter([None] * (count - 1) + [action])


def in_a_storm(backend):
    """Each wait goes on with the time that is left, and ends with the right code."""
    steps = iter(())

    def go_on(*args):
        step = next(steps, None)
        if step is not None:
            step()

    for make in (Child, Stranger):
        for code in (0, 7, -9):
            process = make()
            with storm(go_on), pidwait.Process(process.pid) as handle:
                faults.times_out(handle.wait, 0.02)
                faults.times_out(lambda timeout: pidwait.wait(process.pid, timeout), 0.02)
                steps = last(20, functools.partial(process.end, code))
                assert handle.wait() == code
                assert pidwait.wait(process.pid, LONG) == code
            assert process.reap() == code


class Stop(Exception):
    pass


def stopped_by_a_storm(backend):
    """Each signal ends a wait, and the last wait is right."""

    def stop(sig, frame):
        # PyPy imports with a lock that a weakref's callback frees: what is raised in there is
        # printed and lost. The next signal ends this wait.
        if "importlib" not in frame.f_code.co_filename:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Stop

    child = Child()
    opened = faults.open_fds()
    stops = 0
    for _ in range(200):
        try:
            with on_signal(signal.SIGALRM, stop):
                # The interpreter misses a signal that comes between its last check and
                # the system call; a second one wakes it.
                signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.05)
                pidwait.wait(child.pid)
        except Stop:
            stops += 1
    assert stops == 200
    for _ in range(3):  # PyPy collects the handle only after what refers to it
        gc.collect()
    # A binding runs bytecodes between the system call and the storing of the fd.
    bound = backend == "pidfd" and faults.calls.resolve("pidfd_open")[1] != "os"
    lost = set(faults.open_fds()) - set(opened)
    assert len(lost) <= (stops / 10 if bound else 0)
    for fd in lost:
        os.close(fd)
    child.end(7)
    assert pidwait.wait(child.pid, LONG) == 7
    assert child.reap() == 7


def used_by_the_handler(backend):
    """The handler waits for the same process, by the same handle and by its pid."""
    child = Child()
    seen = []
    steps = last(20, functools.partial(child.end, 7))
    with pidwait.Process(child.pid) as process:

        def look(*args):
            step = next(steps, None)
            if step is not None:
                step()
            seen.append(process.has_exited())
            try:
                seen.append(pidwait.wait(child.pid, 0))
            except pidwait.TimeoutExpired:
                seen.append(None)

        with storm(look):
            assert process.wait() == 7
            assert pidwait.wait(child.pid, LONG) == 7
    assert set(seen) <= {False, None, True, 7}
    assert child.reap() == 7


def closed_by_the_handler(backend):
    """The close leaves the interrupted wait intact."""
    child = Child()
    process = pidwait.Process(child.pid)

    def close():
        process.close()
        child.end(7)

    steps = last(5, close)

    def close_the_used(*args):
        step = next(steps, None) if process._guard._users else None
        if step is not None:
            step()

    with storm(close_the_used):
        assert process.wait() == 7
    assert process.wait() == 7  # it knows the code
    faults.raises(ValueError, process.kill)
    assert child.reap() == 7


def reaped_by_the_handler(backend):
    """A SIGCHLD handler that reaps every exited child, as in many programs."""
    statuses = {}

    def reap(*args):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            statuses[pid] = faults.exit_code(status)

    certain = backend == "pidfd" and faults.kernel_tells()
    for use_handle in (False, True):
        child = Child()
        with on_signal(signal.SIGCHLD, reap):
            teller = end_soon(child, 7)
            if use_handle:
                with pidwait.Process(child.pid) as process:
                    code = process.wait(LONG)
            else:
                code = pidwait.wait(child.pid, LONG)
            eventually(lambda: len(statuses) == 2)
        assert statuses == {teller: 0, child.pid: 7}
        assert code in ((7,) if certain else (7, None))
        statuses.clear()
        child.forget()


def stopped_waiter(backend):
    """A process that is stopped beyond the deadline of its wait still gets the code."""
    child = Child()
    timeout = 0.25
    while True:
        began = time.monotonic()
        waiter = faults.fork(wait_shortly, child.pid, timeout)
        os.setpgid(waiter, waiter)
        eventually(lambda: state(waiter) in ("S", "Z"))
        stop(waiter)
        if state(waiter) == "T" and time.monotonic() < began + timeout:
            break
        # It may have looked for the last time before it was stopped.
        os.kill(waiter, signal.SIGCONT)
        os.waitpid(waiter, 0)
        timeout *= 2
    child.become_zombie(7)
    time.sleep(timeout + 0.05)
    os.kill(waiter, signal.SIGCONT)
    assert os.waitpid(waiter, 0)[1] == 0, "no look after the deadline"
    assert child.reap() == 7


def wait_shortly(pid, timeout):
    try:
        # It looks once more after the deadline. It is not the parent: the code may be hidden.
        assert pidwait.wait(pid, timeout) in (7, None)
    except pidwait.TimeoutExpired:
        return 1
    return 0


@pytest.mark.parametrize(
    "scenario",
    [
        in_a_storm,
        stopped_by_a_storm,
        used_by_the_handler,
        closed_by_the_handler,
        reaped_by_the_handler,
        stopped_waiter,
    ],
)
def test_signals(scenario):
    faults.run_on_each_backend(scenario)
