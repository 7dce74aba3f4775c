# SPDX-License-Identifier: BSD-3-Clause
"""What the kernel that runs this offers, and the probe says, is what is known of its version."""

import os
import re
import select
import subprocess

import pytest

from .. import pidwait
from ..processes import ending_after_the_main_thread, exiting, needs_pthread_exit

# Of gVisor's two, "current" or "without-pidfd".
GVISOR = "GVISOR" in os.environ
WITHOUT_PIDFD = os.environ.get("GVISOR") == "without-pidfd"
LINUX = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def since(*version):
    return version <= LINUX and not GVISOR


@pytest.fixture(params=["pidfd-own", "pidfd-ctypes", "pidfd-cffi"])
def pidfds(request, use_variant):
    if not WITHOUT_PIDFD:
        use_variant(request.param)


def test_the_probe_says_what_this_kernel_has(pidfds):
    found = pidwait.probe()
    assert found["backend"] == ("polling" if WITHOUT_PIDFD else "pidfd")
    assert {name for name, call in found["calls"].items() if not call["available"]} >= {
        name
        for name, is_there in (
            ("pidfd_open", not WITHOUT_PIDFD),
            ("PIDFD_GET_INFO", since(6, 13)),
            ("pidfd inodes", since(6, 9)),
            ("/proc exit status", not GVISOR),
        )
        if not is_there
    }


@pytest.mark.skipif(WITHOUT_PIDFD, reason="this kernel has no pidfd_open")
def test_poll_tells_a_reaping_from_6_12_on(pidfds):
    child = subprocess.Popen(exiting(7))
    with pidwait.Process(child.pid) as process:
        poll = select.poll()
        poll.register(process.fileno())
        assert poll.poll()[0][1] == select.POLLIN
        child.wait()
        tells = GVISOR or since(6, 12)  # not in 6.1
        assert poll.poll()[0][1] == (select.POLLIN | select.POLLHUP if tells else select.POLLIN)
        assert process.wait() == (7 if since(6, 15) else None)


@needs_pthread_exit
def test_a_main_thread_that_ends_first_hides_the_code_before_5_17(pidfds, start):
    """Whoever looks without reaping is told the main thread's status: see LIMITS.md."""
    child = start(*ending_after_the_main_thread(9))
    is_right = since(5, 17) or (GVISOR and not WITHOUT_PIDFD)
    assert pidwait.wait(child.pid) == (9 if is_right else 0)
    assert pidwait.wait(child.pid, reap=True) == 9
    child.wait()


@needs_pthread_exit
def test_exit_codes_of_others(keeper, pidfds):
    """Of a zombie it is told everywhere but on gVisor; of one that was reaped, since 6.15."""
    pid = keeper.start("sleep", "60")
    keeper.reap_soon(pid)
    with pidwait.Process(pid) as process:
        process.kill()
        keeper.reaped()
        assert process.wait() == (-9 if since(6, 15) else None)
    pid = keeper.start(*ending_after_the_main_thread(9))
    with pidwait.Process(pid) as process:
        assert process.wait() == (9 if since(5, 17) else None)
    keeper.reap(pid)
    for wanted in 0, 7, -9:
        pid = keeper.start(*exiting(wanted))
        with pidwait.Process(pid) as process:
            assert process.wait() == (None if GVISOR else wanted)
        keeper.reap(pid)
