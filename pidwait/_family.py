# SPDX-License-Identifier: BSD-3-Clause
"""The children of a process, and theirs: found by several looks at all processes."""

from ._base.errors import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .listing import ProcessInfo

_MOST_LOOKS = 100  # at a family that never stops starting processes


class Family:
    """The descendants of a process, found by several looks at all processes."""

    def __init__(
        self,
        top: "ProcessInfo",
        recursive: bool,
        parents: "Callable[[], Iterable[tuple[ProcessInfo, int]]]",
        now: "Callable[[], int]",
    ) -> None:
        """``parents()`` looks at each process, and the pid of its parent."""
        self.found: "list[ProcessInfo]" = []
        self._members = {top}
        self._top = top
        self._recursive = recursive
        self._parents = parents
        self._now = now

    def find(self) -> "list[ProcessInfo]":
        for _ in range(_MOST_LOOKS):
            if not self.look():
                break
        else:
            log("pid %d still starts processes, after %d looks", self._top.pid, _MOST_LOOKS)
        return self.found

    def look(self) -> bool:
        """Add those that are not yet in it; return whether there were any."""
        began = self._now()
        by_pid: "dict[int, ProcessInfo]" = {}
        children: "dict[int, list[ProcessInfo]]" = {}
        for info, parent_pid in self._parents():
            children.setdefault(parent_pid, []).append(info)
            by_pid[info.pid] = info
        before = len(self.found)
        # In the order of their pids a child may come before its parent, so look from the top.
        left = [self._top, *(self.found if self._recursive else ())]
        for parent in left:
            if by_pid.get(parent.pid) != parent:
                continue  # it is gone, and another process may have its pid
            for child in children.get(parent.pid, ()):
                if child not in self._members and _is_child(child, parent, began):
                    self._members.add(child)
                    self.found.append(child)
                    if self._recursive:
                        left.append(child)
        return len(self.found) > before


def _is_child(child: "ProcessInfo", parent: "ProcessInfo", began: int) -> bool:
    """Whether it is the child of this very process, and not of one with the same pid.

    Both have been looked at since ``began``, the parent perhaps before the child.
    """
    if child._started is None or parent._started is None or child._started < parent._started:
        return False
    # The parent may have exited after we looked at it, and its pid been given to another
    # process, which has started the child. Then the child is younger than our look.
    return child._started < began or parent.is_running()
