# SPDX-License-Identifier: BSD-3-Clause
"""The lock of the thread that sleeps; it is released even if a signal handler raises."""

import os
from _thread import TIMEOUT_MAX, RLock
from itertools import compress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._engine import Engine

# On Windows, Ctrl-C does not interrupt the main thread while it waits for a lock.
LOCKS_HEED_SIGNALS = os.name != "nt"
_SLICE = TIMEOUT_MAX if LOCKS_HEED_SIGNALS else 0.1


class Turn:
    """``lock`` itself can be used in a ``with`` statement, which has no time-out."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock: "Any" = RLock()  # reentrant: a signal handler may wait on the same set

    def take(self, held: "list[Any]", seconds: "float | None") -> None:
        """Try to take the lock for ``seconds``, or a slice of them; if taken, put it into ``held``.

        A signal handler may raise between any two bytecodes. So there is none between the
        acquisition and the list, nor in give() between the list and the release.
        """
        held.extend(compress((self.lock,), map(self.lock.acquire, (False,))))
        if not held:
            patience = _SLICE if seconds is None else min(seconds, _SLICE)
            held.extend(compress((self.lock,), map(self.lock.acquire, (True,), (patience,))))

    def give(self, held: "list[Any]") -> None:
        if held:
            next(map(RLock.release, map(held.pop, (0,))))

    def sleep(
        self,
        engine: "Engine",
        sleeping: "dict[object, None]",
        me: object,
        seconds: "float | None",
    ) -> None:
        """Sleep in the engine once, when it is our turn, for ``seconds`` at most in all.

        ``sleeping`` has the entry ``me`` meanwhile.
        """
        held: "list[Any]" = []
        try:
            try:
                self.take(held, seconds)
                if held:
                    sleeping[me] = None
                    if engine.sets.is_alarmed and seconds != 0:
                        engine.alarm(None)
                    if engine:
                        engine.sets.sleep(seconds)
            finally:
                self.give(held)
        finally:  # Ctrl-C may come anywhere, even just before the call above
            self.give(held)
        sleeping.pop(me, None)
