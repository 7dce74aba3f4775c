# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes: the command without a name."""

import os
import re
import time

from .._deadline import Deadline
from .._sources import procfs, toolhelp
from .._targets import check_pid
from ..process import Process
from ..waiting import WaitSet
from . import _family
from ._common import TIMED_OUT, Command, Usage, check_environment, duration
from ._output import Lost, complain, red, write
from ._progress import Progress, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

NO_SUCH_PROCESS = NOT_WRITTEN = 1

_COMMANDS = "run", "patch"
_USAGE = """\
{prog} [OPTION...] PID...
       {prog} --probe [--json]
       {prog} run [OPTION...] COMMAND [ARGUMENT...]
       {prog} patch SCRIPT [ARGUMENT...]
       {prog} patch -m MODULE [ARGUMENT...]"""
_TEXT = """\
Wait until processes have exited: any processes, not only one's own children.

  -t, --timeout DURATION  wait no longer than this, in all; 0 looks once
  -c, --count COUNT       wait until so many have exited
      --any               wait until one has exited
  -e, --exited            ignore PIDs that do not exist; no PID is fine, too
  -v, --verbose           print how each ended
      --json              print a JSON object for each PID, on a line of its own
      --probe             show what this system offers for waiting
      --version           show the version
  -h, --help              show this

DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m.

commands:
  run    start a command with a time-out, as GNU timeout does: see run -h
  patch  run a script whose subprocesses start and end sooner: see patch -h

examples:
  {prog} 4711                wait for one process
  {prog} -t 10m 4711 4712    wait for both, ten minutes at most
  {prog} -v $!               wait for the shell's last job
  {prog} -e $(pgrep make) && notify-send built
  {prog} --any -v 4711 4712  wait until one has exited: which?
  ({prog} $$; cleanup) &     clean up once this shell has exited

What can never end is refused: to wait for this very process; and without -t
for one that is seen to wait for this one (Linux), as a shell does for what it
has in the foreground.

exit status:
  0    all have exited, or as many as -c or --any ask for
  1    a PID was no process (not with -e), and the others were waited for;
       or what is printed could not be written
  2    the arguments are wrong
  124  the time was up
"""

COMMAND = Command("", _USAGE, _TEXT, "t|timeout: c|count: any e|exited v|verbose json probe")


class Waited:
    """One PID of the command line, and how its wait ended."""

    process: "Process | None" = None
    name: "str | None" = None
    seconds: "float | None" = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def open(self) -> bool:
        """Whether there is such a process."""
        try:
            self.process = Process(self.pid)
        except ProcessLookupError:
            return False
        self.name = _name(self.pid)
        return True

    def __str__(self) -> str:
        if not self.name:
            return str(self.pid)
        # A name may try to talk to the terminal.
        name = "".join(char if char.isprintable() else "?" for char in self.name)
        return "%d (%s)" % (self.pid, name)

    def as_json(self) -> str:
        import json

        found = self.process is not None
        about = {
            "pid": self.pid,
            "name": self.name,
            "found": found,
            "exited": not found or self.seconds is not None,
            "exitcode": self.process.exitcode if self.process else None,
            "seconds": self.seconds,
        }
        return json.dumps(about)

    def as_text(self) -> str:
        if self.process is None:
            return "%d: no such process" % self.pid
        if self.seconds is None:
            return "%s: still running" % self
        code = self.process.exitcode
        how = red(_how(code)) if code else _how(code)
        return "%s: %s; waited %.3f s" % (self, how, self.seconds)


def _name(pid: int) -> "str | None":
    try:
        shown = toolhelp.find(pid) if os.name == "nt" else procfs.read_stat(pid)
    except OSError:
        return None
    return shown.name if shown else None


def _how(exitcode: "int | None") -> str:
    if exitcode is None:
        return "exited"
    if exitcode >= 0:
        # Above are the NTSTATUS codes of Windows, known by their hexadecimal form.
        return ("exited with %d" if exitcode < 2**31 else "exited with 0x%X") % exitcode
    from signal import Signals

    try:
        return "killed by %s" % Signals(-exitcode).name
    except ValueError:
        return "killed by signal %d" % -exitcode


def main(argv: "Sequence[str]") -> int:
    return COMMAND.run(_main, argv)


