# SPDX-License-Identifier: BSD-3-Clause
"""A command and what it starts, as GNU timeout supervises them: POSIX."""

import contextlib
import os
import select
import signal

from .._base.deadline import Deadline
from . import _signals
from ._common import TIMED_OUT
from ._family import is_ignored
from ._progress import Progress
from ._start import start, tell_of_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from .._child import Child
    from .run import Options

_PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# The system does not let us catch these.
_KILL_OR_STOP = signal.SIGKILL, signal.SIGSTOP


class Job:
    """A command in our process group, which is one of our own, as GNU timeout has it.

    So a terminal takes both for one job: Ctrl-Z stops both, and both are in the
    foreground or neither.
    """

    child: "Child"

    def __init__(self, options: "Options", command: "Sequence[str]") -> None:
        self.options = options
        self.command = command
        # What ends the command when the time is up, and the seconds until SIGKILL does.
        self.signal: int = options.signal
        self.kill_after: "float | None" = options.kill_after
        self.timeout: "float | None" = options.timeout
        self.verbose: bool = options.verbose
        self.timed_out: bool = False
        # Signals that came, each once: a storm is passed on as quickly as we can.
        self._came: "list[int]" = []
        self._caught: "set[int]" = set()
        self._reader = -1
        self._progress: "Progress | None" = None

    def run(self) -> int:
        if not self.options.foreground:
            with contextlib.suppress(PermissionError):  # we lead a session, and so a group
                os.setpgid(0, 0)
        self.catch_signals()
        return self.supervise()

    def supervise(self) -> int:
        self._open_bell()
        deadline = Deadline(self.timeout)
        with self.launch() as self.child:
            # From here on a message of ours on the terminal stops nobody. The command has these
            # signals at their default.
            for number in (signal.SIGTTIN, signal.SIGTTOU):
                signal.signal(number, signal.SIG_IGN)
            if self.verbose:
                self._progress = Progress()
            try:
                self._wait(deadline)
            finally:
                self._clear_progress()
        return self._status(self.child.exitcode)

    def launch(self) -> "Child":
        return start(self.command)

    def _wait(self, deadline: Deadline) -> None:
        while not self.reap():
            while self._came:
                number = self._came.pop(0)
                if number == signal.SIGALRM:
                    deadline = self._end()
                else:
                    self._send(number)
                    deadline = self._then_kill(deadline)
            if not self._sleep(deadline):
                deadline = self._end()

    def _end(self) -> Deadline:
        """The time is up."""
        self.timed_out = True
        self._send(self.signal)
        return self._then_kill(Deadline(None))

    def _then_kill(self, deadline: Deadline) -> Deadline:
        """A signal was sent: -k counts from the first one."""
        if self.kill_after is None:
            return deadline
        deadline, self.kill_after = Deadline(self.kill_after), None
        self.signal = signal.SIGKILL
        return deadline

    def catch_signals(self) -> None:
        # Our parent may have blocked it, which children inherit.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        # A handler, not SIG_IGN, so that the command has them at their default.
        for number in (signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, lambda *arguments: None)
        wanted = {int(one) for one in (*_PASSED_ON, signal.SIGALRM, self.options.signal)}
        for one in wanted - {0, signal.SIGCHLD, *_KILL_OR_STOP}:
            if not _is_ignored(one):  # as nohup wants it
                signal.signal(one, self._note)
                self._caught.add(one)

    def _note(self, number: int, frame: object) -> None:
        if number not in self._came:
            self._came.append(number)

    def _open_bell(self) -> None:
        """A signal that comes just before the sleep leaves a byte, so that it is not slept over."""
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # novm
        except TypeError:  # Python 3.6
            signal.set_wakeup_fd(writer)

    def _sleep(self, deadline: Deadline) -> bool:
        """Until a signal comes; False at the deadline."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while True:
            step = self._progress and Deadline(self._progress.step(deadline.remaining()))
            if poll.poll((step or deadline).milliseconds()[0]):
                os.read(self._reader, 65536)
                return True
            if deadline.expired():
                return False
            if self._progress:
                self._progress.show(["%d (%s)" % (self.child.pid, self.command[0])], 1)

    def _clear_progress(self) -> None:
        if self._progress:
            self._progress.clear()

    def reap(self) -> bool:
        """Whether the command has exited."""
        if self.child.has_exited():
            self.child.wait()
        return self.child.reaped

    def _send(self, number: int) -> None:
        if self.verbose:
            self._clear_progress()
            tell_of_signal(_signals.name(number), self.command)
        self.send(number)

    def send(self, number: int) -> None:
        """Send it to all of the group but us; SIGKILL ends us, too, as it does GNU timeout."""
        more = () if number in (*_KILL_OR_STOP, signal.SIGCONT) else (signal.SIGCONT,)
        if self.options.foreground or number == signal.SIGSTOP:
            # SIGSTOP would stop us, and with us the time until -k.
            self._send_to_command(number)
            return
        if os.getpgid(self.child.pid) != os.getpgrp():  # it has made a group of its own
            for one in (number, *more):
                self._send_to_command(one)
        ours = {number, *more} & self._caught
        # Not SIG_IGN: Python complains of a signal that came just before, bpo-43406.
        before: "dict[int, Any]" = {one: signal.signal(one, _drop) for one in ours}
        for one in (number, *more):
            os.killpg(0, one)
        for one, handler in before.items():
            signal.signal(one, handler)

    def _send_to_command(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # setuid programs
            self.child.send_signal(number)

    def _status(self, code: "int | None") -> int:
        if self.timed_out and not (self.options.preserve_status or code == -signal.SIGKILL):
            return TIMED_OUT
        if code is None or code >= 0:
            return code or 0
        if not self.timed_out:
            die_of(-code)
        return 128 - code


def _is_ignored(number: int) -> bool:
    # PyPy's getsignal() does not know of what was ignored when we started: /proc does.
    return signal.getsignal(number) == signal.SIG_IGN or is_ignored(number)


def _drop(number: int, frame: object) -> None:
    """For a signal that we have sent to our own group."""


def die_of(number: int) -> None:
    """Shells want to see of which signal the command died."""
    import resource

    # One core dump is enough.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL, and those that the C library keeps for itself
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
