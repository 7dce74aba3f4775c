# SPDX-License-Identifier: BSD-3-Clause
"""The proc connector's messages, and the filter for them: the kernel applies it to any socket."""

import importlib
import random
import socket
import struct
from array import array

import pytest

from .. import pidwait

netlink = importlib.import_module(pidwait.__name__ + "._ffi.netlink")


EXIT, FORK = netlink.EXIT, 1


def message(tgid, what=EXIT, ack=0, pid=9, status=7, when=17):
    """What the kernel sends: struct nlmsghdr, cn_msg and proc_event."""
    headers = struct.pack("=IHHII", 76, 3, 0, 0, 0) + struct.pack("=4I2H", 1, 1, 5, ack, 40, 0)
    event = struct.pack("=IIQ", what, 0, when) + struct.pack("=iiIIii", pid, tgid, status, 17, 1, 1)
    return headers + event


def let_through(instructions, messages):
    """Those of the messages that the kernel lets through a filter."""
    instructions = array("B", instructions)
    program = netlink.program(*instructions.buffer_info())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, netlink.SO_ATTACH_FILTER, program)
        found = []
        for message in messages:
            theirs.send(message)
            try:
                found.append(ours.recv(512))
            except BlockingIOError:
                continue
    return found


def pids_let_through(pids, asked):
    found = let_through(netlink.filter_of(netlink.Pids(pids)), map(message, asked))
    return [netlink.EVENT.unpack_from(message)[4] for message in found]


def test_message():
    found = netlink.EVENT.unpack_from(message(5, EXIT, 8))
    assert found == (8, EXIT, 17, 9, 5, 7)


@pytest.mark.parametrize("name, operation", [("LISTEN", 1), ("IGNORE", 2)])
def test_request(name, operation):
    """enum proc_cn_mcast_op"""
    headers = struct.pack("=IHHII", 40, 3, 0, 0, 0) + struct.pack("=4I2H", 1, 1, 0, 9, 4, 0)
    assert netlink.request(getattr(netlink, name), 9) == headers + struct.pack("=I", operation)


def test_filter_of_exits():
    exits = [message(5), message(4194303)]
    others = [message(5, what) for what in (netlink.NONE, FORK, 2, 0x40000000, 0x80000001, 0x80)]
    assert let_through(netlink.filter_of(None), exits + others) == exits


@pytest.mark.parametrize("ack", [1, 300, 65536])
def test_filter_of_exits_and_an_answer(ack):
    wanted = [message(5), message(0, netlink.NONE, ack), message(5, EXIT, ack)]
    others = [message(0, netlink.NONE, other) for other in (0, ack + 1, ack << 8, ack >> 8)]
    others += [message(5, FORK, ack), message(6), message(6, EXIT, ack)]
    instructions = netlink.filter_of(netlink.Pids([5]), ack)
    assert let_through(instructions, wanted + others) == wanted


RANDOM = random.Random(1)


@pytest.mark.parametrize(
    "pids",
    [
        [1],
        [31, 32],
        [40],
        [128],
        range(1, 100),
        range(1, 12000, 2),
        [4194303],
        RANDOM.sample(range(1, 5000), 50),
    ],
    ids=[
        "one",
        "two words",
        "the second word",
        "a later word",
        "all",
        "every other one",
        "the last",
        "any",
    ],
)
def test_filter_of_pids(pids):
    wanted = set(pids)
    some = RANDOM.sample(sorted(wanted), min(len(wanted), 200))
    near = {pid + by for pid in some for by in (-64, -32, -1, 0, 1, 32, 64)}
    asked = sorted(pid for pid in near if pid > 0)
    expected = [pid for pid in asked if pid in wanted]
    assert pids_let_through(pids, asked) == expected
    found = netlink.Pids(pids)
    assert [pid for pid in asked if pid in found] == expected


def test_bit_is_for_no_more_pids_than_needed():
    pids = range(64, 64 * 300, 64)  # twice as many parts as there is room for
    assert [pid for pid in (62, 63, 64, 65, 66) if pid in netlink.Pids(pids)] == [64, 65]
    assert pids_let_through(pids, range(60, 70)) == [64, 65]


def test_filter_of_too_many_pids():
    """It lets a few others through, and is not too large for a socket."""
    pids = [100 * number for number in range(1, 10000)]
    instructions = netlink.filter_of(netlink.Pids(pids))
    assert len(instructions) < 16000
    assert pids_let_through(pids, pids[::50]) == pids[::50]
    others = [pid + 50 for pid in pids]
    found = netlink.Pids(pids)
    assert pids_let_through(pids, others[::50]) == [pid for pid in others[::50] if pid in found]
