# SPDX-License-Identifier: BSD-3-Clause
"""Who descends from whom, and waits for it: Linux, by /proc."""

import os
from errno import ENOENT

from .._base.errors import Failed
from .._systems import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping


def parents() -> "dict[int, int]":
    """The parent of each process, by the numbers that /proc has, which may not be those here."""
    found = {}
    for number in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        stat = read_stat(number)
        if stat is not None:
            found[number] = stat.parent
    return found


def read_stat(number: int) -> "procfs.ProcStat | None":
    line = procfs.whole_stat(_read, number, "stat")
    return procfs.ProcStat(line) if line else None


def _read(number: int, name: str) -> bytes:
    return _read_file("/proc/%d/%s" % (number, name))


def _read_file(path: str) -> bytes:
    try:
        return procfs.read_file(path, None, True)
    except Failed:
        return b""


def descendants(ancestor: int, parents: "Mapping[int, int]") -> "set[int]":
    """The descendants of a process, by the parent of each process."""
    children: "dict[int, list[int]]" = {}
    for number, parent in parents.items():
        children.setdefault(parent, []).append(number)
    found: "set[int]" = set()
    left = [ancestor]
    while left:
        for child in children.pop(left.pop(), ()):
            found.add(child)
            left.append(child)
    return found


class View:
    """How /proc shows us and ours: it can be that of a PID namespace above ours.

    OSError where /proc does not show us.
    """

    def __init__(self) -> None:
        self.me: int = int(os.readlink("/proc/self"))
        numbers = _numbers(self.me)
        if numbers[-1:] != [os.getpid()]:
            raise OSError(ENOENT, "/proc is that of another PID namespace")
        self._level = len(numbers) - 1

    def pid(self, number: int) -> "int | None":
        """The pid here of what /proc has by a number; None if it is gone."""
        numbers = _numbers(number)
        return numbers[self._level] if len(numbers) > self._level else None

    def descendants(self) -> "set[int]":
        return descendants(self.me, parents())


def _numbers(number: int) -> "list[int]":
    """The pids of a process in each PID namespace from that of /proc down to its own."""
    status = _read(number, "status")
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return [number] if status else []  # before Linux 4.1


def is_ignored(signal: int) -> bool:
    """Whether this process ignores a signal, as far as /proc tells."""
    for line in _read_file("/proc/self/status").splitlines():
        if line.startswith(b"SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal - 1) & 1)
    return False


def waits_for_us(pid: int) -> bool:
    """Whether an ancestor waits for this process, and so can't exit before it does.

    It does if it sleeps in wait(2) and has no other child, and if what is between does, too.
    An ancestor for which this is not certain may well exit first: a shell that has started
    us in the background does.
    """
    if procfs.read_stat(pid) is None:  # nor would /proc tell if it is another namespace's
        return False
    me, known = os.getpid(), parents()
    while me != pid:
        parent = known.get(me, 0)
        if [one for one, its in known.items() if its == parent] != [me] or not _waits(parent):
            return False
        me = parent
    return True


def _waits(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.threads == 1 and _read(pid, "wchan") == b"do_wait"
