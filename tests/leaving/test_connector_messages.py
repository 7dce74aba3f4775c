# SPDX-License-Identifier: BSD-3-Clause
"""The proc connector's socket, with a stand-in for the kernel at its other end.

In a PID or user namespace, and for most users, the real one does not answer.
"""

import _socket
import errno
import importlib
import os
import signal
import socket
import struct
import sys
import time
import types

import pytest

from .. import pidwait
from .events import VARIANT, connector, module, netlink
from ..processes import is_open
from .test_netlink import EXIT, FORK, message

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
PORT = 70001
ACK = PORT & 0xFFFF


class Kernel:
    """The other end of the socket. As the real one it answers within write(2)."""

    def __init__(self):
        self.requests = []
        self.before = []  # what comes before the answer
        self.error = 0  # in the answer; None: there is no answer
        self.late = 0.0  # seconds by which its clock differs
        self.address = None
        self.fd = -1
        self._write = os.write
        self.renew()

    def renew(self):
        """Have a socket for one more Connector."""
        if self.requests:
            self.theirs.close()
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ours.setblocking(False)

    def socket(self, *arguments):
        kind = socket.SOCK_DGRAM | os.O_CLOEXEC | os.O_NONBLOCK
        assert arguments == (socket.AF_NETLINK, kind, 11)  # NETLINK_CONNECTOR
        return self

    def bind(self, address):
        self.address = address

    def getsockname(self):
        return PORT, 1

    def detach(self):
        self.fd = self.ours.detach()
        return self.fd

    def close(self):
        if self.ours.fileno() != -1:
            self.ours.close()

    def write(self, fd, data):
        if fd != self.fd:
            return self._write(fd, data)
        ack, operation = struct.unpack("=28xI4xI", data)
        self.requests.append((operation, ack))
        if operation == netlink.LISTEN:
            for each in self.before:
                self.theirs.send(each)
            if self.error is not None:
                self.answer(ack + 1, self.error)
        return len(data)

    def answer(self, ack, error):
        when = int((time.monotonic() + self.late) * 1e9)
        self.theirs.send(message(0, netlink.NONE, ack, error, when=when))

    def send(self, *pids):
        for pid in pids:
            self.theirs.send(message(pid, pid=pid))


@pytest.fixture
def kernel(use_variant, monkeypatch):
    use_variant(VARIANT)
    kernel = Kernel()

    def make(*arguments):
        return kernel.socket(*arguments)

    make.detach = Kernel.detach
    stand_in = types.SimpleNamespace(**vars(_socket))
    stand_in.socket = make
    monkeypatch.setitem(sys.modules, "_socket", stand_in)
    monkeypatch.setattr(os, "write", kernel.write)
    yield kernel
    kernel.close()
    kernel.theirs.close()


@pytest.fixture
def made(kernel):
    """made(...) makes a Connector."""
    opened = []

    def made(*arguments):
        opened.append(connector.Connector(*arguments))
        return opened[-1]

    yield made
    for each in opened:
        each.close()


def test_requests(kernel, made):
    listening = made()
    assert kernel.address == (0, 1)  # CN_IDX_PROC
    assert kernel.requests == [(netlink.LISTEN, ACK)]
    assert listening.fileno() == kernel.fd and is_open(kernel.fd)
    listening.close()
    assert kernel.requests == [(netlink.LISTEN, ACK), (netlink.IGNORE, 0)]
    assert not is_open(kernel.fd)
    listening.close()
    assert len(kernel.requests) == 2


def test_copy_in_a_fork_ends_nothing(kernel, made):
    listening = made()
    listening._creator -= 1
    listening.close()
    assert kernel.requests == [(netlink.LISTEN, ACK)]
    assert not is_open(kernel.fd)


def test_request_that_fails_at_the_end(kernel, made, monkeypatch, caplog):
    def write(fd, data):
        raise OSError(errno.ENOBUFS, "on purpose")

    listening = made()
    monkeypatch.setattr(os, "write", write)
    with caplog.at_level("DEBUG"):
        listening.close()
    assert "the proc connector: [Errno %d] on purpose" % errno.ENOBUFS in caplog.text
    assert not is_open(kernel.fd)


