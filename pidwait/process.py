# SPDX-License-Identifier: BSD-3-Clause
"""One process: a handle on it, and waiting for it."""

# signal without its enums, which take longer to load than all of this.
import _signal  # type: ignore[import-not-found]

from . import _backends, _exitcodes, _owners, _polling
from ._backends import pidfd
from ._deadline import Deadline
from ._errors import TimeoutExpired, no_such_process
from ._exitcodes import RUNNING
from ._guard import Guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from ._owners import Proc


def wait(proc: "Proc", timeout: "float | None" = None, reap: bool = False) -> "int | None":
    """Wait until a process has exited; return its exit code.

    ``proc`` is a process ID, or an object with a ``pid``: a Popen, a
    multiprocessing.Process, a psutil.Process, a Process. ``timeout`` is in seconds;
    None is for ever, and 0 or less looks once. With ``reap``, a child of ours that
    is given by its number is reaped; without, it is only looked at. An object that
    reaps its own child, as a Popen does, has done so when the wait ends.

    The exit code is ``-n`` for a process that signal n killed, on Windows what
    Popen.returncode would be; None where the system does not tell. A process that is
    not there has exited: None, at once.

    Raises TimeoutExpired if the process is still running after ``timeout``, and
    ValueError or TypeError for arguments that are none.
    """
    if isinstance(proc, Process):
        return proc.wait(timeout, reap)
    owner = None if type(proc) is int else _owners.find(proc)
    pid = _owners.check_pid(proc, "proc") if owner is None else owner.pid
    if pid is None:
        raise ValueError("proc has no pid: it has been reaped, or is in another PID namespace")
    deadline = Deadline(timeout)
    if owner is not None:
        code = owner.known()
        if code is not None:
            return code
    try:
        handle = _backends.open_handle(pid)
    except ProcessLookupError:
        code = None
    else:
        try:
            # Who has the number now need not be who is meant: that one may have
            # been reaped before the handle was opened.
            code = None if owner is None else owner.known()
            if code is None and not (owner is not None and owner.is_gone()):
                code = handle.wait(deadline, reap)
        except _exitcodes.NotYet:
            code = _wait_for_tracer(handle, deadline)
        finally:
            handle.close()
    if code is RUNNING:
        raise TimeoutExpired(pid, timeout)
    return code if owner is None else owner.settle(code, deadline)


def _wait_for_tracer(handle: "Any", deadline: Deadline) -> "Any":
    # A tracer is told of the exit first, and our child can't be reaped before
    # the tracer has been: ptrace(2). No event tells of that.
    code: "list[int | None]" = []

    def reaped() -> bool:
        try:
            code.append(handle.wait(Deadline(0), True))
        except _exitcodes.NotYet:
            return False
        return True

    return code[0] if _polling.poll(reaped, deadline) else RUNNING


