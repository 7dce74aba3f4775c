# SPDX-License-Identifier: BSD-3-Clause
"""WaitSet: many processes, and waiting for whichever exits next."""

import os
from _thread import RLock
from collections import deque
from io import UnsupportedOperation
from itertools import islice
from time import monotonic

from . import _backends, _owners, _polling
from ._backends import polling
from ._deadline import NOW, Deadline
from ._errors import log
from ._exitcodes import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Iterable, Iterator

    from ._owners import Owner, Proc

    Exits = list[tuple[Proc, int | None]]  # novm

# How many are registered at a time, with the limit of file descriptors raised.
_CHUNK = 64
_SHARE = 30  # looking takes one part of so many of the time: less than 5 %
_FOREVER = Deadline(None)


def key_of(proc: "Any") -> object:
    """What a process is found by: its number, or the object itself, hashable or not."""
    if type(proc) is int:
        return proc
    return proc.__index__() if hasattr(proc, "__index__") else ("id", id(proc))


class WaitSet:
    """Processes of which each is reported once, when it has exited.

    What wait() takes can be in it: numbers, Popens, our own Processes, in any mixture,
    up to tens of thousands. Each object is in it once. They are waited for by one
    epoll(7), from Linux 5.3 on, or one kqueue(2), and the cost of an exit does not grow
    with their number. Pidfds are above the soft RLIMIT_NOFILE, if the hard one lets them
    be. On Windows each 63 after the first 61 have a thread. What can't be waited for is
    looked at again and again, which takes 5 % of a core at most.

    It may be used from several threads, and changed while another one waits. close()
    gives the system's resources back; a ``with`` block does it at its end.
    """

    _closed = True

    def __init__(self, procs: "Iterable[Proc]" = ()) -> None:
        self._start(True, procs)

    @classmethod
    def _private(cls, procs: "Iterable[Proc]") -> "WaitSet":
        """For one thread, which always closes it, or leaves that to the collector."""
        waiting = cls.__new__(cls)
        waiting._start(False, procs)
        return waiting

    def _start(self, shared: bool, procs: "Iterable[Proc]") -> None:
        self._shared = shared
        self._members: "dict[object, Owner]" = {}
        # Those that have to be looked at: by a handle that is polled, or what settles.
        self._slow: "dict[Owner, Any]" = {}
        # Those that have exited, and their owners have still to settle it.
        self._due: "deque[tuple[Owner, int | None]]" = deque()
        self._lost = self._shown = False
        self._delay = 0.0
        self._next_look = 0.0
        self._forget_threads()
        self._many = _backends.open_many(shared)
        self._closed = False
        try:
            self._add(procs)
        except BaseException:
            self.close()
            raise

    def _forget_threads(self) -> None:
        self._pid = os.getpid()
        # Reentrant, for signal handlers; what it covers can be interrupted anywhere.
        self._lock = RLock()
        self._waiting: "set[object]" = set()
        # Which of them looks at the slow ones.
        self._looker: "object | None" = None
        self._ringing = False

    def _locked(self) -> "Any":
        if self._pid != os.getpid():
            self._take_over_from_parent()
        if self._closed:
            raise ValueError("the set is closed")
        return self._lock

    def _take_over_from_parent(self) -> None:
        # In a forked child: the lock may be held by a thread that is only in the
        # parent, and so is who looks at the slow ones.
        self._forget_threads()
        if self._closed:
            return
        self._many = _backends.forked_many(self._many)
        if isinstance(self._many, polling.Many):
            for owner in list(self._members.values()):
                if owner not in self._slow:
                    self._look_at(owner)

    def add(self, proc: "Proc") -> None:
        """Wait for this process, too; nothing changes if it is there already.

        One that has exited, or is not there, is reported by the next wait().
        """
        self._add((proc,))

    def discard(self, proc: "Proc") -> None:
        """Do not wait for this one any more, if it is there."""
        with self._locked():
            owner = self._members.pop(key_of(proc), None)
            if owner is not None:
                self._many.discard(owner)
                self._slow.pop(owner, None)
            self._ring()

    def __len__(self) -> int:
        """How many have not been reported yet."""
        return len(self._members)

    def __contains__(self, proc: object) -> bool:
        return key_of(proc) in self._members

    def __iter__(self) -> "Iterator[Proc]":
        """Those that have not been reported yet, as they are now."""
        return iter([owner.proc for owner in list(self._members.values())])

    def _add(self, procs: "Iterable[Proc]") -> None:
        found = map(_owners.find, procs)
        owners = [owner for owner in found if key_of(owner.proc) not in self._members]
        for start in range(0, len(owners), _CHUNK):
            self._register(owners[start : start + _CHUNK])
        with self._locked():
            self._ring()

    def _register(self, owners: "list[Owner]") -> None:
        known = [owner.known() for owner in owners]
        with self._locked():
            unknown = []
            for owner, code in zip(owners, known):
                if self._members.setdefault(key_of(owner.proc), owner) is not owner:
                    continue  # given twice
                if code is None:
                    unknown.append(owner)
                else:
                    self._due.append((owner, code))
            for owner, error in self._many.add(unknown):
                if isinstance(error, ProcessLookupError):
                    self._due.append((owner, None))
                else:
                    log("pid %s is polled: %s", owner.pid, error)
                    self._look_at(owner)
        for owner in unknown:
            # Who has the number now need not be who is meant: that one may have
            # been reaped before its number was looked up.
            if type(owner) is _owners.Owner:
                continue
            code = owner.known()
            if code is not None or owner.is_gone():
                with self._locked():
                    self._many.discard(owner)
                    self._slow.pop(owner, None)
                    self._due.append((owner, code))

    def _look_at(self, owner: "Owner") -> None:
        self._delay = self._next_look = 0.0
        if owner.pid is None:
            self._slow[owner] = _owners.Unsettled(owner, RUNNING)
            return
        try:
            self._slow[owner] = polling.Handle(owner.pid)
        except ProcessLookupError:
            self._due.append((owner, None))

    def wait(self, timeout: "float | None" = None) -> "Exits":
        """Wait until at least one has exited; return a list of ``(proc, exitcode)``.

        They are not in the set any more. The list is empty if none has exited after
        ``timeout`` seconds, or there is none left to wait for. Of several threads
        that wait, each exit goes to one.
        """
        return self._wait(_FOREVER if timeout is None else Deadline(timeout))

    def _wait(self, deadline: Deadline) -> "Exits":
        # Written to do little between the kernel's waking us and the return: see
        # pidfd.Handle.wait().
        me = object()
        exits: "list[tuple[Owner, int | None]]" = []
        try:
            while True:
                if self._pid != os.getpid():
                    self._take_over_from_parent()
                with self._lock:
                    if self._closed and me not in self._waiting:
                        raise ValueError("the set is closed")
                    if self._lost:
                        self._many.recover()
                        self._lost = False
                    self._waiting.add(me)
                    milliseconds: "float | None" = None
                    if deadline is not _FOREVER:
                        milliseconds = deadline.milliseconds()
                    expired = milliseconds == 0
                    if self._slow or self._due or not self._members:
                        milliseconds = self._sleep_less(me, milliseconds)
                    if self._ringing:
                        self._ring()
                many = self._many
                events = many.poll(milliseconds)
                if self._slow:
                    self._look(me, expired)
                with self._lock:
                    many.take(events, self._due.append)
                    if self._due:
                        self._settle(exits)
                    if exits or expired or not self._members:
                        if self._slow:
                            self._speed_up(len(exits))
                        self._waiting.discard(me)
                        if self._waiting or self._looker or self._ringing or self._shown:
                            self._leave(me)
                        elif self._closed:
                            many.close()
                        return [(owner.proc, code) for owner, code in exits]
        except BaseException:  # a signal handler's must not lose any
            self._lost = True
            with self._lock:
                self._due.extendleft(exits)
                for owner, _ in exits:
                    self._members[key_of(owner.proc)] = owner
                self._leave(me)
            raise

    def _leave(self, me: object) -> None:
        self._waiting.discard(me)
        if self._looker is me:
            self._looker = None
        if self._waiting or self._ringing or self._shown:
            self._ring()
        if self._closed and not self._waiting:
            self._many.close()

    def _completions(self, deadline: Deadline) -> "Iterator[tuple[Any, int | None]]":
        """All exits until the deadline, of a private set: one thread needs no lock."""
        exits: "list[tuple[Owner, int | None]]" = []
        while self._members:
            if self._due or self._slow or self._pid != os.getpid():
                batch = self._wait(deadline)
                if not batch:
                    return
                yield from batch
                continue
            milliseconds = deadline.milliseconds()
            self._many.take(self._many.poll(milliseconds), self._due.append)
            self._settle(exits)
            for owner, code in exits:
                yield owner.proc, code
            if not exits and milliseconds == 0 and not self._due and not self._slow:
                return
            exits.clear()

    def _sleep_less(self, me: object, milliseconds: "float | None") -> "float | None":
        if self._due or not self._members:
            return 0
        if self._looker not in (None, me):
            return milliseconds
        self._looker = me
        due = max(0.0, self._next_look - monotonic()) * 1000
        return due if milliseconds is None else min(due, milliseconds)

    def _look(self, me: object, expired: bool) -> None:
        if not expired and (self._looker is not me or monotonic() < self._next_look):
            return
        clock = polling.Handle.clock
        began = clock()
        for owner, handle in list(self._slow.items()):
            code = handle.wait(NOW, False)
            if code is not RUNNING:
                with self._lock:
                    if owner in self._slow:
                        self._due.append((owner, code))
                        del self._slow[owner]
        # Not by the wall clock: a look can stand still for seconds where other threads
        # have the interpreter, or the machine is stopped, and the next would be minutes away.
        cost = clock() - began
        self._delay = min(max(self._delay * 2, _polling.SHORTEST), _polling.LONGEST)
        self._next_look = monotonic() + max(self._delay, cost * (_SHARE - 1))

    def _settle(self, exits: "list[tuple[Owner, int | None]]") -> None:
        """Have their owners reap those that have exited, and report them."""
        due, members = self._due, self._members
        while due:
            owner, code = one = due[0]
            if type(owner) is not _owners.Owner:
                unsettled = _owners.Unsettled(owner, code)
                code = unsettled.wait(NOW, False)
                if code is RUNNING:
                    # Not yet: inside of a tracer, or of a wait in another thread.
                    self._slow[owner] = unsettled
                    self._delay = self._next_look = 0.0
                    due.popleft()
                    continue
                one = owner, code
            # Each once, and none that has been discarded meanwhile.
            proc = owner.proc
            key = proc if type(proc) is int else key_of(proc)
            if members.get(key) is owner:
                exits.append(one)
                del members[key]
            if self._slow:
                self._slow.pop(owner, None)
            due.popleft()

    def _speed_up(self, count: int) -> None:
        """Give the file descriptors that have become free to those that are polled."""
        for owner, handle in list(islice(self._slow.items(), count)):
            if not isinstance(handle, _owners.Unsettled):
                if self._many.add([owner]):
                    return
                # The number was its own if it has not exited since.
                if handle.wait(NOW, False) is RUNNING:
                    del self._slow[owner]
                else:
                    self._many.discard(owner)

    def _ring(self) -> None:
        """Wake those who would sleep though there is something to do for them."""
        if self._waiting:
            on = not self._members or (self._slow and self._looker is None)
        else:
            on = self._slow and self._shown
        self._ringing = bool(on or self._due)
        self._many.ring(self._ringing)

    def fileno(self) -> int:
        """A file descriptor that is readable when wait() has something to report.

        It is the same for the life of the set. io.UnsupportedOperation (an OSError)
        where a member has to be polled, and on Windows.
        """
        with self._locked():
            if any(not isinstance(handle, _owners.Unsettled) for handle in self._slow.values()):
                raise UnsupportedOperation("a set with a process that is polled has no fileno")
            fd: int = self._many.fileno()
            self._shown = True
            self._ring()
            return fd

    def close(self) -> None:
        """Give the system's resources back, once the waits that are under way have ended.

        All but the waits is a ValueError from then on.
        """
        if self._pid != os.getpid():
            self._forget_threads()
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._lost:
                    self._many.recover()
                if not self._waiting:
                    self._many.close()

    def __enter__(self) -> "WaitSet":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._closed:
            return
        try:
            if self._shared and self._pid == os.getpid():
                import warnings

                warnings.warn("unclosed %r" % self, ResourceWarning, stacklevel=2, source=self)
        finally:
            self.close()

    def __reduce__(self) -> "Any":
        raise TypeError("a set of handles on processes can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return "<%s of %d processes, %s>" % (type(self).__name__, len(self), state)
