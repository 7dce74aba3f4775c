# SPDX-License-Identifier: BSD-3-Clause
"""A polled member that has a pid, and what events have said about it."""

from time import monotonic

from .._outcome import RUNNING
from .._sources import exitcodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._outcome import Outcome
    from .contract import Member, Status
    from .polling_set import Look


class HeardMember:
    __slots__ = (
        "_late",
        "eager_until",
        "has_exited",
        "key",
        "member",
        "pid",
        "plain_look",
        "status",
    )

    def __init__(self, member: "Member", look: "Look", pid: int, late: "list[HeardMember]") -> None:
        self.member = member
        self._late = late  # those that have exited, but whose message has not come
        self.pid = pid
        self.plain_look = look
        self.key: "int | None" = None
        self.status: "Status | None" = None
        # If a look that began later finds it running, the latest event was not about its exit.
        self.eager_until = monotonic()
        # Whether a look has seen the exit; the message with the code may still come.
        self.has_exited = False

    def told(self) -> "Outcome":
        """The code that messages have told, once nothing is left of the process."""
        code = None if self.status is None else self.status.code()
        return RUNNING if code is None or exitcodes.is_found(self.pid) else code

    def look(self) -> "Outcome":
        told = self.told()  # the shortest look, for most exits
        if told is not RUNNING:
            return told
        found, status = self.plain_look(), self.status
        if found is not None or status is None:
            return found
        code = status.code()
        if code is not None or not status.is_due():
            return code
        if not self.has_exited:
            self.has_exited = True
            self._late.append(self)
        return RUNNING
