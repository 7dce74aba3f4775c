# SPDX-License-Identifier: BSD-3-Clause
"""What no event tells: a look again and again, at intervals that grow."""

from _thread import RLock
from heapq import heappop, heappush
from itertools import count

from .._base.deadline import SHORTEST, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterator

_SHARE = 25  # looking takes 1/25 of the time: 4 % of a core
_FEW = 50  # things, which take less than 1 ms
_BATCH = 0.002  # seconds of looks in a row


class Looks:
    """Things to look at: the polled, the pending, and owners that have not reaped yet.

    Their intervals double from 0.1 ms to ``thing.longest``. All looks together take 4 % of the
    time, as ``clock`` measures it: so with many things the intervals grow further.
    """

    def __init__(self, clock: "Callable[[], float]") -> None:
        self._clock = clock
        self._lock = RLock()  # not held during a look
        self._order = count()
        # By the thing: its entry in the heap, which is when to look, in order, at what, and the
        # interval after that. Entries in the heap that are not in here are void.
        self.entries: "dict[Any, tuple[float, int, Any, float]]" = {}
        self._heap: "list[tuple[float, int, Any, float]]" = []
        self._resting_until = 0.0

    def add(self, thing: "Any") -> None:
        """Look at it now, and then at growing intervals; again, if it is there already."""
        entry = Deadline.now(), next(self._order), thing, SHORTEST
        with self._lock:
            self._enter(entry)

    def _enter(self, entry: "tuple[float, int, Any, float]") -> None:
        # In this order: what is in ``entries`` is in the heap, wherever an exception comes.
        heappush(self._heap, entry)
        self.entries[entry[2]] = entry
        if len(self._heap) > 2 * len(self.entries) + _FEW:  # most are void: nobody waits
            self._heap = sorted(self.entries.copy().values())  # others may pop meanwhile

    def delay(self) -> "float | None":
        """Seconds until the next look; None if there is nothing to look at."""
        if not self._heap:
            return None
        with self._lock:
            while self._heap:
                entry = self._heap[0]
                if self.entries.get(entry[2]) is entry:
                    return max(0.0, max(entry[0], self._resting_until) - Deadline.now())
                heappop(self._heap)
        return None

    def is_resting(self) -> bool:
        """Whether a look at everything has to wait: it takes long, and comes too soon."""
        return len(self.entries) > _FEW and Deadline.now() < self._resting_until

    def due(self, everything: bool = False) -> "Iterator[Any]":
        """What is to be looked at now; with ``everything`` all there is, as if it were due."""
        now = Deadline.now()
        if not self.entries or (not everything and now < self._resting_until):
            return
        began = self._clock()
        if everything:
            for thing in list(self.entries):
                yield thing
        while not everything and self._clock() - began < _BATCH:
            with self._lock:
                if self.delay() is None or self._heap[0][0] > now:
                    break
                _, _, thing, interval = self._heap[0]
                longer = min(2 * interval, thing.longest)
                self._enter((now + interval, next(self._order), thing, longer))
            yield thing
        self._resting_until = Deadline.now() + (self._clock() - began) * (_SHARE - 1)
