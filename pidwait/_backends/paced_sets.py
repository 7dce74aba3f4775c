# SPDX-License-Identifier: BSD-3-Clause
"""Linux, polled, with events: members that may exit any moment, and members that likely do not."""

from time import monotonic

from .._sources import procfs
from .polling_set import PolledSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .contract import Member
    from .polling_set import Look

# A look at so many takes no more than a few milliseconds.
_PART = 128


class EagerSet(PolledSet):
    """Members that may exit any moment. They come so often that the share of a core counts."""

    def add_look(self, member: "Member", look: "Look") -> None:
        self._looks[member] = look
        self.hurry()

    def hurry(self) -> None:
        self._interval = 0.0
        self._next_look = self._paid

    def looked(self) -> "float | None":
        """When the latest look at all of them began; None while there is one."""
        # What that finds is lost if the member leaves the set meanwhile.
        return None if self._looker else self._looked


class QuietSet(PolledSet):
    """Members that are looked at in case that an event does not come."""

    longest = 1.0  # seconds between two looks at one of them
    # Whether there is an event for each exit, so that a pid is not reused without one.
    hears_all = False

    def __init__(self) -> None:
        super().__init__()
        # How many of them, from the first on, have not had their turn.
        self._rest = 0
        self._part = 1.0  # what share of them the latest look was at

    def add_look(self, member: "Member", look: "Look") -> None:
        if not self._looks:
            self._next_look = monotonic() + self.longest
        self._looks[member] = look

    def _turn(self, last: bool) -> "list[tuple[Member, Look]]":
        every = super()._turn(last)
        if last:
            return [one for one in every if not self._runs_on(one[0])]
        # From the last to the first: so none is left out if others leave the set meanwhile.
        end = min(self._rest, len(every)) or len(every)
        self._rest = max(0, end - _PART)
        turn = every[self._rest : end]
        self._part = len(turn) / (len(every) or 1)
        return turn

    def _runs_on(self, member: "Member") -> bool:
        """Whether a quick look, which takes a fifth of the time, is enough."""
        pid: "Any" = member.pid
        return self.hears_all and procfs.has_executable(pid)

    def _next_interval(self) -> float:
        return self.longest * self._part

    def _look(self, last: bool) -> None:
        due = self._next_look
        super()._look(last)
        if last and self.hears_all:
            self._next_look = due
        else:
            # About 1 % of a core is enough.
            self._next_look += 2 * max(0.0, self._paid - monotonic())
