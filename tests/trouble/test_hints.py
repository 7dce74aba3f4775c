# SPDX-License-Identifier: BSD-3-Clause
"""Linux without pidfds: the kernel's proc connector tells when to look at a polled process."""

import asyncio
import errno
import logging
import os
import queue
import socket
import subprocess

import pytest

from .. import pidwait, trouble
from .. import seam as table
from ..needs import needs
from ..processes import PYTHON, eventually, needs_pthread_exit, sleeping, state
from . import LONG, Child, Stranger, every_wait_works, fork, system

CONNECTOR, EXITS = 11, 1
# Of the initial PID and user namespaces: linux/proc_ns.h.
pytestmark = needs("proc connector")
INITIAL = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
RCVBUFFORCE = 33


@pytest.fixture
def connector():
    """Skip where the kernel reports no exits; without asking the package, which may be wrong."""
    for name, initial in INITIAL.items():
        if os.readlink("/proc/self/ns/" + name) != initial:
            pytest.skip("not in the initial namespace: " + name)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, CONNECTOR) as one:
            one.bind((0, EXITS))
    except OSError as error:
        pytest.skip("the proc connector: %s" % error)


@pytest.fixture
def polled(seam, monkeypatch):
    """There are no pidfds."""
    monkeypatch.setenv("PIDWAIT_BACKEND", "")
    table.forget()
    seam.refuse("pidfd_open", errno.ENOSYS)
    assert pidwait.probe()["backend"] == "polling"
    return seam


@pytest.fixture
def hinted(connector, polled):
    """A polled process is looked at once: only a hint has its exit reported."""
    polled.look_once()
    return polled


def listen(waiting):
    """Have the set look at new members, and tell the kernel of them before the second sleep."""
    assert waiting.wait(0.01) == waiting.wait(0.01) == []


def once_listening(seam, function):
    """Call it when a new set has told the kernel to report exits."""

    class Listening(socket.socket):
        def send(self, request):
            size = super().send(request)
            function()
            return size

    with pidwait.WaitSet([os.getpid()]) as waiting:
        listen(waiting)  # now it is known that it works
    seam.put("socket", Listening)


# Ways to wait


def by_set(popen):
    with pidwait.WaitSet([popen]) as waiting:
        return waiting.wait()


def by_wait_procs(popen):
    exited, alive = pidwait.wait_procs([popen])
    return exited + alive


def by_as_completed(popen):
    return list(pidwait.as_completed([popen]))


def by_watch(popen):
    exits = queue.Queue()
    pidwait.watch(popen, lambda *exit: exits.put(exit))
    return [exits.get()]


def by_asyncio(popen):
    aio = pytest.importorskip(pidwait.__name__ + ".aio")

    async def wait():
        waiting = asyncio.ensure_future(aio.wait_procs([popen]))
        while not popen.stdin.closed:  # at a time-out it looks at all
            assert await aio.wait_procs([os.getpid()], timeout=0.01) == ([], [os.getpid()])
        exited, alive = await waiting
        return exited + alive

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(wait())
    finally:
        loop.close()


WAYS = [by_set, by_wait_procs, by_as_completed, by_watch, by_asyncio]


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS)
def test_an_exit_is_hinted_at(hinted, start_told, way):
    popen = start_told(3)
    once_listening(hinted, popen.stdin.close)
    assert way(popen) == [(popen, 3)]


@pytest.mark.root
def test_exits_are_hinted_at_in_a_set_that_changes(hinted, start, start_told):
    """With more members than the kernel compares with, too: then others' exits are reported."""
    first, *others = [start_told(code) for code in range(4)]
    crowd = [start(*sleeping(60)) for _ in range(70)]
    with pidwait.WaitSet([first]) as waiting:
        waiting.fileno()  # so a time-out brings no look at all of them
        listen(waiting)
        first.stdin.close()
        assert waiting.wait() == [(first, 0)]
        for code, (popen, more) in enumerate(zip(others, (crowd, [], [])), 1):
            for one in [popen, *more]:
                waiting.add(one)
            listen(waiting)
            start("true").wait()  # of no interest: no such exit ends the next sleep
            popen.stdin.close()
            exits = []
            while not exits:
                exits = waiting.wait(0.02)
            assert exits == [(popen, code)]
            if code == 2:
                for one in crowd:
                    waiting.discard(one)
        assert len(waiting) == 0


@pytest.mark.root
def test_one_hint_is_for_all_who_wait_for_the_process(hinted, start_told):
    popen = start_told(3)
    with pidwait.WaitSet([popen, popen.pid]) as waiting:
        listen(waiting)
        popen.stdin.close()
        exits = waiting.wait()
        while len(waiting):
            exits += waiting.wait()
    assert sorted(exits, key=str) == sorted([(popen, 3), (popen.pid, 3)], key=str)


@pytest.mark.root
def test_the_exit_of_a_stranger_is_hinted_at(hinted):
    stranger = Stranger()
    with pidwait.WaitSet([stranger.pid]) as waiting:
        listen(waiting)
        stranger.end(4)
        assert waiting.wait() == [(stranger.pid, 4)]
    stranger.reap()


