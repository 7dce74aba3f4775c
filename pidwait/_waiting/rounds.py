# SPDX-License-Identifier: BSD-3-Clause
"""What no event tells: a look again and again, at intervals that grow."""

from functools import partial

from .._base import at_once
from .._base.deadline import LONGEST, SHORTEST, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterator

_SHARE = 30  # looking takes 1/30 of the time: with what is around it, 5 % of a core at most
_BATCH = 0.002  # seconds of looks in a row


class Rounds:
    """Members to look at: the new, the polled, the pending, and owners that have not reaped.

    Their intervals double from 0.1 to 40 ms. All looks of the process together take 3 % of the
    time, as ``clock`` measures it: so with many members the intervals grow further.
    """

    # Until when the looks so far have used up their share, in all sets of the process.
    used_until = 0.0
    NEW = 0.0, 0.0  # of members to look at now, whatever that costs

    def __init__(self, clock: "Callable[[], float]") -> None:
        self._clock = clock
        # When to look next, and the interval after that. Those looked at last are the last.
        self.members: "dict[Any, tuple[float, float]]" = {}
        self.at = 0.0  # no look is due before; 0: there is a new one

    def add(self, member: "Any") -> None:
        """Look at it now, and then at growing intervals, unless it is there already."""
        if self.members.setdefault(member, Rounds.NEW) is Rounds.NEW:
            self.at = 0.0

    def delay(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self.at - Deadline.now())

    def due(self, final: bool = False) -> "Iterator[Any]":
        """What is to be looked at now. With ``final``, a time-out ends: what is not due, too, as
        much as the share allows, and one at least."""
        now, began = Deadline.now(), self._clock()
        if now < self.at and not final:
            return
        # The share may be used up in advance, so that few members keep their intervals.
        is_resting = Rounds.used_until > now + _BATCH * _SHARE
        is_over = is_resting and not final
        soonest = now + LONGEST  # if another thread sets it to an earlier time, no later than this
        members = list(self.members)
        if is_resting and self.at:  # without new ones; to go through thousands takes a millisecond
            members = members[: int(final)]
        for member in members:
            when, interval = self.members.get(member, (now, SHORTEST))
            if when and (is_over or (when > now and not final)):
                soonest = soonest if is_over else min(soonest, when)
                continue
            interval = min(2 * interval, LONGEST) or SHORTEST
            at_once(  # to the end
                partial(self.members.pop, member, None),
                partial(self.members.__setitem__, member, (now + interval, interval)),
            )
            soonest = min(soonest, now + interval)
            yield member
            is_over = is_over or (bool(when) and (is_resting or self._clock() - began > _BATCH))
        self.at = soonest
        if not is_resting:
            spent = (self._clock() - began) * _SHARE
            Rounds.used_until = max(Rounds.used_until, now) + spent
