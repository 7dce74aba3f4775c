# SPDX-License-Identifier: BSD-3-Clause
"""Many at once, polled: all are looked at, at intervals that double from 0.1 to 40 ms.

With many of them the interval grows further, so that looking takes less than 5 % of a core.
An owner that has not reaped yet has to be asked again and again, too: it is asked in the
same turns.
"""

import time
from errno import EAGAIN
from io import UnsupportedOperation
from time import monotonic

from .._deadline import LONGEST, NOW, SHORTEST, share
from .._errors import is_of_signal_handler
from .._outcome import RUNNING
from .._queue import drop
from . import timers
from .polling import clock, open_polled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._outcome import Outcome
    from .contract import Handle, Member, Report, Set

    Look = Callable[[], Outcome]


def look_at(handle: "Handle") -> "Look":
    wait = handle.wait
    return lambda: wait(NOW, False)


def add_each(
    members: "Sequence[Member]", add: "Callable[[Member, int], None]"
) -> "list[tuple[Member, OSError]]":
    """Call add(member, pid) for each member; return those that can't be polled, and why."""
    failed = []
    for member in members:
        try:
            if member.pid is None:
                raise OSError(EAGAIN, "it has no pid to be polled by")
            add(member, member.pid)
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            failed.append((member, error))
    return failed


class PolledSet:
    lacks_room = False
    sleeper: "Set | None" = None

    def __init__(self, shared: bool = True) -> None:
        self._looks: "dict[Member, Look]" = {}
        # Exits that a look has found, and that have not been taken. A list, as a look adds to it
        # without the lock: without a GIL a deque can't be copied meanwhile.
        self._found: "list[tuple[Member, Outcome]]" = []
        self._looked = 0.0  # when the latest look at all of them, now ended, began
        self._interval = self._next_look = 0.0
        self._paid = 0.0  # from when on the looks so far have taken no more than their share
        # The call that is looking, if any. A look can run other people's code, which may come
        # here again. If add_look() resets the interval meanwhile, that may be in vain, and the
        # next look one interval late.
        self._looker: "dict[str, object]" = {}
        self._timer: "timers.Timer | None" = None

    def forked(self) -> "PolledSet":
        copy = PolledSet()
        self.copy_to(copy)
        self.close()
        return copy

    def copy_to(self, other: "PolledSet") -> None:
        other._looks.update(self._looks)
        other._found.extend(self._found)

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        return add_each(members, self._add)

    def _add(self, member: "Member", pid: int) -> None:
        self.add_look(member, look_at(open_polled(pid)))

    def add_look(self, member: "Member", look: "Look") -> None:
        self._looks[member] = look
        self._interval = self._next_look = 0.0

    def discard(self, member: "Member") -> None:
        self._looks.pop(member, None)

    def __contains__(self, member: "Member") -> bool:
        return member in self._looks

    def __len__(self) -> int:
        return len(self._looks)

    def members(self) -> "list[Member]":
        return list(self._looks)

    def has_exited(self, member: "Member") -> bool:
        look = self._looks.get(member)
        return look is not None and look() is not RUNNING

    def sleep(self, seconds: "float | None") -> None:
        # Nothing can end it, so it is short.
        seconds = LONGEST if seconds is None else min(seconds, LONGEST)
        delay = self.delay()
        time.sleep(seconds if delay is None else min(seconds, delay))

    def look(self, last: bool = False) -> None:
        if not last and self._until_look() != 0:
            return
        me = object()
        try:
            try:
                if self._looker.setdefault("is", me) is me:  # no other thread
                    self._look(last)
            finally:
                self._end_look(me)
        finally:  # Ctrl-C may come anywhere, even just before the call above
            self._end_look(me)

    def _end_look(self, me: object) -> None:
        if self._looker.get("is") is me:
            del self._looker["is"]

    def _look(self, last: bool) -> None:
        # Not by the wall clock: while other threads have the interpreter, or the machine is
        # stopped, a look can take seconds, and the next one would be minutes away.
        looked = monotonic()
        began = clock()
        for member, look in self._turn(last):
            found = look()
            if found is not RUNNING and self._looks.get(member) is look:
                self.find(member, found)
        self._looked = looked
        self._interval = self._next_interval()
        now = monotonic()
        self._paid = now + share(clock() - began)
        self._next_look = max(now + self._interval, self._paid)

    def _turn(self, last: bool) -> "list[tuple[Member, Look]]":
        """Those that one look is at; with ``last`` all."""
        return list(self._looks.items())

    def find(self, member: "Member", outcome: "Outcome") -> None:
        """A look has found that this member has exited."""
        self._found.append((member, outcome))
        self._looks.pop(member, None)

    def _next_interval(self) -> float:
        return min(max(self._interval * 2, SHORTEST), LONGEST)

    def hear(self) -> None:
        """There are no events."""

    cover_all = deafen = hear

    def take(self, report: "Report", last: bool) -> None:
        for found in list(self._found):
            report(found)
            drop(self._found, found)

    def recover(self) -> None:
        """Nothing gets lost: an exit stays in the list, or is found again."""

    def delay(self) -> "float | None":
        return 0.0 if self._found else self._until_look()

    def _until_look(self) -> "float | None":
        if not self._looks:
            return None
        if self._looker:  # another thread looks
            return LONGEST
        return max(0.0, self._next_look - monotonic())

    def alarm(self, seconds: "float | None") -> None:
        if self._timer is not None:
            self._timer.set(seconds)

    def fileno(self, timed: bool = True) -> int:
        if not timed:
            raise UnsupportedOperation("only looks tell what is polled")
        if self._timer is None:
            self._timer = timers.open_timer()
        return self._timer.fileno()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.close()
        self._looks.clear()
