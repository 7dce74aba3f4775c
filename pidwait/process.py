# SPDX-License-Identifier: BSD-3-Clause
"""One process: a handle on it, and waiting for it."""

# signal without its enums, which take longer to load than this whole module.
import _signal  # type: ignore[import-not-found]
from time import monotonic

from . import _backends
from ._backends import chosen
from ._deadline import FOREVER, NOW, Deadline, poll
from ._errors import (
    TimeoutExpired,
    no_such_process,
    public,
    raise_of_handler,
    warn_unclosed,
)
from ._guard import Guard
from ._kinds import find
from ._outcome import RUNNING, NotYet
from ._targets import PID_MAX, check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self  # novm

    from ._backends.contract import Handle, Identity
    from ._outcome import Outcome
    from ._targets import Proc

_NUMBERS = (float, int)
_LONG = 2 * 10**6  # seconds; poll(2) takes at most 2**31 ms


def wait(proc: "Proc", timeout: "float | None" = None, reap: bool = False) -> "int | None":
    """Wait until a process has exited; return its exit code.

    ``proc`` is a pid, or an object with a ``pid``: a Popen, a multiprocessing.Process, a
    psutil.Process, a Process. ``timeout`` is in seconds; None waits for ever, and 0 or less
    looks once. An object that reaps its own child, as a Popen does, has reaped it when the
    wait ends. A child given by its pid is reaped only with ``reap``: waitid(2), WNOWAIT.

    The exit code is ``-n`` for a process killed by signal n; on Windows it is what
    Popen.returncode would be. It is None where the system does not tell it: Linux tells that
    of other processes' children from 6.15 on. If no process has the pid, None comes at once.

    Raises TimeoutExpired if the process is still running after ``timeout`` seconds, and
    ValueError or TypeError for invalid arguments.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> wait(popen, timeout=60)
    3
    """
    # Most calls are for a pid: these take no detour, and make nothing that they don't need.
    target = began = None
    handle: "Handle | None" = None
    if type(proc) is int:
        pid = proc if 0 < proc <= PID_MAX else check_pid(proc, "proc")
        if timeout is None or (type(timeout) in _NUMBERS and 0 < timeout < _LONG):
            if timeout is not None:
                began = monotonic()
            shorter = (chosen[0] if chosen else _backends.backend()).wait_or_open
            if shorter is not None:
                try:
                    found = shorter(pid, timeout, reap)
                    if type(found) is int:
                        return found
                    handle = found  # type: ignore[assignment]
                except ProcessLookupError as error:
                    raise_of_handler(error)
                    return None
                except OSError as error:  # open_handle() will meet it again
                    raise_of_handler(error)
    elif isinstance(proc, Process):
        return proc.wait(timeout, reap)
    else:
        # The life of a target: see _targets.
        target = find(proc)
        if target.pid is None:
            raise ValueError("proc has no pid: it has been reaped, or is in another PID namespace")
        pid = target.pid
    deadline = FOREVER if timeout is None else Deadline(timeout, began)
    code = RUNNING if target is None else target.known()
    if code is RUNNING:
        try:
            if handle is None:
                handle = _backends.open_handle(pid)
        except ProcessLookupError as error:
            raise_of_handler(error)
            code = None
        else:
            try:
                if target is not None:
                    code = target.confirm()
                    handle.is_child = target.is_child
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
    # The tracer is told of the exit first, and we can't reap our child before the tracer has
    # waited for it: ptrace(2). No event tells when it has, so we poll.
    code: "list[Outcome]" = [RUNNING]

    def reaped() -> bool:
        try:
            code[0] = handle.wait(NOW, True)
        except NotYet:
            return False
        return True

    poll(reaped, deadline)
    return code[0]


