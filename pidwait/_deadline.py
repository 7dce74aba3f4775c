# SPDX-License-Identifier: BSD-3-Clause
"""Time-outs: checked, and turned into what is left of them, in one place."""

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOREVER = float("inf")
_INT_MAX = 2**31 - 1  # of milliseconds: 24.8 days, the most that poll(2) can take


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


# For one look.
NOW = Deadline(0)
