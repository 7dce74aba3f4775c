# SPDX-License-Identifier: BSD-3-Clause
"""Linux: hints about polled processes, from the proc connector, a netlink(7) socket.

A hint is a message that a look is worth while now. Nothing depends on it: the polling goes on,
and a message that is lost costs what polling costs. The kernel drops some if it has no memory,
and before Linux 6.6 it sends no more once another program has stopped listening twice.

Linux has the connector since 2.6.15, if built with CONFIG_PROC_EVENTS. It needs CAP_NET_ADMIN in
the initial network namespace, and is silent in other PID and user namespaces than the initial.
"""

import os
import select
from errno import EAGAIN, ENOBUFS
from struct import Struct, pack

from .._base.errors import Failed, call, log
from .._base.probe import BACKEND, BACKENDS, choice, works
from .calls import native
from .posix import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Iterator

# linux/netlink.h, linux/connector.h, linux/cn_proc.h, asm-generic/socket.h
_AF_NETLINK, _NETLINK_CONNECTOR, _NLMSG_DONE = 16, 11, 3
_CN_IDX_PROC = _CN_VAL_PROC = 1
_LISTEN, _IGNORE = 1, 2  # PROC_CN_MCAST_*
_EVENT_EXIT = 0x80000000  # PROC_EVENT_EXIT
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33

# A request is a struct nlmsghdr: u32 length; u16 type, flags; u32 seq, pid; a struct cn_msg:
# u32 idx, val, seq, ack; u16 length, flags; and a u32, the operation.
_REQUEST = Struct("=IHHII4I2HI")
# A message has a struct proc_event in the operation's place: u32 what, cpu; u64 timestamp; and for
# an exit, which is that of a thread, s32 pid, tgid.
_WHAT, _TGID = 36, 56
_MESSAGE = Struct("=%dxi" % _TGID)
_SOCKET_BUFFER = 8 << 20  # bytes for messages that have not been read: about 10,000 of them

# struct sock_filter: u16 code; u8 instructions to skip if true, if false; u32 k
_INSTRUCTION = Struct("=HBBI")
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06
_KEEP, _DROP = (_INSTRUCTION.pack(_RETURN, 0, 0, size) for size in (0xFFFF, 0))
_FEW_PIDS = 64  # pids with which the kernel compares that of each message


