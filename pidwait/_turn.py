# SPDX-License-Identifier: BSD-3-Clause
"""A lock for the one thread that sleeps, which no exception of a signal handler keeps."""

import os
from _thread import TIMEOUT_MAX, RLock
from itertools import compress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Windows' main thread is deaf to Ctrl-C while it waits for a lock.
LOCKS_HEED_SIGNALS = os.name != "nt"
_SLICE = TIMEOUT_MAX if LOCKS_HEED_SIGNALS else 0.1


class Turn:
    """``lock`` is for a ``with`` statement, where there is no time-out."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock: "Any" = RLock()  # reentrant: a signal handler may wait on the same set

    def take(self, held: "list[Any]", seconds: "float | None") -> None:
        """Put the lock into ``held``, if it is to be had in so many seconds or a slice of them.

        A signal handler may raise between any two bytecodes, so there is none between the
        lock's answer and the list, nor between the list and the release.
        """
        held.extend(compress((self.lock,), map(self.lock.acquire, (False,))))
        if not held:
            patience = _SLICE if seconds is None else min(seconds, _SLICE)
            held.extend(compress((self.lock,), map(self.lock.acquire, (True,), (patience,))))

    def give(self, held: "list[Any]") -> None:
        if held:
            next(map(RLock.release, map(held.pop, (0,))))