def _main(options: "dict[str, str]", operands: "list[str]") -> int:
    if "probe" in options:
        if operands:
            raise Usage("--probe takes no PID")
        from .probe import show_probe

        check_environment()
        return show_probe("json" in options)
    # "$(pgrep make)" is one operand, of several lines or none.
    words = [word for operand in operands for word in operand.split()]
    if words and not re.search(r"\d", words[0]):
        raise Usage(_no_command(words[0]))
    pids = list(dict.fromkeys(map(_process_id, words)))
    if not pids and "exited" not in options:
        raise Usage("give at least one PID, or --probe (-h shows examples)")
    if "any" in options and "count" in options:
        raise Usage("--any can't be combined with --count")
    count = _count(options["count"]) if "count" in options else "any" in options or len(pids)
    timeout = duration(options["timeout"]) if "timeout" in options else None
    check_environment()
    deadline = Deadline(timeout)
    _refuse_what_never_ends(pids, int(count), deadline)
    return Wait(options, deadline).run(pids, int(count))


def _no_command(text: str) -> str:
    if text in _COMMANDS:
        return "options of %s come after it: %s %s -h" % (text, COMMAND.name, text)
    from difflib import get_close_matches

    close = get_close_matches(text, [*_COMMANDS, "--probe", "--version", "--help"], 1)
    return 'no command "%s"%s' % (
        text,
        "; did you mean %s?" % close[0] if close else ", and a PID is a number",
    )


def _process_id(text: str) -> int:
    if re.match(r"[+-]?\d+\Z", text, re.ASCII) is None:
        raise Usage("%r is not a process ID: give a number" % text)
    try:
        return check_pid(int(text), "PID")
    except ValueError as error:
        raise Usage(str(error)) from None


def _count(text: str) -> int:
    if re.match(r"\d+\Z", text, re.ASCII) is None or int(text) == 0:
        raise Usage("%r is not a count: give a number from 1 on" % text)
    return int(text)


def _refuse_what_never_ends(pids: "Sequence[int]", count: int, deadline: Deadline) -> None:
    if os.getpid() in pids:
        raise Usage("%d is this very process, and does not wait for itself" % os.getpid())
    if deadline.remaining() is not None or os.name == "nt":
        return
    blocked = [pid for pid in pids if _family.waits_for_us(pid)]
    if blocked and count > len(pids) - len(blocked):
        one = Waited(blocked[0])
        one.name = _name(one.pid)
        raise Usage(
            "the wait for %s would never end, as that waits for this process"
            " (run this in the background, or with -t)" % one
        )


class Wait:
    """Waits for the processes of one command line, and reports them."""

    def __init__(self, options: "Mapping[str, str]", deadline: Deadline) -> None:
        self._json = "json" in options
        self._verbose = "verbose" in options
        self._ignores_missing = "exited" in options
        self._deadline = deadline
        self._start = time.monotonic()
        self._progress = Progress()
        self._status = 0
        self._running: "dict[Process, Waited]" = {}

    def run(self, pids: "Sequence[int]", count: int) -> int:
        try:
            for pid in pids:
                self._open(Waited(pid))
            # A process that is not there counts as one that has exited.
            return self._wait(max(0, len(pids) - count)) or self._status
        finally:
            self._progress.clear()
            for process in self._running:
                process.close()

    def _open(self, one: Waited) -> None:
        if one.open():
            assert one.process is not None
            self._running[one.process] = one
            return
        if not self._ignores_missing:
            self._status = NO_SUCH_PROCESS
            self._complain("there is no process %d (with -e that is no error)" % one.pid)
        if self._json or self._ignores_missing:
            self._report(one)

    def _wait(self, left: int) -> int:
        total = len(self._running)
        with WaitSet(self._running) as waiting:
            while len(self._running) > left:
                exits = self._some(waiting, total)
                self._progress.clear()
                for process, _ in exits:
                    one = self._running.pop(process)
                    one.seconds = time.monotonic() - self._start
                    self._report(one)
                    process.close()
                if not exits:
                    running = names(list(self._running.values()))
                    self._complain("the time was up; still running: %s" % running)
                    break
        in_time = len(self._running) <= left
        if self._json or not in_time:
            for one in self._running.values():
                self._report(one)
        return 0 if in_time else TIMED_OUT

    def _some(
        self, waiting: "WaitSet[Process]", total: int
    ) -> "Sequence[tuple[Process, int | None]]":
        while True:
            exits = waiting.wait(self._progress.step(self._deadline.remaining()))
            if exits or self._deadline.expired():
                return exits
            self._progress.show(list(self._running.values()), total)

    def _report(self, one: Waited) -> None:
        if not self._json and not self._verbose:
            return
        try:
            write((one.as_json() if self._json else one.as_text()) + "\n")
        except Lost as error:
            if error.reader_gone:
                raise
            # The wait goes on, and the exit status shows the failure.
            self._complain(str(error))
            self._json = self._verbose = False
            self._status = NOT_WRITTEN

    def _complain(self, text: str) -> None:
        complain("%s: %s" % (COMMAND.name, text))
