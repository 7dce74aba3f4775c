# SPDX-License-Identifier: BSD-3-Clause
"""An allocation that fails, wherever it is: MemoryError comes out, and nothing else changes."""

import contextlib
import gc
import os
import sys

import pytest

from .. import pidwait
from ..conftest import open_fds
from . import LONG, Child, by_handle, by_set, forked, system

pytest.importorskip("ctypes")
try:
    import _testcapi as memory
except (ImportError, OSError):  # PyPy compiles it when it is imported, or can't
    memory = None
if not hasattr(memory, "set_nomemory"):
    pytest.skip("this interpreter can't have an allocation fail", allow_module_level=True)


# The others are CPython's, where its own code has no memory: of ctypes, of RLock().
ERRORS = (MemoryError, SystemError, RuntimeError, system.ctypes.ArgumentError)


def each_allocation(function):
    """Call it again and again, with one of its allocations failing; yield after each call.

    Each time it is a later one, until it is none of the function's.
    """
    unaffected = number = 0
    while unaffected < 50:  # some failures are overcome
        number += 1
        unaffected += 1
        memory.set_nomemory(number, number + 1)
        try:
            function()
        except ERRORS:
            unaffected = 0
        finally:
            memory.remove_mem_hooks()
        yield number
    assert number > 60, number


def leaks_little(use, undo=int):
    for _ in range(3):  # what is loaded and remembered at first
        use()
        undo()
    before = open_fds()
    for number in each_allocation(use):
        undo()
        if open_fds() != before:
            gc.collect()
        left = set(open_fds()) - set(before)
        # os.pipe() itself loses both ends if it can't make its tuple.
        opened = {os.readlink("/proc/self/fd/%d" % fd) for fd in left}
        assert len(left) <= 1 or (len(left) == 2 and "pipe" in "".join(opened) and len(opened) == 1)
        for fd in left:
            os.close(fd)


def adds():
    child = Child()
    with pidwait.WaitSet([os.getpid()]) as waiting:
        leaks_little(lambda: waiting.add(child.pid), lambda: waiting.discard(child.pid))
        waiting.add(child.pid)
        child.end(7)
        assert waiting.wait(LONG) == [(child.pid, 7)]
    child.reap()


def waits(way):
    child = Child()
    child.become_zombie(7)

    def wait():
        assert way(child.pid) == 7

    leaks_little(wait)
    wait()
    child.reap()


def waits_in_vain():
    child = Child()

    def wait():
        with contextlib.suppress(pidwait.TimeoutExpired):
            pidwait.wait(child.pid, 0)

    leaks_little(wait)
    child.end(7)
    assert pidwait.wait(child.pid, LONG) == child.reap() == 7


def waits_for_many():
    children = [Child() for _ in range(4)]
    pids = [child.pid for child in children]
    leaks_little(lambda: pidwait.wait_procs(pids, 0))
    assert pidwait.wait_procs(pids, 0) == ([], pids)
    for child in children:
        child.end(7)
        child.reap()


# CPython 3.11.7 keeps a reference to the object for ever if it has no memory to call its method. So
# a set's file descriptors stay open. 3.10, 3.12 and 3.13 do not.
of_sets = pytest.mark.skipif(
    sys.version_info[:2] == (3, 11), reason="CPython 3.11 loses references without memory"
)
SCENARIOS = [
    pytest.param((waits_for_many,), marks=of_sets),
    pytest.param((adds,), marks=of_sets),
    (waits_in_vain,),
    (waits, pidwait.wait),
    (waits, by_handle),
    pytest.param((waits, by_set), marks=of_sets),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_allocation_that_fails_leaks_at_most_what_one_call_has_opened(variant, scenario):
    forked(*scenario)
