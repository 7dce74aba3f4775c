# SPDX-License-Identifier: BSD-3-Clause
"""Exit codes: told wherever the system tells them; else None, and never a guess."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from .. import pidwait
from .. import seam as table
from ..conftest import KQUEUES
from ..processes import (
    MAIN_THREAD_ENDS,
    become_zombie,
    ending_after_the_main_thread,
    needs_pthread_exit,
)
from ..trouble import Child, Stranger
from .crowd import those_that_may_be_told
from .threads import Thread
from .ways import every_way


def answers(process, right):
    """All ways to ask a handle about the exit, which has happened."""
    code = process.wait(60)
    assert code in right
    assert process.has_exited() and process.exitcode == code
    assert process.wait(0) == process.wait(0, reap=True) == pidwait.wait(process) == code
    with pytest.raises(ProcessLookupError):
        process.send_signal(0)


@pytest.mark.kqueue
@pytest.mark.parametrize("code", [0, 7, -9])
def test_a_stranger_that_exits_while_we_wait(variant, code):
    stranger = Stranger()
    with pidwait.Process(stranger.pid) as process:
        waiters = [Thread(process.wait).asleep(), Thread(pidwait.wait, stranger.pid).asleep()]
        waiters.append(Thread(pidwait.wait, stranger.pid, 60).asleep())
        stranger.end(code)
        right = (code, None) if variant.startswith("polling-") else (code,)
        assert {waiter.result() for waiter in waiters} <= set(right)
        assert process.exitcode in right and stranger.reap() == code


@pytest.mark.parametrize("code", [0, 7, -9])
def test_a_strangers_zombie_tells_its_code(variant, code):
    stranger = Stranger()
    stranger.end(code)
    become_zombie(stranger.pid)
    # These kqueues take a zombie. ps prints a 0 if it does not know, too.
    tells = not KQUEUES or variant.startswith(("kqueue-freebsd", "kqueue-dragonfly"))
    told = code or (0 if tells else None)
    assert pidwait.wait(stranger.pid) == pidwait.wait(stranger.pid, 0) == told
    assert pidwait.wait(stranger.pid, 60, reap=True) == told  # it is not ours to reap
    assert stranger.reap() == code


@pytest.mark.kqueue
@pytest.mark.parametrize("make", [Child, Stranger])
@pytest.mark.parametrize("code", [0, 7, -9])
def test_a_process_that_somebody_else_has_reaped(variant, backend, make, code):
    """Its parent, or of our children another part of the program."""
    it = make()
    with pidwait.Process(it.pid) as process:
        assert not process.has_exited() and process.exitcode is None
        it.end(code)
        assert it.reap() == code
        answers(process, those_that_may_be_told(code, backend))
    assert pidwait.wait(it.pid) is pidwait.wait(it.pid, 60, reap=True) is None


@pytest.fixture
def ignore_sigchld():
    before = signal.getsignal(signal.SIGCHLD)
    yield lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.kqueue
@pytest.mark.parametrize("code", [0, 7, -9])
def test_our_child_where_sigchld_is_ignored(variant, backend, ignore_sigchld, code):
    right = those_that_may_be_told(code, backend)
    ignore_sigchld()
    other, child = Child(), Child()  # the end of the other is not waited for
    with pidwait.Process(child.pid) as process:
        ways = [(None, False), (None, True), (60, False)]
        waiters = [Thread(pidwait.wait, child.pid, *way).asleep() for way in ways]
        child.end(code)
        assert {waiter.result() for waiter in waiters} <= set(right)
        answers(process, right)
    child.forget()
    assert pidwait.wait(child.pid) is None
    other.end(0)
    assert pidwait.wait(other.pid) in (0, None)
    other.forget()


@pytest.mark.kqueue
@pytest.mark.parametrize("timeout", [None, 60])
def test_popen_whose_child_is_lost(variant, backend, start_told, ignore_sigchld, timeout):
    """Popen itself says 0 then."""
    popen, right = start_told(7), those_that_may_be_told(7, backend)
    waiter = Thread(pidwait.wait, popen, timeout).asleep()
    ignore_sigchld()
    popen.stdin.close()
    assert waiter.result() in right
    assert popen.returncode == 0
    popen.returncode = None
    assert pidwait.wait(popen) is None and popen.returncode == 0


@needs_pthread_exit
@pytest.mark.parametrize("by", ["pid", "Popen", "Process"])
def test_a_process_whose_main_thread_has_ended_first(variant, start, by):
    """Its main thread is a zombie with the code 0, and the process runs on."""
    child = start(sys.executable, "-S", "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(child.pid)
    with pidwait.Process(child.pid) as process:
        proc = {"pid": child.pid, "Popen": child, "Process": process}[by]
        assert not process.has_exited()
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(proc, 0)
        child.stdin.close()
        assert pidwait.wait(proc) == 9


@every_way
def test_a_look_that_shows_the_main_threads_code(variant, way, zombie, seam):
    """Before Linux 5.17 only who reaps is told that of the process."""

    def look(idtype, number, options):
        info = waitid(idtype, number, options)
        return info and SimpleNamespace(si_pid=info.si_pid, si_code=1, si_status=0)

    child, waitid = zombie(9), table.get("waitid")
    seam.put("waitid", look)
    assert way(child) == child.returncode == 9


@needs_pthread_exit
def test_a_strangers_zombie_whose_main_thread_has_ended_first(variant, keeper):
    pid = keeper.start(*ending_after_the_main_thread(7))
    with pidwait.Process(pid) as process:
        assert process.wait() == 7
    assert pidwait.wait(pid) == 7
    assert keeper.reap(pid) == 7 << 8


@pytest.mark.kqueue
@pytest.mark.parametrize("status, code", [(0x12307, 7), (-1, 255), (256, 0)])
def test_a_status_has_eight_bits(variant, herd, status, code):
    """waitid(2) shows all 32 of what a process passes to _exit(2), on some systems."""
    with pidwait.Process(herd.fork(status, 0.01)) as process:
        assert pidwait.wait(process.pid) == process.wait() == code
        assert pidwait.wait(process.pid, 60, reap=True) == code


@pytest.mark.kqueue
def test_a_signal_that_dumps_core(variant, start, tmp_path):
    child = start("sh", "-c", "ulimit -c $(ulimit -Hc); kill -ABRT $$", cwd=str(tmp_path))
    assert pidwait.wait(child.pid) == pidwait.wait(child) == -signal.SIGABRT
