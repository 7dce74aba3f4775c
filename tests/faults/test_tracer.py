# SPDX-License-Identifier: BSD-3-Clause
"""A tracer such as a debugger: it learns of the exit first, and holds our child while it likes."""

import os
import signal
import subprocess
import time

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, calls, raises, times_out
from ..processes import eventually, state
from . import system

pytest.importorskip("ctypes")

PTRACE_CONT = 7
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
PTRACE_O_TRACEEXIT = 1 << 6


def ptrace(request, pid, data=0):
    system.libc.ptrace.restype = system.ctypes.c_long
    system.call("ptrace", *map(system.ctypes.c_long, (request, pid, 0, data)))


class Tracer:
    """A process that traces another, and does nothing else until it is told."""

    def __init__(self, pid, options=0):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = faults.fork(self._serve, pid, options, orders, answers)
        os.close(orders)
        os.close(answers)
        self._answer()

    def _serve(self, pid, options, orders, answers):
        ptrace(PTRACE_SEIZE, pid, options)
        os.write(answers, b".")
        for order in iter(lambda: os.read(orders, 1), b"q"):
            if order == b"i":
                ptrace(PTRACE_INTERRUPT, pid)
            elif order == b"c":
                os.waitpid(pid, 0)
                ptrace(PTRACE_CONT, pid)
            elif order == b"w":
                os.waitpid(pid, 0)
            os.write(answers, b".")

    def _answer(self):
        assert os.read(self._answers, 1) == b".", "the tracer may not trace"

    def _tell(self, order):
        os.write(self._orders, order)
        self._answer()

    def interrupt(self):
        self._tell(b"i")

    def go_on(self):
        """Have the stopped process run again."""
        self._tell(b"c")

    def let_go(self):
        """Have it wait for the exit, as a debugger does in the end."""
        self._tell(b"w")

    def exit(self):
        os.write(self._orders, b"q")
        assert os.waitpid(self._pid, 0)[1] == 0
        os.close(self._orders)
        os.close(self._answers)


def let_be_traced():
    try:
        system.prctl(system.PR_SET_PTRACER, system.ctypes.c_ulong(-1).value)
    except OSError:  # there is no Yama
        pass


def held(code):
    """A child that has exited, and its tracer, which has not waited for the exit yet."""
    child = Child(let_be_traced)
    tracer = Tracer(child.pid)
    child.end(code)
    eventually(lambda: state(child.pid) == "Z")
    return child, tracer


@pytest.fixture(scope="module")
def tracing():
    try:
        faults.run(traces)
    except AssertionError as error:
        if "not permitted" in str(error):
            pytest.skip("this system does not let us trace our own processes")
        raise


def traces():
    child, tracer = held(0)
    tracer.exit()
    child.reap()


def observed(backend):
    for code in (0, 7, -signal.SIGKILL):
        child, tracer = held(code)
        assert os.waitpid(child.pid, os.WNOHANG) == (0, 0)  # the tracer holds it
        with pidwait.Process(child.pid) as process:
            assert pidwait.wait(child.pid, LONG) == code
            assert pidwait.wait(child.pid, 0) == code
            assert process.has_exited()
            assert process.wait() == code
            raises(ProcessLookupError, process.terminate)
            tracer.exit()
            assert process.wait(LONG, reap=True) == code
            raises(ChildProcessError, os.waitpid, child.pid, 0)
        child.forget()


def reaped(backend):
    for code in (0, 7, -signal.SIGKILL):
        child, tracer = held(code)
        with pidwait.Process(child.pid) as process:
            for wait in (process.wait, lambda *args, **kw: pidwait.wait(child.pid, *args, **kw)):
                times_out(lambda timeout, wait=wait: wait(timeout, reap=True), 0)
                times_out(lambda timeout, wait=wait: wait(timeout, reap=True), 0.02)
            assert state(child.pid) == "Z"
            assert process.wait(0) == code
            tracer.let_go()
            assert process.wait(LONG, reap=True) == code
            assert process.exitcode == code
            raises(ChildProcessError, os.waitpid, child.pid, 0)
        child.forget()
        tracer.exit()


