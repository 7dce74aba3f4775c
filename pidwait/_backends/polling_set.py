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
from .._queue import deque, drop
from . import timers
from .polling import clock, open_polled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._outcome import Outcome
    from .contract import Handle, Member, Report

    Look = Callable[[], Outcome]


def _look_at(handle: "Handle") -> "Look":
    wait = handle.wait
    return lambda: wait(NOW, False)


class PolledSet:
    def __init__(self, shared: bool = True) -> None:
        self._looks: "dict[Member, Look]" = {}
        # Exits that a look has found, and that have not been taken.
        self._found: "deque[tuple[Member, Outcome]]" = deque()
        self._interval = self._next_look = 0.0
        # The call that is looking, if any. A look can run other people's code, which may come
        # here again.
        self._looker: "dict[str, object]" = {}
        self._timer: "timers.Timer | None" = None

    def forked(self) -> "PolledSet":
        copy = PolledSet()
        copy._looks.update(self._looks)
        copy._found.extend(self._found)
        self.close()
        return copy

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        failed = []
        for member in members:
            try:
                if member.pid is None:
                    raise OSError(EAGAIN, "it has no pid to be polled by")
                self.add_look(member, _look_at(open_polled(member.pid)))
            except OSError as error:
                if is_of_signal_handler(error):
                    raise
                failed.append((member, error))
        return failed

    def add_look(self, member: "Member", look: "Look") -> None:
        """Call ``look()`` again and again until it does not return RUNNING."""
        self._looks[member] = look
        self._interval = self._next_look = 0.0

    def discard(self, member: "Member") -> None:
        self._looks.pop(member, None)

    def __contains__(self, member: "Member") -> bool:
        return member in self._looks

    def __len__(self) -> int:
        return len(self._looks)

    def has_exited(self, member: "Member") -> bool:
        look = self._looks.get(member)
        return look is not None and look() is not RUNNING

    def sleep(self, seconds: "float | None") -> None:
        # Nothing can end it, so it is short.
        seconds = LONGEST if seconds is None else min(seconds, LONGEST)
        delay = self.delay()
        time.sleep(seconds if delay is None else min(seconds, delay))

    def look(self) -> None:
        """Look at all of them, without the lock of the threads that share the set."""
        me = object()
        try:
            try:
                if self._looker.setdefault("is", me) is me:  # no other thread
                    self._look()
            finally:
                self._end_look(me)
        finally:  # Ctrl-C may come anywhere, even just before the call above
            self._end_look(me)

    def _end_look(self, me: object) -> None:
        if self._looker.get("is") is me:
            del self._looker["is"]

    def _look(self) -> None:
        # Not by the wall clock: while other threads have the interpreter, or the machine is
        # stopped, a look can take seconds, and the next one would be minutes away.
        began = clock()
        for member, look in list(self._looks.items()):
            found = look()
            if found is not RUNNING and self._looks.get(member) is look:
                self._found.append((member, found))
                self._looks.pop(member, None)
        self._interval = min(max(self._interval * 2, SHORTEST), LONGEST)
        self._next_look = monotonic() + max(self._interval, share(clock() - began))

    def take(self, report: "Report", last: bool) -> None:
        for found in list(self._found):
            report(found)
            drop(self._found, found)

    def recover(self) -> None:
        """Nothing gets lost: an exit stays in the list, or is found again."""

    def delay(self) -> "float | None":
        if self._found:
            return 0.0
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
