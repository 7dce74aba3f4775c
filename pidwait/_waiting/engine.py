# SPDX-License-Identifier: BSD-3-Clause
"""The engine: targets in, (target, exit code) out.

It starts no thread. Its caller calls sleep() and collect() in turns, and then take(); an event
loop polls fileno(), or asks delay(), and calls collect().

``targets`` are those that have not been reported, ``codes`` what is known of those of them that
have exited. Each step is one operation on a dict, and may be done twice. So several threads may
call sleep() and collect() at once, without a lock; and after an exception, which a signal
handler can raise anywhere, it is enough to look at every target once more.
"""

from _thread import RLock, get_ident
from errno import ENOSYS, ESRCH
from io import UnsupportedOperation
from os import getpid

from .._base.errors import Failed, failed, log
from .._base.handle import PENDING, RUNNING
from .._systems import open_handle, system
from .._systems.sleepers import PollingSleeper, open_sleeper
from .looks import Looks
from .owners import Target, asked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Exits, Handle, Iterable, Outcome, Sleeper


class Engine:
    def __init__(self, shared: bool) -> None:
        """``shared``: whether several threads use it at once."""
        self.pid = getpid()
        # Held for single steps, never while one sleeps, or while an owner's code runs. Reentrant:
        # a signal handler may use the same set.
        self._lock: "Any" = RLock()
        self.targets: "dict[Target, None]" = {}
        self.codes: "dict[Target, int | None]" = {}
        # The targets by their keys and by their pids, oldest first. A pid can stand for several
        # processes, one after the other; a process can be waited for by its Popen and its pid.
        self._index: "dict[object, tuple[Target, ...]]" = {}
        self.looks = Looks(system.clock)
        self.sleeper: "Sleeper" = open_sleeper(shared)
        # The threads that are in sleep(), and those in collect(). One that is in there already
        # when it comes has been interrupted by an exception.
        self.sleeping: "dict[int, None]" = {}
        self._collecting: "dict[int, None]" = {}
        # Those that a thread is adding.
        self._adding: "dict[Target, None]" = {}
        # The thread that looks at a target, and runs its owner's code.
        self._busy: "dict[Target, int]" = {}
        # An exception came through: an exit may have been lost. So all targets are looked at; if
        # exceptions interrupt that again and again, each gets its turn.
        self.is_suspect = False
        self._suspects: "dict[Target, None]" = {}
        self.is_shown = False  # a program has the file descriptor, and may poll it

    def __contains__(self, key: object) -> bool:
        return bool(self.find(key))

    def add(self, target: Target) -> None:
        """Wait for this target, too; ignore one whose key is there already.

        A pid whose process has exited can be added again: it stands for the next process, too.
        """
        for there in self.find(target.key):
            if there not in self.targets:  # an exception has interrupted its end
                self.discard(there)
            elif type(target.key) is not int or not self._is_passed_on(there):
                return
        outcome = asked(target.known)
        self._adding[target] = None
        # A target first, so that no event of its handle comes too early.
        self._enter(target)
        if outcome is RUNNING:
            self._open(target)
            outcome = asked(target.confirm) if target.seen is RUNNING else RUNNING
            if outcome is not RUNNING:
                target.seen = outcome  # the owner reaps later: that may block
                self.looks.add(target)
        else:
            self.codes[target] = outcome  # type: ignore[assignment]
        self._adding.pop(target, None)

    def _enter(self, target: Target) -> None:
        with self._lock:
            self._note(target, (target,))
        self.targets[target] = None

    # What is done with the lock held is one call each time. CPython 3.12 to 3.14 forget a ``with``
    # where a loop in it jumps back from an ``if``: an exception there leaves the lock held.

    def _note(self, target: Target, added: "tuple[Target, ...]") -> None:
        # By the key last: what an exception leaves there is removed when the key is added again.
        for name in dict.fromkeys((target.pid, target.key)):
            there = [one for one in self._index.get(name, ()) if one is not target]
            if there or added:
                self._index[name] = (*there, *added)
            else:
                self._index.pop(name, None)

    def find(self, key: object) -> "list[Target]":
        return [one for one in self._index.get(key, ()) if one.key == key]

    def _is_passed_on(self, target: Target) -> bool:
        """Whether the pid of a target belongs to another process now."""
        if target.pid is None:
            return False
        handle = target.handle
        # Without one its add() has been interrupted: see _look().
        is_running = handle is None or handle.look() is RUNNING
        if is_running and target.seen is RUNNING and target not in self.codes:
            return False
        try:
            handle = open_handle(target.pid)
        except Failed:
            return False
        try:
            return handle.look() is RUNNING
        finally:
            handle.close()

    def _open(self, target: Target) -> None:
        """Open the target's handle by the best means that works."""
        try:
            self.sleeper.open(target)
        except (Failed, UnsupportedOperation) as why:
            target.handle = None
            if target.pid is not None and getattr(why, "errno", None) != ESRCH:
                log("pid %d is polled: %s", target.pid, why)
                target.handle = _polled(target.pid)
        if target.handle is None and target.pid is not None:  # no process has the pid
            target.seen = None
        # If there is no pid, only the object can tell.
        if target.handle is None or target.handle.backend == "polling":
            self.looks.add(target)

    def discard(self, target: Target) -> None:
        """Forget this target, and close its handle."""
        self.targets.pop(target, None)  # first: what is not in there is discarded again
        self.codes.pop(target, None)
        self.looks.entries.pop(target, None)
        self._adding.pop(target, None)
        with self._lock:
            self._note(target, ())
        self._drop(target)

    def _drop(self, target: Target) -> None:
        handle = target.handle  # once: another thread may set it to None
        if handle is not None:
            self.sleeper.discard(handle)
            handle.target = None  # or only a garbage collection would free the two

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is something to collect, for ``seconds`` at most."""
        me = get_ident()
        if me in self.sleeping:  # an exception has interrupted that
            self.is_suspect = True
        self.sleeping[me] = None  # whoever changes something from here on ends the sleep
        delay = self.delay()
        if delay is not None and (seconds is None or delay < seconds):
            seconds = delay
        if self.targets:
            try:
                self.sleeper.sleep(seconds)
            except Failed as why:
                self.give_up(why)
        self.sleeping.pop(me, None)

    def give_up(self, why: Failed) -> None:
        """Go on without the sleeper, as a policy was set after it was made."""
        log("all processes are polled: %s", why)
        try:
            self.sleeper.wake(0)  # other threads go on with the next one
        except Failed as refused:
            log("wake: %s", refused)
        self.sleeper = PollingSleeper()
        for target in list(self.targets):
            self.looks.add(target)

    def collect(self, last: bool = False) -> None:
        """Find out which targets have exited. With ``last`` the time is up: look at all of them
        that no event tells, and do not wait for late codes."""
        me = get_ident()
        if self.is_suspect or me in self._collecting:
            self._suspects.update(self.targets)
            self.is_suspect = False
        self._collecting[me] = None
        for target in list(self._suspects):
            self._suspects.pop(target, None)
            self._look(target, last)
        for handle in self.sleeper.worth_a_look():
            target = handle.target
            self._look(target, last)
            if target in self.looks.entries and target not in self.codes:
                self.looks.add(target)  # the exit may be seen a little after its event
        if self.looks.entries:
            for target in self.looks.due(last):
                self._look(target, last)
        self._collecting.pop(me, None)

    def _look(self, target: Target, last: bool, alone: bool = False) -> None:
        if target not in self.targets:
            self.looks.entries.pop(target, None)
        if target in self.codes or target not in self.targets:
            return
        outcome = target.seen
        if outcome is RUNNING and target.handle is None:
            outcome = asked(target.known)
            # What has no handle is in looks: this one's add() was interrupted.
            if outcome is RUNNING and target not in self.looks.entries:
                self._open(target)
                self._adding.pop(target, None)
                outcome = target.seen
        handle = target.handle
        if outcome is RUNNING and handle is not None:
            outcome = handle.look(False, last)
        if outcome is RUNNING:
            if handle is not None and target not in self.looks.entries:
                try:
                    if handle.backend == "polling":
                        raise failed(ENOSYS)
                    self.sleeper.watch_again(handle)
                except Failed as why:
                    log("pid %s is polled: %s", target.pid, why)
                    self.looks.add(target)
            return
        if target not in self.targets:  # another thread has discarded it: its owner does not reap
            return
        if outcome is not PENDING:
            # What else is waiting for the process sees it before its owner reaps.
            for other in () if alone else self._index.get(target.pid, ()):
                # One that another thread adds just now sees it itself.
                if not (other.reaps or other is target or other in self._adding):
                    self._look(other, last, alone=True)
            if type(target) is not Target:
                outcome = self._settle(target, outcome)
        if outcome is not PENDING:
            self.codes[target] = outcome  # type: ignore[assignment]
        elif target not in self.looks.entries:
            self.looks.add(target)

    def _settle(self, target: Target, code: "Outcome") -> "Outcome":
        """Have the owner reap, in one thread at a time: its code may block."""
        me = get_ident()
        if self._busy.setdefault(target, me) != me:
            self.looks.add(target)  # look again
            return PENDING
        target.seen = code
        try:
            return asked(target.settle, code)
        finally:
            self._busy.pop(target, None)

    def take(self, taken: "Exits") -> None:
        """Append what has exited to the list, and forget it."""
        for target, code in list(self.codes.items()):
            # First into the list: put_back() answers an exception on the way.
            taken.append((target, code))
            if self.targets.pop(target, self) is self:  # another thread reports it
                taken.pop()
            self.discard(target)

    def put_back(self, taken: "Iterable[tuple[Target, int | None]]") -> None:
        """Have these reported again: an exception keeps the caller from getting them."""
        for target, code in taken:
            self._enter(target)
            self.codes[target] = code

    def delay(self) -> "float | None":
        """Seconds until collect() must be called even if there is no event; None: never."""
        if self.codes or self.is_suspect or self._suspects or self.sleeper.events:
            return 0.0
        return self.looks.delay() if self.looks.entries else None

    def rearm(self) -> None:
        """Wake the threads that sleep, and a program that polls the file descriptor, if there is
        work for them."""
        due = self._due()
        while True:
            try:
                self.sleeper.wake(due)
            except Failed as why:
                self.give_up(why)
            before, due = due, self._due()
            # Again, if another thread has changed something, and its wake() came before ours.
            if due is None or before == 0 or (due > 0 and before is not None):
                return

    def _due(self) -> "float | None":
        """Seconds until a thread that sleeps, or a program that polls, has work; None: never."""
        if not (self.sleeping or self.is_shown):
            return None
        return self.delay() if self.targets or not self.sleeping else 0.0

    def after_fork(self) -> None:
        """Let a forked child use its copy: the parent's threads, epoll and kqueue are not there."""
        self.pid = getpid()
        self._lock = RLock()  # threads that only the parent has may hold it
        self.sleeping.clear()
        self._collecting.clear()
        self._adding.clear()
        self._busy.clear()
        old, self.looks = self.looks, Looks(system.clock)
        for target in list(self.targets):
            if target in old.entries:
                self.looks.add(target)
        self.is_suspect = True
        try:
            self.sleeper = self.sleeper.forked()
        except Failed as why:
            self.sleeper = PollingSleeper()  # nothing may wake the parent's
            self.give_up(why)

    def close(self) -> None:
        """Close all handles. What has not been reported is still in ``targets``."""
        for target in list(self.targets):
            self._drop(target)
        self.sleeper.close()


def _polled(pid: int) -> "Handle | None":
    try:
        return system.polled(pid)
    except Failed as why:
        if why.errno != ESRCH:
            raise
        return None
