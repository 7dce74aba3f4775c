# SPDX-License-Identifier: BSD-3-Clause
"""A set made of two: the best set that works here, and the polled set for the rest.

What the best set can't do, for one member or from some moment on, is done by polling. When
file descriptors become free, they go to members that are polled because none was left.
"""

from errno import EMFILE
from io import UnsupportedOperation
from time import monotonic

from ._backends.polling_set import PolledSet
from ._backends.sets import open_set, polled_set
from ._errors import TRANSIENT, is_of_signal_handler, log, pass_over, raise_of_handler
from ._queue import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ._backends.contract import Member, Polled, Set
    from ._outcome import Outcome

_FOREVER = float("inf")
_SPARED = 3  # handles: enough for one file descriptor, and for the modules that need it


class CombinedSet:
    """A Set (see contract) whose methods do not fail; it puts the exits into ``told``.

    All methods but sleep() and look() are called with the lock of the threads that share it.
    """

    def __init__(
        self,
        shared: bool,
        waiting: "Callable[[], Iterable[Member]]",
        wake: "Callable[[], object] | None" = None,
    ) -> None:
        self.best: "Set" = open_set(shared, wake)
        self.polled: "Polled | None" = None
        if isinstance(self.best, PolledSet):
            self.polled = self.best
        self.told: "deque[tuple[Member, Outcome]]" = deque()
        self.is_alarmed = False  # perhaps, by alarm()
        self.wakes_at = _FOREVER  # when the latest sleep() ends by itself
        # Returns the members whose exit neither set has told.
        self._waiting = waiting
        self._has_lost = False
        self._broken: "OSError | None" = None
        # Members that are polled because no file descriptor was left, perhaps.
        self._without_room: "dict[Member, None]" = {}
        self._spared = 0  # handles

    def take_over(self) -> None:
        """Go on in a forked child: the sleeping threads and the epoll are the parent's."""
        if self.best is self.polled:
            self.best = self.polled = self.polled.forked()
            return
        if self.polled is not None:
            self.polled = self.polled.forked()
        try:
            self.best = self.best.forked()
            if self.polled is not None:
                self.polled.sleeper = self.best
        except OSError as error:
            self._poll_all(error)
            raise_of_handler(error)

    def add(self, members: "Sequence[Member]") -> None:
        try:
            failed = self.best.add(members)
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            failed = [(member, error) for member in members]
        for member, why in failed:
            self._poll(member, why)
        if failed and self.polled is not None and self.polled.lacks_room:
            self._make_room(self.polled)

    def _poll(self, member: "Member", why: OSError) -> None:
        """Poll a member that the best set can't wait for."""
        if not isinstance(why, ProcessLookupError):
            log("pid %s is polled: %s", member.pid, why)
            if member.pid is None:  # then only the object can tell
                self.add_look(member, member.known)
                return
            if not self._polled_set().add([member]):
                if why.errno in TRANSIENT:
                    self._without_room[member] = None
                return
        self.told.append((member, None))

    def add_look(self, member: "Member", look: "Callable[[], Outcome]") -> None:
        """Call ``look()`` again and again until it does not return RUNNING."""
        self._polled_set().add_look(member, look)

    def _polled_set(self) -> "Polled":
        if self.polled is None:
            self.polled = polled_set(self.best)
        return self.polled

    def _make_room(self, polled: "Polled") -> None:
        """Close a few handles: events about all polled members need a file descriptor."""
        best: "Any" = self.best
        for member in self._waiting():
            if not polled.lacks_room or self._spared == _SPARED:
                break
            if member.pid is not None and member in best and not best.has_exited(member):
                self._spared += 1
                best.discard(member)
                # To be another process's by now, the pid would have to have gone round.
                self._poll(member, OSError(EMFILE, "its handle is needed"))
                polled.cover_all()

    def discard(self, member: "Member") -> None:
        try:
            self.best.discard(member)
        finally:
            if self.polled is not None:
                self.polled.discard(member)
                self._without_room.pop(member, None)

    def has_exited(self, member: "Member") -> bool:
        if any(one is member for one, _ in self.told) or self.best.has_exited(member):
            return True
        return self.polled is not None and self.polled.has_exited(member)

    def sleep(self, seconds: "float | None") -> None:
        self.wakes_at = _FOREVER  # before the check for work: see WaitSet
        if self.told or self._has_lost or self._broken:
            return
        if self.polled is not None:
            delay = self.polled.delay()
            if delay is not None and (seconds is None or delay < seconds):
                seconds = delay
            if seconds is not None:
                self.wakes_at = monotonic() + seconds
        try:
            self.best.sleep(seconds)
        except BaseException as error:
            if isinstance(error, OSError) and not is_of_signal_handler(error):
                self._broken = error
                return
            self._has_lost = True
            raise

    def look(self, last: bool) -> None:
        """Look at the polled members if it is time to, or if this is the ``last`` look."""
        if self.polled is not None:
            self.polled.look(last)

    def take(self, last: bool) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            if self._has_lost:
                self.best.recover()
                self._has_lost = False
            self.best.take(self.told.append, last)
        except BaseException as error:
            # For example, a policy was set after the first use.
            if isinstance(error, OSError) and not is_of_signal_handler(error):
                self._poll_all(error)
            else:
                self._has_lost = True
                raise
        if self.polled is not None and self.polled is not self.best:
            self.polled.take(self.told.append, last)

    def _poll_all(self, error: OSError) -> None:
        """Poll all members, and go on without the best set."""
        old, polled = self.best, self._polled_set()
        if old is polled:
            self._broken = None
            raise error
        log("all processes are polled: %s", error)
        polled.deafen()  # nothing could end its sleep
        self.best = polled
        self._broken = None
        told = {member for member, _ in self.told}
        for member in self._waiting():
            if member not in told and member not in polled:
                self._poll(member, error)
        old.close()

    def use_room(self, count: int) -> None:
        """After ``count`` exits, give their file descriptors to members that lack one."""
        polled = self.polled
        while count and self._without_room:
            member = next(iter(self._without_room))
            if polled is not None and self.best is not polled and member in polled:
                if self.best.add([member]):
                    return
                # The pid was still the same process's if that has not exited since.
                if polled.has_exited(member):
                    self.best.discard(member)
                else:
                    polled.discard(member)
                    count -= 1
            self._without_room.pop(member, None)

    def delay(self) -> "float | None":
        if self.told or self._has_lost or self._broken:
            return 0.0
        delay = self.best.delay()
        if self.polled is not None and self.polled is not self.best:
            other = self.polled.delay()
            if delay is None or (other is not None and other < delay):
                return other
        return delay

    def is_settling(self) -> bool:
        """Whether an exit has been seen whose code is due any moment."""
        return self.best is not self.polled and self.best.delay() is not None

    def alarm(self, seconds: "float | None") -> None:
        self.is_alarmed = True  # until it is certain that there is none
        # Without a timer it goes off at once: that is too early, but never too late.
        for when in (seconds, 0):
            try:
                self.best.alarm(when)
                self.is_alarmed = when is not None
                return
            except OSError as error:
                pass_over(error, "without a timer")

    def fileno(self, timed: bool) -> int:
        if not timed:
            return self.best.fileno(False)
        try:
            fd = self.best.fileno()
            self.is_alarmed = True
            self.best.alarm(self.delay())
        except UnsupportedOperation:
            raise
        except OSError as error:
            raise_of_handler(error)
            raise UnsupportedOperation("the set has no fileno: %s" % error) from error
        return fd

    def close(self) -> None:
        self.best.close()
        if self.polled is not None:
            self.polled.close()