class Hints:
    """Tells which of the members that have been added are worth a look.

    It has a socket with a message for each thread that exits.
    """

    fd = -1
    _socket: "Any" = None
    _listener = 0  # the process that has asked for the messages

    def __init__(self, epoll: "Any", by_fd: "dict[int, Any]") -> None:
        """``epoll`` is to watch ``fd``, as soon as there is one; ``by_fd`` then has it."""
        self._epoll, self._by_fd = epoll, by_fd
        # By the pid; several members can be for one process.
        self._members: "dict[int, dict[Any, None]]" = {}
        self._sleeps_left = 0  # until the kernel hears of new members
        self._is_new = True

    def add(self, member: "Any") -> None:
        self._members.setdefault(member.handle.pid, {})[member] = None
        self._sleeps_left = 2

    def steps_to_drop(self, member: "Any") -> "Iterator[Any]":
        """What forgets it, when it is gone through."""
        return map(self._members.get(member.owner.pid, {}).pop, (member,), (None,))

    def update(self) -> None:
        """Call this before each sleep."""
        # The first one ends with the first look, at once. What has exited by then costs no more
        # than that; what exits now is seen by the next look, soon.
        if not self._sleeps_left:
            return
        self._sleeps_left -= 1
        for pid, members in self._members.copy().items():
            if not members:
                self._members.pop(pid, None)
        if self._sleeps_left or not self._members:
            return
        is_new, self._is_new, socket = self._is_new, False, self._socket
        try:
            if socket is not None:
                self._filter(socket)
                call(self._epoll.modify, self.fd, select.EPOLLIN)
            elif is_new and choice(BACKEND, *BACKENDS) != "polling" and works(check_connector):
                self.listen()
                self._by_fd[self.fd] = Hints  # the class: it must not refer to itself
                call(self._epoll.register, self.fd, select.EPOLLIN)
        except Failed as why:
            self._give_up(why)

    def _give_up(self, why: Failed) -> None:
        log("polling without hints: %s", why)
        self.close()

    def read(self) -> "Iterator[Any]":
        """The members whose processes have lost a thread since."""
        try:
            pids = self._receive()
            found = list(self._members) if pids is None else [*filter(self._members.get, pids)]
            if pids and not found:
                # Others may exit thousands of times a second: none of them ends the next sleep.
                call(self._epoll.modify, self.fd, 0)
                self._sleeps_left = 2
        except Failed as why:
            self._give_up(why)
            return
        for pid in found:
            yield from list(self._members.get(pid, ()))

    def _receive(self) -> "set[int] | None":
        """The processes, by pid, that lost a thread; None if messages were lost."""
        socket = self._socket
        pids: "set[int]" = set()
        is_whole = True
        while socket is not None:
            try:
                pids.update(_MESSAGE.unpack_from(call(socket.recv, 512)))
            except Failed as why:
                if why.errno == EAGAIN:
                    break
                if why.errno != ENOBUFS:
                    raise
                is_whole = False
        return pids if is_whole else None

    def listen(self) -> None:
        """Open the socket; Failed if it can't be used."""
        new = native("socket")
        import _socket  # few need it, and native() has loaded it

        kind = _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK
        self._level = _socket.SOL_SOCKET
        self._socket = socket = call(new, _AF_NETLINK, kind, _NETLINK_CONNECTOR)
        self.fd = socket.fileno()
        self._set_option(socket, _SO_RCVBUFFORCE, pack("i", _SOCKET_BUFFER))
        self._filter(socket)  # before the messages that others have asked for come
        call(socket.bind, (0, _CN_IDX_PROC))
        _send(socket, _LISTEN)
        self._listener = os.getpid()

    def _set_option(self, socket: "Any", option: int, value: bytes) -> None:
        call(socket.setsockopt, self._level, option, value)

    def _filter(self, socket: "Any") -> None:
        """Have the kernel send messages about the pids, and few others."""
        program = _load_and_drop_others(_WHAT, [_EVENT_EXIT])
        if len(self._members) <= _FEW_PIDS:
            program += _load_and_drop_others(_TGID, list(self._members))
        # struct sock_fprog: u16 length in instructions; a pointer to them.
        place = native("array")("B", program + _KEEP)
        address, size = place.buffer_info()
        self._set_option(socket, _SO_ATTACH_FILTER, pack("@HP", size // _INSTRUCTION.size, address))

    def close(self) -> None:
        socket, self._socket, self.fd = self._socket, None, -1
        if socket is None:
            return
        # Before Linux 6.6 the kernel counts requests, not sockets: it would send for ever. In a
        # forked child the request is still the parent's.
        listener, self._listener = self._listener, 0
        try:
            if listener == os.getpid():
                _send(socket, _IGNORE)
        except Failed as why:
            log("the proc connector: %s", why)
        close(socket)

    __del__ = close


def _send(socket: "Any", operation: int) -> None:
    header = _REQUEST.size, _NLMSG_DONE, 0, 0, 0
    request = _REQUEST.pack(*header, _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, 4, 0, operation)
    call(socket.send, request)


def check_connector() -> None:
    """Whether the proc connector can be used."""
    hints = Hints(None, {})
    try:
        hints.listen()
    finally:
        hints.close()


def _load_and_drop_others(place: int, numbers: "list[int]") -> bytes:
    """The instructions that drop a message with none of these numbers at the place."""
    # A filter takes numbers for big endian.
    program = [_INSTRUCTION.pack(_LOAD, 0, 0, place)]
    for left, number in zip(range(len(numbers), 0, -1), numbers):
        swapped = int.from_bytes(pack("=I", number), "big")
        program.append(_INSTRUCTION.pack(_EQUALS, left, 0, swapped))
    return b"".join([*program, _DROP])
