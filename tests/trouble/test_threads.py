# SPDX-License-Identifier: BSD-3-Clause
"""Several threads wait, reap, close, add and discard at the same time."""

import os
import subprocess
import threading

import pytest

from .. import pidwait
from ..waiting.threads import Thread
from . import LONG, Child, raises

pytest.importorskip("ctypes")
pytestmark = [pytest.mark.threads, pytest.mark.kqueue]

THREADS = 8


def in_threads(functions):
    """Run them at the same time; return their results, in their order."""
    threads = [Thread(function) for function in functions]
    return [thread.result() for thread in threads]


def test_one_of_many_threads_reaps_and_all_get_the_code(variant):
    for code in range(10):
        child = Child()
        with pidwait.Process(child.pid) as process:
            child.end(code)
            codes = in_threads([lambda: process.wait(LONG, reap=True)] * THREADS)
        assert codes == [code] * THREADS
        raises(ChildProcessError, os.waitpid, child.pid, 0)
        child.forget()


@pytest.mark.parametrize("start", [pidwait.spawn, subprocess.Popen])
def test_many_threads_wait_for_one_owner(variant, start):
    for _ in range(5):
        child = start(["sh", "-c", "exit 3"])
        waits = [lambda: pidwait.wait(child, LONG), child.wait] * THREADS
        assert in_threads(waits) == [3] * 2 * THREADS
        getattr(child, "close", int)()


def test_a_thread_that_looks_when_another_one_has_just_reaped(variant, seam):
    """The other one has not remembered the code yet."""
    if not hasattr(os, "waitid"):
        pytest.skip("this interpreter has no waitid(2)")
    if not variant.startswith("pidfd"):
        pytest.skip("it reaps by waitpid(2)")
    reaped, both = threading.Event(), threading.Event()

    def waitid(idtype, number, options):
        info = os.waitid(idtype, number, options)
        if info is not None and not options & os.WNOWAIT:
            reaped.set()
            both.wait()
        return info

    child = Child()
    with pidwait.Process(child.pid) as process:
        child.become_zombie(7)
        pidwait.probe()
        seam.put("waitid", waitid)
        # The kernel's own answer for a reaped process would hide a wrong look.
        seam.refuse("ioctl")

        def second():
            reaped.wait()
            code = process.wait(LONG, reap=True)
            both.set()
            return code

        assert in_threads([lambda: process.wait(LONG, reap=True), second]) == [7, 7]
    child.forget()
