# SPDX-License-Identifier: BSD-3-Clause
"""The engine: many targets, and finding out which of them have exited.

It starts no thread, and sleeps in the thread that calls sleep(), nowhere else. Whoever drives
it calls sleep() and collect() in turns, or polls fileno() and calls collect(). It may be used
from several threads: its lock is held for its own state alone, never while it sleeps, nor
while an owner's code runs.

Between its exit and its report a target is in one of three places:

    due         what a set has told; an owner has still to reap
    the polled  an owner has not reaped yet, and is asked again
    exits       the list of whoever called collect(), who reports it

What an exception of a signal handler interrupts is found again in one of them: a target goes
to the next place before it leaves the last, and is reported once, as long as it is a member.
"""

from _thread import RLock
from collections import deque
from functools import partial
from io import UnsupportedOperation
from itertools import islice
from os import getpid
from time import monotonic

from . import _backends
from ._backends.polling_set import PolledSet
from ._deadline import NOW
from ._errors import log
from ._outcome import RUNNING
from ._targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ._outcome import Outcome

    Exits = list[tuple[Target, int | None]]  # novm

# How many are registered at a time, with the limit of file descriptors raised.
_CHUNK = 64
_FOREVER = float("inf")


class Engine:
    def __init__(self, shared: bool) -> None:
        self.pid = getpid()
        # Reentrant, for signal handlers; what it covers can be interrupted anywhere.
        self._lock = RLock()
        self.members: "dict[object, Target]" = {}
        # Members that have exited, whose pid has been added again: it is another process's.
        self.superseded: "dict[Target, None]" = {}
        self._due: "deque[tuple[Target, Any]]" = deque()
        self._has_lost = self._is_closed = False
        self.is_alarmed = False  # by alarm(), with more than None
        # When the last sleep() ends by itself.
        self.wakes_at = _FOREVER
        self._polled: "PolledSet | None" = None
        # Those that have exited, and whose owners have not reaped: the codes seen from outside.
        self._unsettled: "dict[Target, int | None]" = {}
        # Those that are polled for want of a file descriptor, perhaps.
        self._without_room: "dict[Target, None]" = {}
        self._set = _backends.open_set(shared)
        if isinstance(self._set, PolledSet):
            self._polled = self._set

    def __len__(self) -> int:
        """How many have not been reported yet."""
        return len(self.members) + len(self.superseded)

    def __contains__(self, key: object) -> bool:
        return key in self.members

    def __iter__(self) -> "Iterator[Target]":
        """Those that have not been reported yet, as they are now."""
        return iter(list(self.superseded) + list(self.members.values()))

    def take_over(self) -> None:
        """Make the copy in a forked child its own: the parent's threads and epoll are not there.

        It comes before anything else where ``pid`` is not that of this process.
        """
        self.pid = getpid()
        self._lock = RLock()
        if self._is_closed:
            return
        polled = self._polled
        if polled is not None:
            self._polled = polled.forked()
        if self._set is polled and self._polled is not None:
            self._set = self._polled
            return
        try:
            self._set = self._set.forked()
        except OSError as error:
            self._poll_all(error)

    def add(self, targets: "Sequence[Target]") -> None:
        """Wait for these, too; those whose key is there already change nothing."""
        for start in range(0, len(targets), _CHUNK):
            self._add(targets[start : start + _CHUNK])

    def _add(self, targets: "Sequence[Target]") -> None:
        known = [target.known() for target in targets]
        entered: "list[Target]" = []
        try:
            with self._lock:
                self._check_open()
                self._enter(zip(targets, known), entered)
            for target in entered:
                if type(target) is not Target:
                    self._confirm(target)
        except BaseException:  # a signal handler's: none of these has been added
            for target in entered:
                self._drop(target)
            raise

    def _enter(
        self, targets: "Iterable[tuple[Target, Outcome]]", entered: "list[Target]"
    ) -> None:
        unknown = []
        for target, code in targets:
            there = self.members.get(target.key)
            if there is not None:
                # An object stands for one process, a pid for one after the other.
                if type(there) is not Target or not self._is_anothers(there):
                    continue
                self.superseded[there] = None
            entered.append(target)
            target.is_member = True
            self.members[target.key] = target
            if code is RUNNING:
                unknown.append(target)
            else:
                self._due.append((target, code))
        try:
            failed = self._set.add(unknown)
        except OSError as error:
            failed = [(target, error) for target in unknown]
        for target, error in failed:
            self._poll(target, error)  # type: ignore[arg-type]

    def _is_anothers(self, target: Target) -> bool:
        """Whether the pid of a member belongs to another process by now."""
        if target.pid is None or not self._has_exited(target):
            return False
        try:
            handle = _backends.open_handle(target.pid)
        except OSError:
            return False
        try:
            return handle.wait(NOW, False) is RUNNING
        finally:
            handle.close()

    def _has_exited(self, target: Target) -> bool:
        if any(one is target for one, _ in self._due) or self._set.has_exited(target):
            return True
        return self._polled is not None and self._polled.has_exited(target)

    def _poll(self, target: Target, error: OSError) -> None:
        """Look again and again at a target that the set can't wait for."""
        if not isinstance(error, ProcessLookupError):
            log("pid %s is polled: %s", target.pid, error)
            if target.pid is None:  # one that only its owner knows
                self._polled_set().add_look(target, target.known)
                return
            if not self._polled_set().add([target]):
                self._without_room[target] = None
                return
        self._due.append((target, None))


    def _polled_set(self) -> PolledSet:
        if self._polled is None:
            self._polled = PolledSet()
        return self._polled

    def _confirm(self, target: Target) -> None:
        code = target.confirm()
        if code is not RUNNING:
            with self._lock:
                self._forget(target)
                self._due.append((target, code))

    def discard(self, key: object) -> None:
        """Do not report this one any more, if it is there."""
        with self._lock:
            self._check_open()
            found = [target for target in self.superseded if target.key == key]
            target = self.members.get(key)
        for one in found if target is None else [*found, target]:
            self._drop(one)

    def _drop(self, target: Target) -> None:
        with self._lock:
            self._leave(target)
            self._forget(target)

    def _leave(self, target: Target) -> None:
        target.is_member = False
        if self.members.get(target.key) is target:
            del self.members[target.key]
        self.superseded.pop(target, None)

    def _forget(self, target: Target) -> None:
        try:
            self._set.discard(target)
        finally:
            if self._polled is not None:
                self._polled.discard(target)
                self._without_room.pop(target, None)
                self._unsettled.pop(target, None)

    def delay(self) -> "float | None":
        """Seconds until collect() is to be called though nothing has happened; else None."""
        with self._lock:
            if self._due or self._has_lost:
                return 0.0
            delay = self._set.delay()
            if self._polled is not None and self._polled is not self._set:
                other = self._polled.delay()
                if delay is None or (other is not None and other < delay):
                    return other
            return delay

    def sleep(self, seconds: "float | None") -> None:
        """Block until collect() may have something, or so long (None: for ever), or less."""
        self.wakes_at = _FOREVER  # before the look at what there is to do: see WaitSet
        if self._due or self._has_lost:
            return
        if self._polled is not None:
            delay = self._polled.delay()
            if delay is not None and (seconds is None or delay < seconds):
                seconds = delay
            if seconds is not None:
                self.wakes_at = monotonic() + seconds
        try:
            self._set.sleep(seconds)
        except OSError as error:
            with self._lock:
                if self._is_closed:
                    raise
                self._poll_all(error)
        except BaseException:
            self._has_lost = True
            raise

    def collect(self, exits: "Exits", last: bool = False) -> None:
        """Append those that have exited, and whose owners have reaped: they are members no more.

        With ``last`` the time is up, so that all are looked at.
        """
        # After the sleep the caches are cold, and each name and call costs.
        polled = self._polled
        if polled is not None and (last or polled.delay() == 0):
            polled.look()
        owned = None
        try:
            with self._lock:
                self._take(last)
                due, members = self._due, self.members
                while due:
                    target, code = one = due[0]
                    if target.is_member:
                        if type(target) is not Target:
                            owned = [*due]
                            break
                        # Each once, and none that has been discarded meanwhile.
                        exits.append(one)
                        target.is_member = False
                        key = target.key
                        if members.get(key) is target:
                            del members[key]
                        else:
                            self.superseded.pop(target, None)
                    due.popleft()
                if self._without_room:
                    self._use_room(len(exits))
        except BaseException:
            self._has_lost = True
            raise
        if last and self._unsettled:
            owned = [*(owned or ()), *self._unsettled.items()]
        if owned:
            self._settle(owned, exits, last)

    def _take(self, last: bool) -> None:
        try:
            if self._has_lost:
                self._set.recover()
                self._has_lost = False
            self._set.take(self._due.append, last)
        except OSError as error:  # a policy that came after the first use, for one
            self._poll_all(error)
        if self._polled is not None and self._polled is not self._set:
            self._polled.take(self._due.append, last)

    def _use_room(self, count: int) -> None:
        """Give the file descriptors that have become free to those that are polled."""
        polled = self._polled
        for target in list(islice(self._without_room, count)):
            if polled is None or self._set is polled or not target.is_member:
                del self._without_room[target]
            elif self._set.add([target]):
                return
            # The pid still belonged to its process if that has not exited since.
            elif polled.has_exited(target):
                self._set.discard(target)
            else:
                polled.discard(target)
                del self._without_room[target]

    def _settle(self, owned: "Exits", exits: "Exits", last: bool) -> None:
        """Have the owners reap, without the lock: they may do anything."""
        for one in owned:
            target, code = one
            outcome = target.settle(code, last) if target.is_member else None
            with self._lock:
                if target.is_member:
                    if outcome is RUNNING:
                        self._unsettled[target] = code
                        self._polled_set().add_look(target, partial(target.settle, code))
                    else:
                        exits.append((target, outcome))  # type: ignore[arg-type]
                        self._leave(target)
                        if target in self._unsettled:
                            self._forget(target)
                try:
                    self._due.remove(one)
                except ValueError:  # another thread has settled it, too
                    continue

    def put_back(self, exits: "Exits") -> None:
        """Report these again: an exception keeps them from whoever waited for them."""
        with self._lock:
            for target, code in exits:
                target.is_member = True
                if self.members.setdefault(target.key, target) is not target:
                    self.superseded[target] = None
            self._due.extendleft(reversed(exits))
        del exits[:]

    def _poll_all(self, error: OSError) -> None:
        """Go on without the set."""
        old, polled = self._set, self._polled_set()
        if old is polled:
            raise error
        log("all are polled: %s", error)
        self._set = polled
        waiting = {target for target, _ in self._due}
        for target in self:
            if target not in waiting and target not in polled:
                self._poll(target, error)
        old.close()

    def alarm(self, seconds: "float | None") -> None:
        """End a sleep(), and make fileno() readable, in so many seconds; None: never."""
        with self._lock:
            if self._is_closed:
                return
            if seconds is not None:
                self.is_alarmed = True
            # Without a timer it goes off at once, which is too often, not too late.
            for when in (seconds, 0):
                try:
                    self._set.alarm(when)
                    self.is_alarmed = when is not None
                    return
                except OSError as error:
                    log("without a timer: %s", error)

    def fileno(self) -> int:
        """A file descriptor that is readable when collect() may have something."""
        with self._lock:
            self._check_open()
            try:
                fd = self._set.fileno()
                self.is_alarmed = True
                self._set.alarm(self.delay())
            except UnsupportedOperation:
                raise
            except OSError as error:
                raise UnsupportedOperation("the set has no fileno: %s" % error) from error
            return fd

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the set is closed")

    def close(self) -> None:
        if self.pid != getpid():
            self._lock = RLock()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._set.close()
                if self._polled is not None:
                    self._polled.close()
