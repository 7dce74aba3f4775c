# SPDX-License-Identifier: BSD-3-Clause
"""Members, the waiters that take them, and the schedule of looks at them.

Each target of a core is one Member. Until the member has ended, ``tokens`` has its name, and
``members`` has the member for that name. Whoever pops the token has ended the member, by reporting
or by discarding it. It never comes back. A member moves like this:

    added       into ``members``, ``tokens`` and the schedule: somebody looks at it soon
    armed       the poller will report its event; it leaves the schedule, unless it is polled
    ready       the poller has reported its event. A look finds it running, and arms it again, or:
    pending     it has exited; its code, or its reaping, is still to come. It is in the schedule,
                for a second at most. ``seen`` has the code that a look has seen.
    exited      ``exited`` has its code. The first code stays.
    ended       its token and its entry in ``members`` have been popped; then it leaves all other
                tables. Its handle is closed with the last reference.
    requeued    an exception keeps the caller from getting the exit: a new member takes its place,
                under a name of its own, and is in ``requeued``

Several threads may use a core at once, and a signal handler is one more thread. Three rules take
the place of locks:

    Exits are handed over in one step: see steps.py. Elsewhere another thread, or an exception, may
    find a member in two tables, or an ended member still in some.
    References own handles. Nothing is closed while somebody may use it: a file descriptor is
    closed with the last member, or the last wait in progress, that refers to it.
    An extra look is harmless. Between the schedule, the poller and ``ready``, a member enters the
    next table before it leaves the last. A look at an ended member cleans up.
"""

from .._base.deadline import LONGEST, SHORTEST, Deadline
from .._base.errors import Failed
from .._base.handle import RUNNING
from .._base.steps import atomically
from .._systems import open_handle, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Handle, Iterator, Target

_SHARE = 30  # looks take 1/30 of the time: with the code around them, 5 % of a core at most
_BATCH = 0.002  # seconds of looks in a row
# Seconds from now to the next look at most. A time further away was set before the clock was set
# back, or by a parent in another time namespace.
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
            new = open_handle(self.target.pid)
        except Failed:
            return False
        try:
            return new.look() is RUNNING
        finally:
            new.close()


class Waiter:
    """A wait in progress: the members that it reports, their codes, and its deadline."""

    __slots__ = ("__weakref__", "codes", "deadline", "members")

    def __init__(self, deadline: "Deadline | None" = None) -> None:
        self.deadline = deadline or Deadline(None)
        self.members: "list[Member]" = []
        self.codes: "dict[Member, int | None]" = {}


class PollSchedule:
    """When to look next at members: the new, the polled, the pending, and owners to reap.

    Their intervals double from 0.1 to 40 ms. All looks of this process together take 3 % of the
    time, as the system's clock measures it; so with many members the intervals grow further.
    """

    # The time until which the looks have used up their share, in all sets of this process.
    used_until = 0.0
    NEW = 0.0, 0.0  # of members to look at now, whatever that costs

    def __init__(self) -> None:
        # When to look next, and the interval after that; in the order of the latest looks.
        self.members: "dict[Member, tuple[float, float]]" = {}
        self.next_at = 0.0  # the time of the next look; 0: there is a new member

    def add(self, member: Member) -> None:
        """Look at it now, and then at growing intervals, unless it is there already."""
        if self.members.setdefault(member, PollSchedule.NEW) is PollSchedule.NEW:
            self.next_at = 0.0

    def delay(self) -> float:
        """Seconds until the next look."""
        seconds = self.next_at - Deadline.now()
        return max(0.0, seconds) if seconds <= _FURTHEST else 0.0

    def due(self, final: bool = False) -> "Iterator[Member]":
        """The members to look at now: the new, and as many others as the share allows.

        With ``final``, at the end of a time-out, also others whose time has not come, at least one.
        """
        now, began = Deadline.now(), system.clock()
        if now < self.next_at <= now + _FURTHEST and not final:
            return
        if PollSchedule.used_until > now + _FURTHEST:
            PollSchedule.used_until = now
        # The share may be used up in advance, so that few members keep their intervals.
        allowed = 0.0 if PollSchedule.used_until > now + _BATCH * _SHARE else _BATCH
        members = list(self.members)
        if not allowed and self.next_at:  # no new one: do not go through thousands for nothing
            members = members[: int(final)]
        soonest = now + LONGEST  # at most: another thread may set an earlier time meanwhile
        is_over = not (allowed or final)
        for member in members:
            when, interval = self.members.get(member, (now, SHORTEST))
            if when and is_over:
                continue
            if now < when <= now + _FURTHEST and not final:
                soonest = min(soonest, when)
                continue
            interval = min(2 * interval, LONGEST) or SHORTEST
            soonest = min(soonest, now + interval)
            atomically(  # move it to the end
                (self.members.pop, member, None),
                (self.members.__setitem__, member, (now + interval, interval)),
            )
            yield member
            is_over = is_over or (bool(when) and system.clock() - began >= allowed)
        self.next_at = soonest
        if allowed:
            used_until = max(PollSchedule.used_until, now) + (system.clock() - began) * _SHARE
            PollSchedule.used_until = min(used_until, now + _FURTHEST)
