# SPDX-License-Identifier: BSD-3-Clause
"""One process: a handle on it, and waiting for it."""

# signal without its enums, which take longer to load than all of this.
import _signal  # type: ignore[import-not-found]

from . import _backends
from ._deadline import NOW, Deadline, poll
from ._errors import TimeoutExpired, no_such_process, warn_unclosed
from ._guard import Guard
from ._kinds import find
from ._outcome import RUNNING, NotYet
from ._targets import check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from ._backends.contract import Handle
    from ._outcome import Outcome
    from ._targets import Proc


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
    ValueError or TypeError for invalid arguments.
    """
    if isinstance(proc, Process):
        return proc.wait(timeout, reap)
    # The life of a target: see _targets.
    target = None if type(proc) is int else find(proc)
    pid = check_pid(proc, "proc") if target is None else target.pid
    if pid is None:
        raise ValueError("proc has no pid: it has been reaped, or is in another PID namespace")
    deadline = Deadline(timeout)
    code = RUNNING if target is None else target.known()
    if code is RUNNING:
        try:
            handle = _backends.open_handle(pid)
        except ProcessLookupError:
            code = None
        else:
            try:
                if target is not None:
                    code = target.confirm()
                if code is RUNNING:
                    code = handle.wait(deadline, reap)
            except NotYet:
                code = _wait_for_tracer(handle, deadline)
            finally:
                handle.close()
    if target is not None and code is not RUNNING:
        seen, code = code, target.settle(code)
        if code is RUNNING:
            settled: "list[Outcome]" = [RUNNING]

            def settle() -> bool:
                settled[0] = target.settle(seen)
                return settled[0] is not RUNNING

            code = settled[0] if poll(settle, deadline) else target.settle(seen, True)
    if code is RUNNING:
        raise TimeoutExpired(pid, timeout)
    return code


def _wait_for_tracer(handle: "Handle", deadline: Deadline) -> "Outcome":
    # A tracer is told of the exit first, and our child can't be reaped before the tracer has
    # been: ptrace(2). No event says so.
    code: "list[Outcome]" = [RUNNING]

    def reaped() -> bool:
        try:
            code[0] = handle.wait(NOW, True)
        except NotYet:
            return False
        return True

    poll(reaped, deadline)
    return code[0]


class Process:
    """A handle on one process, which does not slip to another that gets its pid.

    ``pid`` is its number, ``backend`` how it is waited for: "pidfd",
    "kqueue", "win32" or "polling".
    Raises ProcessLookupError where there is no such process; a thread's ID does not count.

    It may be used from several threads. close() gives the system's resources back,
    once the waits that are under way have ended; a ``with`` block does it at its
    end. Two handles are equal if they are for the same process, as far as the
    system tells: by the pidfd's inode number from Linux 6.9 on, before that by the
    start time.
    """

    _guard: "Guard"

    def __init__(self, pid: int) -> None:
        instead = "" if isinstance(pid, (str, float)) else ": wait() takes objects with a pid"
        self._start(_backends.open_handle(check_pid(pid, instead=instead)))

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
        from ._backends.pidfd import PidfdHandle

        process = cls.__new__(cls)
        process._start(PidfdHandle.from_fd(fd))
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
        """The exit code, once has_exited() or wait() has seen it; until then, None."""
        return self._exitcode

    def has_exited(self) -> bool:
        """Whether it has exited: all its threads have ended, reaped or not."""
        if self._exited and self._guard.closed:
            return True
        with self._guard as handle:
            return self._look(handle, NOW, False)

    def wait(self, timeout: "float | None" = None, reap: bool = False) -> "int | None":
        """Wait until it has exited; return the exit code, as the function wait() does.

        Closed, it still answers if it has seen the exit, and has nothing to reap.
        """
        deadline = Deadline(timeout)
        if self._guard.closed and self._is_done(reap):
            return self._exitcode
        with self._guard as handle:
            if not self._look(handle, deadline, reap):
                raise TimeoutExpired(self.pid, timeout)
            return self._exitcode

    def _is_done(self, reap: bool) -> bool:
        return self._exited and not reap

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        """Whether it has exited by the deadline; its exit code is remembered."""
        if self._exitcode is None and not self._see(handle, deadline, False):
            return False
        # Only now: of two threads that reap, the second finds nobody to look at.
        return not reap or self._see(handle, deadline, True)

    def _see(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        try:
            code = handle.wait(deadline, reap)
        except NotYet:
            code = _wait_for_tracer(handle, deadline)
        if code is RUNNING:
            return False
        if code is not None:
            self._exitcode = code
        self._exited = True
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
            if self._look(handle, NOW, False):
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
        """Give the handle back. From then on, all but the attributes is a ValueError, and wait()
        and has_exited() if they have seen the exit."""
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
                warn_unclosed(self)
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
        _backends.open_handle(check_pid(pid)).close()
    except ProcessLookupError:
        return False
    return True
