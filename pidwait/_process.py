# SPDX-License-Identifier: BSD-3-Clause
"""One process: a handle on it, and waiting for it."""

# signal without its enums, which take longer to load than this whole module.
import _signal  # type: ignore[import-not-found]
from errno import ENOSYS, ESRCH
from functools import partial

from ._base.arguments import check_pid, check_signal
from ._base.deadline import NOW, Backoff, Deadline
from ._base.errors import Failed, TimeoutExpired, audit, not_by_handler, refuse_copy, warn_unclosed
from ._base.handle import PENDING, RUNNING, Shared, raise_closed, settled
from ._systems import open_handle, system
from ._waiting.owners import PsutilTarget, Target, guarded, reap_by_owner, target_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._finding import ProcessInfo
    from ._types import Any, Handle, Identity, NoReturn, Outcome, Proc, Self

TERMINATE: int = _signal.SIGTERM
KILL: int = getattr(_signal, "SIGKILL", TERMINATE)


def wait(proc: "Proc", timeout: "float | None" = None, reap: bool = False) -> "int | None":
    """Wait until a process has exited; return its exit code.

    ``proc`` is a pid, or an object with a ``pid``: a Popen, a multiprocessing.Process, a
    psutil.Process, a Process. ``timeout`` is in seconds: None waits for ever, and 0 or less
    checks once. A wait for a Popen, or another object that owns its child, reaps the child.
    A wait for a pid leaves a zombie (waitid(2), WNOWAIT), unless ``reap`` is true.

    The exit code is ``-n`` for a process killed by signal n; on Windows it is the value of
    Popen.returncode. It is None if the system does not report it; Linux reports the exit codes
    of other processes' children from 6.15 on. If no process has the pid, wait() returns None at
    once. To tell the two apart, open a Process first: that raises ProcessLookupError.

    Raises TimeoutExpired if the process is still running after ``timeout`` seconds, and
    ValueError or TypeError for invalid arguments.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> wait(popen, timeout=60)
    3
    """
    if isinstance(proc, Process):
        return proc.wait(timeout, reap)
    target = proc if isinstance(proc, Target) else target_of(proc)
    handle = sure = None
    deadline = Deadline(timeout)
    if target.pid is None:
        raise ValueError("proc has no pid: it has been reaped, or is in another PID namespace")
    reap = reap and not target.reaps  # an owner reaps itself
    seen: "Outcome" = None
    try:
        try:
            handle = open_handle(target.pid)
        except Failed as why:
            if why.errno != ESRCH:
                raise why.as_error("open", target.pid) from None
        else:
            seen = guarded(target.confirm)
            if seen is RUNNING:
                sure = handle  # else it may be on another process, which has reused the pid
                seen = handle.wait(deadline, reap)
        if seen is not RUNNING:
            seen = _reaped(target, sure, seen, reap, deadline)
    finally:
        if handle is not None:
            handle.close()
    if seen is RUNNING:
        raise TimeoutExpired(target.pid, timeout)
    return seen  # type: ignore[return-value]


def _reaped(
    target: Target, handle: "Handle | None", seen: "Outcome", reap: bool, deadline: Deadline
) -> "Outcome":
    """The code of what has exited, reaped by its owner; RUNNING if others of its tree still run."""
    if isinstance(seen, int):
        code = reap_by_owner(target, seen)
        if isinstance(code, int):  # as nearly always
            return code
    codes, backoff = [seen], Backoff()
    look = partial(_look_and_reap, target, handle, reap, codes)
    code = look()
    while code is RUNNING and backoff.pause(deadline):
        code = look()
    code = settled(look, code, deadline)
    if code is RUNNING:
        return RUNNING
    if code is PENDING:  # the code that was seen before the reaping counts
        code = codes[-1]
    if not isinstance(code, int) and handle is not None:
        code = handle.look()  # the reaping may have come since, and may show the code
    return code if isinstance(code, int) else None  # it has exited, whatever the look says


def _look_and_reap(
    target: Target, handle: "Handle | None", reap: bool, codes: "list[Outcome]"
) -> "Outcome":
    """Look, unless ``codes`` ends with the code already, and have the owner reap."""
    if codes[-1] is PENDING and handle is not None:
        codes.append(handle.look(reap))
    seen = codes[-1]
    # If only the reaping shows the code, the owner reaps before we have seen a code.
    if target.reaps or seen is not PENDING:
        return reap_by_owner(target, seen)
    return PENDING


def has_exited(proc: "Proc", timeout: "float | None" = 0) -> bool:
    """Whether a process has exited, or exits within ``timeout`` seconds.

    Use this function if you do not need the exit code. It takes the same ``proc`` as wait(),
    reaps as wait() does, and returns False where wait() raises TimeoutExpired.

    >>> import os
    >>> has_exited(os.getpid())
    False
    """
    try:
        wait(proc, timeout)
    except not_by_handler(TimeoutExpired):
        return False
    return True