def test_answers_to_others(kernel, made):
    """The kernel sends them to each listener."""
    kernel.before = [message(0, netlink.NONE, ack, errno.EPERM) for ack in (0, ACK, ACK + 2)]
    kernel.before += [message(5, EXIT, ACK + 1, errno.EPERM), message(5, EXIT, 0, 5)]
    assert made().read() == []


@pytest.mark.parametrize("error", [errno.EPERM, errno.EINVAL])
def test_refused(kernel, error):
    kernel.error = error
    with pytest.raises(OSError, match=os.strerror(error)) as raised:
        connector.Connector()
    assert raised.value.errno == error
    assert not is_open(kernel.fd)


def test_no_answer(kernel):
    kernel.error = None
    kernel.before = [message(5), message(0, netlink.NONE, ACK)]
    with pytest.raises(PermissionError, match="does not answer"):
        connector.Connector()
    assert not is_open(kernel.fd)


def test_address_that_is_taken(kernel, monkeypatch):
    def bind(address):
        raise OSError(errno.EADDRINUSE, "on purpose")

    monkeypatch.setattr(kernel, "bind", bind)
    with pytest.raises(OSError, match="on purpose"):
        connector.Connector()
    assert kernel.ours.fileno() == -1


def test_nothing_is_ended_that_has_not_begun(kernel):
    """Before Linux 6.6 that would end the listening of somebody else."""

    def move(file):
        raise OSError(errno.EMFILE, "on purpose")

    with pytest.raises(OSError, match="on purpose"):
        connector.Connector(None, move)
    assert kernel.requests == [] and not is_open(kernel.fd)


def test_check_asks_for_the_messages(kernel):
    connector.check()
    assert [operation for operation, _ in kernel.requests] == [netlink.LISTEN, netlink.IGNORE]
    assert not is_open(kernel.fd)


def test_machine_that_has_run_for_years(kernel, made, monkeypatch):
    """The kernel tells nanoseconds, and its time is ours to a hundredth of a second."""
    kernel.late = 1e8
    monkeypatch.setattr(connector, "monotonic", lambda: time.monotonic() + kernel.late)
    made()


@pytest.mark.parametrize("late", [-0.5, -0.1, 0.1, 100])
def test_another_clock(kernel, late):
    kernel.late = late
    with pytest.raises(PermissionError, match="time namespace"):
        connector.Connector()


def test_what_is_heard(kernel, made):
    listening = made()
    key, status = listening.add(5)
    assert key == 5 and listening.add_again(key, 5) == 5 and listening.may_have_exited(key, 5)
    kernel.send(4)
    kernel.theirs.send(message(5, EXIT, 0, 5, 3 << 8, 2000000000))
    kernel.theirs.send(message(5, EXIT, 0, 6, 9, 1500000000))
    kernel.theirs.send(message(5, FORK, 0, 5))
    assert listening.read() == [(5, (True, 3 << 8, 2.0)), (5, (False, 9, 1.5))]
    assert listening.read() == []


def test_each_add_has_its_discard(kernel, made):
    listening = made()
    listening.add(5)
    listening.add(5)
    for is_heard in True, False, False:
        listening.discard(5)
        kernel.send(5)
        assert bool(listening.read()) is is_heard


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.ENOMEM])
def test_lost_messages(kernel, made, code):
    """The error comes first, before the messages that there was room for."""
    listening = made()
    listening.add(5)
    read, errors = listening._read, [OSError(code, "on purpose")]

    def failing(fd, size):
        if errors:
            raise errors.pop()
        return read(fd, size)

    listening._read = failing
    kernel.send(5)
    if code == errno.ENOBUFS:
        assert [key for key, _ in listening.read()] == [5, None]
    else:
        with pytest.raises(OSError, match="on purpose"):
            listening.read()


