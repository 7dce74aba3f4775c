# SPDX-License-Identifier: BSD-3-Clause
"""Telling whether an object is a copy in a forked child; its threads exist in the parent only."""

import os


class Creator:
    """The process that created an object.

    In a forked child the object is a copy. Its locks may be held by threads that exist only
    in the parent, and its kqueue or epoll is the parent's.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_me(self) -> bool:
        return self._pid == os.getpid()


# The process that imported this module.
importer = Creator()
