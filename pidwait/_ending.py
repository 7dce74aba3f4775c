# SPDX-License-Identifier: BSD-3-Clause
"""End processes, each by its handle."""

import os
from contextlib import suppress
from errno import ESRCH
from functools import partial

from ._base.arguments import check_callback, check_grace, check_signal
from ._base.deadline import NOW, Deadline
from ._base.errors import Failed, audit, log, not_by_handler
from ._base.handle import RUNNING, settled
from ._finding import Oneshot, ProcessInfo, add_children
from ._process import KILL, TERMINATE
from ._sets import WaitSet, given_again
from ._waiting.owners import ProcessTarget, TreeOwner, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable, Container, Iterable, Iterator, Outcome, Proc
    from ._waiting.members import Member


def end_procs(
    procs: "Iterable[Proc]",
    grace: float = 5.0,
    sig: int = TERMINATE,
    callback: "Callable[[Any, int | None], object] | None" = None,
    tree: bool = False,
    reap: bool = False,
    limit: "float | None" = None,
) -> "tuple[list[tuple[Any, int | None]], list[Any]]":
    """End these processes, and wait until they have exited; return ``(exited, alive)``.

    Sends ``sig`` (by default SIGTERM) to each, waits up to ``grace`` seconds for all together,
    and sends SIGKILL to the rest. With a grace of 0 it sends SIGKILL at once. On Windows
    SIGTERM ends a process at once, so the grace does nothing. Signals go through handles, as in
    Process.send_signal(): a process that has reused a pid gets none.

    ``procs``, ``callback`` and ``exited`` are as for wait_procs(), and ``reap`` is as for wait().
    ``alive`` lists the processes that we have no permission to signal (another user's), and those
    that still run ``limit`` seconds after SIGKILL: by default the wait for them never ends.

    ``tree`` also ends all descendants that can be found, those whose parents still run, and the
    members of each process group that one of ``procs`` leads. It is meant for processes that
    other code has started. Each process that is found is reported as a ProcessInfo.

    Raises ValueError or TypeError for invalid arguments, and ValueError if the call would end
    its own process. With ``tree``, raises OSError if processes can't be listed.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    >>> exited, alive = end_procs([popen])
    >>> exited == [(popen, popen.returncode)], alive
    (True, [])
    """
    grace = check_grace(grace)
    check_signal(sig)
    if limit is not None:
        check_grace(limit, "limit")
    if callback is not None:
        check_callback(callback)
    given = list(procs)
    again, exited = given_again(given), []
    with WaitSet(given) as left:
        ending = Ending(left, given, grace, sig, tree)
        for proc, exitcode in ending.run(reap, limit):
            for one in again.get(key_of(proc), (proc,)):
                exited.append((one, exitcode))
                if callback is not None:
                    callback(one, exitcode)
        return exited, ending.alive()


