# SPDX-License-Identifier: BSD-3-Clause
"""The engine: it holds many targets, and finds out which of them have exited.

It starts no thread, and never sleeps. Its caller calls sets.sleep() and collect() in turns, or
polls fileno() and calls collect(). If it is shared, several threads may do so: its lock protects
its own state, and is not held while one sleeps, or while an owner's code runs. Without the lock
others only look whether a container is empty, or copy a dict at once.

Between its exit and its report a target is in one of four places:

    sets.told   a set has reported the exit
    settling    a thread is asking the owner to reap, which may take long
    unsettled   the owner has not reaped yet, and is asked again
    exits       the list of the caller of collect(), which reports it

A target enters the next place before it leaves the last one. So if a signal handler raises
anywhere, the target is still in one of them; and it is reported once, as it leaves the members
then. A signal handler may also use the same set at any moment.
"""

from _thread import RLock
from os import getpid

from . import _backends
from ._combined import CombinedSet
from ._deadline import NOW
from ._errors import raise_of_handler
from ._outcome import RUNNING
from ._queue import drop
from ._targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ._outcome import Outcome

    Exits = list[tuple[Target, int | None]]  # novm

# How many targets are added at a time, while the limit of file descriptors is raised.
_CHUNK = 64


class Engine:
    def __init__(self, shared: bool, wake: "Callable[[], object] | None" = None) -> None:
        """``shared``: whether several threads use it at once; ``wake``: see open_set()."""
        self.pid = getpid()
        self._is_shared = shared
        # Reentrant: a signal handler can interrupt its holder anywhere, and need it, too.
        self._lock = RLock()
        # Targets that have not been reported, by their keys.
        self.members: "dict[object, Target]" = {}
        # More of them: each has exited, and its pid has been added again for another process.
        self.superseded: "dict[Target, object]" = {}
        # Targets that have exited, but that their owners have not reaped: the codes seen so far.
        self._unsettled: "dict[Target, int | None]" = {}
        # Targets whose owners one thread is asking to reap; other threads leave them alone.
        self._settling: "dict[Target, int | None]" = {}
        self._is_closed = False
        self.sets = CombinedSet(shared, lambda: list(self), wake)

    def __len__(self) -> int:
        """How many targets have not been reported yet."""
        return len(self.members) + len(self.superseded)

    def __contains__(self, key: object) -> bool:
        return key in self.members

    def __iter__(self) -> "Iterator[Target]":
        """A copy of the targets that have not been reported yet."""
        return iter(list(self.superseded) + list(self.members.values()))

    def take_over(self) -> None:
        """Let a forked child use its copy: the parent's threads are not there.

        If ``pid`` is not that of this process, this must be called before anything else.
        """
        self.pid = getpid()
        self._lock = RLock()
        if not self._is_closed:
            self.sets.told.extend(self._settling.items())
            self._settling.clear()
            self.sets.take_over()

    def add(self, targets: "Sequence[Target]") -> None:
        """Wait for these targets, too; ignore one whose key is there already."""
        for start in range(0, len(targets), _CHUNK):
            self._add(targets[start : start + _CHUNK])

    def _add(self, targets: "Sequence[Target]") -> None:
        known = [target.known() for target in targets]
        entered: "list[Target]" = []
        try:
            with self._lock:
                self._check_open()
                unknown = self._enter(zip(targets, known), entered)
            for target in unknown:
                if type(target) is not Target:
                    self._confirm(target)
        except BaseException:  # a signal handler has raised: then none of these is added
            for target in entered:
                self._drop(target)
            raise

    def _enter(
        self, targets: "Iterable[tuple[Target, Outcome]]", entered: "list[Target]"
    ) -> "list[Target]":
        """Make them members; return those that are not known to have exited."""
        unknown = []
        for target, code in targets:
            there = self.members.get(target.key)
            if there is not None:
                # An object stands for one process; a pid can stand for another one later.
                if type(there) is not Target or not self._is_anothers(there):
                    continue
                self.superseded[there] = None
            entered.append(target)
            target.is_member = True
            self.members[target.key] = target
            if code is RUNNING:
                unknown.append(target)
            else:
                self.sets.told.append((target, code))
        self.sets.add(unknown)
        return unknown

    def _is_anothers(self, target: Target) -> bool:
        """Whether the pid of a member belongs to another process now."""
        if target.pid is None or not self.sets.has_exited(target):
            return False
        try:
            handle = _backends.open_handle(target.pid)
        except OSError as error:
            raise_of_handler(error)
            return False
        try:
            return handle.wait(NOW, False) is RUNNING
        finally:
            handle.close()

    def _confirm(self, target: Target) -> None:
        code = target.confirm()
        if code is not RUNNING:
            with self._lock:
                self.sets.told.append((target, code))

    def discard(self, key: object) -> None:
        """Do not report this target any more; nothing happens if it is not a member."""
        with self._lock:
            self._check_open()
            found = [target for target in self.superseded if target.key == key]
            target = self.members.get(key)
        for one in found if target is None else [*found, target]:
            self._drop(one)

    def _drop(self, target: Target) -> None:
        with self._lock:
            self._leave(target)
            self.sets.discard(target)

    def _leave(self, target: Target) -> None:
        target.is_member = False
        if self.members.get(target.key) is target:
            del self.members[target.key]
        self.superseded.pop(target, None)
        self._unsettled.pop(target, None)

    def collect(self, exits: "Exits", last: bool = False, is_told: bool = False) -> None:
        """Append the targets that have exited, and that their owners have reaped, and drop them.

        With ``last`` the time is up: all are looked at, and a code that may come a moment later
        is not waited for, unless fileno() becomes readable at that moment: ``is_told``.
        """
        polled = self.sets.polled
        if polled is not None:
            with self._lock:
                polled.hear()
            polled.look(last)
        if self._is_shared:
            with self._lock:
                owned = self._take(exits, last and not is_told)
        else:  # the first use of a lock after the sleep would cost a seventh of an exit
            owned = self._take(exits, last)
        if owned or (last and self._unsettled):
            self._settle(exits, last)

    def _take(self, exits: "Exits", last: bool) -> bool:
        """Append those that no owner has to reap, up to the first of the others, if any."""
        # After the sleep the caches are cold, and each name and call costs.
        sets, members, owned = self.sets, self.members, False
        sets.take(last)
        told: "deque[Any]" = sets.told  # its members are Targets
        try:
            for one in list(told):
                target = one[0]
                if target.is_member:
                    if type(target) is not Target:
                        owned = True
                        break
                    found = members.pop(target.key, None)
                    if found is not target and not self._is_ours_all_the_same(target, found):
                        continue
                    exits.append(one)
                    target.is_member = False
                try:
                    told.remove(one)  # as drop() does
                except ValueError:
                    continue
        except BaseException:
            self._enter_again(told)
            raise
        if sets.polled is not None:
            sets.use_room(len(exits))
        return owned

    def _is_ours_all_the_same(self, target: Target, found: "Target | None") -> bool:
        """Whether to report a target though its key stands for another target, or for none.

        A signal handler may wait on the same set as the code that it interrupts: only one of
        the two reports the target.
        """
        if found is not None:
            self.members[target.key] = found
        return self.superseded.pop(target, self) is None

    def _enter_again(self, told: "Iterable[tuple[Target, Any]]") -> None:
        """Make these members again: an exception has prevented their report."""
        for target, _ in list(told):
            if target.is_member and self.members.setdefault(target.key, target) is not target:
                self.superseded[target] = None

    def _settle(self, exits: "Exits", last: bool) -> None:
        """Ask the owners to reap, without the lock: their code may do anything."""
        told: "deque[Any]" = self.sets.told
        ours: "Exits" = []
        try:
            with self._lock:
                for one in list(told):
                    target, code = one
                    if target.is_member:
                        ours.append((target, code))
                        self._settling[target] = code
                    drop(told, one)
                if last:
                    ours += self._unsettled.items()
            for target, code in ours:
                outcome = target.settle(code, last)
                with self._lock:
                    self._end_settling(target, code, outcome, exits)
        except BaseException:  # a signal handler has raised, as Ctrl-C's does
            with self._lock:
                self._enter_again(ours)
                told.extend(one for one in ours if one[0] in self._settling)
                for target, _ in ours:
                    self._settling.pop(target, None)
            raise

    def _end_settling(
        self, target: Target, code: "int | None", outcome: "Outcome", exits: "Exits"
    ) -> None:
        if target.is_member and outcome is RUNNING:
            if target not in self._unsettled:
                self._unsettled[target] = code
                self.sets.add_look(target, lambda: target.settle(code))
        else:
            found = self.members.pop(target.key, None) if target.is_member else None
            if target.is_member and (found is target or self._is_ours_all_the_same(target, found)):
                exits.append((target, outcome))  # type: ignore[arg-type]
                self._leave(target)
            self.sets.discard(target)
        self._settling.pop(target, None)

    def put_back(self, exits: "Exits") -> None:
        """Have these reported again: an exception keeps the caller from getting them."""
        with self._lock:
            for target, _ in exits:
                target.is_member = True
            self._enter_again(exits)
            self.sets.told.extendleft(reversed(exits))
        del exits[:]

    def delay(self) -> "float | None":
        """Seconds until collect() must be called even if there is no event; else None."""
        with self._lock:
            return self.sets.delay()

    def is_settling(self) -> bool:
        """Whether an exit has been seen whose report is still to come."""
        with self._lock:
            return bool(self._unsettled) or self.sets.is_settling()

    def alarm(self, seconds: "float | None") -> None:
        """End a sleep(), and make fileno() readable, after ``seconds``; None: never."""
        with self._lock:
            if not self._is_closed:
                self.sets.alarm(seconds)

    def fileno(self, timed: bool = True) -> int:
        """A file descriptor that is readable when collect() may find an exit.

        Without ``timed`` the caller asks delay() itself, and never calls alarm().
        """
        with self._lock:
            self._check_open()
            return self.sets.fileno(timed)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the set is closed")

    def close(self) -> None:
        if self.pid != getpid():
            self._lock = RLock()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self.sets.close()
