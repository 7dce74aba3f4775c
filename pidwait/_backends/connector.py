# SPDX-License-Identifier: BSD-3-Clause
"""Linux without pidfds: the proc connector, a netlink(7) socket on which every exit is reported.

Linux has it since 2.6.15, if it was built with CONFIG_PROC_EVENTS. Before Linux 6.6 only root may
use it; and it works only in the initial network, PID and user namespaces, and by the kernel's
clock. The kernel sends a message for each thread that ends, with its wait status.

A message shortens the polling, and can tell an exit code that nothing else tells; whether the
process has exited is seen by a look at it. So a lost message costs only time: after ENOBUFS all
processes are looked at, and each one is looked at now and then anyway. For the kernel drops a
message silently if it has no memory, and before Linux 6.6 it stops sending if another
program has ended its own listening twice.
"""

import os
from errno import ENOBUFS, EPERM
from struct import pack
from time import monotonic

from .._errors import pass_over, raise_of_handler
from .._fd import close, opened
from .._ffi import adapter, calls, netlink
from .._outcome import from_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .contract import Heard

_BUFFER = 8 << 20  # bytes for messages that have not been read: about 10,000 of them
_USELESS = 32  # messages about other processes until the filter knows the pids, at first
_NEAR = 0.01  # seconds; time_namespaces(7) differ by more, or it does not matter
_unpack = netlink.EVENT.unpack_from


class Status:
    """What the messages about its threads have told about the exit code of one process."""

    __slots__ = ("_is_certain", "_since", "_status", "_until")

    # On a busy machine the kernel may run others between the exit and its message.
    patience = 1.0

    def __init__(self) -> None:
        self._until: "float | None" = None
        self.forget(monotonic())

    def forget(self, since: float) -> None:
        """It was seen running then: what was heard so far was not about its exit.

        When a thread other than the main one calls execve(2), it takes over the pid of the main
        thread, of which we are told that it has ended: seen on Linux 6.12.
        """
        self._since = since
        self._status: "int | None" = None
        self._is_certain = True

    def hear(self, is_main: bool, status: int, when: float) -> None:
        # It was seen running at ``_since``. An earlier message may be about another process
        # that had the same pid.
        if when < self._since:
            return
        if self._status is None:
            # Another thread may have ended long before the process.
            if is_main:
                self._status = status
        elif status != self._status:
            # What the end of several threads means for the exit code depends on how they ended.
            self._is_certain = False

    def is_due(self) -> bool:
        """Whether the code may still come: it is sent after the exit can be seen."""
        if self._until is None:
            self._until = monotonic() + self.patience
        return self._status is None and monotonic() < self._until

    def code(self) -> "int | None":
        return None if self._status is None or not self._is_certain else from_status(self._status)