def in_a_set(backend):
    """A Child, which is reported once it has been reaped."""
    child, tracer = held(7)
    with pidwait.Child(child.pid) as process, pidwait.WaitSet([process]) as waiting:
        assert waiting.wait(0) == waiting.wait(0.02) == []
        tracer.let_go()
        assert waiting.wait(LONG) == [(process, 7)]
        raises(ChildProcessError, os.waitpid, child.pid, 0)
    child.forget()
    tracer.exit()


def lets_go_meanwhile(backend):
    """The tracer lets go during a wait without a deadline."""
    child, tracer = held(7)
    real = calls.get("waitid")
    looks = []

    def waitid(*args):
        looks.append(args)
        if len(looks) == 4:
            tracer.let_go()
        return real(*args)

    calls._resolved["waitid"] = waitid
    assert pidwait.wait(child.pid, reap=True) == 7
    assert len(looks) >= 4
    raises(ChildProcessError, os.waitpid, child.pid, 0)
    child.forget()
    tracer.exit()


class Owner:
    """Like subprocess.Popen, of a traced child."""

    def __init__(self, child):
        self.pid = child.pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = faults.exit_code(status)
        return self.returncode


def popen(backend):
    child = subprocess.Popen(["sh", "-c", "read end; exit 5"], stdin=subprocess.PIPE)
    try:
        tracer = Tracer(child.pid)
    except AssertionError:  # Yama: a debugger must be a parent
        child.communicate()
        return
    child.stdin.write(b"\n")
    child.stdin.close()
    eventually(lambda: state(child.pid) == "Z")
    for timeout in (0, 0.02):
        times_out(lambda timeout: pidwait.wait(child, timeout), timeout)
    assert child.returncode is None
    assert pidwait.wait(child.pid, LONG) == 5
    tracer.let_go()
    assert pidwait.wait(child, LONG) == child.returncode == 5
    tracer.exit()


def owner(backend):
    for code in (0, 7):
        child, tracer = held(code)
        of_child = Owner(child)
        times_out(lambda timeout, of_child=of_child: pidwait.wait(of_child, timeout), 0.02)
        assert of_child.returncode is None
        tracer.exit()
        assert pidwait.wait(of_child, LONG) == of_child.returncode == code
        child.forget()


def stopped_at_its_end(backend):
    """As with gdb's `catch exit`: the process is about to exit, but has not exited."""
    for make in (Child, Stranger):
        target = make(let_be_traced)
        tracer = Tracer(target.pid, PTRACE_O_TRACEEXIT)
        with pidwait.Process(target.pid) as process:
            target.end(7)
            eventually(lambda pid=target.pid: state(pid) == "t")
            times_out(process.wait, 0.02)
            assert not process.has_exited()
            tracer.go_on()
            tracer.let_go()
            assert process.wait(LONG) in ((7,) if make is Child else (7, None))
        assert target.reap() == 7
        tracer.exit()


def stopped(backend):
    child = Child(let_be_traced)
    tracer = Tracer(child.pid)
    with pidwait.Process(child.pid) as process:
        tracer.interrupt()
        eventually(lambda: state(child.pid) == "t")
        times_out(process.wait, 0.02)
        times_out(lambda timeout: process.wait(timeout, reap=True), 0.02)
        tracer.go_on()
        times_out(process.wait, 0.005)
        child.end(7)
        tracer.let_go()
        assert process.wait(LONG, reap=True) == 7
    child.forget()
    tracer.exit()


def we_are_the_tracer(backend):
    """For waitid(2), a process that we trace is like our child: looking takes nothing away."""
    for code in (0, 7):
        stranger = Stranger(let_be_traced)
        with pidwait.Process(stranger.pid) as process:
            ptrace(PTRACE_SEIZE, stranger.pid)
            times_out(process.wait, 0.005)
            stranger.end(code)
            assert process.wait(LONG) == code
            assert pidwait.wait(stranger.pid, LONG) == code
            assert faults.exit_code(os.waitpid(stranger.pid, 0)[1]) == code
            assert stranger.reap() == code


@pytest.mark.parametrize(
    "scenario",
    [
        observed,
        reaped,
        in_a_set,
        lets_go_meanwhile,
        popen,
        owner,
        stopped_at_its_end,
        stopped,
        we_are_the_tracer,
    ],
)
def test_tracer(tracing, scenario):
    start = time.monotonic()
    faults.run_on_each_backend(scenario)
    assert time.monotonic() - start < LONG  # no call blocked
