# SPDX-License-Identifier: BSD-3-Clause
"""The states of a target, and the steps from one to the next.

Each target of a core is one Member. Its state is its token, ``live``: [name] while it is among the
core's ``members`` under that name, [] once it has ended. Whoever pops the token has ended it, by
reporting or by discarding it. It never comes back. A member moves like this:

    added       into ``members`` and ``rounds``: whoever comes next looks at it
    armed       the poller will have its event; it leaves ``rounds``, unless it is polled
    hot         its event has been taken. A look finds it running, and arms it again, or:
    pending     it has exited; its code, or its reaping, is still to come. It is in ``rounds``, for
                a second at most. ``seen`` has the code that a look has seen.
    exited      ``exited`` has its code. The first one stays.
    ended       its token has been popped, and with it the name from ``members``, in one step; then
                it leaves all other tables. Its handle goes with the last reference to it.
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

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Deadline, Handle, Owner

live_of = attrgetter("live")


class Member:
    """A target of a core, by the name that it has there."""

    __slots__ = ("handle", "live", "owner", "until")  # as a set has many of them

    def __init__(self, owner: "Owner", name: object, handle: "Handle | None" = None) -> None:
        self.owner = owner
        self.live = [name]
        self.handle = handle
        self.until: "Deadline | None" = None  # for a code that is still to come


class Visit:
    """A wait in progress: the members that it reports, and their codes."""

    __slots__ = ("__weakref__", "codes", "members")

    def __init__(self) -> None:
        self.members: "list[Member]" = []
        self.codes: "dict[Member, int | None]" = {}

    def exits(self) -> "list[tuple[Any, int | None]]":
        return [(member.owner.proc, self.codes[member]) for member in self.members]
