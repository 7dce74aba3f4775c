# SPDX-License-Identifier: BSD-3-Clause
"""A tracer such as a debugger learns of the exit first, and holds our child while it likes.

And programs that exec, from any thread.
"""

import contextlib
import os
import signal
import sys

import pytest

from .. import pidwait, trouble
from ..needs import needs
from ..processes import eventually, state
from . import LONG, Child, Popen, Stranger, forked, raises, system, times_out
from .system import ctypes, libc

pytest.importorskip("ctypes")

pytestmark = needs("PTRACE_SEIZE")
PTRACE_CONT = 7
PTRACE_DETACH = 17
PTRACE_SYSCALL = 24
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
PTRACE_O_TRACEEXIT = 1 << 6


def ptrace(request, pid, data=0):
    libc.ptrace.restype = ctypes.c_long
    system.call("ptrace", *map(ctypes.c_long, (request, pid, 0, data)))


class Tracer:
    """A process that traces another, and does nothing else until it is told."""

    def __init__(self, pid, options=0):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = trouble.fork(self._serve, pid, options, orders, answers)
        os.close(orders)
        os.close(answers)
        self._answer()

    def _serve(self, pid, options, orders, answers):
        ptrace(PTRACE_SEIZE, pid, options)
        os.write(answers, b".")
        for order in iter(lambda: os.read(orders, 1), b"q"):
            if order == b"i":
                ptrace(PTRACE_INTERRUPT, pid)
            else:
                os.waitpid(pid, 0)
                if order == b"c":
                    ptrace(PTRACE_CONT, pid)
            os.write(answers, b".")

    def _answer(self):
        assert os.read(self._answers, 1) == b".", "the tracer may not trace"

    def tell(self, order):
        """i: interrupt it; c: have it continue; w: wait for its exit, as debuggers do."""
        os.write(self._orders, order)
        self._answer()

    def exit(self):
        os.write(self._orders, b"q")
        assert os.waitpid(self._pid, 0)[1] == 0
        os.close(self._orders)
        os.close(self._answers)


def let_be_traced():
    with contextlib.suppress(OSError):  # there is no Yama
        system.prctl(system.PR_SET_PTRACER, ctypes.c_ulong(-1).value)


@contextlib.contextmanager
def held(code):
    """A child that has exited, and its tracer, which has not waited for the exit yet."""
    child = Child(let_be_traced)
    tracer = Tracer(child.pid)
    child.end(code)
    eventually(lambda: state(child.pid) == "Z")
    yield child, tracer
    raises(ChildProcessError, os.waitpid, child.pid, 0)
    child.forget()


def traces():
    with held(0) as (child, tracer):
        tracer.exit()
        os.waitpid(child.pid, 0)


@pytest.fixture
def tracing(capfd):
    try:
        forked(traces)
    except AssertionError:
        if "not permitted" in capfd.readouterr().err:
            pytest.skip("this system does not let us trace our own processes")
        raise


def observed():
    for code in (0, 7, -signal.SIGKILL):
        with held(code) as (child, tracer), pidwait.Process(child.pid) as process:
            assert os.waitpid(child.pid, os.WNOHANG) == (0, 0)  # the tracer holds it
            assert pidwait.wait(child.pid, LONG) == pidwait.wait(child.pid, 0) == code
            assert pidwait.wait_procs([child.pid]) == ([(child.pid, code)], [])
            assert process.has_exited() and process.wait() == code
            raises(ProcessLookupError, process.terminate)
            tracer.exit()
            assert process.wait(LONG, reap=True) == code


def reaped():
    """Only the tracer's wait lets us reap: until then a wait with ``reap`` tells the code."""
    for code in (0, 7, -signal.SIGKILL):
        with held(code) as (child, tracer), pidwait.Process(child.pid) as process:
            for target in (process, child.pid):
                for seconds in (0, 0.005):
                    assert pidwait.wait(target, seconds, reap=True) == code
            assert state(child.pid) == "Z" and process.wait(0) == code
            tracer.tell(b"w")
            assert process.wait(LONG, reap=True) == process.exitcode == code
            tracer.exit()


def owned():
    """The owner can't reap before the tracer lets go: a wait tells the code that was seen."""
    for wait in (pidwait.wait, lambda popen: pidwait.wait_procs([popen])[0][0][1]):
        popen, me = Popen(5), os.getpid()
        tracer = Tracer(popen.pid)
        popen.end()
        eventually(lambda: state(popen.pid) == "Z")
        for seconds in (0, 0.005):
            assert pidwait.wait(popen, seconds) == 5
        with pidwait.WaitSet([popen]) as waiting:
            assert waiting.wait(0) == waiting.wait(0.005) == []
        assert popen.returncode is None and pidwait.wait(popen.pid, LONG) == 5
        helper = trouble.fork(lambda: eventually(lambda: state(me) == "S") or tracer.tell(b"w"))
        assert wait(popen) == popen.returncode == 5
        assert os.waitpid(helper, 0)[1] == 0
        tracer.exit()


