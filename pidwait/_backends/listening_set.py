# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once, polled: with events that make most looks needless, see ``events``.

A member is in one of three polled sets, which differ in when they look:

    plain   there are no events about it: every 0.1 to 40 ms, as on all systems
    eager   it is new, or there was an event: likewise, from 0.1 ms on again
    quiet   nothing is heard of it: once a second, or less often
"""

from time import monotonic

from .._deadline import LONGEST, share
from .._errors import TRANSIENT, pass_over
from .._outcome import RUNNING
from .events import open_events
from .heard_member import HeardMember
from .paced_sets import EagerSet, QuietSet
from .polled_procfs import ProcfsHandle
from .polling import clock
from .polling_set import PolledSet, add_each, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._outcome import Outcome
    from .contract import Events, Member, Message, Report, Set, Status
    from .polling_set import Look

# Seconds until events are asked for again for members that have none, at first.
_RETRY = 1.0


class ListeningSet:
    def __init__(self, sleeper: "Set | None") -> None:
        """``sleeper``: an EpollSet, in which the program sleeps."""
        # Not a method of the caller's: that would be a circle of references.
        self.sleeper = sleeper
        self._plain, self._eager, self._quiet = PolledSet(), EagerSet(), QuietSet()
        self._sets: "tuple[PolledSet, ...]" = (self._plain, self._eager, self._quiet)
        # All that have a pid; those with a key are in the eager or the quiet set.
        self._members: "dict[Member, HeardMember]" = {}
        self._by_key: "dict[int | None, dict[HeardMember, None]]" = {}
        self._late: "list[HeardMember]" = []  # a look adds to it without the lock
        self._events: "Events | None" = None
        # The keys of the latest events without a message. Other processes may have caused them,
        # so at most a share of a core is spent on asking which members have exited.
        self._due: "dict[int, None]" = {}
        # Those of which the latest messages have told.
        self._told: "dict[HeardMember, None]" = {}
        # A signal handler has raised before what had been read was used.
        self._has_lost = False
        self._due_at = 0.0
        self._calmed = 0.0  # when the look began after which the last ones were calmed
        self._is_deaf = False  # there are no events
        # Whether there was no file descriptor left for the events.
        self.lacks_room = False
        self._retry_in, self._retry_at = _RETRY, 0.0

    def forked(self) -> "ListeningSet":
        # The events are the parent's.
        copy = ListeningSet(None)
        copy._is_deaf = self._is_deaf
        for old in self._sets:
            old.copy_to(copy._plain)
        for member, one in self._members.items():
            new = copy._members[member] = HeardMember(member, one.plain_look, one.pid, copy._late)
            if member in copy._plain:
                copy._plain.add_look(member, new.look)
        self.close()
        return copy

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        return add_each(members, self._add)

    def _add(self, member: "Member", pid: int) -> None:
        found = self._listen(pid)
        try:
            handle = ProcfsHandle(pid)
            one = self._members[member] = HeardMember(member, look_at(handle), pid, self._late)
            self._plain.add_look(member, one.look)
        except BaseException:
            if found is not None:
                self._unlisten(found[0], pid)
            raise
        if found is not None:
            self._heed(one, found)
            # Events were on before that look, so an exit since then causes one.
            if self._quiet.hears_all and handle.was_running():
                self._move(one, self._eager, self._quiet)

    def add_look(self, member: "Member", look: "Look") -> None:
        self.discard(member)
        self._plain.add_look(member, look)

    def discard(self, member: "Member") -> None:
        for one in self._sets:
            one.discard(member)
        self._forget(member)

    def __contains__(self, member: "Member") -> bool:
        return member in self._plain or member in self._quiet or member in self._eager

    def __len__(self) -> int:
        return sum(map(len, self._sets))

    def has_exited(self, member: "Member") -> bool:
        one = self._members.get(member)
        if one is not None:
            return one.plain_look() is not RUNNING
        return self._plain.has_exited(member)

    # What has to do with events is called with the lock.

    def _listen(self, pid: int) -> "tuple[int, Status | None] | None":
        """Start to get events about this process, if there can be any: see Events.add()."""
        try:
            if self._events is None and not self._is_deaf:
                self._open()
            return None if self._events is None else self._events.add(pid)
        except (OSError, ImportError) as error:
            pass_over(error, "events")
            # What is in the eager or the quiet set is looked at all the same.
            self.lacks_room = isinstance(error, OSError) and error.errno in TRANSIENT
            if not self.lacks_room:
                self.deafen()
            return None

    def _unlisten(self, key: int, pid: int) -> None:
        if self._events is not None:
            try:
                self._events.discard(key)
            except OSError as error:
                pass_over(error, "pid %d", pid)

    def _heed(self, one: HeardMember, found: "tuple[int, Status | None]") -> None:
        key, one.status = found
        self._enter(one, key)
        self._move(one, self._plain, self._eager)

    def _open(self) -> None:
        events = open_events()
        self.lacks_room = False
        if events is None:
            self._is_deaf = True
            return
        try:
            sleeper: "Any" = self.sleeper
            sleeper.include(events.fileno())
        except BaseException:
            events.close()
            raise
        self._events = events
        self._quiet.longest = events.longest
        self._quiet.hears_all = events.hears_all

    def _move(self, one: HeardMember, source: PolledSet, target: PolledSet) -> None:
        if one.member in source:
            target.add_look(one.member, one.look)
            source.discard(one.member)

    def _forget(self, member: "Member") -> None:
        one = self._members.pop(member, None)
        if one is None:
            return
        key = self._leave(one)
        if key is not None:
            self._unlisten(key, one.pid)

    def _leave(self, one: HeardMember) -> "int | None":
        key, one.key = one.key, None
        those = self._by_key.get(key, {})
        those.pop(one, None)
        if not those:
            self._by_key.pop(key, None)
        return key

    def _enter(self, one: HeardMember, key: int) -> None:
        self._by_key.setdefault(key, {})[one] = None
        one.key = key

    def cover_all(self) -> None:
        self._retry_at = monotonic() + self._retry_in
        self._retry_in *= 2
        for one in list(self._members.values()):
            if one.key is None:
                found = self._listen(one.pid)
                if found is not None:
                    self._heed(one, found)
                elif self.lacks_room or self._is_deaf:
                    break

    def hear(self) -> None:
        if len(self._plain) and monotonic() >= self._retry_at:
            self.cover_all()
        while self._late:
            self._hurry(self._late.pop())
        events = self._events
        if events is None:
            return
        try:
            looked = self._eager.looked()
            if looked is not None and looked != self._calmed:
                self._calmed = looked
                self._calm(events)
            if self._has_lost:
                self._hear(None, ())
            self._has_lost = True
            for key, message in events.read():
                self._hear(key, message)
            self._take_told()
            self._has_lost = False
            if self._due and monotonic() >= self._due_at:
                self._ask(events)
        except OSError as error:
            pass_over(error, "events")
            self.deafen()

    def _hear(self, key: "int | None", message: "Message") -> None:
        if key is not None and not message:
            self._due[key] = None
            return
        for one in list(self._members.values() if key is None else self._by_key.get(key, ())):
            if message and one.status is not None:
                one.status.hear(*message)
                self._told[one] = None
            else:
                self._hurry(one)

    def _take_told(self) -> None:
        """Look at those of which messages have told, after all of these."""
        while self._told:
            one, _ = self._told.popitem()
            code = one.told()
            if code is RUNNING:
                self._hurry(one)
                continue
            for source in self._eager, self._quiet:
                if one.member in source:
                    source.find(one.member, code)

    def _ask(self, events: "Events") -> None:
        """Find those of which the latest events may have told."""
        began = clock()
        for key in list(self._due):
            for one in list(self._by_key.get(key, ())):
                if events.may_have_exited(key, one.pid):
                    self._hurry(one)
        self._due.clear()
        self._due_at = monotonic() + share(clock() - began)

    def _hurry(self, one: HeardMember) -> None:
        one.eager_until = monotonic() + 2 * LONGEST
        self._move(one, self._quiet, self._eager)
        self._eager.hurry()

    def _calm(self, events: "Events") -> None:
        """The latest events were not about the exit of those that still run."""
        for member in self._eager.members():
            one = self._members[member]
            if self._calmed <= one.eager_until or one.has_exited:
                continue
            if one.status is not None:
                one.status.forget(self._calmed)
            key = self._leave(one)
            again = None if key is None else events.add_again(key, one.pid)
            if again is None:
                self._move(one, self._eager, self._plain)
            else:
                self._enter(one, again)
                self._move(one, self._eager, self._quiet)

    def deafen(self) -> None:
        self._is_deaf = True
        for one in list(self._members.values()):
            one.key = None
            self._move(one, self._eager, self._plain)
            self._move(one, self._quiet, self._plain)
        self._by_key.clear()
        self._due.clear()
        self._told.clear()
        del self._late[:]
        self._has_lost = False
        if self._events is not None:
            self._events.close()
            self._events = None

    def look(self, last: bool = False) -> None:
        for one in self._sets:
            one.look(last)

    def take(self, report: "Report", last: bool) -> None:
        def told(found: "tuple[Member, Outcome]") -> None:
            report(found)
            self.discard(found[0])

        for one in self._sets:
            one.take(told, last)
        if last:  # the messages that have not come are not waited for
            for each in list(self._members.values()):
                if each.has_exited and each.status is not None:
                    told((each.member, each.status.code()))

    def recover(self) -> None:
        """Nothing is left to find: hear() sees to what a signal handler makes it lose."""

    def delay(self) -> "float | None":
        delays = [delay for delay in (one.delay() for one in self._sets) if delay is not None]
        if self._late or self._has_lost:
            return 0.0
        if self._due:
            delays.append(max(0.0, self._due_at - monotonic()))
        return min(delays) if delays else None

    # Without events, it may be all that the program has to wait with.

    def sleep(self, seconds: "float | None") -> None:
        self._plain.sleep(seconds)

    def alarm(self, seconds: "float | None") -> None:
        self._plain.alarm(seconds)

    def fileno(self, timed: bool = True) -> int:
        return self._plain.fileno(timed)

    def close(self) -> None:
        for one in self._sets:
            one.close()
        self._members.clear()
        self._by_key.clear()
        if self._events is not None:
            self._events.close()
