# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.kqueues SYSTEM COUNT: five threads wait by a stand-in's kqueue.

All are in wait() on one Process, and then in one set, which others change meanwhile. Prints how
many seconds after the exit the latest thread has returned.
"""

import os
import signal
import sys
import time

import pytest

from .. import pidwait
from ..systems import kqueue
from ..waiting.threads import Thread
from .waits import fork_that_exits

THREADS = 5


def seconds_to_the_last(pid, waiters):
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    answers = [waiter.result() for waiter in waiters]
    return time.monotonic() - began, answers


def on_one_process(pid):
    with pidwait.Process(pid) as process:
        assert process.backend == "kqueue"
        late, codes = seconds_to_the_last(pid, [Thread(process.wait) for _ in range(THREADS)])
        assert codes == [-9] * THREADS
    return late


def in_one_set(pid):
    me = os.getpid()

    def ring():
        for _ in range(3):
            waiting.add(me)
            waiting.discard(me)

    with pidwait.WaitSet([pid]) as waiting:
        waiters = [Thread(waiting.wait) for _ in range(THREADS)]
        ringers = [Thread(ring) for _ in range(2)]
        for ringer in ringers:
            ringer.result()
        late, exits = seconds_to_the_last(pid, waiters)
        assert sorted(exits) == [[]] * (THREADS - 1) + [[(pid, -9)]]
    return late


def main():
    kernel = kqueue.use(sys.argv[1], pytest.MonkeyPatch())
    latest = {}
    for _ in range(int(sys.argv[2])):
        for way in on_one_process, in_one_set:
            pid = fork_that_exits(0, after=600)
            latest[way] = max(latest.get(way, 0), way(pid))
            os.waitpid(pid, 0)
    assert not kernel.queues
    print("%.3f %.3f" % tuple(latest.values()))


if __name__ == "__main__":
    main()
