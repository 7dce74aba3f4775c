# SPDX-License-Identifier: BSD-3-Clause
"""The messages of the proc connector, real ones."""

import errno
import importlib
import os
import socket
import subprocess
import threading
import time

import pytest

from .. import pidwait
from ..processes import FORK, PYTHON, become_zombie, eventually, run_python
from .events import after_the_look, connector, end, listening, module, netlink, read, use

Status = connector.Status


@pytest.fixture
def connected(use_variant, monkeypatch):
    use("connector", use_variant, monkeypatch)


def reaped_soon(keeper, code, fifo):
    """A process that exits when the FIFO is opened, and is reaped at once."""
    pid = keeper.start_told(code, fifo)
    keeper.reap_soon(pid)
    return pid


def test_codes_of_those_that_are_gone(connected, keeper, tmp_path):
    """Only the messages tell them."""
    one, other = (tmp_path / name for name in ("one", "other"))
    pids = [reaped_soon(keeper, 3, one)]
    with pidwait.WaitSet(pids) as waiting:
        one.open("w").close()
        assert keeper.reaped() == 3 << 8
        assert waiting.wait() == [(pids[0], 3)]
        pid = keeper.start_told(4, other)
        waiting.add(pid)
        other.open("w").close()
        keeper.reap(pid)
        assert waiting.wait() == [(pid, 4)]


def test_codes_while_looks_are_rare(connected, keeper, tmp_path, monkeypatch):
    """What was heard counts until there has been a look."""
    monkeypatch.setattr(module("polling_set"), "share", lambda cost: 0.3)
    told = {keeper.start_told(code, tmp_path / str(code)): code for code in (3, 4)}
    for pid in told:
        keeper.reap_soon(pid)

    def end():
        for code in told.values():
            (tmp_path / str(code)).open("w").close()
            time.sleep(0.05)

    with pidwait.WaitSet(told) as waiting:
        assert waiting.wait(0.1) == []
        thread = threading.Thread(target=end)
        thread.start()
        exits = []
        while len(waiting):
            exits += waiting.wait()
        thread.join()
    assert dict(exits) == told
    assert [keeper.reaped() for _ in told] == [3 << 8, 4 << 8]


def test_message_about_an_earlier_process():
    status = Status()
    status.hear(True, 3 << 8, status._since - 1)
    assert status.code() is None
    status.hear(True, 4 << 8, status._since + 1)
    assert status.code() == 4


def test_main_thread_ends_before_others():
    """What the others' end means for the exit code depends on how they ended."""
    status = Status()
    status.hear(False, 5 << 8, status._since)  # long before the main thread
    status.hear(True, 0, status._since)
    assert status.code() == 0
    status.hear(False, 0, status._since)
    assert status.code() == 0
    status.hear(False, 7 << 8, status._since)
    assert status.code() is None


# A thread other than the main one takes over the pid; the kernel says that the main one ended.
TAKE_OVER = """if True:
    import os, sys, threading
    sys.stdin.readline()
    run = lambda: os.execv("/bin/sh", ["sh", "-c", "read line; exit 7"])
    threading.Thread(target=run).start()
    threading.Event().wait()
"""


def test_execve_by_another_thread(connected, start):
    child = start(*PYTHON, "-u", "-c", TAKE_OVER, stdin=subprocess.PIPE, bufsize=0)
    with pidwait.WaitSet([child.pid]) as waiting:
        child.stdin.write(b"\n")
        eventually(lambda: b"read line" in read("/proc/%d/cmdline" % child.pid))
        while waiting._engine.delay() < 1:
            assert waiting.wait(0.02) == []
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 7)]


def test_exit_right_after_the_look(connected, monkeypatch, start_told):
    """The messages are read before the process is looked at: none of its exit is missed."""
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)
    child = start_told(3)
    after_the_look(monkeypatch, lambda: end(child))
    with pidwait.WaitSet([child.pid]) as waiting:
        assert waiting._engine.delay() > 1000
        assert waiting.wait() == [(child.pid, 3)]


def test_add_of_one_that_is_gone(connected, monkeypatch, start_told):
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)
    child = start_told(3)
    child.stdin.close()
    child.wait()
    with pidwait.WaitSet([os.getppid(), child.pid]) as waiting:
        assert waiting.wait(0) == [(child.pid, None)]
        assert list(listening(waiting, "connector")._pids) == [os.getppid()]


def test_lost_messages(connected, monkeypatch, start_told, herd):
    """The kernel tells that it lost some: then all members are looked at."""
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)
    child = start_told(3)
    with pidwait.WaitSet([child]) as waiting:
        source = listening(waiting, "connector")
        source._set_option(socket.SO_RCVBUF, bytearray(4))  # the kernel makes it 2,304 bytes
        heard, read = [], source.read
        monkeypatch.setattr(source, "read", lambda: heard.append(read()) or heard[-1])
        for _ in range(30):
            os.waitpid(herd.fork(0, after=0), 0)
        child.stdin.close()
        become_zombie(child.pid)
        assert waiting.wait() == [(child, 3)]
    assert any((None, ()) in one for one in heard)


