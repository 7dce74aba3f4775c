# SPDX-License-Identifier: BSD-3-Clause
"""Windows, polled: a HANDLE for each look, or the snapshot of all processes.

Where we may not open a process, the snapshot tells that it is there. The snapshot has no start
times, so a process is identified by its parent and its name.
"""

from .._deadline import NOW
from .._errors import no_such_process
from .._outcome import RUNNING
from .._sources import toolhelp
from .polled import PolledHandle, cpu_time
from .win32 import Win32Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._outcome import Outcome
    from .contract import Identity


class SnapshotHandle(PolledHandle):
    __slots__ = ("_code", "_identity")

    clock = staticmethod(cpu_time)

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self._code: "int | None" = None
        self._identity, code = _look(pid)
        self._note(code)

    def _note(self, code: "Outcome") -> bool:
        # Keep the code: a later look, or another thread's, may find the process gone.
        if isinstance(code, int):
            self._code = code
        return code is not RUNNING

    def has_exited(self) -> bool:
        try:
            identity, code = _look(self.pid)
        except ProcessLookupError:
            return True
        return self._is_other(identity) or self._note(code)

    def collect(self, reap: bool) -> "int | None":
        return self._code

    def _is_other(self, identity: "Identity | None") -> bool:
        # If it could be opened before and not now, or the reverse, there is nothing to compare.
        if identity is None or self._identity is None or identity[0] != self._identity[0]:
            return False
        return identity != self._identity

    def send_signal(self, sig: int) -> None:
        handle = Win32Handle(self.pid)
        try:
            if self._is_other(handle.identify()) or handle.has_exited():
                raise no_such_process(self.pid)
            handle.send_signal(sig)
        finally:
            handle.close()

    def identify(self) -> "Identity | None":
        return self._identity


def _look(pid: int) -> "tuple[Identity | None, Outcome]":
    """Its identity, and RUNNING or the exit code; ProcessLookupError if there is no process."""
    try:
        handle = Win32Handle(pid)
    except ProcessLookupError:
        raise
    except OSError:
        entry = toolhelp.find(pid)
        if entry is None:
            raise no_such_process(pid) from None
        return ("entry", pid, entry.parent, entry.name), RUNNING if entry.threads else None
    try:
        return handle.identify(), handle.wait(NOW, False)
    finally:
        handle.close()
