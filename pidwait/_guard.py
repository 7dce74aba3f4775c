# SPDX-License-Identifier: BSD-3-Clause
"""A resource that several threads use, and any of them may close."""

from _thread import RLock

from ._fork import Creator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Guard:
    """Gives the resource out in a ``with`` statement, and closes it after the last use.

    Once close() has been called nobody gets it any more: ValueError.
    """

    # The lock is for other threads. It is reentrant, and what it covers is
    # written to be interrupted anywhere, for signal handlers: one that closes
    # the handle that its own thread is about to use must neither deadlock nor
    # close it twice.

    __slots__ = ("_creator", "_lock", "_open", "_users", "closed", "resource")

    def __init__(self, resource: "Any") -> None:
        self.resource = resource
        self._open = [True]
        self.closed = False
        self._start()

    def _start(self) -> None:
        self._creator = Creator()
        self._lock = RLock()
        self._users = 0

    def _locked(self) -> "Any":
        # In a forked child the lock may be held, and the resource used, by
        # threads that there are only in the parent.
        if not self._creator.is_me():
            self._start()
        return self._lock

    def is_copy(self) -> bool:
        """Whether this is what a fork left of a parent's, and not used yet."""
        return not self._creator.is_me()

    def __enter__(self) -> "Any":
        with self._locked():
            self._users += 1
        if self.closed:
            self.__exit__()
            raise ValueError("the handle is closed")
        return self.resource

    def __exit__(self, *exc_info: object) -> None:
        with self._locked():
            self._users = max(0, self._users - 1)
            last = self.closed and self._users == 0
        if last:
            self._close()

    def close(self) -> None:
        """Close it now, or after the last use."""
        with self._locked():
            self.closed = True
            last = self._users == 0
        if last:
            self._close()

    def _close(self) -> None:
        try:
            self._open.pop()  # only one gets it
        except IndexError:
            return
        self.resource.close()
