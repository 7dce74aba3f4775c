# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes: the command without a name."""

# Without its enums, which take longer to load than all of this.
import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time
from errno import EPIPE
from stat import S_ISFIFO, S_ISSOCK

from .._base.deadline import Deadline
from .._base.errors import IS_WHOLE, raise_of_handler
from .._sets import WaitSet
from .._systems import probe
from .._waiting.owners import check_pid
from .options import TIMED_OUT, Command, CommandError, Usage, as_status, digits, duration, ignores
from .report import Awaited, Lost, Progress, label, listed, name_of, say, show_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._process import Process
    from .._types import Sequence

NOT_THERE, NOT_WRITTEN = 1, 1
# With --exit-code, as a shell's wait says it of a process that it does not know, and as GNU
# timeout says that it has failed.
NOT_KNOWN, NOT_TOLD = 127, 125

_COMMANDS: "list[str]" = []
_INSTEAD = "--probe"
_WAIT_OPTIONS = "t|timeout: c|count: any e|exited exit-code v|verbose json probe"
_WAIT_USAGE = "{prog} [OPTION...] PID..."
if IS_WHOLE:
    _WAIT_USAGE += """
       {prog} [OPTION...] --name PATTERN"""
_WAIT_USAGE += """
       {prog} --probe [--json]"""
if IS_WHOLE:
    _COMMANDS += ["run", "patch", "vendor"]
    _WAIT_USAGE += """
       {prog} run [OPTION...] COMMAND [ARGUMENT...]
       {prog} patch SCRIPT [ARGUMENT...]
       {prog} patch -m MODULE [ARGUMENT...]
       {prog} vendor [OPTION...] DEST"""

_WAIT_TEXT = """\
Wait until processes have exited: any processes, not only one's own children.

  -t, --timeout DURATION  wait no longer than this, in all; 0 looks once
  -c, --count COUNT       wait until so many of them have exited
      --any               wait until one has exited
  -e, --exited            ignore PIDs that do not exist; no PID at all is fine
      --exit-code         exit as the process did: see below
  -v, --verbose           print how each ended
      --json              print a JSON object for each PID, on a line of its own
      --probe             show what this system offers for waiting
  -V, --version           show the version
  -h, --help              show this
DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m.

"""
if IS_WHOLE:
    _INSTEAD = "--name, or --probe"
    _WAIT_OPTIONS += (
        " l|list name: f|full x|exact i|ignore-case u|user: P|parent: g|group: s|session:"
        " n|newest o|oldest"
    )
    _WAIT_TEXT += """\
Instead of PIDs, options can choose processes, those that fit all of them:
      --name PATTERN      the regular expression is found in the name: the whole
                          one, not only the 15 bytes that Linux keeps
  -f, --full              in the whole command line, not in the name
  -x, --exact             PATTERN matches the whole of it, not a part
  -i, --ignore-case       upper and lower case are the same
  -u, --user USER,...     it runs as one of these users: names or numbers
  -P, --parent PID,...    its parent is one of these
  -g, --group PGID,...    it is in one of these process groups; 0: in ours
  -s, --session SID,...   it is in one of these sessions; 0: in ours
  -n, --newest            of those that fit, the one that was started last
  -o, --oldest            of those that fit, the one that was started first
  -l, --list              show what would be waited for, and do not wait
Never chosen are zombies, this process, and those that it descends from. If none
fits, the exit status is 1, or 0 with -e.

A wait that could never end is refused: for this very process; and without -t
for one that is seen to wait for this one (Linux), as a shell does for what it
has in the foreground.

"""
if IS_WHOLE:
    # The command of procps is in two parts: a copy of the package has no string with its old name.
    _WAIT_TEXT += """\
commands:
  run     start a command with a time-out, as GNU timeout does: see run -h
  patch   run a script whose subprocesses start and end sooner: see patch -h
  vendor  copy this package into a project, or into one file: see vendor -h

examples:                               what other tools have for it:
  {prog} -t 600 4711 4712    waitpid -t 600 4711 4712
  {prog} --name make -u ann  {procps} -u ann make
  {prog} -v 4711             pwait -v 4711
  {prog} run -t 1h make      timeout 1h make
  tail -f log & {prog} 4711; kill $!     tail -f --pid=4711 log
  {prog} --exit-code 4711 && notify-send built
  ({prog} $$; cleanup) &     clean up once this shell has exited

""".replace("{procps}", "pid" + "wait")
_WAIT_TEXT += """\
exit status:
  0    all have exited, or as many as -c or --any ask for
  1    a PID was no process (not with -e), or the output could not be written;
       the others were waited for
  2    the arguments are wrong
  124  the time was up
  141  nobody reads stdout any more: the connection of ssh has broken, say. The
       wait ends then; under nohup it goes on
exit status with --exit-code: that of the first that did not exit with 0; 128
and the signal's number if one killed it; and instead of 1:
  125  the system does not tell how it exited, or the output was not written
  127  there is no such process
"""
_WAITING = Command("", _WAIT_USAGE, _WAIT_TEXT, _WAIT_OPTIONS)
_WAITING.lists = ("user", "parent", "group", "session")


