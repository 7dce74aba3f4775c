# SPDX-License-Identifier: BSD-3-Clause
"""end_procs() and watch_parent(): other users' processes, PID namespaces, exits in between."""

import importlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait, trouble
from ..processes import eventually, state
from . import LONG, system

pytest.importorskip("ctypes")


def refused(backend):
    pidwait.probe()
    other, mine = trouble.Child(), trouble.Child(lambda: system.become(65534))
    pids = [other.pid, mine.pid, other.pid]
    ours = importlib.import_module(pidwait.__name__ + ".subprocess")
    popen = ours.Popen(["cat"], stdin=subprocess.PIPE)

    def end():
        system.become(65534)
        exited, alive = pidwait.end_procs(pids, LONG)
        assert alive == [other.pid] * 2 and [pid for pid, _ in exited] == [mine.pid]
        assert popen.end(LONG) is None

    assert os.waitpid(trouble.fork(end), 0)[1] == 0
    popen.communicate()
    assert popen.returncode == 0
    other.end(3)
    assert (other.reap(), mine.reap()) == (3, -signal.SIGTERM)


@pytest.mark.root
def test_whom_we_may_not_signal_stays_alive():
    trouble.run_on_each_backend(refused)


def listed_once(backend):
    """From the first exit on there is no file descriptor left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ready = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; read line"], stdin=-1, stdout=-1)
    procs = [ready, subprocess.Popen(["sleep", "600"])]
    ready.stdout.readline()

    def exhaust(proc, code):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))

    exited, alive = pidwait.end_procs(procs, 0.05, callback=exhaust, tree=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert exited == [(procs[1], -signal.SIGTERM), (procs[0], -signal.SIGKILL)] and not alive
    ready.communicate()


def test_an_end_goes_on_where_processes_can_not_be_listed_any_more():
    trouble.run_on_each_backend(listed_once)


@pytest.mark.parametrize("mechanism", ["auto", "group"])
def test_a_tree_is_ended_where_no_thread_can_be_started(mechanism, monkeypatch):
    monkeypatch.setenv("PIDWAIT_TREE", mechanism)
    ours = importlib.import_module(pidwait.__name__ + ".subprocess")
    command = ["sh", "-c", "sleep 600 & echo; sleep 600"]
    with ours.Popen(command, stdout=subprocess.PIPE, tree=True) as popen:
        popen.stdout.readline()
        before = threading.stack_size(1 << 47)
        try:
            assert pidwait.end_procs([popen], LONG) == ([(popen, -signal.SIGTERM)], [])
        finally:
            threading.stack_size(before)
        assert popen.stdout.read() == b""


def test_the_limit_ends_the_wait_for_those_whom_sigkill_does_not_end(start, pidfds, seam):
    """As in uninterruptible sleep: the signal is sent, and nobody ends."""
    child = start("cat", stdin=subprocess.PIPE)
    seam.put("pidfd_send_signal", lambda fd, sig: None)
    assert pidwait.end_procs([child, child], 0, limit=0.05) == ([], [child, child])
    assert child.poll() is None
    child.stdin.close()
    assert pidwait.end_procs([child], LONG, limit=0) == ([(child, 0)], [])


def watched(number, writer):
    """Below a launcher that lives on: write how often it was called, and whether line n was."""
    if os.fork():
        signal.pause()
    above = os.getppid()
    launcher = os.fork()
    if launcher:
        os.waitpid(launcher, 0)
        os._exit(0)

    def end():
        os.kill(above, signal.SIGKILL)
        eventually(lambda: state(above) in (None, "Z"))

    calls, called = [], threading.Event()
    with trouble.at_line(number, end) as line:
        pidwait.watch_parent(lambda: (calls.append(1), called.set()), above, True)
    if not line.reached:
        end()
    called.wait(LONG)
    time.sleep(0.01)  # a second call would come now
    os.write(writer, bytes((len(calls), line.reached)))
    os._exit(0)


def ancestors(backend):
    pidwait.probe()
    number, reached = 1, 1
    while reached:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            watched(number, writer)
        number += 60  # above us there may be many
        os.close(writer)
        with open(reader, "rb") as file:
            calls, reached = file.read()
        os.waitpid(pid, 0)
        assert calls == 1


def test_an_ancestor_that_exits_at_any_line_is_noticed_once():
    trouble.run_on_each_backend(ancestors)


SEEN_BY_NOBODY = """if True:
    import logging, os, signal, sys, threading
    sys.path[:] = {path!r}
    import {package} as pidwait
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    ended = lambda: os.write(1, b"called ")
    watches = [pidwait.watch_parent(ended, *args) for args in ((), (4711,), (None, True))]
    pid = os.fork()
    if pid == 0:
        for ancestors in False, True:
            pidwait.watch_parent(ended, None, ancestors)
        pidwait.watch_parent(lambda: os._exit(7), 4711)
        signal.pause()
    assert os.waitpid(pid, 0)[1] == 7 << 8
    unreachable = threading.Event()  # no ancestor has the pid: it has exited
    pidwait.watch_parent(unreachable.set, 4711, ancestors=True)
    assert unreachable.wait(60)
    print([one.cancel() for one in watches])
"""


def test_pid_1_and_a_parent_in_another_namespace_never_count_as_exited(namespaces):
    path = list(map(os.path.abspath, sys.path))
    code = SEEN_BY_NOBODY.format(path=path, package=pidwait.__name__)
    done = subprocess.run([*namespaces, sys.executable, "-c", code], stdout=-1, stderr=-1)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done
    assert lines.count("the parent of pid 1 can't be seen") == 3, done
    assert lines[-1] == "[True, True, True]" and "called" not in done.stdout.decode(), done
