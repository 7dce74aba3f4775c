# SPDX-License-Identifier: BSD-3-Clause
"""A command and all that it starts, whatever group or session it goes to: Linux."""

import os
import signal

from .. import _child
from .._base.deadline import Deadline
from .._base.errors import Failed, log
from .._process import Process
from .._systems.calls import ask, native
from .._systems.linux_calls import LOOK, PR_SET_CHILD_SUBREAPER
from ._common import CommandError
from ._family import View, read_stat
from ._job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from .run import Options


_P_ALL = 0


class Tree(Job):
    """A job of all that descends from us.

    What loses its parent becomes our child: PR_SET_CHILD_SUBREAPER, prctl(2), Linux 3.4.
    """

    def __init__(self, options: "Options", command: "Sequence[str]") -> None:
        super().__init__(options, command)
        self.killing: bool = False
        try:
            native("prctl")  # it is Linux' alone
            self._view = View()
        except (Failed, OSError) as error:
            raise CommandError("--tree needs Linux, and its /proc: %s" % error) from None

    def supervise(self) -> int:
        if _has_children():
            # They are of the program that has become this one by exec, and none of the tree:
            # a child of ours has that alone.
            pid = os.fork()
            if pid:
                return _Deputy(self, pid).supervise()
            self._came.clear()  # which our parent passes on
            self._view = View()
        ask("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return super().supervise()

    def reap(self) -> bool:
        """Whether all have exited."""
        super().reap()
        while True:
            try:
                # The command's own exit is left to the Child.
                info = ask("waitid", _P_ALL, 0, LOOK)
            except Failed:
                return True
            if info is None:
                break
            if info.si_pid == self.child.pid:
                self.child.wait()
            else:
                os.waitpid(info.si_pid, 0)
        if self.killing:  # what was started while we looked
            self._send_to_all(signal.SIGKILL)
        return False

    def send(self, number: int) -> None:
        self.killing = number == signal.SIGKILL
        self._send_to_all(number)
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            self._send_to_all(signal.SIGCONT)

    def _send_to_all(self, number: int) -> None:
        family = self._view.descendants()
        for one in family:
            pid = self._view.pid(one)
            if pid is None:
                continue
            try:
                with Process(pid) as process:
                    stat = read_stat(one)  # of the process that the handle is on
                    if (
                        stat is not None
                        and stat.parent in family | {self._view.me}
                        and self._view.pid(one) == pid
                    ):
                        process.send_signal(number)
            except (ProcessLookupError, PermissionError) as error:
                log("pid %d: %s", pid, error)


def _has_children() -> bool:
    try:
        ask("waitid", _P_ALL, 0, LOOK)
    except Failed:
        return False
    return True


class _Deputy(Job):
    """Stands for a child of ours that does the work: passes signals on, and exits as it does."""

    def __init__(self, tree: Tree, pid: int) -> None:
        super().__init__(tree.options, tree.command)
        self.timeout = self.kill_after = None
        self.verbose = False
        self._pid = pid
        self._came = tree._came  # the tree's handlers go on filling it

    def launch(self) -> "_child.Child":
        return _child.own(self._pid, self.command)

    def send(self, number: int) -> None:
        self._send_to_command(number)

    def _end(self) -> Deadline:
        self.send(signal.SIGALRM)
        return Deadline(None)
