# SPDX-License-Identifier: BSD-3-Clause
"""The kinds of objects that stand for a process: who reaps it, and how.

Each is known by what it has, not by its class: two copies of a library can live in one
process, and to ask for a class would import its module.
"""

import os
import sys

from ._errors import is_of_signal_handler, log
from ._fork import importer
from ._outcome import RUNNING
from ._sources import exitcodes
from ._targets import GuardedTarget, OwnerTarget, Target, check_pid, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._outcome import Outcome
    from ._targets import Proc


class AsyncioTarget(GuardedTarget):
    """asyncio.subprocess.Process and its like: reaped by an event loop, in its own time."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code: "int | None" = self.proc.returncode
        return RUNNING if code is None else code

    def _settle(self, code: "int | None") -> "Outcome":
        known = self._known()
        return known if code is None and known is not RUNNING else code


class PopenTarget(OwnerTarget):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    __slots__ = ("_is_inherited",)

    def __init__(self, proc: "Any", pid: "int | None", key: object) -> None:
        super().__init__(proc, pid, key)
        self._is_inherited = False

    def _known(self) -> "Outcome":
        code: "int | None" = self.proc.returncode
        return RUNNING if code is None else code

    def _confirm(self) -> "Outcome":
        known = self._known()
        if known is not RUNNING or hasattr(self.proc, "_handle"):  # Windows
            return known
        if self.pid is None:
            return RUNNING
        try:
            return exitcodes.look_at_child(self.pid)
        except ChildProcessError:
            # Either somebody else has reaped the Popen's child (another thread by waitpid(-1);
            # SIGCHLD ignored), or the Popen is our parent's, and its child our sibling.
            if importer.is_me() or not exitcodes.is_our_sibling(self.pid):
                return None
        except OSError as error:  # a policy, or there is no waitid
            log("waitid, pid %d: %s", self.pid, error)
            return RUNNING
        self._is_inherited = True
        return RUNNING

    def _settle(self, code: "int | None") -> "Outcome":
        # In a forked child its lock may be held for ever.
        if self._is_inherited:
            return code
        lost = code is None and self._is_lost()
        # While another thread is inside wait() or poll(), poll() does not wait for it: it
        # returns None, though the process has exited.
        if self.proc.poll() is None:
            return self.not_reaped(code)
        return self._known() if code is None and not lost else code

    def _is_lost(self) -> bool:
        """Whether somebody else reaped it, which a Popen reports as exit code 0."""
        # Popen reaps and sets returncode under this lock. So when the child is no more, nobody
        # is inside, and there is still no returncode, it was not the Popen. If another thread
        # is inside, it is about to set it. gevent's Popen has no lock, and never guesses.
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None or hasattr(self.proc, "_handle"):  # Windows: it can always tell
            return False
        if not lock.acquire(False):
            return False
        try:
            if self.proc.returncode is not None:
                return False
        finally:
            lock.release()
        return self.pid is None or not exitcodes.is_our_child(self.pid)


class MultiprocessingTarget(OwnerTarget):
    """multiprocessing.Process and its like: exitcode reaps, or asks the fork server."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code: "int | None" = self.proc.exitcode
        if code is None or self._is_any_signal(code):
            return RUNNING
        self._join()
        return code

    def _join(self) -> None:
        """Have multiprocessing forget it; exitcode has reaped it."""
        try:
            self.proc.join(0)
        except AssertionError:  # in a fork of its parent, where there is nothing to be done
            log("pid %s is not our child", self.pid)

    def _confirm(self) -> "Outcome":
        known = self._known()
        if known is RUNNING and self._is_any_signal(self.proc.exitcode):
            return None
        return known

    def _settle(self, code: "int | None") -> "Outcome":
        known: "int | None" = self.proc.exitcode
        self._join()
        if known is None:
            known = self.proc.exitcode
        if known is None:
            return self.not_reaped(code) if self._can_reap() else code
        # The fork server of Python 3.6 exits with another code than it tells, and 255 is also
        # what a fork server's child has when the server could not tell.
        return code if known == 255 and self._method() == "forkserver" else known

    def _can_reap(self) -> bool:
        """Whether exitcode may still come: not for parent_process(), nor in a forked child."""
        parent = getattr(self.proc, "_parent_pid", os.getpid())
        return self._method() is not None and parent == os.getpid()

    def _method(self) -> "str | None":
        method: "str | None" = getattr(getattr(self.proc, "_popen", None), "method", None)
        return method

    def _is_any_signal(self, code: "int | None") -> bool:
        """Whether it is 255 of a fork server that can't tell negative codes: Python 3.6."""
        server = sys.modules.get("multiprocessing.forkserver")
        return code == 255 and self._method() == "forkserver" and hasattr(server, "read_unsigned")


class PsutilTarget(GuardedTarget):
    """psutil.Process: it reaps nothing, but remembers when its process started."""

    __slots__ = ()

    def _confirm(self) -> "Outcome":
        return RUNNING if self.proc.is_running() else None


class ProcessTarget(GuardedTarget):
    """Our Process, or another copy's: it remembers which process it is for."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        if not self.proc.has_exited():
            return RUNNING
        code: "int | None" = self.proc.exitcode
        return code

    def _settle(self, code: "int | None") -> "Outcome":
        known = self._known()
        return code if known is None or known is RUNNING else known


class ChildTarget(OwnerTarget):
    """Our Child, perhaps another copy's: wait() reaps."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        if not self.proc.reaped:
            return RUNNING
        code: "int | None" = self.proc.exitcode
        return code

    def _settle(self, code: "int | None") -> "Outcome":
        known: "int | None" = None
        try:
            known = self.proc.wait(0)
        except TimeoutError as error:
            if is_of_signal_handler(error):
                raise
            return self.not_reaped(code)
        return code if known is None else known


_KINDS = (
    (ChildTarget, ("reaped", "exitcode")),
    (ProcessTarget, ("backend", "has_exited", "exitcode")),
    (PopenTarget, ("returncode", "poll")),  # psutil's, too
    (AsyncioTarget, ("returncode",)),
    (PsutilTarget, ("is_running", "create_time")),
    (MultiprocessingTarget, ("exitcode", "join")),
    (Target, ()),
)


def find(proc: "Proc", key: object = None) -> Target:
    """The target for what a caller gave; TypeError or ValueError if it stands for no process.

    ``key`` is what the engine knows it by, if not by key_of().
    """
    key = key_of(proc) if key is None else key
    if hasattr(proc, "__index__"):
        return Target(proc, check_pid(proc, "proc"), key)
    if not hasattr(proc, "pid"):
        many = isinstance(proc, (list, tuple, set, frozenset, dict))
        raise TypeError(
            "proc must be a process ID or an object with a pid, not %s%s"
            % (type(proc).__name__, ": for several there is wait_procs()" if many else "")
        )
    kind = next(kind for kind, names in _KINDS if all(hasattr(proc, name) for name in names))
    if proc.pid is not None:
        return kind(proc, check_pid(proc.pid, "proc.pid"), key)
    if kind not in (ProcessTarget, ChildTarget):
        raise ValueError("proc has no pid: it has not been started")
    return kind(proc, None, key)  # of a pidfd from elsewhere
