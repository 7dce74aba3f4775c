# SPDX-License-Identifier: BSD-3-Clause
"""What the sets of Windows have in common: HANDLEs, and which of their processes have exited."""

from errno import ENOSYS
from io import UnsupportedOperation

from .._errors import pass_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from .contract import Member, Report
    from .win32 import Win32Handle


class Win32Members:
    """A Set (see contract) that lacks add(), sleep() and close()."""

    def __init__(self) -> None:
        # The members by their HANDLEs, each with what waits for it.
        self._members: "dict[Any, tuple[Member, Any]]" = {}
        # Processes that have exited, and that have not been taken. Other threads add to it, by
        # single operations, before they wake the caller: so it is taken then, or found again.
        self._exited: "dict[Win32Handle, None]" = {}
        self._is_ringing = False

    def _look(self) -> "Sequence[Win32Handle]":
        """Those that have exited, also those that no other thread has told of yet."""
        raise NotImplementedError

    def _end_wait(self, handle: "Any", group: "Any") -> None:
        """Wait for it no more; ``by`` is what waits for it."""
        raise NotImplementedError

    def _drop(self, handle: "Any") -> None:
        """Forget one that has exited, and that is no member."""
        self._exited.pop(handle, None)

    def _wake(self) -> None:
        """Have the caller take."""
        raise NotImplementedError

    def forked(self) -> "NoReturn":
        raise OSError(ENOSYS, "Windows has no fork")

    def discard(self, member: "Member") -> None:
        if member.ticket in self._members:
            self._forget(member.ticket)

    def _forget(self, handle: "Any") -> None:
        member, by = self._members[handle]
        self._end_wait(handle, by)
        self._exited.pop(handle, None)
        member.ticket = None
        self._members.pop(handle, None)

    def has_exited(self, member: "Member") -> bool:
        handle = member.ticket
        return handle in self._members and look_at(handle) is True

    def take(self, report: "Report", last: bool) -> None:
        if last:
            # Another thread may not have told of them yet.
            self._exited.update(dict.fromkeys(self._look()))
        for handle in list(self._exited):
            known = self._members.get(handle)
            if known is not None:
                report((known[0], handle.get_exit_code()))
                self._forget(handle)
            else:
                # It was discarded: before another thread told of it, or by a signal handler in
                # the middle of add().
                self._drop(handle)

    def recover(self) -> None:
        """Nothing gets lost: the HANDLE of a process that has exited stays signalled."""

    def delay(self) -> "float | None":
        return 0.0 if self._exited else None

    def alarm(self, seconds: "float | None") -> None:
        if seconds is not None and seconds > 0:
            raise OSError(ENOSYS, "no timer ends a sleep on Windows")
        self._is_ringing = seconds is not None
        if self._is_ringing:
            self._wake()

    def fileno(self, timed: bool = True) -> "NoReturn":
        raise UnsupportedOperation("on Windows a set has no fileno")

    def close(self) -> None:
        for member, _ in self._members.values():
            member.ticket = None
        self._members.clear()
        self._exited.clear()


def look_at(handle: "Any") -> "bool | None":
    """Whether it has exited; None if somebody else has closed the HANDLE."""
    try:
        return handle.has_exited()  # type: ignore[no-any-return]
    except OSError as error:
        pass_over(error, "pid %d: somebody else has closed its HANDLE", handle.pid)
        return None
