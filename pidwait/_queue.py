# SPDX-License-Identifier: BSD-3-Clause
"""Queues whose first entry stays until it has been handled, so that no exception loses it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque as deque
    from typing import TypeVar  # novm

    T = TypeVar("T")
else:
    from _collections import deque as deque  # collections loads more


def drop(queue: "deque[T] | list[T]", entry: "T") -> None:
    """Remove an entry that was the first one.

    A signal handler that used the same queue meanwhile may have removed it, and others after
    it; so this does not simply remove the first entry.
    """
    try:
        queue.remove(entry)
    except ValueError:
        return