class Connector:
    """The exits of the processes whose pids have been added."""

    # Seconds between two looks at a process of which nothing is heard.
    longest = 5.0
    hears_all = True

    def __init__(
        self, pid: "int | None" = None, move: "Callable[[Any], Any] | None" = None
    ) -> None:
        """``pid``: the only one that will be added, if that is known; ``move``: see _highfds."""
        # Few need these. The module socket would load more than _socket; and eventlet's os.read()
        # waits until there is something to read.
        import _socket
        import posix
        from array import array

        self._array = array
        self._read = posix.read
        self._level = _socket.SOL_SOCKET
        self._creator = os.getpid()
        # pid: how many times it has been added
        self._pids: "dict[int, int]" = {}
        self._useless, self._most_useless = 0, _USELESS
        self._heard: "netlink.Pids | None" = None  # those that the filter lets through; None: all
        self._is_listening = False
        kind = _socket.SOCK_DGRAM | os.O_CLOEXEC | os.O_NONBLOCK
        channel = _socket.socket(_socket.AF_NETLINK, kind, netlink.CONNECTOR)
        try:
            channel.bind((0, netlink.PROC_GROUP))
            port: int = channel.getsockname()[0]
            self.file: "Any" = opened(_socket.socket.detach, channel)
        finally:
            channel.close()
        try:
            if move is not None:
                self.file = move(self.file)
            self._set_option(netlink.SO_RCVBUFFORCE, bytearray(pack("i", _BUFFER)))  # for root
            ack = port & 0xFFFF
            self._filter(None if pid is None else netlink.Pids([pid]), ack + 1)
            self._listen(ack)
        except BaseException:
            self.close()
            raise

    def _set_option(self, option: int, value: bytearray) -> bool:
        """Set an option of the socket; return whether it could be set."""
        try:
            pointer = adapter().pointer(value)
            calls.get("setsockopt")(self.file.fileno(), self._level, option, pointer, len(value))
        except (OSError, ImportError) as error:
            pass_over(error, "socket option %d", option)
            return False
        return True

    def _filter(self, wanted: "netlink.Pids | None", answer: "int | None" = None) -> None:
        """Have the kernel drop what is not about these pids; if None, what is no exit."""
        program = self._array("B", netlink.filter_of(wanted, answer))
        value = bytearray(netlink.program(*program.buffer_info()))
        # If it can't be set, read() drops what is useless.
        if self._set_option(netlink.SO_ATTACH_FILTER, value):
            self._heard = wanted

    def _listen(self, ack: int) -> None:
        began = monotonic()
        os.write(self.file.fileno(), netlink.request(netlink.LISTEN, ack))
        self._is_listening = True
        # The answer is there by now. In another PID or user namespace there is none, though
        # messages may come because somebody else listens; the pids in them are not ours.
        while True:
            try:
                answer, what, when, error, _, _ = _unpack(self._read(self.file.fileno(), 512))
            except BlockingIOError as nothing:
                raise_of_handler(nothing)
                raise OSError(EPERM, "the kernel does not answer here") from None
            if what == netlink.NONE and answer == ack + 1:
                break
        if error:
            raise OSError(error, os.strerror(error))
        # What a message is about is seen by its time.
        if not began - _NEAR < when / 1e9 < monotonic() + _NEAR:
            raise OSError(EPERM, "the kernel's clock is another one: a time namespace")

    def fileno(self) -> int:
        fd: int = self.file.fileno()
        return fd

    def add(self, pid: int) -> "tuple[int, Status]":
        self._pids[pid] = self._pids.get(pid, 0) + 1
        if self._heard is not None and pid not in self._heard:
            self._filter(None)
            self._useless = 0
        return pid, Status()

    def add_again(self, key: int, pid: int) -> int:
        return key

    def discard(self, pid: int) -> None:
        count = self._pids.pop(pid, 0) - 1
        if count > 0:
            self._pids[pid] = count

    def may_have_exited(self, key: int, pid: int) -> bool:
        return True

    def read(self) -> "list[Heard]":
        heard: "list[Heard]" = []
        read, fd, pids = self._read, self.file.fileno(), self._pids
        try:
            while True:
                _, what, when, pid, tgid, status = _unpack(read(fd, 512))
                if tgid in pids and what == netlink.EXIT:
                    heard.append((tgid, (pid == tgid, status, when / 1e9)))
                else:
                    self._useless += 1
        except BlockingIOError as error:
            raise_of_handler(error)
        except OSError as error:
            raise_of_handler(error)
            if error.errno != ENOBUFS:
                raise
            # It comes first, before the messages that there was room for.
            heard = self.read()
            heard.append((None, ()))
        if self._useless > self._most_useless + len(pids) // 128 and self._heard is None:
            self._useless = 0
            self._most_useless *= 2  # if the pids change often, it is not worth it
            self._filter(netlink.Pids(pids))
        return heard

    def close(self) -> None:
        # Before Linux 6.6 the kernel counts requests, not sockets: it would go on sending for
        # ever. In a forked child the request is still the parent's.
        if self._is_listening and self._creator == os.getpid():
            self._is_listening = False
            try:
                os.write(self.file.fileno(), netlink.request(netlink.IGNORE, 0))
            except OSError as error:
                pass_over(error, "the proc connector")
        close(self.file)


def check() -> None:
    """Ask for the messages, and for no more of them."""
    Connector().close()