def wait_command(argv: "Sequence[str]") -> int:
    return _WAITING.run(_wait_for, argv)


def _wait_for(options: "dict[str, str]", operands: "list[str]") -> int:
    if "probe" in options:
        if operands:
            raise Usage("--probe takes no PID")
        return show_probe(probe(), "json" in options)
    if "any" in options and "count" in options:
        raise Usage("--any can't be combined with --count")
    chooses = False
    if IS_WHOLE:
        from .choose import check_options, choose, waiting_for_us

        chooses = check_options(options, bool(operands))
    # "$(pgrep make)" is one operand, of several lines or none.
    words = [word for operand in operands for word in operand.split()]
    if words and not any(char.isdecimal() for char in words[0]):
        raise Usage(_no_command(words[0]))
    pids = list(dict.fromkeys(map(_process_id, words)))
    if not pids and not chooses and "exited" not in options:
        raise Usage("give at least one PID, or %s" % _INSTEAD)
    count = int("any" in options)
    if "count" in options:
        count = digits(options["count"]) or 0
        if not count:
            raise Usage("%r is not a count: give a number from 1 on" % options["count"])
        if count > len(pids) and not chooses:
            raise Usage("--count %d is more than the PIDs given: %d" % (count, len(pids)))
    timeout = duration(options["timeout"]) if "timeout" in options else None
    deadline = Deadline(timeout)
    all_ = [Awaited(pid) for pid in pids]
    if IS_WHOLE and chooses:
        all_ = [Awaited(info.pid, info) for info in choose(options)]
        if not all_ and "exited" not in options:
            status = NOT_KNOWN if "exit-code" in options else NOT_THERE
            raise CommandError("no process fits (with -e that is no error)", status)
    if IS_WHOLE and "list" in options:
        return _show_list(all_, options)
    count = count or len(all_)
    if os.getpid() in pids:
        raise Usage("%d is this very process, and does not wait for itself" % os.getpid())
    if IS_WHOLE and deadline.remaining() is None:
        blocked = waiting_for_us(pids)
        if blocked and count > len(pids) - len(blocked):
            raise Usage(
                "the wait for %s would never end, as that waits for this process (run this in"
                " the background, or with -t)" % label(blocked[0], name_of(blocked[0]))
            )
    return _CommandWait(options, deadline).run(all_, count)


def _no_command(text: str) -> str:
    if text in _COMMANDS:
        return "options of %s come after it: %s %s -h" % (text, _WAITING.name, text)
    from difflib import get_close_matches

    close = get_close_matches(text, [*_COMMANDS, "--probe", "--version", "--help"], 1)
    return 'no command "%s"%s' % (
        text,
        "; did you mean %s?" % close[0] if close else ", and a PID is a number",
    )


def _process_id(text: str) -> int:
    if digits(text[1:] if text[0] in "+-" else text) is None:
        raise Usage("%r is not a process ID: give a number" % text)
    try:
        return check_pid(int(text), "PID")
    except ValueError as error:
        raise Usage(str(error)) from None


def _show_list(all_: "Sequence[Awaited]", options: "dict[str, str]") -> int:
    """--list: what would be waited for."""
    import json

    from .. import ProcessInfo

    shown = ["name"]
    if "json" in options:
        shown = "pid name ppid username cmdline create_time status".split()
    status = 0
    for one in all_:
        try:
            facts = (one.chosen or ProcessInfo(one.pid)).as_dict(shown)
        except ProcessLookupError as error:
            raise_of_handler(error)
            if one.chosen is None and "exited" not in options:
                status = _not_there(one.pid, "exit-code" in options)
            continue
        text = json.dumps(facts) if "json" in options else label(one.pid, facts["name"])
        say(text + "\n")
    return status


