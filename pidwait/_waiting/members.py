# SPDX-License-Identifier: BSD-3-Clause
"""The states of a target, the steps from one to the next, and the rounds of looks at targets.

Each target of a core is one Member. While it is waited for, the core's ``names`` has its name, and
``members`` has the member for that name. Whoever pops the name has ended the member, by reporting
or by discarding it. It never comes back. A member moves like this:

    added       into ``members``, ``names`` and ``rounds``: whoever comes next looks at it
    armed       the poller will have its event; it leaves ``rounds``, unless it is polled
    hot         its event has been taken. A look finds it running, and arms it again, or:
    pending     it has exited; its code, or its reaping, is still to come. It is in ``rounds``, for
                a second at most. ``seen`` has the code that a look has seen.
    exited      ``exited`` has its code. The first one stays.
    ended       its name has been popped, and then the member for that name, in one step; then it
                leaves all other tables. Its handle goes with the last reference to it.
    put back    an exception keeps its caller from getting the exit: a new member takes its place,
                under a name of its own, and is in ``former``

Several threads may use a core at once, and a signal handler is one more thread. Three rules take
the place of locks:

    A step is one call of a function in C: see _base. What another thread, or an exception, may
    see in between is a member in two tables, or a name of a member that has ended.
    References own handles. Nothing is closed while somebody may use it: a file descriptor goes
    with the last member, or the last wait in progress, that refers to it.
    Attention is a hint. A member goes into the next of ``rounds``, the poller and ``hot`` before it
    leaves the last one. One look more is harmless; at one that has ended, it cleans up.
"""

from .._base.deadline import LONGEST, SHORTEST, Deadline
from .._base.errors import Failed
from .._base.handle import RUNNING
from .._base.steps import atomically
from .._systems import open_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Handle, Iterator, Owner

_SHARE = 30  # looking takes 1/30 of the time: with what is around it, 5 % of a core at most
_BATCH = 0.002  # seconds of looks in a row
# Seconds from now to the next look at most. A time that is further away was made before the clock
# was set back, or by a parent in another time namespace.
_FURTHEST = 1.0


class Member:
    """A target of a core."""

    __slots__ = ("handle", "owner", "until")  # as a set has many of them

    def __init__(self, owner: "Owner", handle: "Handle | None" = None) -> None:
        self.owner = owner
        self.handle = handle
        self.until: "Deadline | None" = None  # for a code that is still to come

    def is_passed_on(self) -> bool:
        """Whether its pid belongs to another process now."""
        if self.handle is not None and self.handle.look() is RUNNING:
            return False
        try:
            return open_handle(self.owner.pid).look() is RUNNING
        except Failed:
            return False


class Visit:
    """A wait in progress: the members that it reports, and their codes; and its deadline."""

    __slots__ = ("__weakref__", "codes", "deadline", "members")

    def __init__(self, deadline: "Deadline | None" = None) -> None:
        self.deadline = deadline or Deadline(None)
        self.members: "list[Member]" = []
        self.codes: "dict[Member, int | None]" = {}

    def exits(self) -> "list[tuple[Any, int | None]]":
        return [(member.owner.proc, self.codes[member]) for member in self.members]


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
        self.at = 0.0  # the time of the next look; 0: there is a new one

    def add(self, member: "Any") -> None:
        """Look at it now, and then at growing intervals, unless it is there already."""
        if self.members.setdefault(member, Rounds.NEW) is Rounds.NEW:
            self.at = 0.0

    def delay(self) -> float:
        """Seconds until the next look."""
        seconds = self.at - Deadline.now()
        return max(0.0, seconds) if seconds <= _FURTHEST else 0.0

    def due(self, final: bool = False) -> "Iterator[Any]":
        """What is to be looked at now. With ``final``, a time-out ends: what is not due, too, as
        much as the share allows, and one at least."""
        now, began = Deadline.now(), self._clock()
        if now < self.at <= now + _FURTHEST and not final:
            return
        if Rounds.used_until > now + _FURTHEST:
            Rounds.used_until = now
        # The share may be used up in advance, so that few members keep their intervals.
        is_resting = Rounds.used_until > now + _BATCH * _SHARE
        is_over = is_resting and not final
        soonest = now + LONGEST  # if another thread sets it to an earlier time, no later than this
        members = list(self.members)
        if is_resting and self.at:  # without new ones; to go through thousands takes a millisecond
            members = members[: int(final)]
        for member in members:
            when, interval = self.members.get(member, (now, SHORTEST))
            if when and (is_over or (now < when <= now + _FURTHEST and not final)):
                soonest = soonest if is_over else min(soonest, when)
                continue
            interval = min(2 * interval, LONGEST) or SHORTEST
            atomically(  # to the end
                (self.members.pop, member, None),
                (self.members.__setitem__, member, (now + interval, interval)),
            )
            soonest = min(soonest, now + interval)
            yield member
            is_over = is_over or (bool(when) and (is_resting or self._clock() - began > _BATCH))
        self.at = soonest
        if not is_resting:
            spent = (self._clock() - began) * _SHARE
            Rounds.used_until = min(max(Rounds.used_until, now) + spent, now + _FURTHEST)
