# SPDX-License-Identifier: BSD-3-Clause
"""Linux: the messages of the proc connector, and the filter that the kernel applies to them.

A message is a struct nlmsghdr, a struct cn_msg, and a struct proc_event: linux/netlink.h,
linux/connector.h, linux/cn_proc.h. All numbers in it are in the machine's byte order.
"""

import sys
from struct import Struct, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Instruction = tuple[int, int, int, int]  # novm

CONNECTOR = 11  # the protocol
PROC_GROUP = 1  # CN_IDX_PROC, to which the events are sent
LISTEN, IGNORE = 1, 2
SO_RCVBUFFORCE, SO_ATTACH_FILTER = 33, 26  # asm-generic/socket.h

# struct nlmsghdr: u32 length; u16 type, flags; u32 seq, pid.
# struct cn_msg: u32 idx, val, seq, ack; u16 length, flags.
_HEADERS = Struct("=IHHII4I2H")
_NLMSG_DONE = 3
# struct proc_event: u32 what, cpu; u64 timestamp in nanoseconds, of CLOCK_MONOTONIC; and for
# an exit s32 pid, tgid; u32 exit_code, which is a wait status. Before it, the cn_msg's ack.
EVENT = Struct("=28xI4xI4xQiiI")
EXIT = 0x80000000
NONE = 0  # an answer: its pid is an errno, its ack one more than the request's
_ACK, _WHAT, _TGID = 28, _HEADERS.size, _HEADERS.size + 20

# struct sock_filter: u16 code; u8 jt, jf; u32 k.
_LOAD, _LOAD_BYTE, _CONSTANT, _STORE, _RECALL, _TO_X = 0x20, 0x30, 0x00, 0x02, 0x60, 0x07
_LEFT, _RIGHT, _RIGHT_BY_X, _AND, _OR_X = 0x64, 0x74, 0x7C, 0x54, 0x4C
_IS, _AT_LEAST, _HAS_BIT, _JUMP, _RETURN = 0x15, 0x35, 0x45, 0x05, 0x06
_WHOLE = 0xFFFFFFFF
_NEXT = 0  # jumps count from the next instruction
# The words of a filter, and the gaps between them: so that it stays below the 20 KB for which a
# socket has room (net.core.optmem_max, before Linux 6.9).
_PARTS = 450
_FOUND = -1


def request(operation: int, ack: int) -> bytes:
    """A message that starts or ends the sending of events."""
    head = _HEADERS.pack(_HEADERS.size + 4, _NLMSG_DONE, 0, 0, 0, PROC_GROUP, 1, 0, ack, 4, 0)
    return head + pack("=I", operation)


def _do(code: int, k: int = 0) -> "Instruction":
    return code, _NEXT, _NEXT, k


_DROP, _KEEP = _do(_RETURN), _do(_RETURN, _WHOLE)


def filter_of(wanted: "Pids | None", ack: "int | None" = None) -> bytes:
    """The filter for exits of these processes; of all if None.

    ``ack``: that of an answer that is to come, too; all who listen are sent the answers to
    everybody.
    """
    program = _load(_WHAT)
    if ack is not None:
        answer = _load(_ACK) + [(_IS, 1, _NEXT, ack), _DROP, _KEEP]
        program += [(_IS, _NEXT, len(answer), NONE), *answer]
    program += [(_IS, 1, _NEXT, EXIT), _DROP]
    if wanted is not None:
        program += _load(_TGID) + wanted.instructions()
    program.append(_KEEP)
    return b"".join(pack("=HBBI", *instruction) for instruction in program)


class Pids:
    """Pids, as a bit each; where they would be too many for a filter, a bit is for several."""

    def __init__(self, pids: "Iterable[int]") -> None:
        self._shift = 0
        self._words = _words_of(pids)
        while len(self._parts()) > _PARTS:
            self._shift += 1
            self._words = _words_of(pid >> self._shift for pid in pids)

    def __contains__(self, pid: int) -> bool:
        number = pid >> self._shift
        return bool(self._words.get(number >> 5, 0) >> (number & 31) & 1)

    def _parts(self) -> "list[tuple[int, int]]":
        """The number at which a word or a gap begins, and its bits, which are 0 in a gap."""
        parts = [(0, 0)]
        for number in sorted(self._words):
            if parts[-1][0] == number:
                del parts[-1]
            parts += [(number, self._words[number]), (number + 1, 0)]
        return parts

    def instructions(self) -> "list[Instruction]":
        """Go on if the pid that has been loaded is one of these; else drop the message."""
        find = _search(self._parts())
        # From the end of a part, to behind them all.
        for at, (code, _, _, target) in enumerate(find):
            if code == _JUMP and target == _FOUND:
                find[at] = _do(_JUMP, len(find) - at - 1)
        split = [_do(_RIGHT, self._shift), _do(_STORE), _do(_AND, 31), _do(_TO_X)]
        split += [_do(_RECALL), _do(_RIGHT, 5)]
        test = [_do(_RIGHT_BY_X), (_HAS_BIT, 1, _NEXT, 1), _DROP]
        return split + find + test


def _words_of(numbers: "Iterable[int]") -> "dict[int, int]":
    words: "dict[int, int]" = {}
    for number in numbers:
        words[number >> 5] = words.get(number >> 5, 0) | 1 << (number & 31)
    return words


def _search(parts: "list[tuple[int, int]]") -> "list[Instruction]":
    """Find the part with the number that has been loaded, and load its bits."""
    if len(parts) == 1:
        return [_do(_CONSTANT, parts[0][1]), _do(_JUMP, _FOUND)]
    middle = len(parts) // 2
    lower, upper = _search(parts[:middle]), _search(parts[middle:])
    choose = [(_AT_LEAST, _NEXT, 1, parts[middle][0]), _do(_JUMP, len(lower))]
    return choose + lower + upper


def _load(offset: int) -> "list[Instruction]":
    """Load a number, which the filter would take for big endian."""
    if sys.byteorder == "big":
        return [_do(_LOAD, offset)]
    program = [_do(_LOAD_BYTE, offset + 3)]
    for position in 2, 1, 0:
        program += [_do(_LEFT, 8), _do(_TO_X), _do(_LOAD_BYTE, offset + position), _do(_OR_X)]
    return program


def program(address: int, size: int) -> bytes:
    """The struct sock_fprog for a filter in memory: u16 length in instructions; pointer."""
    return pack("@HP", size // 8, address)
