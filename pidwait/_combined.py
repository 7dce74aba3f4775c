# SPDX-License-Identifier: BSD-3-Clause
"""A set made of two: the best set that works here, and the polled set for the rest.

What the best set can't do, for one member or from some moment on, is done by polling. When
file descriptors become free, they go to members that are polled because none was left.
"""

from io import UnsupportedOperation
from itertools import islice
from time import monotonic

from ._backends.polling_set import PolledSet
from ._backends.sets import open_set
from ._errors import is_of_signal_handler, log, pass_over
from ._queue import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._backends.contract import Member, Set
    from ._outcome import Outcome

_FOREVER = float("inf")


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
        self.polled: "PolledSet | None" = None
        if isinstance(self.best, PolledSet):
            self.polled = self.best
        self.told: "deque[tuple[Member, Outcome]]" = deque()
        self.is_alarmed = False  # by alarm(), with a number
        self.wakes_at = _FOREVER  # when the latest sleep() ends by itself
        # Returns the members whose exit neither set has told.
        self._waiting = waiting
        self._has_lost = False
        self._broken: "OSError | None" = None
        # Members that are polled, perhaps because no file descriptor was left.
        self._without_room: "dict[Member, None]" = {}

    def take_over(self) -> None:
        """Go on in a forked child: the sleeping threads and the epoll are the parent's."""
        if self.best is self.polled:
            self.best = self.polled = self.polled.forked()
            return
        if self.polled is not None:
            self.polled = self.polled.forked()
        try:
            self.best = self.best.forked()
        except OSError as error:
            self._poll_all(error)

    def add(self, members: "Sequence[Member]") -> None:
        try:
            failed = self.best.add(members)
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            failed = [(member, error) for member in members]
        for member, why in failed:
            self._poll(member, why)

    def _poll(self, member: "Member", why: OSError) -> None:
        """Poll a member that the best set can't wait for."""
        if not isinstance(why, ProcessLookupError):
            log("pid %s is polled: %s", member.pid, why)
            if member.pid is None:  # then only the object can tell
                self.add_look(member, member.known)
                return
            if not self._polled_set().add([member]):
                self._without_room[member] = None
                return
        self.told.append((member, None))

    def add_look(self, member: "Member", look: "Callable[[], Outcome]") -> None:
        """Call ``look()`` again and again until it does not return RUNNING."""
        self._polled_set().add_look(member, look)

    def _polled_set(self) -> PolledSet:
        if self.polled is None:
            self.polled = PolledSet()
        return self.polled

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
        if self.polled is not None and (last or self.polled.delay() == 0):
            self.polled.look()

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
        for member in list(islice(self._without_room, count)):
            if polled is None or self.best is polled or member not in polled:
                del self._without_room[member]
            elif self.best.add([member]):
                return
            # The pid was still the same process's if that has not exited since.
            elif polled.has_exited(member):
                self.best.discard(member)
            else:
                polled.discard(member)
                del self._without_room[member]

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
        if seconds is not None:
            self.is_alarmed = True
        # Without a timer it goes off at once: that is too early, but never too late.
        for when in (seconds, 0):
            try:
                self.best.alarm(when)
                self.is_alarmed = when is not None
                return
            except OSError as error:
                pass_over(error, "without a timer")

    def fileno(self, timed: bool = True) -> int:
        if not timed:
            return self.best.fileno(False)
        try:
            fd = self.best.fileno()
            self.is_alarmed = True
            self.best.alarm(self.delay())
        except UnsupportedOperation:
            raise
        except OSError as error:
            raise UnsupportedOperation("the set has no fileno: %s" % error) from error
        return fd

    def close(self) -> None:
        self.best.close()
        if self.polled is not None:
            self.polled.close()
