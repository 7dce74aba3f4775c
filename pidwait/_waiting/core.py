# SPDX-License-Identifier: BSD-3-Clause
"""The core: what is waited for in, (owner, exit code) out.

It starts no thread. Its caller calls sleep() and collect() in turns, and then take() or end(); an
event loop polls fileno(), or asks delay(), and calls collect(). members.py explains its tables.
"""

import sys
from errno import ESRCH
from io import UnsupportedOperation
from itertools import chain, count, product, repeat, starmap
from os import getpid
from time import sleep
from weakref import ref

from .._base import at_once, run_through, step
from .._base.deadline import SHORTEST, Deadline, patience
from .._base.errors import Failed, log
from .._base.handle import PENDING, RUNNING
from .._systems import open_handle, system
from .._systems.pollers import PollingPoller, open_poller
from .members import Member, Rounds, Visit
from .owners import Owner, ProcessOwner, guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Collection, Iterable, Iterator, Outcome, Poller


class Core:
    def __init__(self, shared: bool, deadline: "Deadline | None" = None) -> None:
        """``shared``: whether several threads use it at once. ``deadline``: of its only call."""
        self.pid = getpid()
        self.deadline = deadline or Deadline(None)
        self._is_shared = shared
        self.members: "dict[object, Member]" = {}
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
        there = self.members.get(key)
        found = [] if there is None else [there]
        if self.former:
            found += [one for one in list(self.former) if one.owner.key == key and one.live]
        return found

    def add(self, owner: Owner) -> "Member | None":
        """Wait for this one, too; return None if its key is there already.

        A pid whose process has exited can be added again: it stands for the next process, too.
        """
        for one in self.find(owner.key):
            if type(owner.key) is not int or not self._is_passed_on(one):
                return None
            steps = self._entering(one, self.exited.get(one, self.seen.get(one, RUNNING)))
            self.end(one, *steps)
        member = Member(owner, owner.key)
        status, when = self._open(member), Rounds.NEW
        if status is not RUNNING:
            self.seen[member] = status
        elif member.handle is not None and member.handle.backend == "polling":
            when = Deadline.now(), SHORTEST
        for turn in count():
            # With it goes attention: whatever comes next, somebody looks at it.
            there: "Any" = at_once(
                step(self.members.setdefault, owner.key, member),
                step(self.rounds.members.setdefault, member, when),
            )[0]
            if there is member:
                self._arm(member)
                self.rounds.at = 0.0
                return member  # type: ignore[no-any-return]
            if there.live:
                self._forget([member])
                return None
            sleep(0)  # its end is under way in another thread; on PyPy, it may be interrupted
            if turn > 99 and self.members.get(owner.key) is there:
                self.members.pop(owner.key, None)
        return None

    def _is_passed_on(self, member: Member) -> bool:
        """Whether the pid of a member belongs to another process now."""
        pid, handle = member.owner.pid, member.handle
        if pid is None or (handle is not None and handle.look() is RUNNING):
            return False
        try:
            return open_handle(pid).look() is RUNNING
        except Failed:
            return False

    def _entering(self, old: Member, code: "Outcome") -> "list[Iterator[Any]]":
        """What puts a new member in an old one's place, under a name of its own."""
        new = Member(old.owner, object(), old.handle)
        steps = [
            step(self.members.__setitem__, new.live[0], new),
            step(self.former.__setitem__, new, None),
            step(self.rounds.members.__setitem__, new, Rounds.NEW),
            step(self.exited.__setitem__, new, code),
        ]
        return steps[: 3 if code is RUNNING else 4]

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
            self.poller.arm(member, step(self.rounds.members.pop, member, None))
        except Failed as why:
            log("pid %s is polled: %s", member.owner.pid, why)
            self.rounds.add(member)
            self.poller.hot.pop(member, None)
        if not member.live:  # it has ended meanwhile, in another thread
            self._forget([member])

    def discard(self, key: object) -> None:
        for member in self.find(key):
            self.end(member)

    def end(self, member: Member, *steps: "Iterable[object]") -> bool:
        """End it, and go through ``steps`` with it; return False if it has ended already."""
        try:
            names = map(list.pop, (member.live,))
            self._forget([member], map(self.members.pop, names, repeat(None)), *steps)
        except IndexError:
            return False
        return True

    def _forget(self, members: "Collection[Member]", *steps: "Iterable[object]") -> None:
        """Have them leave all tables but ``members``; ``steps`` come first."""
        rounds, hot = self.rounds.members, self.poller.hot
        tables = self.former, self.seen, self.exited, rounds, hot
        rest: "Any" = starmap(dict.pop, product(tables, members, (None,)))
        run_through(chain(*steps, rest, *map(self.poller.steps_to_drop, members)))

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is something to collect, for ``seconds`` at most."""
        delay = self.delay() if self.members else 0.0
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
        for member in list(self.members.values()):
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
        """Look at one once; if it has exited, have its owner reap."""
        owner, handle = member.owner, member.handle
        if member.live and member not in self.exited:
            status: "Outcome" = self.seen.get(member, RUNNING)
            if status is RUNNING:
                status = guarded(owner.returncode) if handle is None else handle.look()
            if status is RUNNING:
                if handle is not None and handle.backend != "polling":
                    self._arm(member)
                    return
                self.rounds.add(member)
            elif member.live:  # else its owner does not reap
                self._note(member, status, visit)
        self.poller.hot.pop(member, None)
        if member in self.exited:
            self.rounds.members.pop(member, None)
        if not member.live:
            self._forget([member])

    def _note(self, member: Member, status: "Outcome", visit: "ref[Any]") -> None:
        owner, outcome = member.owner, status
        if status is not PENDING and type(owner) is not Owner:
            status = self.seen.setdefault(member, status)
        if owner.reaps or (status is not PENDING and type(owner) is not Owner):
            self.rounds.add(member)  # behind all others: its owner may raise SystemExit each time
            self.poller.hot.pop(member, None)
            self._look_at_others(member, visit)  # before its owner reaps
            outcome = self._reap(member, None if status is PENDING else status, visit)
        if outcome is RUNNING:  # a tree: the command has exited, but other processes run
            self.rounds.add(member)
            return
        if outcome is PENDING:
            member.until = member.until or patience(self.deadline)
            if not member.until.expired():
                self.rounds.add(member)
                return
            outcome = self.seen.get(member)
        self.exited.setdefault(member, outcome)  # type: ignore[arg-type]
        if member.handle is not None and member.handle.backend == "polling":
            self._look_at_others(member, visit)  # as exits keep their order

    def _look_at_others(self, member: Member, visit: "ref[Any]") -> None:
        """Look at what is for the same process, and no event may tell; not at owners."""
        pid, pending = member.owner.pid, list(self.rounds.members)
        for other in filter(None, [self.members.get(pid), *pending] if pid is not None else ()):
            if other is not member and other.owner.pid == pid and not other.owner.reaps:
                self.look(other, visit)

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

    def is_pending(self) -> bool:
        """Whether one has exited whose code or reaping is still to come."""
        return bool([one for one in list(self.rounds.members) if one.until is not None])

    def wait(self, deadline: Deadline, visit: Visit) -> None:
        """Take what exits next into the visit; nothing at the deadline, or if the core is empty."""
        me = ref(visit)
        self.visits[me] = None
        while True:
            seconds = deadline.remaining()
            if not self.exited:
                self.sleep(seconds)
                self.collect(me, seconds == 0)
            if self.exited:
                self.take(visit)
            if visit.members or seconds == 0 or not self.members:
                break
        del self.visits[me]
        self.ring()

    def take(self, visit: Visit) -> None:
        """End what has exited: this is the step by which they are reported."""
        visit.codes = dict(self.exited)
        left = iter(visit.codes)
        while True:
            try:
                names = map(list.pop, map(getattr, left, repeat("live")))
                visit.members.extend(filter(None, map(self.members.pop, names, repeat(None))))
                break
            except IndexError:  # another thread was quicker with this one; go on behind it
                continue
        self._forget(visit.codes)

    def put_back(self, visit: Visit) -> None:
        """Have what it took reported again, as an exception keeps its caller from getting it."""
        while visit.members:
            old = visit.members[-1]
            at_once(step(visit.members.pop), *self._entering(old, visit.codes[old]))
        self.visits.pop(ref(visit), None)
        self.ring()

    def ring(self) -> None:
        """Wake the threads that sleep, and a program that polls, if there is work for them."""
        others = bool(self.visits) and self._has_visits()
        if not (others or self.fd_is_exported):
            return
        delay = self.delay()
        if others and (delay is not None or not self.members):
            delay = 0.0
        if delay is not None:
            try:
                self.poller.ring(delay)
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
        new = Core(True, self.deadline)
        new.members, new.former = self.members.copy(), self.former.copy()
        new.seen, new.exited = self.seen.copy(), self.exited.copy()
        new.fd_is_exported = self.fd_is_exported
        for member in new.members.values():
            new.rounds.add(member)
            new._arm(member)
        return self._heirs.setdefault(new.pid, new)

    def close(self) -> None:
        """Close all handles. What is shared is closed by its last user letting go of it; but PyPy,
        which counts no references, does so at a collection, unless nobody waits."""
        if self._is_shared and (hasattr(sys, "getrefcount") or self._has_visits()):
            return
        for member in list(self.members.values()):
            if member.handle is not None:
                member.handle.close()
        self.poller.close()
