# SPDX-License-Identifier: BSD-3-Clause
"""Time-outs: checking them, and telling how much is left. And polling: intervals, poll()."""

import time
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

_FOREVER = float("inf")
_INT_MAX = 2**31 - 1  # milliseconds, 24.8 days: the most that poll(2) takes
_ALMOST_ONE = 0.999999  # added to a number to round it up; math.ceil costs more

# Seconds between two looks when polling.
SHORTEST = 0.0001
LONGEST = 0.04

_SHARE = 30  # looking takes 1/30 of the time: less than 5 %

# When a process has exited, but only the reaping will tell its exit code, and is due any
# moment, a wait goes on for so many seconds.
GRACE = 0.01


class Deadline:
    """The moment at which a time-out ends, which is in seconds.

    None and infinity never end; 0 and less have ended already: there is one look.
    """

    __slots__ = ("_at", "timeout")

    def __init__(self, timeout: "float | None", began: "float | None" = None) -> None:
        """``began``: what monotonic() was when the time began; None for now."""
        self.timeout: "float | None" = timeout
        self._at = _FOREVER
        if timeout is None:
            return
        try:
            if type(timeout) is not float and type(timeout) is not int:
                timeout = _seconds(timeout)
            self._at = (monotonic() if began is None else began) + timeout
        except OverflowError:  # an int too large for a float
            if timeout < 0:
                self._at = -_FOREVER
        if self._at != self._at:
            raise ValueError("timeout must not be NaN")

    def expired(self) -> bool:
        return self._at <= monotonic()

    def remaining(self) -> "float | None":
        """The seconds that are left, at least 0; None if it never ends."""
        if self._at == _FOREVER:
            return None
        return max(0.0, self._at - monotonic())

    def at_most(self, seconds: float) -> float:
        """``seconds``, or the seconds that are left if they are fewer."""
        remaining = self.remaining()
        return seconds if remaining is None else min(seconds, remaining)

    def milliseconds(self) -> "int | None":
        """The time-out for one poll(2), rounded up; None if it never ends.

        A long wait takes several calls, with a look at the clock after each.
        """
        if self._at == _FOREVER:
            return None
        milliseconds = (self._at - monotonic()) * 1000
        if milliseconds <= 0:
            return 0
        if milliseconds >= _INT_MAX:
            return _INT_MAX
        return int(milliseconds + _ALMOST_ONE)


def _seconds(timeout: "Any") -> float:
    if isinstance(timeout, complex) or not hasattr(timeout, "__float__"):
        raise TypeError(
            "timeout must be a number of seconds or None, not %s" % type(timeout).__name__
        )
    return float(timeout)


# For one look, and for a wait without a time-out.
NOW = Deadline(0)
FOREVER = Deadline(None)


def intervals(delay: float = SHORTEST) -> "Iterator[float]":
    """Seconds between looks: 0.1 ms at first, doubling to 40 ms."""
    while True:
        yield delay
        delay = min(delay * 2, LONGEST)


def share(cost: float) -> float:
    """Seconds to pause after a look that took ``cost`` seconds: looking takes 1/30 of the time."""
    return cost * (_SHARE - 1)


def poll(look: "Callable[[], bool]", deadline: Deadline, first: float = SHORTEST) -> bool:
    """Call ``look()`` until it is true or the deadline is over; return whether it was true.

    ``first`` is the first interval, in seconds.

    The last look is after the deadline, so that a wait is never cut short.
    """
    for delay in intervals(first):
        expired = deadline.expired()
        if look():
            return True
        if expired:
            return False
        time.sleep(deadline.at_most(delay))
    raise AssertionError("intervals() has no end")
