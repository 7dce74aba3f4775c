# SPDX-License-Identifier: BSD-3-Clause
"""The command ``run``: GNU timeout's behaviour, and whole trees of processes."""

import os

from .._base.errors import TimeoutExpired
from ._common import TIMED_OUT, Command, CommandError, Usage, as_status, check_environment, duration
from ._start import FAILED, RUN, start, tell_of_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

_USAGE = "{prog} run [OPTION...] COMMAND [ARGUMENT...]"
_TEXT = """\
Start a command, wait until it has exited, and exit as it did. Both are in a
process group of their own. HUP, INT, QUIT, TERM, USR1 and USR2 are passed on.

  -t, --timeout DURATION     the time after which the group is sent a signal
  -s, --signal SIGNAL        which: a name or a number, 0 for none; else TERM
  -k, --kill-after DURATION  send KILL so long after the first signal
  -p, --preserve-status      exit as COMMAND did when the time was up, too
  -f, --foreground           make no group: COMMAND can use the terminal, and
                             gets its Ctrl-C; it alone is sent signals
  -v, --verbose              report each signal that is sent; on a terminal,
                             show how long COMMAND has been running
      --tree                 wait for all that COMMAND has started, wherever it
                             went, and send all of it the signals (Linux)
  -V, --version              show the version
  -h, --help                 show this

DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m.
0 and inf are for ever. On Windows, COMMAND is terminated when the time is up;
-s and -k do nothing.

Unlike GNU timeout, it takes the time as -t, passes USR1 and USR2 on, and sends
STOP to COMMAND alone, so that -k can still end it. A message that stderr does
not take changes no exit status.

exit status: that of COMMAND; 128 and the signal's number if one killed it
  124  the time was up (not with -p)
  125  this command failed
  126  COMMAND is there, but can't be started
  127  COMMAND is not there
  137  COMMAND was killed by KILL after the time was up, or this was
"""
COMMAND = Command(
    RUN,
    _USAGE,
    _TEXT,
    "t|timeout: s|signal: k|kill-after: p|preserve-status f|foreground v|verbose tree",
)
COMMAND.intermixed = False
COMMAND.wrong = COMMAND.failed = FAILED


class Options:
    """What the options say."""

    def __init__(self, chosen: "dict[str, str]") -> None:
        from . import _signals

        # 0 is for ever, as in GNU timeout.
        self.timeout: "float | None" = duration(chosen.get("timeout", "0")) or None
        self.kill_after: "float | None" = duration(chosen.get("kill-after", "0")) or None
        self.signal: int = _signals.number(chosen.get("signal", "TERM"))
        self.preserve_status: bool = "preserve-status" in chosen
        self.foreground: bool = "foreground" in chosen
        self.verbose: bool = "verbose" in chosen
        self.tree: bool = "tree" in chosen


def main(argv: "Sequence[str]") -> int:
    return COMMAND.run(_main, argv)


def _main(chosen: "dict[str, str]", command: "list[str]") -> int:
    options = Options(chosen)
    if not command:
        raise Usage("give a COMMAND")
    check_environment()
    if os.name == "nt":
        return _run_on_windows(options, command)
    if options.tree:
        from ._tree import Tree as Job
    else:
        from ._job import Job  # type: ignore[assignment]
    return Job(options, command).run()


def _run_on_windows(options: Options, command: "Sequence[str]") -> int:
    if options.tree:
        raise CommandError("--tree needs Linux")
    with start(command, None if options.foreground else 0) as child:
        timed_out = False
        try:
            code = child.wait(options.timeout)
        except TimeoutExpired:
            timed_out = True
            if options.verbose:
                tell_of_signal("TERM", command)
            child.terminate()
            code = child.wait()
    if timed_out and not options.preserve_status:
        return TIMED_OUT
    return as_status(code or 0)
