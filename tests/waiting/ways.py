# SPDX-License-Identifier: BSD-3-Clause
"""The ways to wait for one process: each function takes its object and returns the exit code."""

import queue

import pytest

from .. import pidwait
from ..processes import gone_pid


def by_wait(proc):
    return pidwait.wait(proc, 20)


def by_wait_procs(proc):
    exited, alive = pidwait.wait_procs([proc], 20)
    assert alive == []
    ((found, code),) = exited
    assert found is proc
    return code


def by_as_completed(proc):
    ((found, code),) = pidwait.as_completed([proc], 20)
    assert found is proc
    return code


def by_set(proc):
    with pidwait.WaitSet([proc]) as waiting:
        ((found, code),) = waiting.wait(20)
        assert found is proc and len(waiting) == 0
        assert waiting.wait(0) == []
        return code


def by_watch(proc):
    told = queue.Queue()
    pidwait.watch(proc, lambda *exit: told.put(exit))
    found, code = told.get(timeout=20)
    assert found is proc
    # The watch thread is still alive and reports the next exit.
    pid = gone_pid()
    pidwait.watch(pid, lambda *exit: told.put(exit))
    assert told.get(timeout=20) == (pid, None)
    assert told.empty()
    return code


WAYS = [by_wait, by_wait_procs, by_set, by_watch]
every_way = pytest.mark.parametrize("way", WAYS)
