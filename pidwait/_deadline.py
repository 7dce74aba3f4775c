# SPDX-License-Identifier: BSD-3-Clause
"""Time-outs: checked, and turned into what is left of them, in one place. And poll()."""

import time
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

_FOREVER = float("inf")
_INT_MAX = 2**31 - 1  # of milliseconds: 24.8 days, the most that poll(2) can take

# Seconds between two looks where no event tells.
SHORTEST = 0.0001
LONGEST = 0.04

_SHARE = 30  # looking takes one part of so many of the time: less than 5 %

# How long a wait goes on, in seconds, for the exit code of a process that has exited, when
# only its reaping, which is due any moment, will tell the code.
GRACE = 0.01


class Deadline:
    """The moment at which a time-out, in seconds, ends.

    None and infinity never end; 0 and less have ended, so that one look is all.
    """

    __slots__ = ("_at", "timeout")

    def __init__(self, timeout: "float | None") -> None:
        self.timeout = timeout
        seconds = _FOREVER if timeout is None else _seconds(timeout)
        self._at = _FOREVER if seconds == _FOREVER else monotonic() + seconds

    def expired(self) -> bool:
        return self._at <= monotonic()

    def remaining(self) -> "float | None":
        """Seconds that are left, at least 0; None for ever."""
        if self._at == _FOREVER:
            return None
        return max(0.0, self._at - monotonic())

    def at_most(self, seconds: float) -> float:
        """``seconds``, or what is left if that is less."""
        remaining = self.remaining()
        return seconds if remaining is None else min(seconds, remaining)

    def milliseconds(self) -> "int | None":
        """What is left for one poll(2), rounded up; None for ever.

        A long wait takes several, each followed by a look at the clock.
        """
        if self._at == _FOREVER:
            return None
        remaining = max(0.0, self._at - monotonic())
        if remaining * 1000 >= _INT_MAX:
            return _INT_MAX
        return -int(-remaining * 1000 // 1)


def _seconds(timeout: "Any") -> float:
    if isinstance(timeout, complex) or not hasattr(timeout, "__float__"):
        raise TypeError(
            "timeout must be a number of seconds or None, not %s" % type(timeout).__name__
        )
    try:
        seconds = float(timeout)
    except OverflowError:  # an int too large for a float
        return _FOREVER if timeout > 0 else 0.0
    if seconds != seconds:
        raise ValueError("timeout must not be NaN")
    return seconds


# For one look, and for a wait without a time-out.
NOW = Deadline(0)
FOREVER = Deadline(None)


def intervals() -> "Iterator[float]":
    """Seconds between looks: 0.1 ms at first, doubling to 40 ms."""
    delay = SHORTEST
    while True:
        yield delay
        delay = min(delay * 2, LONGEST)


def share(cost: float) -> float:
    """Seconds to stand still after a look that cost so many: it has 5 % of a core at most."""
    return cost * (_SHARE - 1)


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
