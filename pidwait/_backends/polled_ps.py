# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, polled: waitid(2) and kill(2), and now and then ps(1).

Each ps is a process, so the cheap calls come first, and ps gets 5 % of the time. A process is
identified by its pid and by the start time that ps told first.
"""

from time import monotonic

from .._deadline import Deadline, poll, share
from .._errors import no_such_process, raise_of_handler
from .._outcome import RUNNING, NotYet, from_status
from .._sources import exitcodes, ps
from .polled import PolledHandle, kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._outcome import Outcome
    from .contract import Identity

# Seconds that a wait goes on before it asks ps.
_FIRST = 0.05


class PsHandle(PolledHandle):
    __slots__ = ("_ask_again", "_is_ours", "_stat")

    clock = staticmethod(monotonic)  # what a look costs is spent in ps

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        # The first answer of ps that has a start time; until then, the latest answer.
        self._stat: "ps.Stat | None" = None
        self._ask_again = 0.0
        # Whether the last look found a child of ours with the pid.
        self._is_ours = False
        if not exitcodes.exists(pid):
            raise no_such_process(pid)

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        self._ask_again = max(self._ask_again, monotonic() + _FIRST)
        if poll(self.has_exited, deadline) or self._has_exited_after_all():
            return self.collect(reap)
        return RUNNING

    def has_exited(self) -> bool:
        self._is_ours = False
        try:
            if exitcodes.look_at_child(self.pid) is not RUNNING:
                return True
            self._is_ours = True
        except OSError as error:  # somebody else's, or there is no waitid
            raise_of_handler(error)
            if not exitcodes.is_found(self.pid):
                return True
        return monotonic() >= self._ask_again and self._ps_tells_exit()

    def _has_exited_after_all(self) -> bool:
        # If the process is not our child, only ps can tell that it is a zombie.
        return not self._is_ours and self._ps_tells_exit()

    def _ps_tells_exit(self) -> bool:
        began = monotonic()
        stat = ps.read_stat(self.pid)
        now = monotonic()
        self._ask_again = now + share(now - began)
        if stat is None:
            return not exitcodes.is_found(self.pid)
        if self._stat is None or self._stat.started is None:
            self._stat = stat
        return stat.exited or stat.is_other(self._stat)

    def collect(self, reap: bool) -> "int | None":
        # The answers are found by the pid: they count if it still belongs to this process.
        stat = None
        if self._stat is not None:
            stat = ps.read_stat(self.pid)
            if stat is not None and stat.is_other(self._stat):
                return None
        code: "Outcome" = None
        try:
            code = (exitcodes.reap_child if reap else exitcodes.look_at_child)(self.pid)
        except OSError as error:  # somebody else's, or there is no waitid
            raise_of_handler(error)
        if code is RUNNING:
            if reap:
                raise NotYet
            code = None
        if code is not None:
            return code
        stat = stat or ps.read_stat(self.pid)
        # 0 may also mean that the status is not shown.
        if stat is not None and stat.exited and stat.status:
            return from_status(stat.status)
        return None

    def send_signal(self, sig: int) -> None:
        if self.has_exited() or self._ps_tells_exit():
            raise no_such_process(self.pid)
        kill(self.pid, sig)

    def identify(self) -> "Identity | None":
        if self._stat is None:
            self._ps_tells_exit()
        if self._stat is None or self._stat.started is None:
            return None
        return "start", self.pid, self._stat.started
