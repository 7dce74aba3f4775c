# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes: the command without a name."""

import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time
from stat import S_ISFIFO, S_ISSOCK

from .._base.deadline import Deadline
from .._base.errors import IS_WHOLE, not_by_handler
from .._probe import probe
from .._process import pid_exists
from .._sets import WaitSet
from .._systems.bindings import PLATFORM
from .shared import (
    READER_GONE,
    TIMED_OUT,
    Command,
    CommandError,
    UsageError,
    advice,
    as_status,
    digits,
    duration,
    ending,
    ignores,
    label,
    process_id,
    say,
)

if IS_WHOLE:
    from .._finding import ProcessInfo
    from .choose import CHOICE, check_options, choose, show_list
else:
    CHOICE = "", ""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Sequence

NOT_THERE = NOT_WRITTEN = 1
NOT_KNOWN, NOT_TOLD = 127, 125  # with --exit-code: as in a shell's wait, and in GNU timeout

_WAIT_USAGE = "{prog} [OPTION...] PID...\n       {prog} --probe [--json]"
_WAIT_TEXT = """\
Wait until processes have exited. They need not be children of the caller.

  -t, --timeout DURATION  stop waiting after this time; 0 only checks
  -c, --count COUNT       wait until COUNT of the processes have exited
      --any               wait until one has exited
  -F, --pidfile FILE      read a PID from the beginning of FILE
  -e, --exited            a PID that does not exist counts as exited, without an
                          error; an empty list of PIDs is no error
      --exit-code         exit as the process did: see below
  -v, --verbose           print how each process ended; at a time-out, print
                          which are still running
      --json              print a line with a JSON object for each PID
      --probe             show what this system offers for waiting
  -V, --version           show the version
  -h, --help              show this
DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m.
%s
exit status:
  0    all processes have exited, or as many as -c or --any require
  1    a PID did not exist (not with -e), or the output could not be written;
       all other processes have been waited for; or FILE has no PID
  2    the arguments are wrong
  124  time-out
  141  nobody reads stdout any more; under nohup the wait goes on
With --exit-code, the exit status is that of the first process that did not exit
with 0, or 128 plus the number of the signal that killed it; 125 if the exit
code is not known, or the output could not be written; 127 if a PID is gone, or
FILE has none.
"""
WAIT = Command("", _WAIT_USAGE + CHOICE[0], _WAIT_TEXT % CHOICE[1])


def wait_for_exits(options: "dict[str, str]", operands: "list[str]") -> int:
    if "probe" in options:
        if operands:
            raise UsageError("--probe takes no PID")
        return _show_probe(probe(), "json" in options)
    if "any" in options and "count" in options:
        raise UsageError("--any can't be combined with --count")
    # "$(pgrep make)" is one operand, of several lines or none.
    words = [word for operand in operands for word in operand.split()]
    try:
        pids = list(dict.fromkeys(process_id(word.lstrip("+"), "PID") for word in words))
    except UsageError as error:
        raise UsageError("%s%s" % (error, advice(words, "name" not in options))) from None
    chooses = IS_WHOLE and check_options(options, bool(operands))
    nobody = NOT_KNOWN if "exit-code" in options else NOT_THERE
    if "pidfile" in options:
        pids = list(dict.fromkeys([*pids, _read_pid(options["pidfile"], nobody)]))
    if not pids and not chooses and "exited" not in options:
        others = "--name, or --probe" if IS_WHOLE else "--probe"
        raise UsageError("give at least one PID, or " + others)
    count = int("any" in options)
    if "count" in options:
        count = digits(options["count"]) or 0
        if not count:
            raise UsageError("--count: %r is not a number greater than 0" % options["count"])
    deadline = Deadline(duration(options, "timeout") if "timeout" in options else None)
    chooses = chooses or (bool(pids) and "list" in options)
    targets: "Any" = choose(options, pids, WAIT.parse) if chooses else pids
    if chooses and not targets and "exited" not in options:
        raise CommandError("no process matches (use -e to ignore)", nobody)
    if "list" in options:
        show_list(targets, "json" in options)
        return 0
    if count > len(targets) > 0:  # with none, there is -e
        of = "processes" if chooses else "PIDs"
        raise UsageError("--count %d is more than the number of %s: %d" % (count, of, len(targets)))
    if os.getpid() in pids:
        raise UsageError("%d is this process, which can't wait for itself" % os.getpid())
    return _CommandWait(options, deadline).run(targets, count or len(targets))


def _show_probe(answer: "dict[str, Any]", as_json: bool) -> int:
    if as_json:
        import json

        say(json.dumps(answer, indent=2) + "\n")
        return 0
    lines = ["%-20s %s" % (key, answer[key]) for key in ("system", "python", "backend")]
    for section in ("backends", "bindings", "calls"):
        lines += ["", section]
        for name, row in answer[section].items():
            via = " (%s)" % row["via"] if row.get("via") else ""
            text = "yes" + via if row["available"] else "no: " + row["reason"]
            lines.append("  %-18s %s" % (name, text))
    say("\n".join(lines) + "\n")
    return 0


