# SPDX-License-Identifier: BSD-3-Clause
"""Queues whose first entry stays until it is done, so that no exception loses it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import TypeVar  # novm

    T = TypeVar("T")


def drop(queue: "deque[T] | list[T]", entry: "T") -> None:
    """Remove what was the first entry.

    A signal handler that waits on the same set in the middle of it may have done so, and
    more may have followed: so it is not simply the first one that goes.
    """
    try:
        queue.remove(entry)
    except ValueError:
        return