@pytest.mark.root
def test_after_lost_messages_all_are_looked_at(hinted, start_told):
    codes = []

    class Small(socket.socket):
        def setsockopt(self, level, option, value):
            if option == RCVBUFFORCE:
                level, option, value = socket.SOL_SOCKET, socket.SO_RCVBUF, 1
            super().setsockopt(level, option, value)

        def recv(self, size):
            try:
                return super().recv(size)
            except OSError as error:
                codes.append(error.errno)
                raise

    hinted.put("socket", Small)
    popens = [start_told(code) for code in range(20)]
    with pidwait.WaitSet(popens) as waiting:
        listen(waiting)
        for popen in popens:
            popen.stdin.close()
            eventually(lambda: state(popen.pid) == "Z")
        exits = waiting.wait()
        while len(waiting):
            exits += waiting.wait()
    assert sorted(code for _, code in exits) == list(range(20))
    assert errno.ENOBUFS in codes


TWO_THREADS = """if True:
    import ctypes, os, threading
    os.read(0, 1)
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(9)).start()
    ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.root
@needs_pthread_exit
def test_after_a_hint_it_is_looked_at_more_often(hinted, start):
    """A process can exit a little after the hint, as before Linux 3.15."""
    messages = []

    class First(socket.socket):
        def recv(self, size):
            messages.append(super().recv(size))
            if len(messages) > 1:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return messages[0]

    with pidwait.WaitSet([os.getpid()]) as waiting:
        listen(waiting)
    hinted.put("socket", First)
    popen = start(*PYTHON, "-c", TWO_THREADS, stdin=subprocess.PIPE)
    with pidwait.WaitSet([popen]) as waiting:
        listen(waiting)
        hinted.undo()  # the set is polled, still; the next look at it is to come in a day
        os.write(popen.stdin.fileno(), b".")
        while not messages:
            assert waiting.wait(0.02) == []
        popen.stdin.close()
        assert waiting.wait() == [(popen, 9)]


@pytest.mark.root
def test_a_forked_child_has_hints_of_its_own(hinted):
    child = Child()
    is_ready, ready = os.pipe()

    def wait():
        listen(waiting)
        os.write(ready, b".")
        assert waiting.wait() == [(child.pid, 5)]
        waiting.close()

    with pidwait.WaitSet([child.pid]) as waiting:
        listen(waiting)
        other = fork(wait)
        os.read(is_ready, 1)
        child.end(5)
        assert os.waitpid(other, 0)[1] == 0
        # Its copy of the socket is closed; ours is told of exits, still.
        assert waiting.wait() == [(child.pid, 5)]
    os.close(is_ready), os.close(ready)
    child.reap()


# Where there are no hints


def waits_in_sets(start_told, count):
    for code in range(count):
        popen = start_told(code)
        with pidwait.WaitSet([popen]) as waiting:
            listen(waiting)
            popen.stdin.close()
            assert waiting.wait(LONG) == [(popen, code)]


@pytest.mark.parametrize("error", ["EPERM", "EPROTONOSUPPORT", "ENOSYS"])
def test_where_the_connector_is_refused_the_logger_tells_once(polled, start_told, caplog, error):
    caplog.set_level(logging.INFO)
    polled.refuse("socket", getattr(errno, error))
    waits_in_sets(start_told, 3)
    said = [one for one in caplog.messages if os.strerror(getattr(errno, error)) in one]
    assert len(said) == 1 and "connector" in said[0]


def test_a_passing_failure_is_not_remembered(polled, start_told):
    asked = []

    def refuse(*args):
        asked.append(args)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    polled.put("socket", refuse)
    waits_in_sets(start_told, 2)
    assert len(asked) == 2


@pytest.mark.root
def test_a_policy_that_comes_later_ends_the_hints(connector, polled, start_told, caplog):
    sockets, refuse = [], table.refusing(errno.EPERM)

    class Refused(socket.socket):
        def recv(self, size):
            return refuse() if is_refused else super().recv(size)

        def send(self, request):
            return refuse() if is_refused else super().send(request)

        def bind(self, address):
            sockets.append(self)
            super().bind(address)

    is_refused = []
    caplog.set_level(logging.INFO)
    polled.put("socket", Refused)
    popens = [start_told(code) for code in range(2)]
    with pidwait.WaitSet(popens) as waiting:
        listen(waiting)
        is_refused.append(True)
        for code, popen in enumerate(popens):
            assert (sockets[-1].fileno() == -1) is (code > 0)
            popen.stdin.close()
            eventually(lambda: state(popen.pid) == "Z")
            assert waiting.wait(LONG) == [(popen, code)]
    assert len([one for one in caplog.messages if "without hints" in one]) == 1


def test_where_polling_is_forced_no_socket_is_made(seam, monkeypatch, start_told):
    monkeypatch.setenv("PIDWAIT_BACKEND", "polling")
    table.forget()
    asked = []
    seam.put("socket", lambda *args: asked.append(args))
    waits_in_sets(start_told, 2)
    assert asked == []


def in_a_namespace():
    system.forbid({"pidfd_open": errno.ENOSYS})
    assert every_wait_works() == "polling"


@pytest.mark.parametrize("options", ["--user", "--net", " ".join(system.NAMESPACES)])
def test_every_wait_works_in_a_namespace_without_hints(options):
    within = ("unshare", *options.split())
    if system.why_no_policy() or system.command_fails(within):
        pytest.skip("no policy or no namespace")
    trouble.run(in_a_namespace, within=within)