def drops(kernel, listening, pid):
    """Whether the kernel drops the message about the exit."""
    kernel.send(pid)
    try:
        listening._read(listening.fileno(), 512)
    except BlockingIOError:
        return True
    return False


def test_filter_for_one(kernel, made):
    listening = made(5)
    assert drops(kernel, listening, 4) and not drops(kernel, listening, 5)
    listening.add(5)
    assert drops(kernel, listening, 4) and not drops(kernel, listening, 5)
    listening.add(6)
    assert not drops(kernel, listening, 4) and not drops(kernel, listening, 6)


def test_filter_drops_answers_to_others(kernel, made):
    listening = made(5)
    listening.add(6)
    for ack in 0, 1, ACK + 1:
        kernel.answer(ack, 0)
    with pytest.raises(BlockingIOError):
        listening._read(listening.fileno(), 512)


@pytest.mark.parametrize("members, limit", [(1, 3), (127, 3), (128, 4)])
def test_filter_after_useless_messages(kernel, made, monkeypatch, members, limit):
    """Each time it takes twice as many: if the pids change often, the filter is not worth it."""
    monkeypatch.setattr(connector, "_USELESS", 3)
    listening = made()
    pids = list(range(1000, 1000 + members))
    for pid in pids:
        listening.add(pid)
    for new in 5000, 5001:
        kernel.send(*[4] * limit)
        assert listening.read() == []
        assert not drops(kernel, listening, 4)
        kernel.send(4, *pids)
        assert [key for key, _ in listening.read()] == pids
        assert drops(kernel, listening, 4) and not drops(kernel, listening, pids[-1])
        listening.add(new)
        assert not drops(kernel, listening, 4) and not drops(kernel, listening, new)
        listening.discard(new)
        limit += limit - members // 128


def test_filter_that_can_not_be_set(kernel, made, monkeypatch):
    """What is useless is dropped here then."""
    monkeypatch.setattr(connector, "_USELESS", 3)
    monkeypatch.setattr(connector.Connector, "_set_option", lambda *arguments: False)
    listening = made(5)
    listening.add(5)
    for _ in range(3):
        kernel.send(4, 4, 4, 4, 5)
        assert [key for key, _ in listening.read()] == [5]
    assert not drops(kernel, listening, 4)


def test_filter_that_can_not_be_set_at_first(kernel, made, monkeypatch):
    """It is tried again when there are many useless messages."""
    monkeypatch.setattr(connector, "_USELESS", 3)

    def setsockopt(*arguments):
        raise OSError(errno.ENOMEM, "on purpose")

    with monkeypatch.context() as patched:
        patched.setitem(calls._resolved, "setsockopt", setsockopt)
        listening = made(5)
    listening.add(5)
    kernel.send(4, 4, 4, 4)
    assert not drops(kernel, listening, 4)
    assert listening.read() == []
    assert drops(kernel, listening, 4) and not drops(kernel, listening, 5)


def test_room_for_messages(kernel, made, monkeypatch):
    options = []
    set_option = connector.Connector._set_option

    def noting(self, option, value):
        options.append((option, bytes(value)))
        return set_option(self, option, value)

    monkeypatch.setattr(connector.Connector, "_set_option", noting)
    made()
    assert options[0] == (33, struct.pack("i", 8 << 20))  # SO_RCVBUFFORCE, bytes


def test_moved(kernel):
    """The file descriptor may be moved up."""
    moved = []

    def move(file):
        moved.append(file.fileno())
        return file

    connector.Connector(None, move).close()
    assert moved == [kernel.fd]


def test_low_file_descriptors_are_left_to_the_program(kernel, monkeypatch):
    """Those of a set may be many, and live long; a wait for one process is not worth a call."""
    checks = importlib.import_module(pidwait.__name__ + "._checks")
    events, moved = module("events"), []

    def move(file):
        moved.append(file.fileno())
        return file

    monkeypatch.setitem(checks._answers, events.check_connector, None)
    monkeypatch.setattr(events, "raised", lambda use: use(move))
    monkeypatch.setenv("PIDWAIT_BACKEND", "auto")
    events.open_events(5).close()
    assert moved == []
    kernel.renew()
    source = events.open_events()
    assert moved == [kernel.fd] and not drops(kernel, source, 4)
    source.close()


