# SPDX-License-Identifier: BSD-3-Clause
"""Members, the waiters that take them, and the schedule of looks at them.

Each target of a core is one Member. While it is waited for, the core's ``tokens`` has its name, and
``members`` has the member for that name. Whoever pops the token has ended the member, by reporting
or by discarding it. It never comes back. A member moves like this:

    added       into ``members``, ``tokens`` and the schedule: somebody looks at it soon
    armed       the poller will have its event; it leaves the schedule, unless it is polled
    ready       its event has been taken. A look finds it running, and arms it again, or:
    pending     it has exited; its code, or its reaping, is still to come. It is in the schedule,
                for a second at most. ``seen`` has the code that a look has seen.
    exited      ``exited`` has its code. The first one stays.
    ended       its token has been popped, and with it the member for that name; then it leaves all
                other tables. Its handle goes with the last reference to it.
    requeued    an exception keeps its caller from getting the exit: a new member takes its place,
                under a name of its own, and is in ``requeued``

Several threads may use a core at once, and a signal handler is one more thread. Three rules take
the place of locks:

    Where an exit is handed over, all calls of the step are one: see steps.py. Else another thread,
    or an exception, may find a member in two tables, or one that has ended in some.
    References own handles. Nothing is closed while somebody may use it: a file descriptor goes
    with the last member, or the last wait in progress, that refers to it.
    An extra look is harmless. A member goes into the next of the schedule, the poller and
    ``ready`` before it leaves the last one. A look at one that has ended cleans up.
"""

from .._base.deadline import LONGEST, SHORTEST, Deadline
from .._base.errors import Failed
from .._base.handle import RUNNING
from .._base.steps import atomically
from .._systems import open_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Handle, Iterator, Target

_SHARE = 30  # looking takes 1/30 of the time: with what is around it, 5 % of a core at most
_BATCH = 0.002  # seconds of looks in a row
# Seconds from now to the next look at most. A time that is further away was made before the clock
# was set back, or by a parent in another time namespace.
_FURTHEST = 1.0


class Member:
    """A target of a core."""

    __slots__ = ("handle", "target", "until")  # as a set has many of them

    def __init__(self, target: "Target", handle: "Handle | None" = None) -> None:
        self.target = target
        self.handle = handle
        self.until: "Deadline | None" = None  # for a code that is still to come

    def is_passed_on(self) -> bool:
        """Whether its pid belongs to another process now."""
        if self.handle is not None and self.handle.look() is RUNNING:
            return False
        try:
            return open_handle(self.target.pid).look() is RUNNING
        except Failed:
            return False


class Waiter:
    """A wait in progress: the members that it reports, their codes, and its deadline."""

    __slots__ = ("__weakref__", "codes", "deadline", "members")

    def __init__(self, deadline: "Deadline | None" = None) -> None:
        self.deadline = deadline or Deadline(None)
        self.members: "list[Member]" = []
        self.codes: "dict[Member, int | None]" = {}

    def exits(self) -> "list[tuple[Any, int | None]]":
        return [(member.target.proc, self.codes[member]) for member in self.members]


class PollSchedule:
    """When to look next at members: the new, the polled, the pending, and owners to reap.

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
        self.next_at = 0.0  # the time of the next look; 0: there is a new one

    def add(self, member: "Any") -> None:
        """Look at it now, and then at growing intervals, unless it is there already."""
        if self.members.setdefault(member, PollSchedule.NEW) is PollSchedule.NEW:
            self.next_at = 0.0

    def delay(self) -> float:
        """Seconds until the next look."""
        seconds = self.next_at - Deadline.now()
        return max(0.0, seconds) if seconds <= _FURTHEST else 0.0

    def due(self, final: bool = False) -> "Iterator[Any]":
        """What is to be looked at now. With ``final``, a time-out ends: what is not due, too, as
        much as the share allows, and one at least."""
        now, began = Deadline.now(), self._clock()
        if now < self.next_at <= now + _FURTHEST and not final:
            return
        if PollSchedule.used_until > now + _FURTHEST:
            PollSchedule.used_until = now
        # The share may be used up in advance, so that few members keep their intervals.
        is_resting = PollSchedule.used_until > now + _BATCH * _SHARE
        is_over = is_resting and not final
        soonest = now + LONGEST  # no later, should another thread set an earlier time
        members = list(self.members)
        if (
            is_resting and self.next_at
        ):  # without new ones; to go through thousands takes a millisecond
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
        self.next_at = soonest
        if not is_resting:
            spent = (self._clock() - began) * _SHARE
            PollSchedule.used_until = min(
                max(PollSchedule.used_until, now) + spent, now + _FURTHEST
            )