class Ending:
    """Ends the members of a set, each by its handle: a signal, and SIGKILL after the grace."""

    _has_listed = False
    # Whether all are stopped before SIGKILL. Then children get it first: the kernel wakes stopped
    # processes of an orphaned group.
    stops = False

    def __init__(
        self, left: "WaitSet[Any]", given: "list[Any]", grace: float, sig: int, tree: bool
    ) -> None:
        """``given``: the list of the members' procs; descendants are appended."""
        self.left, self.given, self.grace, self.sig = left, given, grace, sig
        self._core = left._opened()
        self._refused: "set[object]" = set()  # keys
        self._reapings: "dict[object, Callable[[], Outcome]]" = {}  # looks that reap, by key
        infos = [self._info(member) for member in left._members()] if tree else []
        self.family = [info for info in infos if info is not None]
        self._leaders = self.family[:]  # perhaps

    def alive(self) -> "list[Any]":
        """The processes that we may not signal, and those that SIGKILL has not ended in time."""
        return [proc for proc in self.given if key_of(proc) in self._refused or proc in self.left]

    def _info(self, member: "Member") -> "ProcessInfo | None":
        target = member.target
        if self._is_over(member) or target.pid is None or isinstance(target, TreeOwner):
            return None
        try:
            info = ProcessInfo(target.pid)
        except not_by_handler(ProcessLookupError):
            return None
        # If the handle's process still runs, it has had the pid until now.
        is_running = member.handle is not None and member.handle.look() is RUNNING
        return info if is_running else None

    def _is_over(self, member: "Member") -> bool:
        """Whether it is known to have exited: its handle may be on the next process of its pid."""
        return member in self._core.seen

    def run(self, reap: bool = False, limit: "float | None" = None) -> "Iterator[Any]":
        """Send the signals; yield the exits. ``limit``: how long to wait after SIGKILL."""
        stages = (self.sig, self.grace), (KILL, limit)
        for number, seconds in stages[self.grace == 0 :]:
            self.send(number)
            deadline = Deadline(seconds)
            while self.left:
                exits = self.left.wait(deadline.remaining())
                for proc, code in exits:
                    look = self._reapings.pop(key_of(proc), None) if reap else None
                    found = None if look is None else settled(look, look(), NOW)
                    yield proc, found if isinstance(found, int) else code
                if not exits and deadline.expired():
                    break

    def find(self) -> bool:
        """Add new descendants; return whether there are any."""
        known = len(self.family)
        self.add_family()
        found, self.family[known:] = self.family[known:], []
        for info in found:
            self.left.add(info)
            # Its handle is open now. If the pid was reused before, the new process is not related.
            try:
                with Oneshot(info) as facts:
                    if self.is_related(facts):
                        self.family.append(info)
                        self.given.append(info)
                        continue
            except not_by_handler(OSError) as error:
                log("pid %d: %s", info.pid, error)
            self.left.discard(info)
        return len(self.family) > known

    def add_family(self) -> None:
        try:
            if self.family:
                add_children(self.family, groups=self.groups())
            self._has_listed = True
        except not_by_handler(OSError) as why:  # no file descriptor is left, perhaps
            if not self._has_listed:  # nothing has been signalled yet
                raise
            log("descendants can't be listed any more: %s", why)

    def groups(self) -> "Container[int | None]":
        """The process groups that given processes lead, as long as these have the numbers."""
        found = []
        for info in self._leaders:
            with suppress(ProcessLookupError, PermissionError), Oneshot(info) as facts:
                if hasattr(facts, "group") and facts.group() == info.pid:
                    found.append(info.pid)
        return found

    def is_related(self, facts: "Any") -> bool:
        if facts.ppid() in [one.pid for one in self.family]:
            return True
        groups = self.groups()
        return bool(groups) and facts.group() in groups

    def send(self, sig: int) -> None:
        """Signal all, and their descendants until no new one appears."""
        done: "set[Member]" = set()
        for _ in range(100):  # some never stop starting processes
            self.find()
            new = [one for one in self.left._members() if one not in done]
            if any(one.target.pid == os.getpid() for one in new):
                raise ValueError("procs must not end the calling process")
            for member in reversed(new) if sig == KILL and self.stops else new:
                if not self._takes(member, sig):
                    self._refused.add(member.target.key)
                    self.left.discard(member.target.proc)
            done.update(new)
            if not new:
                return

    def _takes(self, member: "Member", sig: int) -> bool:
        """Signal a member that runs; return False if we may not. A tree is ended by its Popen."""
        handle, target = member.handle, member.target
        if self._is_over(member):
            if isinstance(target, ProcessTarget) and not getattr(target.proc, "_is_closed", True):
                self._reapings[target.key] = partial(target.proc.wait, 0, True)
            return True
        if handle is None:  # no descriptor is left for a received pidfd
            return False
        if not target.reaps:
            self._reapings[target.key] = partial(handle.look, True)
        if isinstance(target, TreeOwner):
            # Once: it sends SIGKILL itself after the grace. A second end would stop processes that
            # the SIGCONT of the first wakes.
            if target.proc.poll() is None and (sig == self.sig or self.grace == 0):
                target.proc._tree.end(int(sig), 0.0 if sig == KILL else self.grace)
            return True
        try:
            audit("os.kill", handle.pid, sig)
            if handle.look() is RUNNING:
                handle.send_signal(sig)
        except Failed as why:
            log("kill, pid %s: %s", handle.pid, why)
            return why.errno == ESRCH
        return True
