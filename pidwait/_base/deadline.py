# SPDX-License-Identifier: BSD-3-Clause
"""Time-outs, and the intervals at which we look again."""

import time

from .arguments import seconds
from .errors import Failed, call, is_python

_ENDLESS = float("inf")

# The longest sleep of one system call, in seconds. poll(2) takes up to 2**31 ms, a timer of some
# BSDs less; one wake-up a day costs nothing.
LONGEST_SLEEP = 86400.0

# Seconds between two looks when polling.
SHORTEST = 0.0001
LONGEST = 0.04

# Seconds to wait for an exit code, or a reaping, once the exit has been seen: at least, at most.
GRACE = 0.01
PATIENCE = 1.0


class Deadline:
    """The end of a time-out in seconds: None and infinity mean never, 0 and less mean now."""

    __slots__ = ("_at", "timeout")

    # In the class: freezegun, which freezes the clock for tests, replaces names of modules.
    now = staticmethod(time.monotonic)
    if is_python(time.monotonic) and hasattr(time, "clock_gettime"):  # already frozen
        now = staticmethod(lambda: time.clock_gettime(time.CLOCK_MONOTONIC))

    def __init__(self, timeout: "float | None") -> None:
        self.timeout: "float | None" = timeout
        self._at = _ENDLESS if timeout is None else self.now() + seconds(timeout)
        if self._at != self._at:
            raise ValueError("timeout must not be NaN")

    def expired(self) -> bool:
        return self._at <= self.now()

    def remaining(self) -> "float | None":
        """The seconds left, at least 0; None if the time-out never ends."""
        return None if self._at == _ENDLESS else max(0.0, self._at - self.now())

    def at_most(self, seconds: float) -> float:
        """``seconds``, or the seconds left if fewer."""
        if self._at == _ENDLESS:
            return seconds
        return max(0.0, min(seconds, self._at - self.now()))

    def milliseconds(self, longest: float = LONGEST_SLEEP) -> int:
        """The time-out of one system call, rounded up: a long wait takes several calls."""
        return -int(-self.at_most(longest) * 1000 // 1)


def cpu_clock() -> float:
    """Seconds of processor time that this thread has used; before Python 3.7, this process."""
    try:
        seconds = call(getattr(time, "thread_time", time.process_time))
    except Failed:
        seconds = None  # as from PyPy's: a policy refuses it
    # The clock of the whole process has other sources, too.
    return time.process_time() if seconds is None else seconds


NOW, NEVER = Deadline(0), Deadline(None)


def patience(deadline: Deadline) -> Deadline:
    """The deadline for the exit code, or the reaping, of a process that has exited."""
    return Deadline(max(GRACE, deadline.at_most(PATIENCE)))


class Backoff:
    """Pauses between looks: none before the first, then 0.1 ms, doubling to 40 ms."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds  # the next pause; less than 0 after the last look

    def pause(self, deadline: Deadline) -> bool:
        """Pause before a look.

        Return False if there has been a look after the deadline: a stopped process can miss the
        exit right before it.
        """
        seconds = self.seconds
        if seconds < 0:
            return False
        if seconds:
            time.sleep(deadline.at_most(seconds))
        self.seconds = -1 if deadline.expired() else min(max(seconds * 2, SHORTEST), LONGEST)
        return True
