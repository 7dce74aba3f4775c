# SPDX-License-Identifier: BSD-3-Clause
"""A pid that the kernel gives out again: run in a PID namespace of its own, by trouble.run()."""

import os
import time

from .. import pidwait
from ..processes import eventually
from ..trouble import Child, Stranger, system

OLD, NEW = 3, 9  # exit codes
CLOCK_BOOTTIME = 7  # the module time has it from Python 3.7 on


def started(pid):
    """The start time of a process, in ticks of ten milliseconds since boot."""
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[19])


def another_with(pid, ticks):
    """Start another process with a pid that is free; without handles the ticks tell them apart."""
    eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > ticks)
    system.next_pid(pid)
    child = Child()
    assert child.pid == pid
    return child


def pid_in_a_set(backend):
    """Both processes are reported, each with its own code, though the old one may have none."""
    for make in Child, Stranger:
        for discards in False, True:
            old = make()
            pid, ticks = old.pid, started(old.pid)
            with pidwait.WaitSet([os.getpid(), pid]) as waiting:
                assert waiting.wait(0) == []
                old.end(OLD)
                code = old.reap()
                assert code == OLD
                new = another_with(pid, ticks)
                waiting.add(pid)
                assert len(waiting) == 3
                if discards:
                    waiting.discard(pid)
                    assert waiting.wait(0) == [] and len(waiting) == 1
                    waiting.add(pid)
                else:
                    ((found, code),) = waiting.wait()
                    assert found == pid and code in (OLD, None)
                assert waiting.wait(0) == [] and pid in waiting
                new.end(NEW)
                assert waiting.wait() == [(pid, NEW)]
                assert list(waiting) == [os.getpid()]
            code = new.reap()
            assert code == NEW
