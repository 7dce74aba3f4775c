# SPDX-License-Identifier: BSD-3-Clause
"""How often to look where no event tells: one schedule for everything that polls."""

import time

from ._deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

SHORTEST = 0.0001
LONGEST = 0.04


def cpu_time() -> float:
    """Seconds of a processor that this thread has had."""
    if hasattr(time, "CLOCK_THREAD_CPUTIME_ID"):
        return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
    clock: "Callable[[], float]" = getattr(time, "thread_time", time.process_time)
    return clock()


def intervals() -> "Iterator[float]":
    """Seconds between looks: 0.1 ms at first, doubling to 40 ms."""
    delay = SHORTEST
    while True:
        yield delay
        delay = min(delay * 2, LONGEST)


def poll(look: "Callable[[], bool]", deadline: Deadline) -> bool:
    """Look until ``look()`` is true or the deadline is over; return which.

    There is one look after the deadline, so that a wait is never cut short.
    """
    for delay in intervals():
        expired = deadline.expired()
        if look():
            return True
        if expired:
            return False
        time.sleep(deadline.at_most(delay))
    raise AssertionError("intervals() has no end")
