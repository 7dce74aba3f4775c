# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes: the command without a name."""

from .. import _parts
from .._base.deadline import Deadline
from ._common import Command, CommandError, Usage, check_environment, digits, duration, no_process
from ._waited import Waited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

# Options that choose processes, and those that say how --name is meant.
_CHOOSING = "name", "user", "parent", "group", "session", "newest", "oldest"
_OF_NAME = "full", "exact", "ignore-case"
_COMMANDS: "list[str]" = []
if _parts.COMMANDS:
    _COMMANDS += ["run", "patch", "vendor"]

_USAGE = """\
{prog} [OPTION...] PID...
"""
if _parts.LISTING:
    _USAGE += """\
       {prog} [OPTION...] --name PATTERN
"""
_USAGE += """\
       {prog} --probe [--json]"""
if _parts.COMMANDS:
    _USAGE += """
       {prog} run [OPTION...] COMMAND [ARGUMENT...]
       {prog} patch SCRIPT [ARGUMENT...]
       {prog} patch -m MODULE [ARGUMENT...]
       {prog} vendor [OPTION...] DEST"""

_INSTEAD = "--probe"
_OPTIONS = "t|timeout: c|count: any e|exited exit-code v|verbose json probe"
_TEXT = """\
Wait until processes have exited: any processes, not only one's own children.

  -t, --timeout DURATION  wait no longer than this, in all; 0 looks once
  -c, --count COUNT       wait until so many have exited
      --any               wait until one has exited
  -e, --exited            ignore PIDs that do not exist; no PID is fine, too
      --exit-code         exit as the process did: see below
  -v, --verbose           print how each ended
      --json              print a JSON object for each PID, on a line of its own
      --probe             show what this system offers for waiting
  -V, --version           show the version
  -h, --help              show this

"""
if _parts.LISTING:
    _INSTEAD = "--name, or --probe"
    _OPTIONS += (
        " l|list name: f|full x|exact i|ignore-case u|user: P|parent: g|group: s|session:"
        " n|newest o|oldest"
    )
    _TEXT += """\
Instead of PIDs, options can choose processes, those that fit all of them:
      --name PATTERN      the regular expression is found in the name
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
This process and those that it descends from are never chosen. If none fits,
the exit status is 1, or 0 with -e.

"""
_TEXT += """\
DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m.

"""
if _parts.COMMANDS:
    _TEXT += """\
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
and more:
  {prog} --any -v 4711 4712  wait until one has exited: which?
  {prog} --exit-code 4711 && notify-send built
  {prog} -l -n -f --name 'ssh .*example'
  ({prog} $$; cleanup) &     clean up once this shell has exited

"""
_TEXT += """\
What can never end is refused: to wait for this very process; and without -t
for one that is seen to wait for this one (Linux), as a shell does for what it
has in the foreground.

exit status:
  0    all have exited, or as many as -c or --any ask for
  1    a PID was no process, and the others were waited for (not with -e); or
       stdout did not take what is printed
  2    the arguments are wrong
  124  the time was up
  141  nobody can read the output any more: the connection of ssh has broken,
       say. The wait ends then; under nohup it goes on
exit status with --exit-code: that of the first that did not exit with 0; 128
and the signal's number if one killed it; 0 if all exited with 0; and
  125  the system does not tell how it exited, or stdout took nothing
  127  instead of 1, there is no such process (not with -e)
"""
# The command of procps, in two parts, as a copy of the package under another name has no string
# with this one.
_PROCPS = "pid" + "wait"

COMMAND = Command("", _USAGE, _TEXT.replace("{procps}", _PROCPS), _OPTIONS)
COMMAND.lists = ("user", "parent", "group", "session")


def main(argv: "Sequence[str]") -> int:
    return COMMAND.run(_main, argv)


def _main(options: "dict[str, str]", operands: "list[str]") -> int:
    if "probe" in options:
        if operands:
            raise Usage("--probe takes no PID")
        from .probe import show_probe

        check_environment()
        return show_probe("json" in options)
    if "any" in options and "count" in options:
        raise Usage("--any can't be combined with --count")
    chooses = False
    if _parts.LISTING:
        _check_choosing(options, operands)
        chooses = any(one in options for one in _CHOOSING)
    # "$(pgrep make)" is one operand, of several lines or none.
    words = [word for operand in operands for word in operand.split()]
    if words and not any(char.isdecimal() for char in words[0]):
        raise Usage(_no_command(words[0]))
    pids = list(dict.fromkeys(map(_process_id, words)))
    if not pids and not chooses and "exited" not in options:
        raise Usage("give at least one PID, or %s (-h shows more)" % _INSTEAD)
    count = _count(options["count"]) if "count" in options else int("any" in options)
    timeout = duration(options["timeout"]) if "timeout" in options else None
    chosen = None
    if _parts.LISTING and chooses:
        from ._select import Choice

        chosen = Choice(options).processes
    check_environment()
    deadline = Deadline(timeout)
    all_ = [Waited(pid) for pid in pids]
    if chosen is not None:
        all_ = [Waited(info.pid, info) for info in chosen()]
        if not all_ and "exited" not in options:
            error = CommandError("no process fits (with -e that is no error)")
            error.status = no_process("exit-code" in options)
            raise error
    if _parts.LISTING and "list" in options:
        from ._list import show

        return show(all_, options)
    from ._waiting import Wait, refuse_what_never_ends

    count = count or len(all_)
    if not chooses:
        refuse_what_never_ends(pids, count, deadline)
    return Wait(options, deadline).run(all_, count)


def _check_choosing(options: "Mapping[str, str]", operands: "Sequence[str]") -> None:
    if "newest" in options and "oldest" in options:
        raise Usage("--newest can't be combined with --oldest")
    for one in _OF_NAME:
        if one in options and "name" not in options:
            raise Usage("--%s needs --name" % one)
    for one in _CHOOSING:
        if one in options and operands:
            raise Usage("give PIDs or --%s, not both" % one)


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
    number = digits(text[1:] if text[0] in "+-" else text)
    if number is None:
        raise Usage("%r is not a process ID: give a number" % text)
    if text[0] != "-" and 0 < number < 2**31:
        return number
    from .._waiting.owners import check_pid  # for its message: it loads much

    try:
        return check_pid(int(text), "PID")
    except ValueError as error:
        raise Usage(str(error)) from None


def _count(text: str) -> int:
    number = digits(text)
    if not number:
        raise Usage("%r is not a count: give a number from 1 on" % text)
    return number