def _read_pid(path: str, nobody: int) -> int:
    """The file's first word, as pgrep takes it: some programs write more."""
    try:
        with open(path, "rb") as file:
            word = (file.read(64).split() or [b""])[0].decode("ascii", "replace")
        return process_id(word, "PID")
    except not_by_handler(OSError) as error:
        text = " (a PID needs no option)" if digits(path) else ""
        raise CommandError("--pidfile: %s: %s%s" % (path, error.strerror, text), nobody) from None
    except UsageError:
        raise CommandError("--pidfile: %s does not begin with a PID" % path, nobody) from None


class _CommandWait:
    """Waits for the processes of one command line, and reports them."""

    def __init__(self, options: "dict[str, str]", deadline: Deadline) -> None:
        self._options = options
        self._deadline = deadline
        self._start = time.monotonic()
        self._status = 0
        # The objects of --json, by the running processes.
        self._running: "dict[int | ProcessInfo, dict[str, Any]]" = {}
        self._form: "Any" = _as_text if "verbose" in options else None
        if "json" in options:
            from json import dumps

            self._form = dumps

    def run(self, targets: "Sequence[int | ProcessInfo]", count: int) -> int:
        # A PID without a process counts as exited.
        left = max(0, len(targets) - count)
        with WaitSet() as waiting:
            for target in targets:
                self._add(waiting, target)
            poll = _poll_of(waiting)
            while len(waiting) > left:
                if poll is None or self._deadline.expired():
                    exits = waiting.wait(self._deadline.remaining())
                else:
                    events = dict(poll.poll(self._deadline.milliseconds()))
                    exits = waiting.wait(0)
                    if not exits and sys.stdout.fileno() in events:
                        raise CommandError("nobody reads stdout", READER_GONE)
                for target, code in exits:
                    self._tell_exit(self._running.pop(target), code)
                if not exits and self._deadline.expired():
                    break
        rows = self._running.values()
        timed_out = len(rows) > left
        if timed_out:
            names = [label(row["pid"], row["name"]) for row in rows]
            more = ", and %d more" % (len(names) - 3) if len(names) > 3 else ""
            text = "; still running: " + ", ".join(names[:3]) + more
            # With -v, stdout lists all of them.
            WAIT.complain("timed out" + ("" if self._form is _as_text else text))
        if timed_out or "json" in self._options:
            for row in rows:
                self._report(row)
        return TIMED_OUT if timed_out else self._status

    def _add(self, waiting: "WaitSet[Any]", target: "Any") -> None:
        row: "dict[str, Any]" = dict.fromkeys("pid name found exited exitcode seconds".split())
        row["pid"] = pid = getattr(target, "pid", target)
        # What was chosen was there. The set reports its exit if it has gone since.
        row["found"] = pid is not target or pid_exists(pid)
        if row["found"]:
            waiting.add(target)
            name = _name_of(pid) if pid is target else target.info["name"]
            row.update(name=name, exited=False)
            self._running[target] = row
            return
        if "exited" not in self._options:
            WAIT.complain("no such process: %d (use -e to ignore)" % pid)
            self._status = NOT_KNOWN if "exit-code" in self._options else NOT_THERE
        if "json" in self._options or "exited" in self._options:
            self._report(row)

    def _tell_exit(self, row: "dict[str, Any]", code: "int | None") -> None:
        row.update(exited=True, exitcode=code, seconds=time.monotonic() - self._start)
        self._report(row)
        if "exit-code" in self._options:
            if code is None:
                WAIT.complain("the exit code is not known: " + label(row["pid"], row["name"]))
            # The first status other than 0 stays.
            self._status = self._status or (NOT_TOLD if code is None else as_status(code))

    def _report(self, row: "dict[str, Any]") -> None:
        if self._form is None:
            return
        try:
            say(self._form(row) + "\n")
        except CommandError as error:
            if error.status == READER_GONE:
                raise
            # The wait goes on, and the exit status shows the failure.
            WAIT.complain(error)
            self._form = None
            self._status = NOT_TOLD if "exit-code" in self._options else NOT_WRITTEN


def _poll_of(waiting: "WaitSet[Any]") -> "Any":
    """A poll object that also sees the reader of stdout go: this ends the wait, as GNU tail -f.

    None without a pipe or socket, or under nohup. When a connection breaks, sshd closes its ends
    of our pipes, and sends a signal only if there is a terminal: else the wait would go on there.
    """
    if not hasattr(select, "poll") or ignores(_signal.SIGHUP):
        return None
    poll = select.poll()
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
        poll.register(sys.stdout, 0)  # POLLERR and POLLHUP are always reported
        poll.register(waiting, select.POLLIN)
    except (AttributeError, OSError):  # stdout is closed or replaced; no file descriptor is left
        return None
    return poll if S_ISFIFO(mode) or S_ISSOCK(mode) else None


def _name_of(pid: int) -> "str | None":
    """The whole name, which --name searches; in a single file, the part that Linux keeps."""
    if IS_WHOLE:
        try:
            return ProcessInfo(pid).name()
        except not_by_handler(OSError):
            return None
    elif PLATFORM in ("linux", "android"):
        from .._systems.linux.proc import read_stat

        return getattr(read_stat(pid), "name", None)
    return None


def _as_text(row: "dict[str, Any]") -> str:
    """An object of --json as text."""
    if not row["found"]:
        return "%d: no such process" % row["pid"]
    who = label(row["pid"], row["name"])
    if not row["exited"]:
        return "%s: still running" % who
    return "%s: %s; waited %.3f s" % (who, ending(row["exitcode"]), row["seconds"])
