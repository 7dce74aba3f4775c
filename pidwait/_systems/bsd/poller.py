# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: one kqueue(2), in which several threads sleep."""

from errno import ENOSYS
from itertools import repeat

from ..._base.errors import Failed
from ..._base.steps import atomically
from ..posix import opened_wakeup
from .calls import EV_DELETE, change
from .handle import LONGEST_NAP, Kqueue, KqueueHandle, Registration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Any, Call, Handle, Iterable, Member, Target


class KqueuePoller:
    """Sleeps for many processes in one kqueue. Any number of threads may be in poll() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether processes can be watched; ``shared``: whether wake() is needed."""
        self._opens = opens
        self._queue = Kqueue(opened_wakeup() if shared else None)
        self.ready = self._queue.ready
        # Not in the registrations: members refer to handles, and handles to registrations.
        self._members: "dict[Registration, dict[Member, None]]" = {}

    def open(self, target: "Target") -> "Handle":
        if not self._opens or target.pid is None:
            raise Failed(ENOSYS, "kqueue is not used, or there is no pid")
        return KqueueHandle(target.pid, self._queue)

    def _registration_of(self, member: "Member") -> "Registration | None":
        """None if it is polled, also as its kqueue is the parent's."""
        handle = member.handle
        is_here = isinstance(handle, KqueueHandle) and handle._queue is self._queue
        return handle.registration if is_here else None  # type: ignore[union-attr]

    def arm(self, member: "Member", *calls: "Call") -> None:
        one = self._registration_of(member)
        if one is not None:
            atomically(
                (self._members.setdefault(one, {}).__setitem__, member, None),
                (self.ready.pop, member, None),
                *calls,
                # If the event was read before the member was there.
                (self.ready.update, zip(repeat(member), one.events)),
            )

    def drop(self, member: "Member") -> None:
        one: "Any" = self._registration_of(member)
        self._members.get(one, {}).pop(member, None)

    def poll(self, seconds: "float | None") -> None:
        self._queue.poll(LONGEST_NAP if seconds is None else min(seconds, LONGEST_NAP))

    def flush(self) -> None:
        self._queue.flush()

    def read(self, who: "Any") -> "Iterable[Member]":
        if type(who) is Registration:
            event = self.ready.get(who)
            who.events.extend(filter(None, (event,)))
            yield from list(self._members.get(who, ()))
            if who.events:
                self._queue.forget(who)
                self._members.pop(who, None)
        elif who is not None:  # the wake-up pipe, or the timer: EV_DISABLE leaves it readable
            change(self._queue.opened(), who[0], who[1], EV_DELETE)

    def wake(self, seconds: float) -> bool:
        self._queue.wake(seconds)
        return True

    def fileno(self) -> int:
        return self._queue.opened().fileno()

    def close(self) -> None:
        self._queue.close()