class Member:
    pid = os.getpid()


def test_message_that_is_lost_costs_five_seconds(kernel, monkeypatch):
    """After these the set looks at its members; until then it relies on messages."""
    listening_set = module("listening_set")
    monkeypatch.setattr(listening_set, "open_events", connector.Connector)
    for name in "polling_set", "paced_sets":
        monkeypatch.setattr(module(name), "monotonic", lambda: 1000.0)
    polled = listening_set.ListeningSet(types.SimpleNamespace(include=lambda fd: None))
    try:
        assert polled.add([Member()]) == []
        assert polled.delay() == 5
    finally:
        polled.close()


def test_code_is_waited_for_once_the_exit_is_seen(monkeypatch):
    """But no longer than a second."""
    now = [1000.0]
    monkeypatch.setattr(connector, "monotonic", lambda: now[0])
    status, told = connector.Status(), connector.Status()
    now[0] += 60
    assert status.is_due() and told.is_due()
    now[0] += 0.9
    assert status.is_due() and told.is_due()
    told.hear(True, 3 << 8, now[0])
    assert not told.is_due() and told.code() == 3
    now[0] += 0.2
    assert not status.is_due() and status.code() is None


def test_only_where_it_is_wanted_and_works(kernel, monkeypatch):
    checks = importlib.import_module(pidwait.__name__ + "._checks")
    events = module("events")
    failure = OSError(errno.EPERM, "on purpose")
    monkeypatch.setitem(checks._answers, events.check_inotify, failure)
    for error, backend in (None, "auto"), (None, "polling"), (failure, "auto"):
        monkeypatch.setitem(checks._answers, events.check_connector, error)
        monkeypatch.setenv("PIDWAIT_BACKEND", backend)
        source = events.open_events(5)
        if source is not None:
            source.close()
        assert (source is not None) is (error is None and backend == "auto")
    monkeypatch.setenv("PIDWAIT_BACKEND", "auto")
    assert not events.work()
    monkeypatch.setitem(checks._answers, events.check_inotify, None)
    assert events.work()


@pytest.fixture
def interrupt():
    """interrupt(error): a signal handler raises the error here."""
    errors = []

    def handler(number, frame):
        raise errors.pop()

    def interrupt(error):
        errors.append(error)
        while True:
            os.kill(os.getpid(), signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, handler)
    yield interrupt
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize(
    "error", [BlockingIOError(errno.EAGAIN, "theirs"), OSError(errno.ENOBUFS, "theirs")]
)
def test_error_of_a_signal_handler_while_it_reads(kernel, made, interrupt, error):
    listening = made()
    listening._read = lambda fd, size: interrupt(error)
    with pytest.raises(OSError, match="theirs"):
        listening.read()


def test_error_of_a_signal_handler_while_it_waits_for_the_answer(kernel, made, interrupt):
    listening = made()
    listening._read = lambda fd, size: interrupt(BlockingIOError(errno.EAGAIN, "theirs"))
    with pytest.raises(BlockingIOError, match="theirs"):
        listening._listen(ACK)


@pytest.mark.parametrize("name", ["connector", "inotify"])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSYS])
def test_import_that_fails_for_want_of_a_file_descriptor(monkeypatch, name, code):
    """An ImportError does not tell why: the check is made again later."""
    events = module("events")
    package = events.__name__.rpartition(".")[0]
    monkeypatch.delattr(sys.modules[package], name)
    monkeypatch.setitem(sys.modules, package + "." + name, None)

    def check_files():
        if code == errno.EMFILE:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(events._ffi, "check_files", check_files)
    with pytest.raises(OSError) as caught:
        getattr(events, "check_" + name)()
    assert caught.value.errno == code
