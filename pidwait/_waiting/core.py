# SPDX-License-Identifier: BSD-3-Clause
"""The core of all waits for many processes: targets in, their exit codes out.

The core starts no thread. A caller calls sleep() and collect() in turns, as wait() does, and ends
what is in ``exited``; an event loop polls fileno(), or waits for delay(), and calls collect().
members.py explains the tables.
"""

import sys
from errno import ESRCH
from io import UnsupportedOperation
from itertools import repeat
from operator import attrgetter
from os import getpid
from weakref import ref

from .._base.deadline import NEVER, NOW, PATIENCE, SHORTEST, Backoff, Deadline, patience
from .._base.errors import Failed, log
from .._base.handle import PENDING, RUNNING
from .._base.steps import atomically, claim, end_one, hand_over
from .._systems import system
from .._systems.pollers import PollingPoller, open_poller
from .members import Member, PollSchedule, Waiter
from .owners import ProcessTarget, Target, guarded, reap_by_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Call, Outcome, Poller

# Made once: without memory to make a function, CPython 3.12 and 3.13 crash.
_reaps = attrgetter("target.reaps")


class Core:
    def __init__(self, shared: bool) -> None:
        """``shared``: whether several threads use it at once."""
        self.pid = getpid()
        self._is_shared = shared
        self.members: "dict[object, Member]" = {}
        self.tokens: "dict[Member, object]" = {}
        self.requeued: "dict[Member, None]" = {}
        self.seen: "dict[Member, Outcome]" = {}
        self.exited: "dict[Member, int | None]" = {}
        self.schedule = PollSchedule()
        self.poller: "Poller" = open_poller(shared)
        # The waits in progress. A dead reference: an exception has ended the wait.
        self.waiters: "dict[ref[Waiter], None]" = {}
        self._reaping: "dict[Member, ref[Waiter]]" = {}  # the wait that runs the owner's code
        self.fd_is_exported = False  # a program has the file descriptor, and may poll it
        self._forked: "dict[int, Core]" = {}  # by the pid of the forked child

    def members_of(self, key: object) -> "list[Member]":
        """The members for a key: several if a member was requeued, or a pid added again."""
        there = [self.members.get(key), *self.requeued.copy()]
        return [one for one in there if one in self.tokens and one.target.key == key]

    def add(self, target: Target) -> None:
        """Add a target, unless its key is there already.

        A pid whose process has exited can be added again, for the next process.
        """
        for one in self.members_of(target.key):
            if type(target.key) is not int or not one.is_passed_on():
                return
            seen = self.exited.get(one, self.seen.get(one, RUNNING))
            end_one(self.tokens, self.members, one, *self._requeuing(one, seen))
            self._forget(one)
        member = Member(target)
        status, when = self._open(member), PollSchedule.NEW
        calls: "list[Call]" = [(self.tokens.setdefault, member, target.key)]
        if status is not RUNNING:
            calls.append((self.seen.setdefault, member, status))
        elif member.handle is not None and member.handle.backend == "polling":
            when = Deadline.now(), SHORTEST
        # Last: from here on somebody looks at the member, whatever comes next.
        calls.append((self.schedule.members.setdefault, member, when))
        limit, backoff = Deadline(PATIENCE), Backoff()
        while True:
            try:
                if claim(self.members, target.key, member, *calls):
                    self._arm(member)
                    self.schedule.next_at = 0.0
                    return
            finally:  # memory may have run out half-way
                if member not in self.tokens and self.members.get(target.key) is member:
                    self.members.pop(target.key, None)
            other = self.members.get(target.key)
            if other in self.tokens:
                return
            # Its end is under way in another thread; on PyPy, it may be interrupted.
            if not backoff.pause(limit) and self.members.get(target.key) is other:
                self.members.pop(target.key, None)

    def _requeuing(self, old: Member, code: "Outcome") -> "list[Call]":
        """The calls that put a new member in an old one's place, under a name of its own."""
        new, name = Member(old.target, old.handle), object()
        calls: "list[Call]" = [
            (self.members.__setitem__, name, new),
            (self.tokens.__setitem__, new, name),
            (self.requeued.__setitem__, new, None),
            (self.schedule.members.__setitem__, new, PollSchedule.NEW),
            (self.exited.__setitem__, new, code),
        ]
        return calls[: 4 if code is RUNNING else 5]

    def _open(self, member: Member) -> "Outcome":
        """Open a handle by the best means that works; return the outcome that is known by then."""
        target = member.target
        # A closed Process answers if it has seen the exit, or raises: its pid may be reused.
        is_closed = getattr(getattr(target.proc, "_child", target.proc), "_is_closed", False)
        known = target.confirm() if is_closed or type(target) is ProcessTarget else RUNNING
        if known is not RUNNING:
            return known
        try:
            member.handle = self.poller.open(target)
        except (Failed, UnsupportedOperation) as why:
            if target.pid is None:  # only the object knows
                return RUNNING
            if why.errno == ESRCH:
                return None
            log("pid %d is polled: %s", target.pid, why)
            try:
                member.handle = system.polled(target.pid)
            except Failed as gone:
                if gone.errno != ESRCH:
                    raise
                return None
        return RUNNING if type(target) is Target else guarded(target.confirm)

    def _arm(self, member: Member) -> None:
        """Request the member's next event."""
        if member.handle is None or member in self.seen:
            return  # no event reports it: it stays in the schedule
        try:
            self.poller.arm(member, (self.schedule.members.pop, member, None))
        except Failed as why:
            log("pid %s is polled: %s", member.target.pid, why)
            self.schedule.add(member)
            self.poller.ready.pop(member, None)
        if member not in self.tokens:  # another thread has ended it meanwhile
            self._forget(member)

    def discard(self, key: object) -> bool:
        """End the members for a key; return False if there are none."""
        ended = [self.end(member) for member in self.members_of(key)]
        self.wake()
        return any(ended)

    def end(self, member: Member) -> bool:
        """End a member; return False if it has ended already."""
        is_ended = end_one(self.tokens, self.members, member)
        self._forget(member)
        return is_ended

    def _forget(self, member: Member) -> None:
        """Remove an ended member from the other tables.

        After an interruption it is still in one of the last tables, so that somebody repeats this.
        """
        self.requeued.pop(member, None)
        self.seen.pop(member, None)
        self.poller.drop(member)
        self.poller.ready.pop(member, None)
        self.schedule.members.pop(member, None)
        self.exited.pop(member, None)

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is something to collect, for ``seconds`` at most."""
        delay = self.delay() if self.tokens else 0.0
        if delay is not None and (seconds is None or delay < seconds):
            seconds = delay
        try:
            self.poller.poll(seconds)
        except Failed as why:
            self.fall_back_to_polling(why)

    def delay(self) -> "float | None":
        """Seconds until collect() must be called even if there is no event; None: never."""
        if self.exited or self.poller.ready:
            return 0.0
        return self.schedule.delay() if self.schedule.members else None

    def fall_back_to_polling(self, why: Failed) -> None:
        """Go on without the poller: a policy has been set since it was opened."""
        log("all processes are polled: %s", why)
        try:
            self.poller.wake(0.0)  # other threads go on with the new poller
        except Failed as refused:
            log("wake: %s", refused)
        self.poller = PollingPoller(self.poller)
        for member in list(self.tokens):
            self.schedule.add(member)

    def collect(self, waiter: "ref[Waiter]", final: bool = False) -> None:
        """Look at all members that may have exited. ``final``: the waiter's time is up."""
        ready = self.poller.ready
        for who in list(ready):
            if type(who) is not Member:
                ready.update(zip(self.poller.read(who), repeat(None)))
                ready.pop(who, None)
        # Another thread may just have received an event that is not a member's.
        members = [who for who in list(ready) if type(who) is Member]
        # Last those that reap: then others for the same process have seen the exit.
        for member in sorted(members, key=_reaps):
            self.look(member, waiter)
        if self.schedule.members:
            for member in self.schedule.due(final):
                self.look(member, waiter)

    def look(self, member: Member, waiter: "ref[Waiter]") -> None:
        """Look at one. If it has exited, look at the others for its process, and have it reaped."""
        target, status = member.target, self._look_once(member)
        if status is RUNNING:
            return
        # An exit that an event reports need not wait for others. But an owner's reaping would take
        # the code from the other members, and polled exits keep their order.
        is_polled = member.handle is not None and member.handle.backend == "polling"
        if target.pid is not None and (is_polled or type(target) is not Target):
            for one in filter(None, [self.members.get(target.pid), *self.schedule.members.copy()]):
                if one is not member and one.target.pid == target.pid and not one.target.reaps:
                    found = self._look_once(one)
                    if found is not RUNNING:
                        self._note_exit(one, found, waiter)
        self._note_exit(member, status, waiter)

    def _look_once(self, member: Member) -> "Outcome":
        """Look once. RUNNING: the next event or look is prepared, or nothing is left to do."""
        if member in self.tokens and member not in self.exited:
            handle, status = member.handle, self.seen.get(member, RUNNING)
            if status is RUNNING:
                status = guarded(member.target.confirm) if handle is None else handle.look()
            if status is not RUNNING:
                return status
            if handle is not None and handle.backend != "polling":
                self._arm(member)
                return RUNNING
            self.schedule.add(member)
        self._clean_up(member)
        return RUNNING

    def _clean_up(self, member: Member) -> None:
        """Remove a member from the tables that no longer need it."""
        self.poller.ready.pop(member, None)
        if member in self.exited:
            self.schedule.members.pop(member, None)
        if member not in self.tokens:
            self._forget(member)

    def _note_exit(self, member: Member, status: "Outcome", waiter: "ref[Waiter]") -> None:
        """Note that a look has seen the exit, and have the owner reap."""
        if member in self.tokens and member not in self.exited:  # else its owner does not reap
            target, outcome = member.target, status
            if status is not PENDING and type(target) is not Target:
                status = self.seen.setdefault(member, status)
            if target.reaps or (status is not PENDING and type(target) is not Target):
                self.schedule.add(member)  # behind all others: the owner may raise each time
                self.poller.ready.pop(member, None)
                outcome = self._reap(member, status, waiter)
            if outcome is PENDING:
                # A set's caller calls again, so owners have time to reap.
                is_patient = target.reaps and self._is_shared
                call: "Any" = waiter()
                member.until = member.until or patience(NEVER if is_patient else call.deadline)
                outcome = self.seen.get(member) if member.until.expired() else RUNNING
            if outcome is RUNNING:  # or the command of a tree has exited, and others still run
                self.schedule.add(member)
            else:
                self.exited.setdefault(member, outcome)  # type: ignore[arg-type]
        self._clean_up(member)

    def _reap(self, member: Member, status: "Outcome", waiter: "ref[Waiter]") -> "Outcome":
        """Have the owner reap, in one wait at a time: its code may block, or wait itself."""
        turn = self._reaping.setdefault(member, waiter)
        if turn is not waiter:
            if turn not in self.waiters or turn() is None:  # an exception has interrupted it
                self._reaping.pop(member, None)
            return PENDING
        try:
            return reap_by_owner(member.target, status)
        finally:
            self._reaping.pop(member, None)

    def pending(self) -> "list[Member]":
        """The members that have exited, and whose code or reaping is still to come."""
        return [one for one in self.schedule.members.copy() if one.until is not None]

    def wait(self, waiter: Waiter) -> None:
        """Take the next exits into the waiter; none at its deadline, or if the core is empty."""
        me = ref(waiter)
        self.waiters[me] = None
        while True:
            seconds = waiter.deadline.remaining()
            if not self.exited:
                self.sleep(seconds)
                self.collect(me, seconds == 0)
            waiter.codes = self.exited.copy()
            hand_over(waiter.members, self.tokens, self.members, waiter.codes)
            for member in waiter.codes:
                self._forget(member)
            if waiter.members or seconds == 0 or not self.tokens:
                break
        del self.waiters[me]
        self.wake()

    def requeue(self, waiter: Waiter) -> None:
        """Report the waiter's exits again: an exception keeps its caller from getting them."""
        while waiter.members:
            old = waiter.members[-1]
            atomically((waiter.members.pop,), *self._requeuing(old, waiter.codes[old]))
        self.waiters.pop(ref(waiter), None)
        self.wake()

    def wake(self) -> None:
        """Wake sleeping threads, and a program that polls fileno(), if there is work for them."""
        others = self._has_waiters()
        if not (others or self.fd_is_exported):
            return
        self.poller.flush()
        delay = self.delay()
        if others and (delay is not None or not self.tokens):
            delay = 0.0
        if delay is not None:
            try:
                if not self.poller.wake(delay):
                    # Without a timer, a polling program would spin until the code comes.
                    for member in self.pending():
                        member.until = NOW
            except Failed as why:
                self.fall_back_to_polling(why)

    def _has_waiters(self) -> bool:
        for waiter in list(self.waiters):
            if waiter() is None:  # two exceptions have ended its wait
                self.waiters.pop(waiter, None)
        return bool(self.waiters)

    def fileno(self) -> int:
        fd = self.poller.fileno()
        self.fd_is_exported = True
        self.wake()
        return fd

    def forked(self) -> "Core":
        """A new core for a forked child, which can't use the parent's threads, epoll or kqueue."""
        self.poller.close()  # first: the new poller's file descriptors may get the same numbers
        new = Core(True)
        new.members, new.tokens = self.members.copy(), self.tokens.copy()
        new.requeued = self.requeued.copy()
        new.seen, new.exited = self.seen.copy(), self.exited.copy()
        new.fd_is_exported = self.fd_is_exported
        for member in new.tokens.copy():
            new.schedule.add(member)
            new._arm(member)
        return self._forked.setdefault(new.pid, new)

    def close(self) -> None:
        """Close all handles. A shared core is closed with the last reference to it. PyPy, which
        counts no references, would close it at a collection: so here, if nobody waits."""
        if self._is_shared and (hasattr(sys, "getrefcount") or self._has_waiters()):
            return
        for member in list(self.tokens):
            if member.handle is not None:
                member.handle.close()
        self.poller.close()
