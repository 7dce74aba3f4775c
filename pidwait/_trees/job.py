# SPDX-License-Identifier: BSD-3-Clause
"""Windows: a tree is a job object. Children of its processes are in it, too, and can't leave it.

The command starts suspended, and runs once it is in the job and watched. The system ends a job with
the last HANDLE on it, so also when the calling program ends, however that happens. No process in a
job can refuse to end, so ``left`` stays empty. There is no SIGTERM: ``grace`` does nothing.
"""

import _winapi
from contextlib import suppress
from types import SimpleNamespace

from .._base.deadline import LONGEST, Backoff, Deadline
from .._base.errors import Failed, call
from .._base.handle import Usage
from .._systems import open_handle
from .._systems.calls import CALLS
from .._systems.windows.handle import RIGHTS_TO_LOOK, Owned
from .._systems.windows.jobs import JOB_CALLS, JOB_LIMITS, JOB_PROCESSES, JOB_TIMES
from .._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

_CREATE_SUSPENDED = 0x4
_KILL_ON_JOB_CLOSE = 0x2000


class JobTree:
    mechanism = "job"
    pid = 0

    def __init__(self, rest: str) -> None:
        self._rest = rest
        self._code: "int | None" = None
        self.left: "list[int]" = []
        self.usage: "Usage | None" = None

    def start(self, start_alone: "Callable[[Any], object]") -> None:
        """``start_alone(winapi)`` starts the command with ``winapi`` in place of _winapi."""
        self._job = Owned(self._ask, "CreateJobObjectW", None, None)
        self._ask("SetInformationJobObject", self._job.number, _KILL_ON_JOB_CLOSE)
        start_alone(SimpleNamespace(**dict(vars(_winapi), CreateProcess=self._create)))

    def _create(self, *args: "Any") -> "Any":
        *some, flags, env, cwd, info = args
        create: "Any" = _winapi.CreateProcess  # type: ignore[attr-defined]
        process, thread, pid, _ = made = create(*some, flags | _CREATE_SUSPENDED, env, cwd, info)
        try:
            self.pid = pid
            self._command = Owned(self._ask, "OpenProcess", RIGHTS_TO_LOOK, False, pid)
            self._ask("AssignProcessToJobObject", self._job.number, process)
            watch(pid, self._go_on)
            if not flags & _CREATE_SUSPENDED:
                self._ask("ResumeThread", thread)
        except BaseException:
            self._ask("TerminateProcess", process, 1)
            self._ask("CloseHandle", thread)
            self._ask("CloseHandle", process)
            raise
        return made

    def _go_on(self, *of_watch: object) -> None:
        """watch() calls this. So this object, and its job, stay alive until nothing is left."""
        running, _, pid = self._find()
        if self.poll() is None and running:
            watch(pid, self._go_on)

    def poll(self) -> "int | None":
        if self._code is None and self.has_exited():
            if self._rest == "kill":
                self._ask("TerminateJobObject", self._job.number, 1)
            elif self._rest == "leave":
                self._ask("SetInformationJobObject", self._job.number, 0)
            if self._rest == "leave" or not self._find()[0]:
                user, system, *_ = self._query(*JOB_TIMES)
                peak = self._query(*JOB_LIMITS)[-2]
                self.usage = Usage(user / 1e7, system / 1e7, peak)
                self._code = self._ask("GetExitCodeProcess", self._command.number)
        return self._code

    def sleep(self, timeout: "float | None") -> None:
        with suppress(Failed):  # it has just exited
            pid = self._find()[2] if self.has_exited() else self.pid
            handle = open_handle(pid)
            # While the handle is open, the pid is not reused.
            if pid in (self.pid, self._find()[2]):
                handle.sleep(Deadline(timeout), Backoff(LONGEST))

    def has_exited(self) -> bool:
        return bool(self._ask("WaitForSingleObject", self._command.number, 0) == 0)

    def send(self, sig: int, everybody: bool) -> None:
        if sig not in (0, 1):  # CTRL_C_EVENT, CTRL_BREAK_EVENT
            raise ValueError("sig must be SIGTERM or a CTRL_ event on Windows, not %s" % sig)
        if not self.has_exited():
            self._ask("GenerateConsoleCtrlEvent", sig, self.pid)

    def end(self, sig: int, grace: float) -> None:
        if self.poll() is None:
            self._rest = "kill"
            self._ask("TerminateJobObject", self._job.number, 1)

    def _find(self) -> "Any":
        """The number of running processes, another number, and the pid of one."""
        return self._query(*JOB_PROCESSES)

    def _query(self, class_: int, structure: "Any") -> "Any":
        return self._ask("QueryInformationJobObject", self._job.number, class_, structure)

    def _ask(self, name: str, *args: object) -> "Any":
        table = JOB_CALLS if name in JOB_CALLS.rows else CALLS
        try:
            return call(table[name], *args)
        except Failed as why:
            raise why.as_error(name, self.pid or None) from None