class Process:
    """A handle on one process: it never refers to another process that gets the same pid.

    ``pid`` can also be a ProcessInfo, or psutil's Process. Raises ProcessLookupError if no
    process has the pid (a thread's ID does not count), or if the ProcessInfo's process is gone.

    Several threads may use it at once. close() releases the handle when the waits in progress
    have ended; a ``with`` block calls close(). Two handles are equal if they refer to the same
    process. Equality compares the pidfds' inode numbers (Linux 6.9 or newer), otherwise the
    start times.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    >>> with Process(popen.pid) as process:
    ...     process.terminate()
    ...     process.wait() == popen.wait()
    True
    """

    _exited = _is_closed = False
    _exitcode = None  # type: int | None

    def __init__(self, pid: "int | ProcessInfo") -> None:
        self._start(_opened(pid))

    def _start(self, handle: "Handle") -> None:
        self._identity: "Identity | None" = handle.identify()
        self._pid, self._backend = handle.pid, handle.backend
        self._shared = Shared(handle)  # from here on, __del__ closes the handle

    @classmethod
    def from_fd(cls, fd: int) -> "Self":
        """Make a Process from a pidfd that was received over a socket or inherited (Linux).

        close() closes the pidfd. ``pid`` is None if the process has been reaped, or is in another
        PID namespace. Raises ValueError if ``fd`` is not the pidfd of a process, OSError if
        pidfds can't be used.
        """
        process = cls.__new__(cls)
        try:
            if system.received is None:
                raise Failed(ENOSYS, "this system has no pidfds")
            process._start(system.received(fd))
        except Failed as why:
            raise why.as_error("pidfd", None) from None
        return process

    @property
    def pid(self) -> "int | None":
        """The pid. It can be None only after from_fd()."""
        return self._pid

    @property
    def backend(self) -> str:
        """How it waits: by "pidfd" (Linux 5.3), "kqueue" (macOS, BSDs), "win32" or "polling"."""
        handle = self._shared.handle
        return self._backend if handle is None else handle.backend

    @property
    def exitcode(self) -> "int | None":
        """The exit code. None until a wait has seen the exit, or if the code is not reported."""
        return self._exitcode

    def has_exited(self, timeout: "float | None" = 0) -> bool:
        """Whether all threads of the process have ended, or end within ``timeout`` seconds.

        The process may still be a zombie. This method does not raise TimeoutExpired.
        """
        with self._shared.use() as handle:
            return self._look(handle, Deadline(timeout), False)

    def wait(self, timeout: "float | None" = None, reap: bool = False) -> "int | None":
        """Wait until the process has exited; return its exit code, as the function wait() does.

        This also works after close(), if the exit was seen before and ``reap`` is false.
        """
        with self._shared.use() as handle:
            if self._look(handle, Deadline(timeout), reap):
                return self._exitcode
            raise TimeoutExpired(self.pid, timeout)

    def _check_open(self) -> None:
        """Raise ValueError if it is closed. Call this within a use, which keeps the handle open."""
        if self._is_closed:
            raise_closed()

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        """Whether the process has exited by the deadline; store its exit code."""
        if self._is_closed and self._exited and not reap:
            return True
        self._check_open()
        if self._exitcode is None:
            outcome = settled(handle.look, handle.wait(deadline), deadline)
            if outcome is RUNNING:
                return False
            self._note(outcome)
        # Reap only now: if two threads reap, the second thread finds no child to look at.
        if reap:
            self._note(settled(partial(handle.look, True), handle.look(True), deadline))
        return True

    def _note(self, code: "Outcome") -> None:
        if isinstance(code, int):  # None does not replace what another thread has just noted
            self._exitcode = code
        self._exited = True

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process; raise ProcessLookupError if it has exited.

        With a pidfd no other process can get the signal: pidfd_send_signal(2), Linux 5.1.
        Without a pidfd, another process gets the signal if the pid is reused just before kill(2).

        On Windows, SIGTERM terminates the process with exit code 1. CTRL_C_EVENT and
        CTRL_BREAK_EVENT work as in Popen.send_signal(). Signal 0 only checks that it is running.
        """
        check_signal(sig)
        with self._shared.use() as handle:
            self._check_open()
            try:
                audit("os.kill", self.pid, sig)
                # A zombie takes every signal without an error.
                if self._look(handle, NOW, False):
                    raise Failed(ESRCH)
                handle.send_signal(sig)
            except Failed as why:
                raise why.as_error("kill", self.pid) from None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(TERMINATE)

    def kill(self) -> None:
        """Send SIGKILL; on Windows the same as terminate()."""
        self.send_signal(KILL)

    def fileno(self) -> int:
        """Return a file descriptor that is readable once the process has exited.

        Raises io.UnsupportedOperation (an OSError) if the process is polled, and on Windows.
        """
        with self._shared.use() as handle:
            self._check_open()
            return handle.fileno()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Release the handle. The attributes stay. Methods raise ValueError from now on, except
        wait() and has_exited() if the exit was seen before."""
        self._is_closed = True
        self._release()

    def _release(self) -> None:
        self._backend = self.backend
        self._shared.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is None or shared.handle is None:
            return
        try:
            if not shared.is_copy():
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
        return hash(self._identity or self.pid)  # equal handles can differ in pid: from_fd()

    def __reduce__(self) -> "NoReturn":
        refuse_copy(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "exited" if self._exited else "open"
        shown = type(self).__name__, self.pid, self._exitcode, self.backend, state
        return "<%s pid=%s exitcode=%s backend=%s %s>" % shown


def _opened(proc: "Any") -> "Handle":
    info = target_of(proc) if hasattr(proc, "create_time") else None
    is_info = type(info) is PsutilTarget  # psutil's Process, or a ProcessInfo
    number = check_pid(proc.pid if is_info else proc)
    try:
        handle = open_handle(number)
    except Failed as why:
        raise why.as_error("open", number) from None
    # The handle is open: if the process still has the pid, the handle is on that process.
    if is_info and guarded(info.confirm) is not RUNNING:  # type: ignore[union-attr]
        handle.close()
        raise Failed(ESRCH).as_error("open", number)
    return handle


def pid_exists(pid: int) -> bool:
    """Whether a process, running or a zombie, has the pid.

    A thread's ID does not count, although kill(2) on Linux accepts it. Raises ValueError or
    TypeError if ``pid`` can't be a pid: 0, for example.

    >>> import os
    >>> pid_exists(os.getpid())
    True
    """
    try:
        _opened(check_pid(pid)).close()
    except not_by_handler(ProcessLookupError):
        return False
    return True
