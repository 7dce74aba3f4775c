# SPDX-License-Identifier: BSD-3-Clause
"""Best effort: a process group, and the descendants that can be found, each by its handle.

There is nobody between the caller and the command: threads of this process do the work. Whoever
has left the group, and whose parent has exited, escapes.
"""

import _signal  # type: ignore[import-not-found]
import os
from _thread import allocate_lock, start_new_thread
from time import sleep

from .._base import at_once, run_through, step
from .._base.deadline import Deadline
from .._base.errors import log, raise_of_handler
from .._ending import Ending
from .._finding import Oneshot, ProcessInfo, add_children
from .._process import Process, has_exited
from .._sets import WaitSet
from .._systems.posix import is_our_child
from .._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable


class GroupTree:
    mechanism = "group"

    def __init__(self, rest: str, grace: float) -> None:
        self._rest, self._grace = rest, grace
        self.left: "list[int] | None" = []
        self._ends: "list[Any]" = []  # for each end() a lock, which is free when it is done
        self._is_over = False

    def start(self, plan: "dict[str, Any]", start_alone: "Callable[[Any], Any]") -> None:
        if plan.get("process_group", -1) < 0 and not plan["start_new_session"]:
            plan = dict(plan, process_group=0)
        self._leads = plan["start_new_session"] or plan["process_group"] == 0
        self._command = start_alone(plan)
        self.pid = self._command.pid
        try:
            watch(self.pid, self._begin_to_finish)
        except BaseException:  # no thread can be started
            self._end(_signal.SIGKILL, 0.0)
            self._command.wait()
            raise

    def poll(self) -> "int | None":
        return self._command.poll() if self._is_over else None  # the command is reaped last

    def sleep(self, timeout: "float | None") -> None:
        if has_exited(self.pid, timeout) and not self._is_over:
            sleep(Deadline(timeout).at_most(0.01))

    def has_exited(self) -> bool:
        return self._is_over or has_exited(self.pid)

    def send(self, number: int, everybody: bool) -> None:
        if everybody and number == _signal.SIGKILL:
            self.end(number, 0.0)
        elif everybody:
            with WaitSet() as left:
                _GroupEnding(self, left, 0.0, number).send(number)
        else:
            try:
                with Process(self.pid) as process:
                    if self.is_ours():  # the handle is open: it is the command's
                        process.send_signal(number)
            except ProcessLookupError as why:
                raise_of_handler(why)
                log("pid %d: %s", self.pid, why)

    def end(self, number: int, grace: float) -> None:
        done = allocate_lock()
        done.acquire()
        thread = step(start_new_thread, self._end, (number, grace, done.release))
        try:
            at_once(step(self._ends.append, done), thread)
        except RuntimeError as why:
            raise_of_handler(why)
            log("pid %d is ended without a thread: %s", self.pid, why)
            self._end(number, grace, done.release)

    def _end(self, number: int, grace: float, tell: "Callable[[], object]" = int) -> None:
        try:
            with WaitSet() as left:
                ending = _GroupEnding(self, left, grace, number)
                run_through(ending.run())
                ending.grace = 0.0
                while ending.find():  # a listing takes a while: this is for whom it has missed
                    run_through(ending.run())
                self.left = sorted(info.pid for info in ending.alive())
        finally:
            tell()

    def _begin_to_finish(self, *exit: object) -> None:
        try:
            start_new_thread(self._finish, ())
        except RuntimeError as why:
            log("the thread of watch() is held up: %s", why)
            self._finish()

    def _finish(self) -> None:
        """The command has exited. It is reaped last: its number stays that of its group."""
        if self._rest == "kill" and not self._ends:
            self.end(_signal.SIGTERM, self._grace)
        elif self._rest == "wait":
            with WaitSet() as left:
                ending = _GroupEnding(self, left, 0.0, 0)
                while ending.find():
                    while left:
                        left.wait()
        for done in self._ends:
            done.acquire()
        self._is_over = True

    def is_ours(self) -> bool:
        """Whether the command keeps its number: with SIGCHLD ignored, for example, it does not."""
        return is_our_child(self.pid) is not False

    def group(self) -> "int | None":
        return self.pid if self._leads and self.is_ours() else None


class _GroupEnding(Ending):
    def __init__(self, tree: GroupTree, left: "Any", grace: float, sig: int) -> None:
        super().__init__(left, [], grace, sig, False)
        self._tree, self._sees = tree, True  # whether processes can be listed

    def add_family(self) -> None:
        try:
            if not self.family and self._tree.is_ours():
                self.family.append(ProcessInfo(self._tree.pid))
            add_children(self.family, True, self._tree.group())
        except OSError as why:
            raise_of_handler(why)
            log("the group alone is ended: %s", why)
            self._sees = False
            if self._tree.is_ours():
                self.left.add(self._tree.pid)

    def is_related(self, info: ProcessInfo) -> bool:
        try:
            with Oneshot(info) as facts:
                if facts.group() == self._tree.group():
                    return True
        except OSError as why:
            raise_of_handler(why)
            log("pid %d: %s", info.pid, why)
            return False
        is_command = info.pid == self._tree.pid and self._tree.is_ours()
        return is_command or super().is_related(info)

    def send(self, sig: int) -> None:
        kills = sig == _signal.SIGKILL
        # Stop all processes before SIGKILL, so that none of them starts another one. Not before
        # SIGTERM: the kernel sends SIGHUP to stopped processes when their group is orphaned.
        for number in (_signal.SIGSTOP, sig) if kills else (sig, _signal.SIGCONT):
            self.find()  # before a parent exits
            group = self._tree.group()
            if group and (kills or not self._sees):
                try:
                    os.killpg(group, number)  # also to a process that is being forked
                except OSError as why:  # on macOS a group of zombies refuses each signal
                    raise_of_handler(why)
                    log("killpg %d: %s", group, why)
            super().send(number)
