# SPDX-License-Identifier: BSD-3-Clause
"""The command ``run``: GNU timeout's behaviour, and whole trees of processes."""

import argparse
import os
import select
import signal
import sys
from errno import ENOENT

from .._deadline import Deadline
from .._errors import TimeoutExpired, log
from .._ffi import calls, linux
from .._sources import procfs
from ..process import Process
from ..spawning import spawn
from ._common import PROG, TIMED_OUT, duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Sequence

# As in GNU timeout.
FAILED = 125
CANNOT_INVOKE = 126
NOT_FOUND = 127
KILLED = 128 + 9

_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")

_DESCRIPTION = """\
Start a command in a process group of its own, wait until it has exited, and exit as it
did. Signals (%s) are passed on to the group.
""" % ", ".join(_PASSED_ON)
_EPILOG = """\
DURATION is a number of seconds, or has a unit: 0.5s, 2m, 1h, 1d. 0 is for ever.

exit status: that of COMMAND; 128 and the signal's number if one killed it
  124  the time was up
  125  this command failed
  126  COMMAND is there, but can't be started
  127  COMMAND is not there
  137  COMMAND was killed by SIGKILL after the time was up, or this was
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> "NoReturn":
        self.print_usage(sys.stderr)
        self.exit(FAILED, "%s: %s\n" % (self.prog, message))
        raise AssertionError("exit() returns")


def _signal_number(text: str) -> int:
    name = text.upper()
    name = name if name.startswith("SIG") else "SIG" + name
    number = getattr(signal, name, None) or (int(text) if text.isdigit() else 0)
    if not 0 < number < signal.NSIG:
        raise argparse.ArgumentTypeError("%r is not a signal" % text)
    return int(number)


def main(argv: "Sequence[str]") -> int:
    parser = Parser(
        prog=PROG + " run",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-t", "--timeout", metavar="DURATION", type=duration, help="how long it may take")
    add(
        "-k",
        "--kill-after",
        metavar="DURATION",
        type=duration,
        help="send SIGKILL so long after the signal",
    )
    add(
        "-s",
        "--signal",
        metavar="SIGNAL",
        type=_signal_number,
        default=signal.SIGTERM,
        help="what to send when the time is up: a name or a number (default: TERM)",
    )
    add(
        "--tree",
        action="store_true",
        help="wait for all that COMMAND started, and end all of it: Linux",
    )
    add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="and its arguments")
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("give a COMMAND")
    try:
        return (Tree if options.tree else Job)(options).run(command)
    except OSError as error:
        # On Windows the error does not name the command.
        print("%s: %s: %s" % (parser.prog, command[0], error), file=sys.stderr)
        if error.errno == ENOENT:
            return NOT_FOUND
        return CANNOT_INVOKE if error.filename or isinstance(error, PermissionError) else FAILED


class Job:
    """A command in our process group, which is one of our own, as GNU timeout has it.

    So a terminal takes both for one job: Ctrl-Z stops both, and both are in the
    foreground or neither.
    """

    def __init__(self, options: "Any") -> None:
        self.options = options
        self.signals: "list[int]" = []  # that came, to be passed on
        self.timed_out = False
        self.ending = False

    def run(self, command: "Sequence[str]") -> int:
        deadline = Deadline(self.options.timeout or None)
        if os.name == "nt":
            return self._run_on_windows(command, deadline)
        self._catch_signals()
        with spawn(command) as child:
            self.child = child
            while not self.reap():
                while self.signals:
                    self.send(self.signals.pop(0))
                    deadline = self._end(deadline)
                if not self._sleep(deadline):
                    self.timed_out = True
                    self.send(signal.SIGKILL if self.ending else self.options.signal)
                    self.ending = True
                    deadline = Deadline(self.options.kill_after)
        return self._status(child.exitcode)

    def _end(self, deadline: Deadline) -> Deadline:
        """A signal was passed on: -k counts from now."""
        if self.options.kill_after is None or self.ending:
            return deadline
        self.ending = True
        return Deadline(self.options.kill_after)

    def _run_on_windows(self, command: "Sequence[str]", deadline: Deadline) -> int:
        with spawn(command, process_group=0) as child:
            try:
                return child.wait(deadline.remaining()) or 0
            except TimeoutExpired:
                child.terminate()
                return TIMED_OUT

    def _catch_signals(self) -> None:
        try:
            os.setpgid(0, 0)
        except PermissionError:  # the leader of a session is that of its group
            pass
        # A signal that comes just before the sleep must not be slept over: it
        # leaves a byte, see signal.set_wakeup_fd().
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *arguments: None)
        for stop in (signal.SIGTTIN, signal.SIGTTOU):  # which is the command's affair
            signal.signal(stop, lambda *arguments: None)
        passed_on = {int(getattr(signal, name)) for name in _PASSED_ON} | {self.options.signal}
        for number in passed_on - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.signals.append(number)

    def _sleep(self, deadline: Deadline) -> bool:
        """Until a signal comes; False at the deadline."""
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        while not poll.poll(deadline.milliseconds()):
            if deadline.expired():
                return False
        os.read(self.reader, 4096)
        return True

    def reap(self) -> bool:
        """Whether the command has exited."""
        if self.child.has_exited():
            self.child.wait()
        return self.child.reaped

    def send(self, number: int) -> None:
        """Send it to all of the group but us; SIGKILL ends us, too, as it does GNU timeout."""
        if number != signal.SIGKILL:
            own: "Any" = signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
            signal.signal(number, own)
            os.killpg(0, signal.SIGCONT)
        else:
            os.killpg(0, number)

    def _status(self, code: "int | None") -> int:
        if self.timed_out:
            return KILLED if code == -signal.SIGKILL else TIMED_OUT
        if code is None or code >= 0:
            return code or 0
        # Shells want to see of which signal it died; one core dump is enough.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        return 128 - code


class Tree(Job):
    """A command and all that it starts, whatever group or session it goes to.

    What loses its parent becomes our child: PR_SET_CHILD_SUBREAPER, prctl(2), Linux 3.4.
    """

    def __init__(self, options: "Any") -> None:
        super().__init__(options)
        calls.get("prctl")(linux.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.killing = False

    def reap(self) -> bool:
        """Whether all have exited."""
        super().reap()
        while True:
            try:
                # The command's own exit is left to the Child.
                info = calls.get("waitid")(linux.P_ALL, 0, linux.LOOK)
            except ChildProcessError:
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
        if not self.killing:
            self._send_to_all(signal.SIGCONT)

    def _send_to_all(self, number: int) -> None:
        family = _family()
        for pid in family:
            try:
                with Process(pid) as process:
                    stat = procfs.read_stat(pid)  # of the process that the handle is on
                    if stat is not None and stat.parent in family | {os.getpid()}:
                        process.send_signal(number)
            except (ProcessLookupError, PermissionError) as error:
                log("pid %d: %s", pid, error)


def _family() -> "set[int]":
    """All that descend from us."""
    parents = {}
    for name in os.listdir("/proc"):
        stat = procfs.read_stat(int(name)) if name.isdigit() else None
        if stat is not None:
            parents[int(name)] = stat.parent
    family = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} | family
        if more == family:
            return family - {os.getpid()}
        family = more
