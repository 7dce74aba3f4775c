# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes: the command without a name."""

import argparse
import json
import os
import re
import signal
import sys
import time

from .. import _backends
from .._deadline import Deadline
from .._sources import procfs, toolhelp
from .._targets import check_pid
from ..process import Process
from ..waiting import WaitSet
from ._common import PROG, TIMED_OUT, duration, write_line
from ._progress import Progress, names
from .probe import show_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

NO_SUCH_PROCESS = 1
USAGE = 2
READER_GONE = 128 + 13  # SIGPIPE, which Windows has not got
STATUS_CONTROL_C_EXIT = 0xC000013A - 2**32  # as signed as sys.exit() takes it

_PROGRESS_AFTER = 1.0  # seconds, and how often it is drawn anew

_DESCRIPTION = "Wait until processes have exited: any processes, not only one's own children."
_EPILOG = """\
DURATION is a number of seconds, or has a unit: 0.5s, 2m, 1h, 1d. 0 looks once.

examples:
  {prog} 4711                wait for one process
  {prog} -t 10m 4711 4712    wait for both, ten minutes at most
  {prog} -v $!               wait for the shell's last job, and tell how it ended
  {prog} -e $(pgrep make) && notify-send built
  {prog} --any -v 4711 4712  wait until one of them has exited, and tell which
  {prog} --probe             show what this system offers for waiting
  {prog} run -t 1h make      start a command with a time-out (run -h)
  {prog} patch script.py     run a script whose subprocesses start and end sooner

exit status:
  0    all have exited, or as many as -c or --any ask for
  1    a PID was no process (not with -e); the others were waited for
  2    the arguments are wrong
  124  the time was up
"""


class Waited:
    """One process of the command line, and how its wait ended."""

    def __init__(self, pid: int) -> None:
        self.process = Process(pid)
        self.pid = pid
        self.name = _name(pid)
        self.seconds: "float | None" = None

    def __str__(self) -> str:
        if not self.name:
            return str(self.pid)
        # A name may try to talk to the terminal.
        name = "".join(char if char.isprintable() else "?" for char in self.name)
        return "%d (%s)" % (self.pid, name)

    def as_dict(self) -> "dict[str, Any]":
        return {
            "pid": self.pid,
            "name": self.name,
            "exited": self.seconds is not None,
            "exitcode": self.process.exitcode,
            "seconds": self.seconds,
        }

    def as_text(self) -> str:
        if self.seconds is None:
            return "%s: still running" % self
        return "%s: %s after %.3f s" % (self, _how(self.process.exitcode), self.seconds)


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
    try:
        return "killed by %s" % signal.Signals(-exitcode).name
    except ValueError:
        return "killed by signal %d" % -exitcode


def process_id(text: str) -> int:
    if re.match(r"[+-]?\d+\Z", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError("%r is not a process ID: give a number" % text)
    try:
        return check_pid(int(text), "PID")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    if re.match(r"\d+\Z", text, re.ASCII) is None or int(text) == 0:
        raise argparse.ArgumentTypeError("%r is not a count: give a number from 1 on" % text)
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG.format(prog=PROG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("pids", metavar="PID", nargs="*", type=process_id, help="the processes to wait for")
    add("-t", "--timeout", metavar="DURATION", type=duration, help="how long to wait, in all")
    several = parser.add_mutually_exclusive_group()
    several.add_argument(
        "-c", "--count", metavar="COUNT", type=count, help="wait until so many have exited"
    )
    several.add_argument(
        "--any", dest="count", action="store_const", const=1, help="wait until one has exited"
    )
    add("-e", "--exited", action="store_true", help="ignore PIDs that do not exist")
    add("-v", "--verbose", action="store_true", help="print how each ended")
    add("--json", action="store_true", help="one JSON object a line for each process")
    add("--probe", action="store_true", help="show what this system offers, and why not more")
    return parser


def main(argv: "Sequence[str]") -> int:
    parser = _parser()
    # Options between PIDs, where argparse can (Python 3.7).
    parse = getattr(parser, "parse_intermixed_args", parser.parse_args)
    options = parse(argv)
    if options.probe == bool(options.pids):
        parser.error("give at least one PID, or --probe (-h shows examples)")
    try:
        _backends.backend()
    except (OSError, ValueError) as error:  # from the environment variables
        parser.error(getattr(error, "strerror", None) or str(error))
    try:
        status = show_probe(options.json) if options.probe else _wait(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output has gone: keep the interpreter's last flush from failing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except KeyboardInterrupt:
        if os.name == "nt":
            return STATUS_CONTROL_C_EXIT
        # Shells want to see that a program died of the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 128 + signal.SIGINT


def _wait(options: argparse.Namespace) -> int:
    start = time.monotonic()
    deadline = Deadline(options.timeout)
    progress = Progress()
    status = 0
    running: "dict[Process, Waited]" = {}
    try:
        pids = list(dict.fromkeys(options.pids))
        for pid in pids:
            try:
                one = Waited(pid)
                running[one.process] = one
            except ProcessLookupError:
                if not options.exited:
                    status = NO_SUCH_PROCESS
                    _complain("there is no process %d (with -e that is no error)" % pid)
        total = len(running)
        # A process that is not there counts as one that has exited.
        left = max(0, len(pids) - (options.count or len(pids)))
        with WaitSet(running) as waiting:
            while len(running) > left:
                exits = _wait_for_some(waiting, list(running.values()), total, deadline, progress)
                progress.clear()
                if not exits:
                    text = "the time was up; still running: %s"
                    _complain(text % names(list(running.values())))
                    for one in running.values():
                        _report(one, options)
                    return TIMED_OUT
                for process, _ in exits:
                    one = running.pop(process)
                    one.seconds = time.monotonic() - start
                    _report(one, options)
                    process.close()
    finally:
        for process in running:
            process.close()
    return status


def _wait_for_some(
    waiting: WaitSet,
    running: "Sequence[Waited]",
    total: int,
    deadline: Deadline,
    progress: Progress,
) -> "Sequence[tuple[Any, int | None]]":
    while True:
        step = deadline.at_most(_PROGRESS_AFTER) if progress.active else deadline.remaining()
        exits = waiting.wait(step)
        if exits or deadline.expired():
            return exits
        progress.show(running, total)


def _report(one: Waited, options: argparse.Namespace) -> None:
    if options.json:
        write_line(json.dumps(one.as_dict()))
    elif options.verbose:
        write_line(one.as_text())


def _complain(text: str) -> None:
    print("%s: %s" % (PROG, text), file=sys.stderr, flush=True)