IN_A_TIME_NAMESPACE = """if True:
    import ctypes, os, sys
    import {package} as pidwait
    if ctypes.CDLL(None, use_errno=True).unshare(0x80):  # CLONE_NEWTIME
        sys.exit("SKIP: " + os.strerror(ctypes.get_errno()))
    with open("/proc/self/timens_offsets", "w") as file:
        file.write("monotonic 1000 0")
    if os.fork() == 0:
        sys.exit(pidwait.probe()["backends"]["connector"]["reason"])
    os.wait()
"""


def test_time_namespace(connected):
    """The kernel's times are not ours there: a message may be about an earlier process."""
    done = run_python(IN_A_TIME_NAMESPACE.format(package=pidwait.__name__))
    if done.stderr.startswith("SKIP: "):
        pytest.skip("no time namespace: " + done.stderr[6:])
    assert "time namespace" in done.stderr


def test_answer_that_is_lost(connected, monkeypatch):
    """It says nothing about the system: the next wait asks again."""
    checks = importlib.import_module(pidwait.__name__ + "._checks")
    check = module("events").check_connector

    def listen(self, ack):
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    with monkeypatch.context() as patched:
        patched.setattr(connector.Connector, "_listen", listen)
        assert checks.ask(check) is None and not checks.is_known(check)
    assert checks.works(check) and checks.is_known(check)


def gone(keeper, waiting, fifo):
    """End a process of another parent, and wait until it is reaped."""
    pid = reaped_soon(keeper, 3, fifo)
    waiting.add(pid)
    listening(waiting, "connector")
    fifo.open("w").close()
    assert keeper.reaped() == 3 << 8
    return pid


def test_message_that_is_late(connected, keeper, tmp_path, monkeypatch):
    """A busy machine may run others before the kernel sends it."""
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)
    monkeypatch.setattr(connector.Status, "patience", 3600.0)
    with pidwait.WaitSet() as waiting:
        polled = waiting._engine.sets._polled_set()
        monkeypatch.setattr(polled, "_hear", lambda *heard: kept.append(heard))
        kept = []
        pid = gone(keeper, waiting, tmp_path / "fifo")
        polled._hurry(polled._members[next(iter(polled._members))])
        end = time.monotonic() + 0.3
        while time.monotonic() < end:  # 0.08 s after an event the looks become rare
            waiting._engine.collect([])
        monkeypatch.undo()
        for heard in kept:
            polled._hear(*heard)
        assert waiting.wait() == [(pid, 3)]


@pytest.fixture
def lost(connected, monkeypatch):
    monkeypatch.setattr(connector.Connector, "read", lambda self: [])
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)


def test_message_that_does_not_come(lost, keeper, tmp_path, monkeypatch):
    """The look that sees the exit is followed by others soon."""
    monkeypatch.setattr(connector.Status, "patience", 0.3)
    with pidwait.WaitSet() as waiting:
        pid = gone(keeper, waiting, tmp_path / "fifo")
        waiting._engine.sets.polled._quiet._next_look = 0.0
        assert waiting.wait() == [(pid, None)]


def test_time_is_up_before_the_message(lost, keeper, tmp_path, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)
    with pidwait.WaitSet() as waiting:
        pid = gone(keeper, waiting, tmp_path / "fifo")
        assert waiting.wait(0) == [(pid, None)]


def test_filter(connected, monkeypatch, start_told, herd):
    """On a busy machine the kernel is told whose exits are wanted."""
    monkeypatch.setattr(connector, "_USELESS", 5)
    monkeypatch.setattr(connector.Connector, "longest", 3600.0)
    first, second = start_told(3), start_told(4)
    with pidwait.WaitSet([first]) as waiting:
        source = listening(waiting, "connector")
        while not source._heard:
            os.waitpid(herd.fork(0, after=0), 0)
            assert waiting.wait(0) == []
        source.read()
        os.waitpid(herd.fork(0, after=0), 0)
        with pytest.raises(BlockingIOError):
            while True:  # the kernel's answers to others that listen
                assert connector._unpack(os.read(source.fileno(), 512))[1] == netlink.NONE
        waiting.discard(first)
        waiting.add(second)
        assert not source._heard
        waiting.add(first)
        listening(waiting, "connector")
        for child in second, first:
            child.stdin.close()
            assert waiting.wait() == [(child, child.returncode)]


# In an interpreter of its own, since only root can raise a hard limit again.
PAST_THE_LIMIT = (
    """if True:
    import os, resource, signal
    import {package} as pidwait
"""
    + FORK
    + """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    codes = {{fork(code): code for code in range(120)}}
    try:
        pidwait.probe()
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        with pidwait.WaitSet(list(codes)) as waiting:
            polled = waiting._engine.sets.polled
            assert type(polled._events).__name__ == "Connector", polled._events
            while waiting._engine.delay() < 1:
                assert waiting.wait(0.02) == []
            for pid in codes:
                os.kill(pid, signal.SIGUSR1)
            seen = []
            while len(waiting):
                seen += waiting.wait(30)
            assert sorted(seen) == sorted(codes.items())
    finally:
        for pid in codes:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
"""
)


def test_past_the_hard_limit(connected, use_variant):
    """A few pidfds are given up for the one file descriptor that tells of all others."""
    use_variant("pidfd-ctypes")
    done = run_python(PAST_THE_LIMIT.format(package=pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 0)