def stopped_at_its_end():
    """As with gdb's `catch exit`: the process is about to exit, but has not exited."""
    for make in (Child, Stranger):
        target = make(let_be_traced)
        tracer = Tracer(target.pid, PTRACE_O_TRACEEXIT)
        with pidwait.Process(target.pid) as process, pidwait.WaitSet([target.pid]) as waiting:
            target.end(7)
            eventually(lambda: state(target.pid) == "t")
            times_out(process.wait, 0.005)
            assert not process.has_exited() and waiting.wait(0) == []
            tracer.tell(b"c")
            tracer.tell(b"w")
            assert process.wait(LONG) in ((7,) if make is Child else (7, None))
            assert waiting.wait(LONG) == [(target.pid, process.exitcode)]
        assert target.reap() == 7
        tracer.exit()


def stopped():
    child = Child(let_be_traced)
    tracer = Tracer(child.pid)
    with pidwait.Process(child.pid) as process:
        tracer.tell(b"i")
        eventually(lambda: state(child.pid) == "t")
        times_out(process.wait, 0.005)
        times_out(lambda timeout: process.wait(timeout, reap=True), 0.005)
        tracer.tell(b"c")
        child.end(7)
        tracer.tell(b"w")
        assert process.wait(LONG, reap=True) == 7
    child.forget()
    tracer.exit()


def we_are_the_tracer():
    """For waitid(2), a process that we trace is like our child: looking takes nothing away."""
    for code in (0, 7):
        stranger = Stranger(let_be_traced)
        with pidwait.Process(stranger.pid) as process:
            ptrace(PTRACE_SEIZE, stranger.pid)
            times_out(process.wait, 0.005)
            stranger.end(code)
            assert process.wait(LONG) == pidwait.wait(stranger.pid, LONG) == code
            assert trouble.exit_code(os.waitpid(stranger.pid, 0)[1]) == stranger.reap() == code


TRACED = [observed, reaped, owned, stopped_at_its_end, stopped, we_are_the_tracer]


@pytest.mark.parametrize("scenario", TRACED)
def test_a_wait_beside_a_tracer(tracing, variant, scenario):
    forked(scenario)


def goes_on_to_waitid(keeper, pid):
    """Have a process that we trace go on to its next waitid() for that pid, or out of it."""
    number = 0
    while True:
        ptrace(PTRACE_SYSCALL, keeper, number)
        stop = os.WSTOPSIG(os.waitpid(keeper, 0)[1])
        number = 0 if stop == signal.SIGTRAP else stop  # a signal, which it gets
        with open("/proc/%d/syscall" % keeper) as file:
            if not number and file.read().split()[1:3] == ["0x1", hex(pid)]:
                return


PROGRAM = """if True:
    import sys
    from {} import subprocess
    command = "sleep 60 >&- & echo $$ $!; read line; " + sys.argv[1]
    subprocess.Popen(["sh", "-c", command], tree="leave").wait()
""".format(pidwait.__name__)


@pytest.mark.parametrize("end", ["exit 3", "kill -TERM $$"])
def test_a_program_that_dies_right_after_its_command_ends_the_rest(
    tracing, monkeypatch, start, end
):
    """One event may end both, and the keeper of a tree sees the command's end first."""
    monkeypatch.setenv("PIDWAIT_TREE", "reaper")
    program = start(sys.executable, "-c", PROGRAM, end, stdin=-1, stdout=-1)
    command, rest = map(int, program.stdout.readline().split())
    keeper = pidwait.ProcessInfo(command).ppid()
    ptrace(PTRACE_SEIZE, keeper)
    ptrace(PTRACE_INTERRUPT, keeper)
    os.waitpid(keeper, 0)
    program.stdin.close()
    eventually(lambda: state(command) == "Z")
    goes_on_to_waitid(keeper, command)
    goes_on_to_waitid(keeper, command)  # now it has seen the end
    program.kill()
    eventually(lambda: state(program.pid) == "Z")
    ptrace(PTRACE_DETACH, keeper)
    eventually(lambda: state(keeper) in (None, "Z"))
    assert state(rest) is None


# It execs itself, from its main thread or from another one, then exits with 7.
AGAIN = """if True:
    import os, sys, threading, time
    thread, left = sys.argv[2], int(sys.argv[3])
    def go_on():
        if left == 0:
            os._exit(7)
        os.execl(sys.executable, *sys.orig, sys.argv[1], thread, str(left - 1))
    sys.orig = sys.executable, "-S", "-c", "import sys; exec(sys.argv[1])"
    if thread == "another":
        threading.Thread(target=go_on).start()
        time.sleep(60)  # which ends with the exec
    go_on()
"""


@pytest.mark.parametrize("thread", ["main", "another"])
def test_an_exec_is_no_exit(variant, start, thread):
    """The handle stays valid, and the wait ends with the last program."""
    run = "import sys; sys.stdin.read(); exec(sys.argv[1])"
    child = start(sys.executable, "-S", "-c", run, AGAIN, thread, "2", stdin=-1)
    with pidwait.Process(child.pid) as handle, pidwait.WaitSet([child.pid]) as waiting:
        assert waiting.wait(0) == []
        child.stdin.close()
        with pidwait.Process(child.pid) as other:
            assert other == handle
        assert waiting.wait(LONG) == [(child.pid, 7)]
        assert handle.wait() == pidwait.wait(child) == 7
