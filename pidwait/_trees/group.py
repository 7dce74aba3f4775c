# SPDX-License-Identifier: BSD-3-Clause
"""Best effort: a process group, and the descendants that can be found, each by its handle.

No process stands between the caller and the command: threads of this process do the work. A process
that has left the group, and whose parent has exited, escapes.
"""

import _signal  # type: ignore[import-not-found]
import os
from _thread import allocate_lock, start_new_thread
from contextlib import suppress
from math import inf
from time import sleep

from .._base.deadline import Deadline
from .._base.errors import Failed, TimeoutExpired, log, not_by_handler
from .._base.handle import RUNNING
from .._base.steps import atomically
from .._ending import Ending
from .._finding import ProcessInfo
from .._process import has_exited, wait
from .._sets import WaitSet
from .._systems import open_handle
from .._systems.posix import is_our_child
from .._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Container, Usage


class GroupTree:
    mechanism = "group"

    def __init__(self, rest: str, grace: float) -> None:
        self._rest, self._grace = rest, grace
        self.left: "list[int] | None" = []
        self._ends: "list[Any]" = []  # for each end() a lock, which is held until it is done
        self._caller = os.getpid()
        self._seen: "int | None" = None  # the command's exit code, as watch() has seen it
        self._has_exited = False  # the command has; and the end() of the rest, if any, is in _ends

    def start(self, plan: "dict[str, Any]", start_alone: "Callable[[Any], Any]") -> None:
        if plan.get("process_group", -1) < 0 and not plan["start_new_session"]:
            plan = dict(plan, process_group=0)
        self._leads = plan["start_new_session"] or plan["process_group"] == 0
        # Before the command: perhaps there can be no thread.
        keeps_thread = watch(os.getpid(), lambda pid, code: None)
        try:
            self._command = start_alone(plan)
            self.pid = self._command.pid
            try:
                watch(self.pid, self._end_rest)
            except BaseException:
                self._end(_signal.SIGKILL, 0.0)
                self._command.wait()
                raise
        finally:
            keeps_thread.cancel()

    @property
    def usage(self) -> "Usage | None":
        return self._command.usage  # type: ignore[no-any-return]

    def poll(self) -> "int | None":
        if self._caller != os.getpid():  # a forked child lacks the threads
            try:
                return wait(self._command, 0) or 0
            except not_by_handler(TimeoutExpired):
                return None
        if not self._has_exited or any(done.locked() for done in self._ends):
            return None
        # The command is reaped last, so that its number stays the group's.
        code = self._command.poll()
        return self._seen or code if code == 0 else code  # 0: perhaps somebody else has reaped it

    def sleep(self, timeout: "float | None") -> None:
        if has_exited(self.pid, timeout):
            sleep(Deadline(timeout).at_most(0.01))

    def has_exited(self) -> bool:
        return self._has_exited or has_exited(self.pid)

    def send(self, number: int, everybody: bool) -> None:
        with WaitSet() as left:
            if everybody:
                _GroupEnding(self, left, 0.0, number).send(number)
                return
            left.add(self.pid)
            if self.is_ours():  # the handle is open: it is the command's
                Ending(left, [], 0.0, number, False).send(number)

    def end(self, number: int, grace: float) -> None:
        done = allocate_lock()
        done.acquire()
        arguments = number, grace, done.release
        try:
            atomically((self._ends.append, done), (start_new_thread, self._end, arguments))
        except not_by_handler(RuntimeError) as why:
            log("pid %d is ended without a thread: %s", self.pid, why)
            self._end(number, grace, done.release)

    def _end(self, number: int, grace: float, tell: "Callable[[], object]" = int) -> None:
        try:
            with WaitSet() as left:
                ending = _GroupEnding(self, left, grace, number)
                list(ending.run())
                ending.grace = 0.0 if number else inf
                while ending.find():  # processes that were missed while the listing went on
                    list(ending.run())
                self.left = sorted(info.pid for info in ending.alive())
        finally:
            tell()

    def _end_rest(self, pid: int, code: "int | None") -> None:
        """The command has exited."""
        self._seen = code
        if self._rest == "kill" and not self._ends:
            self.end(_signal.SIGTERM, self._grace)
        elif self._rest == "wait":
            self.end(0, inf)
        self._has_exited = True

    def is_ours(self) -> bool:
        """Whether the command's pid can't be reused: with SIGCHLD ignored, for example, it can."""
        return is_our_child(self.pid) is not False

    def group(self) -> "int | None":
        return self.pid if self._leads and self.is_ours() else None


class _GroupEnding(Ending):
    """Ends all processes of a tree; with 0 as the signal, it waits for them."""

    stops = True

    def __init__(self, tree: GroupTree, left: "Any", grace: float, sig: int) -> None:
        super().__init__(left, [], grace, sig, False)
        self._tree = tree

    def add_family(self) -> None:
        try:
            if not self.family and self._tree.is_ours():
                self.family.append(ProcessInfo(self._tree.pid))
            super().add_family()
        except not_by_handler(OSError) as why:
            log("the group alone is ended: %s", why)
            if self._tree.is_ours():
                self.left.add(self._tree.pid)

    def groups(self) -> "Container[int | None]":
        group = self._tree.group()
        return () if group is None else (group,)

    def is_related(self, facts: "Any") -> bool:
        is_command = facts.pid == self._tree.pid and self._tree.is_ours()
        return is_command or super().is_related(facts)

    def send(self, sig: int) -> None:
        if not self.sig:
            self.find()
            return
        if sig == _signal.SIGKILL:
            # Stop all processes before SIGKILL, so that none of them starts another one. Not before
            # SIGTERM: the kernel sends SIGHUP to stopped processes when their group is orphaned.
            self._send_to_group(_signal.SIGSTOP)  # also to a process that is being forked
            self._stop_children()
            super().send(_signal.SIGSTOP)
            super().send(sig)
            self._send_to_group(sig)
            return
        for number in sig, _signal.SIGCONT:
            super().send(number)
            if not self._has_listed:
                self._send_to_group(number)

    def _stop_children(self) -> None:
        """Stop descendants one by one as they are found, where Linux lists children.

        A fork bomb leaves this program little CPU time; each process that is stopped leaves more.
        """
        family = [open_handle(self._tree.pid)] if self._tree.is_ours() else []
        for parent in family:  # it grows
            try:
                children = []
                for pid in _children_of(parent.pid):
                    with suppress(Failed):  # it has just exited
                        children.append(open_handle(pid))
                # A handle is a child's if its parent still lists the pid, and still runs after it.
                there = _children_of(parent.pid) if children else ()
                is_sure = parent.look() is RUNNING
                found = [one for one in children if is_sure and one.pid in there]
                family += found
                for one in found:
                    one.send_signal(_signal.SIGSTOP)
            except not_by_handler(Failed, OSError) as why:
                log("pid %s, its children: %s", parent.pid, why)
        for one in family:
            one.close()

    def _send_to_group(self, number: int) -> None:
        group = self._tree.group()
        try:
            if group:
                os.killpg(group, number)
        except not_by_handler(OSError) as why:  # on macOS a group of zombies refuses each signal
            log("killpg %d: %s", group, why)


def _children_of(pid: "int | None") -> "list[int]":
    found: "list[int]" = []
    for task in os.listdir("/proc/%s/task" % pid):
        with open("/proc/%s/task/%s/children" % (pid, task)) as file:
            found += map(int, file.read().split())
    return found