class Process:
    """A handle on one process, which does not slip to another that gets its pid.

    ``pid`` is its number, ``backend`` how it is waited for: "pidfd",
    "kqueue", "win32" or "polling".
    Raises ProcessLookupError where there is no such process; a thread's ID is none.

    It may be used from several threads. close() gives the system's resources back,
    once the waits that are under way have ended; a ``with`` block does it at its
    end. Two handles are equal if they are for the same process, as far as the
    system tells: by the pidfd's inode number from Linux 6.9 on, before that by the
    start time.
    """

    _guard: "Guard"

    def __init__(self, pid: int) -> None:
        self._start(_backends.open_handle(_owners.check_pid(pid)))

    def _start(self, handle: "Any") -> None:
        self._exited = False
        self._exitcode: "int | None" = None
        self._identity = handle.identify()
        self._guard = Guard(handle)

    @classmethod
    def from_fd(cls, fd: int) -> "Process":
        """Take over a pidfd that was received from elsewhere: Linux.

        From then on it is closed with the Process. ``pid`` is None if the process
        has been reaped, or is in another PID namespace. ValueError if ``fd`` is not
        the pidfd of a process, OSError where pidfds can't be used.
        """
        process = cls.__new__(cls)
        process._start(pidfd.Handle.from_fd(fd))
        return process

    @property
    def pid(self) -> "int | None":
        pid: "int | None" = self._guard.resource.pid
        return pid

    @property
    def backend(self) -> str:
        backend: str = self._guard.resource.backend
        return backend

    @property
    def exitcode(self) -> "int | None":
        """The exit code, once exited() or wait() has seen it; until then, None."""
        return self._exitcode

    def exited(self) -> bool:
        """Whether it has exited: all its threads have ended, reaped or not."""
        with self._guard as handle:
            return self._look(handle, Deadline(0), False)

    def wait(self, timeout: "float | None" = None, reap: bool = False) -> "int | None":
        """Wait until it has exited; return the exit code, as the function wait() does."""
        deadline = Deadline(timeout)
        with self._guard as handle:
            if not self._look(handle, deadline, reap):
                raise TimeoutExpired(self.pid, timeout)
            return self._exitcode

    def _look(self, handle: "Any", deadline: Deadline, reap: bool) -> bool:
        """Whether it has exited by the deadline; its exit code is remembered."""
        if self._exitcode is None and not self._see(handle, deadline, False):
            return False
        # Only now: of two threads that reap, the second finds nobody to look at.
        return not reap or self._see(handle, deadline, True)

    def _see(self, handle: "Any", deadline: Deadline, reap: bool) -> bool:
        try:
            code = handle.wait(deadline, reap)
        except _exitcodes.NotYet:
            code = _wait_for_tracer(handle, deadline)
        if code is RUNNING:
            return False
        self._exited = True
        if code is not None:
            self._exitcode = code
        return True

    def send_signal(self, sig: int) -> None:
        """Send it a signal; ProcessLookupError if it has exited.

        Through the pidfd, pidfd_send_signal(2), Linux 5.1: no other process can get
        it. Without one there is a window between the last look and kill(2) in which
        the process could exit, be reaped, and another get its pid.

        Windows has SIGTERM, which terminates it with exit code 1, CTRL_C_EVENT and
        CTRL_BREAK_EVENT, as Popen.send_signal() has; 0 only looks.
        """
        if isinstance(sig, bool) or not isinstance(sig, int):
            raise TypeError("sig must be a signal number, not %s" % type(sig).__name__)
        if not 0 <= sig < _signal.NSIG:
            raise ValueError("sig must be from 0 to %d, not %d" % (_signal.NSIG - 1, sig))
        with self._guard as handle:
            # Until it is reaped, a zombie takes every signal without an error.
            if self._look(handle, Deadline(0), False):
                raise no_such_process(self.pid)
            handle.send_signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(_signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; on Windows the same as terminate()."""
        self.send_signal(getattr(_signal, "SIGKILL", _signal.SIGTERM))

    def fileno(self) -> int:
        """A file descriptor that is readable once the process has exited.

        io.UnsupportedOperation (an OSError) where the process is polled, and on Windows.
        """
        with self._guard as handle:
            fd: int = handle.fileno()
            return fd

    def close(self) -> None:
        """Give the handle back. All but the attributes is a ValueError from then on."""
        self._guard.close()

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        self.close()

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is None or guard.closed:
            return
        try:
            if not guard.is_copy():
                import warnings

                warnings.warn("unclosed %r" % self, ResourceWarning, stacklevel=2, source=self)
        finally:
            self.close()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Process):
            return NotImplemented
        if self is other:
            return True
        return self._identity is not None and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self.pid)

    def __reduce__(self) -> "Any":
        raise TypeError("a handle on a process can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self._guard.closed else "exited" if self._exited else "open"
        return "<%s pid=%s exitcode=%s backend=%s %s>" % (
            type(self).__name__,
            self.pid,
            self._exitcode,
            self.backend,
            state,
        )


def pid_exists(pid: int) -> bool:
    """Whether there is a process, running or a zombie, with that number.

    A thread's ID is not a process.
    """
    try:
        _backends.open_handle(_owners.check_pid(pid)).close()
    except ProcessLookupError:
        return False
    return True
