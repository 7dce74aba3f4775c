# SPDX-License-Identifier: BSD-3-Clause
"""Processes that exec, from any thread, or are just about to."""

import os
import signal
import sys

import pytest

from .. import faults, pidwait
from ..faults import LONG, Stranger
from ..faults.system import ctypes, libc
from ..processes import eventually, state

pytest.importorskip("ctypes")

# A program that execs itself so many times, then exits with 7.
AGAIN = """if True:
    import os, sys, threading, time
    thread, left = sys.argv[1], int(sys.argv[2])

    def go_on():
        if left == 0:
            os._exit(7)
        run = "import os; exec(os.environ['AGAIN'])"
        os.execl(sys.executable, sys.executable, "-S", "-c", run, thread, str(left - 1))

    if thread == "another":
        threading.Thread(target=go_on).start()
        time.sleep(60)  # which ends with the exec
    go_on()
"""


class Forked(faults.Child):
    """A child that execs again and again, once end() is called."""

    def __init__(self, thread):
        self._thread = thread
        super().__init__()

    def _live(self, prepare, orders, ready):
        super()._live(prepare, orders, ready)
        os.environ["AGAIN"] = AGAIN
        os.execl(sys.executable, sys.executable, "-S", "-c", AGAIN, self._thread, "10")


def exec_again(backend, thread):
    """No exec looks like an exit, and the handle stays valid."""
    for process in (Forked(thread), Stranger(thread, Forked)):
        with pidwait.Process(process.pid) as handle:
            process.end(0)
            with pidwait.Process(process.pid) as other:
                assert other == handle
            assert handle.wait(LONG) == 7
        assert process.reap() == 7


@pytest.mark.parametrize("thread", ["main", "another"])
def test_exec(thread):
    faults.run_on_each_backend(exec_again, thread)


def about_to_exec(backend):
    """vfork(2): the child is still in its parent's memory, and the parent is suspended."""
    fifo = "fifo"
    os.mkfifo(fifo)
    try:
        parent = faults.fork(spawn_slowly, fifo)
        path = "/proc/{0}/task/{0}/children".format(parent)
        eventually(lambda: os.path.exists(path) and read(path).split())
        pid = int(read(path))
        with pidwait.Process(pid) as child, pidwait.Process(parent) as handle:
            faults.times_out(child.wait, 0.01)
            faults.times_out(handle.wait, 0.01)
            os.kill(parent, signal.SIGSTOP)  # which stays pending, as the parent is suspended
            faults.times_out(handle.wait, 0.01)
            os.kill(parent, signal.SIGCONT)
            with open(fifo, "w"):
                pass  # now the child goes on
            assert child.wait(LONG) in (3, None)
            assert handle.wait(LONG) == 3
        assert os.waitpid(parent, 0)[1] == 3 << 8
    finally:
        os.unlink(fifo)
    assert state(pid) is None


def read(path):
    with open(path) as file:
        return file.read()


def spawn_slowly(fifo):
    """posix_spawn(3) a shell that exits with 3; the child first opens a FIFO, which blocks."""
    actions = ctypes.create_string_buffer(1024)
    assert libc.posix_spawn_file_actions_init(actions) == 0
    action = libc.posix_spawn_file_actions_addopen
    assert action(actions, 0, fifo.encode(), os.O_RDONLY, 0) == 0
    arguments = (ctypes.c_char_p * 4)(b"sh", b"-c", b"exit 3", None)
    pid = ctypes.c_int()
    assert libc.posix_spawn(ctypes.byref(pid), b"/bin/sh", actions, None, arguments, None) == 0
    assert libc.posix_spawn_file_actions_destroy(actions) == 0
    return faults.exit_code(os.waitpid(pid.value, 0)[1])


def test_about_to_exec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    faults.run_on_each_backend(about_to_exec)
