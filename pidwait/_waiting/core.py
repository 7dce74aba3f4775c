# SPDX-License-Identifier: BSD-3-Clause
"""The core: what is waited for in, (owner, exit code) out.

It starts no thread. Its caller calls sleep() and collect() in turns, and then take() or end(); an
event loop polls fileno(), or asks delay(), and calls collect(). members.py explains its tables.
"""

import sys
from errno import ESRCH
from io import UnsupportedOperation
from itertools import repeat
from os import getpid
from weakref import ref

from .._base.deadline import NEVER, NOW, PATIENCE, SHORTEST, Deadline, patience, pause
from .._base.errors import Failed, log
from .._base.handle import PENDING, RUNNING
from .._base.steps import atomically, claim, hand_over, replace
from .._systems import system
from .._systems.pollers import PollingPoller, open_poller
from .members import Member, Rounds, Visit
from .owners import Owner, ProcessOwner, guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Call, Outcome, Poller


class Core:
    def __init__(self, shared: bool) -> None:
        """``shared``: whether several threads use it at once."""
        self.pid = getpid()
        self._is_shared = shared
        self.members: "dict[object, Member]" = {}
        self.names: "dict[Member, object]" = {}
        self.former: "dict[Member, None]" = {}
        self.seen: "dict[Member, Outcome]" = {}
        self.exited: "dict[Member, int | None]" = {}
        self.rounds = Rounds(system.clock)
        self.poller: "Poller" = open_poller(shared)
        # The waits in progress, which may be asleep; dead ones have been interrupted.
        self.visits: "dict[ref[Visit], None]" = {}
        self._reaping: "dict[Member, ref[Visit]]" = {}  # whose wait runs the owner's code
        self.fd_is_exported = False  # a program has the file descriptor, and may poll it
        self._heirs: "dict[int, Core]" = {}  # by the pid of a forked child: its threads share one

    def find(self, key: object) -> "list[Member]":
        """The members for a key: more than one if some are put back, or a pid was given again."""
        found = [one for one in list(self.former) if one.owner.key == key] if self.former else []
        there: "Any" = [self.members.get(key), *found]
        return [one for one in there if one in self.names]

    def add(self, owner: Owner) -> "Member | None":
        """Wait for this one, too; return None if its key is there already.

        A pid whose process has exited can be added again: it stands for the next process, too.
        """
        for one in self.find(owner.key):
            if type(owner.key) is not int or not one.is_passed_on():
                return None
            seen = self.exited.get(one, self.seen.get(one, RUNNING))
            replace(self.names, self.members, one, *self._entering(one, seen))
            self._forget(one)
        member = Member(owner)
        status, when = self._open(member), Rounds.NEW
        calls: "list[Call]" = [(self.names.setdefault, member, owner.key)]
        if status is not RUNNING:
            calls.append((self.seen.setdefault, member, status))
        elif member.handle is not None and member.handle.backend == "polling":
            when = Deadline.now(), SHORTEST
        # Last: whatever comes next, somebody looks at it.
        calls.append((self.rounds.members.setdefault, member, when))
        limit, interval = Deadline(PATIENCE), [0.0]
        while True:
            try:
                if claim(self.members, owner.key, member, *calls):
                    self._arm(member)
                    self.rounds.at = 0.0
                    return member
            finally:  # no memory in the middle of it
                if member not in self.names and self.members.get(owner.key) is member:
                    self.members.pop(owner.key, None)
            other = self.members.get(owner.key)
            if other in self.names:
                return None
            # Its end is under way in another thread; on PyPy, it may be interrupted.
            if not pause(limit, interval) and self.members.get(owner.key) is other:
                self.members.pop(owner.key, None)

    def _entering(self, old: Member, code: "Outcome") -> "list[Call]":
        """The calls that put a new member in an old one's place, under a name of its own."""
        new, name = Member(old.owner, old.handle), object()
        calls: "list[Call]" = [
            (self.members.__setitem__, name, new),
            (self.names.__setitem__, new, name),
            (self.former.__setitem__, new, None),
            (self.rounds.members.__setitem__, new, Rounds.NEW),
            (self.exited.__setitem__, new, code),
        ]
        return calls[: 4 if code is RUNNING else 5]

    def _open(self, member: Member) -> "Outcome":
        """Open a handle by the best means that works; return what is known by then."""
        owner = member.owner
        # A closed Process knows what it has seen, or raises ValueError: its pid may be another's.
        known = owner.returncode() if type(owner) is ProcessOwner else RUNNING
        if known is not RUNNING:
            return known
        try:
            member.handle = self.poller.open(owner)
        except (Failed, UnsupportedOperation) as why:
            if owner.pid is None:  # only the object can tell
                return RUNNING
            if why.errno == ESRCH:
                return None
            log("pid %d is polled: %s", owner.pid, why)
            try:
                member.handle = system.polled(owner.pid)
            except Failed as gone:
                if gone.errno != ESRCH:
                    raise
                return None
        return RUNNING if type(owner) is Owner else guarded(owner.confirm)

    def _arm(self, member: Member) -> None:
        """Have its next event taken."""
        if member.handle is None or member in self.seen:
            return  # what no event reports stays in rounds
        try:
            self.poller.arm(member, (self.rounds.members.pop, member, None))
        except Failed as why:
            log("pid %s is polled: %s", member.owner.pid, why)
            self.rounds.add(member)
            self.poller.hot.pop(member, None)
        if member not in self.names:  # it has ended meanwhile, in another thread
            self._forget(member)

    def discard(self, key: object) -> None:
        for member in self.find(key):
            self.end(member)

    def end(self, member: Member) -> bool:
        """End it; return False if it has ended already."""
        ended: "list[Member]" = []
        hand_over(ended, self.names, self.members, (member,))
        self._forget(member)
        return bool(ended)

    def _forget(self, member: Member) -> None:
        """Have one that has ended leave the other tables.

        After an interruption it is still in one of the last, so that somebody repeats this.
        """
        self.former.pop(member, None)
        self.seen.pop(member, None)
        self.poller.drop(member)
        self.poller.hot.pop(member, None)
        self.rounds.members.pop(member, None)
        self.exited.pop(member, None)

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is something to collect, for ``seconds`` at most."""
        delay = self.delay() if self.names else 0.0
        if delay is not None and (seconds is None or delay < seconds):
            seconds = delay
        try:
            self.poller.take(seconds)
        except Failed as why:
            self.fall_back_to_polling(why)

    def delay(self) -> "float | None":
        """Seconds until collect() must be called even if there is no event; None: never."""
        if self.exited or self.poller.hot:
            return 0.0
        return self.rounds.delay() if self.rounds.members else None

    def fall_back_to_polling(self, why: Failed) -> None:
        """Go on without the poller, as a policy was set after it was made."""
        log("all processes are polled: %s", why)
        try:
            self.poller.ring(0.0)  # other threads go on with the next one
        except Failed as refused:
            log("ring: %s", refused)
        self.poller = PollingPoller(self.poller)
        for member in list(self.names):
            self.rounds.add(member)

    def collect(self, visit: "ref[Any]", final: bool = False) -> None:
        """Find out which have exited. ``visit``: the caller's; ``final``: its time is up."""
        hot, reaping = self.poller.hot, []
        for who in list(hot):
            if type(who) is not Member:
                hot.update(zip(self.poller.read(who), repeat(None)))
                hot.pop(who, None)
        for who in list(hot):
            if type(who) is not Member:
                continue  # of another thread's sleep
            if who.owner.reaps:
                reaping.append(who)
            else:
                self.look(who, visit)
        for member in reaping:  # last: all that is for the same process has seen the exit
            self.look(member, visit)
        if self.rounds.members:
            for member in self.rounds.due(final):
                self.look(member, visit)

    def look(self, member: Member, visit: "ref[Any]") -> None:
        """Look at one. If it has exited, look at the others for its process, and reap."""
        owner, status = member.owner, self._status(member)
        if status is RUNNING:
            return
        # What an event tells waits for nobody. But an owner's reaping would take the code from the
        # others, and polled exits keep their order.
        is_polled = member.handle is not None and member.handle.backend == "polling"
        if owner.pid is not None and (is_polled or type(owner) is not Owner):
            for one in filter(None, [self.members.get(owner.pid), *self.rounds.members.copy()]):
                if one is not member and one.owner.pid == owner.pid and not one.owner.reaps:
                    found = self._status(one)
                    if found is not RUNNING:
                        self._note(one, found, visit)
        self._note(member, status, visit)

    def _status(self, member: Member) -> "Outcome":
        """What a look finds. RUNNING, also if nothing is left to do: then it waits for the next."""
        if member in self.names and member not in self.exited:
            handle, status = member.handle, self.seen.get(member, RUNNING)
            if status is RUNNING:
                status = guarded(member.owner.returncode) if handle is None else handle.look()
            if status is not RUNNING:
                return status
            if handle is not None and handle.backend != "polling":
                self._arm(member)
                return RUNNING
            self.rounds.add(member)
        self._tidy(member)
        return RUNNING

    def _tidy(self, member: Member) -> None:
        """Have it leave the tables that it needs no more."""
        self.poller.hot.pop(member, None)
        if member in self.exited:
            self.rounds.members.pop(member, None)
        if member not in self.names:
            self._forget(member)

    def _note(self, member: Member, status: "Outcome", visit: "ref[Any]") -> None:
        """Note that a look has seen the exit, and have the owner reap."""
        if member in self.names and member not in self.exited:  # else its owner does not reap
            owner, outcome = member.owner, status
            if status is not PENDING and type(owner) is not Owner:
                status = self.seen.setdefault(member, status)
            if owner.reaps or (status is not PENDING and type(owner) is not Owner):
                self.rounds.add(member)  # behind all others: its owner may raise each time
                self.poller.hot.pop(member, None)
                outcome = self._reap(member, None if status is PENDING else status, visit)
            if outcome is PENDING:
                # The caller of a set comes again: its owners have time to reap.
                is_patient = owner.reaps and self._is_shared
                call: "Any" = visit()
                member.until = member.until or patience(NEVER if is_patient else call.deadline)
                outcome = self.seen.get(member) if member.until.expired() else RUNNING
            if outcome is RUNNING:  # also of a tree: others run, though the command has exited
                self.rounds.add(member)
            else:
                self.exited.setdefault(member, outcome)  # type: ignore[arg-type]
        self._tidy(member)

    def _reap(self, member: Member, status: "Outcome", visit: "ref[Any]") -> "Outcome":
        """Have the owner reap, in one wait at a time: its code may block, and wait itself."""
        turn = self._reaping.setdefault(member, visit)
        if turn is not visit:
            if turn not in self.visits or turn() is None:  # an exception has interrupted it
                self._reaping.pop(member, None)
            return PENDING
        try:
            return guarded(member.owner.reap, status)
        finally:
            self._reaping.pop(member, None)

    def pending(self) -> "list[Member]":
        """Those that have exited, and whose code or reaping is still to come."""
        return [one for one in self.rounds.members.copy() if one.until is not None]

    def wait(self, visit: Visit) -> None:
        """Take what exits next into the visit; nothing at its deadline, or if the core is empty."""
        me = ref(visit)
        self.visits[me] = None
        while True:
            seconds = visit.deadline.remaining()
            if not self.exited:
                self.sleep(seconds)
                self.collect(me, seconds == 0)
            if self.exited:
                self.take(visit)
            if visit.members or seconds == 0 or not self.names:
                break
        del self.visits[me]
        self.ring()

    def take(self, visit: Visit) -> None:
        """End what has exited: this is the step by which they are reported."""
        visit.codes = self.exited.copy()
        hand_over(visit.members, self.names, self.members, visit.codes)
        for member in visit.codes:
            self._forget(member)

    def put_back(self, visit: Visit) -> None:
        """Have what it took reported again, as an exception keeps its caller from getting it."""
        while visit.members:
            old = visit.members[-1]
            atomically((visit.members.pop,), *self._entering(old, visit.codes[old]))
        self.visits.pop(ref(visit), None)
        self.ring()

    def ring(self) -> None:
        """Wake the threads that sleep, and a program that polls, if there is work for them."""
        others = bool(self.visits) and self._has_visits()
        if not (others or self.fd_is_exported):
            return
        self.poller.flush()
        delay = self.delay()
        if others and (delay is not None or not self.names):
            delay = 0.0
        if delay is not None:
            try:
                if not self.poller.ring(delay):
                    # Without a timer, the program would ask again and again until the code comes.
                    for member in self.pending():
                        member.until = NOW
            except Failed as why:
                self.fall_back_to_polling(why)

    def _has_visits(self) -> bool:
        for visit in list(self.visits):
            if visit() is None:
                self.visits.pop(visit, None)
        return bool(self.visits)

    def fileno(self) -> int:
        fd = self.poller.fileno()
        self.fd_is_exported = True
        self.ring()
        return fd

    def forked(self) -> "Core":
        """What replaces it in a forked child: the parent's threads, epoll, kqueue are not there."""
        self.poller.close()  # first: what the new one opens may get the same numbers
        new = Core(True)
        new.members, new.names = self.members.copy(), self.names.copy()
        new.former = self.former.copy()
        new.seen, new.exited = self.seen.copy(), self.exited.copy()
        new.fd_is_exported = self.fd_is_exported
        for member in new.names.copy():
            new.rounds.add(member)
            new._arm(member)
        return self._heirs.setdefault(new.pid, new)

    def close(self) -> None:
        """Close all handles. What is shared is closed by its last user letting go of it; but PyPy,
        which counts no references, does so at a collection, unless nobody waits."""
        if self._is_shared and (hasattr(sys, "getrefcount") or self._has_visits()):
            return
        for member in list(self.names):
            if member.handle is not None:
                member.handle.close()
        self.poller.close()
