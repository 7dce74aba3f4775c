# SPDX-License-Identifier: BSD-3-Clause
"""What a fork leaves in the child: copies of objects whose threads stayed in the parent."""

import os


class Creator:
    """The process that made an object.

    In a forked child the object is a copy: its locks may be held by threads that only the
    parent has, and its kqueue or epoll is the parent's.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_me(self) -> bool:
        return self._pid == os.getpid()


# The process that imported this.
importer = Creator()