def _not_there(pid: int, exits_as_they_do: bool) -> int:
    _WAITING.complain("there is no process %d (with -e that is no error)" % pid)
    return NOT_KNOWN if exits_as_they_do else NOT_THERE


class _CommandWait:
    """Waits for the processes of one command line, and reports them."""

    def __init__(self, options: "dict[str, str]", deadline: Deadline) -> None:
        self._json = "json" in options
        self._verbose = "verbose" in options
        self._ignores_missing = "exited" in options
        self._exits_as_they_do = "exit-code" in options
        self._deadline = deadline
        self._start = time.monotonic()
        self._progress = Progress()
        self._status = 0
        self._running: "dict[Process, Awaited]" = {}

    def run(self, all_: "Sequence[Awaited]", count: int) -> int:
        try:
            for one in all_:
                self._open(one)
            # A process that is not there counts as one that has exited.
            return self._wait(max(0, len(all_) - count)) or self._status
        finally:
            self._progress.clear()
            for process in self._running:
                process.close()

    def _open(self, one: Awaited) -> None:
        process = one.open()
        if process:
            self._running[process] = one
        elif one.chosen is not None:
            self._tell_exit(one)
        else:
            if not self._ignores_missing:
                status = _not_there(one.pid, self._exits_as_they_do)
                self._status = self._status or status
            if self._json or self._ignores_missing:
                self._report(one)

    def _tell_exit(self, one: Awaited) -> None:
        one.seconds = time.monotonic() - self._start
        self._report(one)
        if not self._exits_as_they_do:
            return
        code = one.exitcode
        if code is None:
            _WAITING.complain("the system does not tell the exit code of %s" % one)
        # The first that is not 0.
        self._status = self._status or (NOT_TOLD if code is None else as_status(code))

    def _wait(self, left: int) -> int:
        total, pipe = len(self._running), _pipe_of_stdout()
        with WaitSet(self._running) as waiting:
            while len(self._running) > left:
                exits = _next_exits(waiting, self._progress.step(self._deadline.remaining()), pipe)
                if exits:
                    self._progress.clear()
                elif not self._deadline.expired():
                    self._progress.show(self._running.values(), total)
                else:
                    running = listed(self._running.values())
                    self._progress.clear()
                    _WAITING.complain("the time was up; still running: %s" % running)
                    break
                for process, _ in exits:
                    self._tell_exit(self._running.pop(process))
                    process.close()
        in_time = len(self._running) <= left
        if self._json or not in_time:
            for one in self._running.values():
                self._report(one)
        return 0 if in_time else TIMED_OUT

    def _report(self, one: Awaited) -> None:
        if not self._json and not self._verbose:
            return
        try:
            say((one.as_json() if self._json else one.as_text()) + "\n")
        except Lost as error:
            if error.reader_gone:
                raise
            # The wait goes on, and the exit status shows the failure.
            _WAITING.complain(error)
            self._json = self._verbose = False
            self._status = NOT_TOLD if self._exits_as_they_do else NOT_WRITTEN


def _pipe_of_stdout() -> "int | None":
    """stdout, if its reader can go: then the wait ends, as GNU tail -f does, but not under nohup.

    When a connection breaks, sshd closes its ends of our pipes, and sends a signal only if there
    is a terminal: without this the wait would stay behind on that machine.
    """
    if not hasattr(select, "poll") or ignores(_signal.SIGHUP):
        return None
    try:
        fd = sys.stdout.fileno()
        mode = os.fstat(fd).st_mode
    except (AttributeError, OSError):  # it is closed, or a program that calls main() replaced it
        return None
    return fd if S_ISFIFO(mode) or S_ISSOCK(mode) else None


def _next_exits(
    waiting: "WaitSet[Process]", seconds: "float | None", pipe: "int | None"
) -> "Sequence[tuple[Process, int | None]]":
    """``waiting.wait(seconds)``; Lost if nobody reads the pipe any more."""
    if pipe is None or seconds == 0:
        return waiting.wait(seconds)
    try:
        fd = waiting.fileno()
    except OSError:  # no file descriptor is left
        return waiting.wait(seconds)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(pipe, 0)  # POLLERR and POLLHUP come unasked
    events = dict(poll.poll(Deadline(seconds).milliseconds()[0]))
    exits = waiting.wait(0)
    if not exits and pipe in events:
        raise Lost(OSError(EPIPE, os.strerror(EPIPE)))
    return exits