@public
class Process:
    """A handle on one process: it never refers to another process that gets the same pid.

    ``backend`` tells how the process is waited for: "pidfd" (Linux 5.3), "kqueue" (macOS and
    the BSDs), "win32" or "polling". Raises ProcessLookupError if no process has the pid, or
    if it is a thread's ID.

    Several threads may use it at once. close() releases the handle when the waits in
    progress have ended; a ``with`` block calls it. Two handles are equal if they are for the
    same process, as far as the system tells: by the pidfd's inode number from Linux 6.9 on,
    before that by the start time.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    >>> with Process(popen.pid) as process:
    ...     process.terminate()
    ...     process.wait() == popen.wait()
    True
    """

    if TYPE_CHECKING:
        _guard: Guard
        _exitcode: "int | None"
        _identity: "Identity | None"
    _exited = False
    _exitcode = None

    def __init__(self, pid: int) -> None:
        instead = "" if isinstance(pid, (str, float)) else ": wait() takes objects with a pid"
        self._start(_backends.open_handle(check_pid(pid, instead=instead)))

    def _start(self, handle: "Any") -> None:
        self._identity = handle.identify()
        self._guard = Guard(handle)

    @classmethod
    def from_fd(cls, fd: int) -> "Self":
        """Take over a pidfd, received over a socket or inherited: Linux.

        The Process closes it. ``pid`` is None if the process has been reaped, or is in another
        PID namespace. Raises ValueError if ``fd`` is not the pidfd of a process, OSError if
        pidfds can't be used.
        """
        from ._backends.given_pidfd import GivenPidfdHandle

        process = cls.__new__(cls)
        process._start(GivenPidfdHandle(fd))
        return process

    @property
    def pid(self) -> "int | None":
        """The pid; None only after from_fd(), see there."""
        pid: "int | None" = self._guard.resource.pid
        return pid

    @property
    def backend(self) -> str:
        """How the process is waited for: "polling" after a fallback."""
        backend: str = self._guard.resource.backend
        return backend

    @property
    def exitcode(self) -> "int | None":
        """The exit code, after has_exited() or wait() has seen the exit; until then, None."""
        return self._exitcode

    def has_exited(self) -> bool:
        """Whether it has exited: all its threads have ended, whether it is reaped or not."""
        if self._guard.closed and self._is_done(False):
            return True
        with self._guard as handle:
            return self._look(handle, NOW, False)

    def wait(self, timeout: "float | None" = None, reap: bool = False) -> "int | None":
        """Wait until it has exited; return the exit code, as the function wait() does.

        A closed Process still answers if it has seen the exit, and ``reap`` is false.
        """
        deadline = FOREVER if timeout is None else Deadline(timeout)
        if self._guard.closed and self._is_done(reap):
            return self._exitcode
        with self._guard as handle:
            if self._look(handle, deadline, reap):
                return self._exitcode
            raise TimeoutExpired(self.pid, timeout)

    def _is_done(self, reap: bool) -> bool:
        return self._exited and not reap

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        """Whether it has exited by the deadline; remember its exit code."""
        if self._exitcode is None and not self._see(handle, deadline, False):
            return False
        # Reap only now: if two threads reap, the second one finds no child to look at.
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

        With a pidfd no other process can get the signal: pidfd_send_signal(2), Linux 5.1.
        Without one there is a window between the last look and kill(2): if the process exits
        and is reaped in it, another process may get its pid, and the signal.

        Windows has SIGTERM, which terminates the process with exit code 1, and CTRL_C_EVENT
        and CTRL_BREAK_EVENT, as in Popen.send_signal(). Signal 0 only looks.
        """
        if isinstance(sig, bool) or not isinstance(sig, int):
            raise TypeError("sig must be a signal number, not %s" % type(sig).__name__)
        if not 0 <= sig < _signal.NSIG:
            raise ValueError("sig must be from 0 to %d, not %d" % (_signal.NSIG - 1, sig))
        with self._guard as handle:
            # A zombie takes every signal without an error.
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

        Raises io.UnsupportedOperation (an OSError) if the process is polled, and on Windows.
        """
        with self._guard as handle:
            fd: int = handle.fileno()
            return fd

    def close(self) -> None:
        """Release the handle. After it, methods raise ValueError; but the attributes stay, and
        wait() and has_exited() still answer if the exit has been seen."""
        self._guard.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
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
        mine = self._identify()
        return mine is not None and mine == other._identify()

    def _identify(self) -> "Identity | None":
        return self._identity

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
    """Whether a process, running or a zombie, has the pid.

    A thread's ID is not a pid, though kill(2) takes one on Linux. Raises ValueError or
    TypeError for what can't be a pid, such as 0.

    >>> import os
    >>> pid_exists(os.getpid())
    True
    """
    try:
        _backends.open_handle(check_pid(pid)).close()
    except ProcessLookupError as error:
        raise_of_handler(error)
        return False
    return True
