# SPDX-License-Identifier: BSD-3-Clause
"""A resource that several threads use, and that any of them may close."""

from os import getpid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Guard:
    """Lends the resource to a ``with`` statement, and closes it after the last use.

    After close(), a new ``with`` statement raises ValueError.
    """

    # It needs no lock: a user enters itself before it checks whether the guard is closed, and
    # close() sets ``closed`` before it looks for users. A signal handler may run between any
    # two lines, and close the resource that the interrupted code is about to use. Without a
    # GIL each of these steps locks the object that it changes, so that none is seen too late.

    __slots__ = ("_open", "_users", "closed", "pid", "resource")

    def __init__(self, resource: "Any") -> None:
        self.resource = resource
        self.closed = False
        self._open = [True]
        self.pid = getpid()
        # The pid of each user's process. In a forked child the list also has the parent's
        # threads, which never leave it there.
        self._users: "list[int]" = []

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self.pid != getpid()

    def __enter__(self) -> "Any":
        self._users.append(getpid())
        if self.closed:
            self.__exit__()
            raise ValueError("the handle is closed")
        return self.resource

    def __exit__(self, *exc_info: object) -> None:
        me = getpid()
        if me in self._users:  # else the parent entered
            self._users.remove(me)
        if self.closed:
            self.close()

    def close(self) -> None:
        """Close it now, or after the last use."""
        self.closed = True
        if self._users and getpid() in self._users:
            return
        try:
            self._open.pop()  # only one thread gets it
        except IndexError:
            return
        self.resource.close()
