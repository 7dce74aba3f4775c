# SPDX-License-Identifier: BSD-3-Clause
"""A command with all that it starts, on Windows: a job object."""

import asyncio
import gc
import importlib
import os
import re
import sys
from contextlib import contextmanager, suppress
from subprocess import PIPE, TimeoutExpired
from threading import Thread

import pytest

from .. import pidwait
from ..asyncio.loops import aio, begun, is_cancelled, run_in
from ..processes import INTERPRETER, OnPurpose, eventually

windows = pytest.importorskip(__package__ + ".windows")  # it needs ctypes
pytestmark = pytest.mark.windows

PACKAGE = pidwait.__name__
ours = importlib.import_module(PACKAGE + ".subprocess")
SLEEP = "import time; time.sleep(60)"
COMMAND = """if True:
    import os, sys
    from %s import subprocess
    other = subprocess.Popen([sys.executable, "-c", %r], %s)
    print(other.pid, os.getpid(), flush=True)
    %s
"""


def command(options="", end=SLEEP, program=INTERPRETER):
    return [program, "-c", COMMAND % (PACKAGE, SLEEP, options, end)]


@contextmanager
def told_by(pipe):
    """The processes whose pids come through a pipe. None is left after the block."""
    processes = [pidwait.Process(int(pid)) for pid in pipe.readline().split()]
    try:
        yield processes
    finally:
        for process in processes:
            with process, suppress(ProcessLookupError):
                process.terminate()
        pipe.close()


# 0x208: DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
@pytest.mark.parametrize("options", ["", "creationflags=0x208", "tree=True"])
@pytest.mark.parametrize("how", ["kill", "terminate", "end"])
def test_nothing_is_left_when_it_returns(how, options):
    popen = ours.Popen(command(options), tree=True, stdout=PIPE)
    with told_by(popen.stdout) as processes:
        assert popen.mechanism == "job" and popen.pid == processes[1].pid
        Thread(target=getattr(popen, how)).start()
        assert popen.communicate() == (b"", None) and (popen.wait(), popen.left) == (1, [])
        assert all(process.has_exited() for process in processes)


@pytest.mark.parametrize("program", [INTERPRETER, sys.executable], ids=["python", "launcher"])
def test_run_ends_all_at_its_time_out_though_another_process_has_the_pipe(program):
    """A virtual environment's launcher has a job of its own, which lets go what Python starts."""
    words = command("stdout=sys.stdout", program=program)
    with pytest.raises(TimeoutExpired) as caught:
        ours.run(words, timeout=3, tree=True, stdout=PIPE)
    for pid in caught.value.output.split():
        pidwait.wait(int(pid), 0)


def test_a_cancelled_task_ends_all():
    async def main():
        reader, writer = os.pipe()
        task = await begun(aio.run(command("stdout=sys.stdout"), tree=True, stdout=writer))
        with told_by(open(reader, "rb")) as processes:
            os.close(writer)
            assert await is_cancelled(task)
            assert all(process.has_exited() for process in processes)

    run_in(asyncio.new_event_loop(), main())


@pytest.mark.parametrize("rest", ["kill", "wait", "leave"])
def test_what_becomes_of_the_rest_when_the_command_has_exited(rest):
    popen, seen = ours.Popen(command(end="sys.exit(3)"), tree=rest, stdout=PIPE), []
    pidwait.watch(popen, lambda *exit: seen.append(exit))
    with told_by(popen.stdout) as (other, root), pidwait.WaitSet([popen]) as waiting:
        root.wait()
        if rest == "kill":  # nobody asks, and the pipe is at its end
            assert popen.stdout.read() == b""
        if rest == "wait":
            for wait in popen.wait, lambda timeout: pidwait.wait(popen, timeout):
                with pytest.raises((TimeoutExpired, pidwait.TimeoutExpired)):
                    wait(0.05)
            assert waiting.wait(0.05) == seen == []
            other.terminate()
        assert popen.wait() == 3 and waiting.wait() == [(popen, 3)]
        eventually(lambda: seen == [(popen, 3)])
        assert other.has_exited() == (rest != "leave")


def test_a_popen_that_is_dropped_ends_nothing():
    popen = ours.Popen(command(end="sys.exit(3)"), tree="wait", stdout=PIPE)
    with told_by(popen.stdout) as (other, root):
        root.wait()
        with pytest.warns(ResourceWarning):
            del popen
            gc.collect()
        with pytest.raises(pidwait.TimeoutExpired):
            other.wait(0.2)


def test_all_end_with_the_program_that_has_started_them(start):
    code = "import sys; from %s import subprocess; subprocess.run(sys.argv[1:], tree='wait')"
    caller = start(INTERPRETER, "-c", code % PACKAGE, *command(), stdout=PIPE)
    with told_by(caller.stdout) as processes:
        caller.kill()
        for process in processes:
            process.wait(30)


def test_no_process_breaks_away():
    words = command("creationflags=0x01000000")  # CREATE_BREAKAWAY_FROM_JOB
    done = ours.run(words, tree=True, stderr=PIPE)
    assert done.returncode == 1 and b"[WinError 5]" in done.stderr


def test_another_means_that_is_asked_for_is_an_error(monkeypatch):
    monkeypatch.setenv("PIDWAIT_TREE", "group")
    with pytest.raises(OSError, match="PIDWAIT_TREE is group: not on this system"):
        ours.Popen("cmd", tree=True)


@pytest.mark.parametrize("name", ["CreateJobObjectW", "AssignProcessToJobObject", "ResumeThread"])
def test_nothing_runs_where_no_job_can_be_had(seam, name):
    seam.put(name, windows.refusing(windows.ERROR_ACCESS_DENIED))
    with pytest.raises(PermissionError, match=name) as caught:
        ours.Popen("cmd", tree=True)
    for pid in re.findall(r"pid (\d+)", str(caught.value)):
        pidwait.wait(int(pid), 0)


def test_an_exception_ends_it_and_no_handle_is_left(binding, seam):
    sent, kinds, flags = [], ("Process", "Thread", "Job"), windows.CREATE_SUSPENDED
    seam.put("GenerateConsoleCtrlEvent", lambda *args: sent.append(args))

    def use():
        with pytest.raises(OnPurpose), ours.Popen("cmd", creationflags=flags, tree=True) as popen:
            popen.send_signal(1)  # CTRL_BREAK_EVENT, to the command
            with pytest.raises(ValueError, match="sig must be"):
                popen.send_signal(2)
            raise OnPurpose
        assert popen.returncode == 1 and sent.pop() == (1, popen.pid)

    use()
    gc.collect()
    before = set(windows.open_handles(kinds))
    for _ in range(20):
        use()
    eventually(lambda: set(windows.open_handles(kinds)) <= before)
