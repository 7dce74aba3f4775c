# SPDX-License-Identifier: BSD-3-Clause
"""The command line: python -m PACKAGE."""

import argparse
import json
import os
import re
import signal
import sys
import time
from errno import EINVAL, EPIPE

from . import _owners, _probe, _procfs, _toolhelp
from ._deadline import Deadline
from .process import Process
from .waiting import WaitSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

TIMED_OUT = 124  # as GNU timeout says it
NO_SUCH_PROCESS = 1
USAGE = 2
READER_GONE = 128 + 13  # SIGPIPE, which Windows has not got
STATUS_CONTROL_C_EXIT = 0xC000013A - 2**32  # as signed as sys.exit() takes it

_PROGRESS_AFTER = 1.0  # seconds, and how often it is drawn anew
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

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
        shown = _toolhelp.find(pid) if os.name == "nt" else _procfs.read_stat(pid)
    except OSError:
        return None
    return shown.name if shown else None


def _names(processes: "Sequence[Waited]") -> str:
    more = ", and %d more" % (len(processes) - 3) if len(processes) > 3 else ""
    return ", ".join(str(one) for one in processes[:3]) + more


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


class Progress:
    """A line on the terminal that tells who still runs; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = False
        self.active = self._width() is not None

    def show(self, running: "Sequence[Waited]", total: int) -> None:
        time_ = _clock(int(time.monotonic() - self._start))
        if total == 1:
            self._write("waiting %s for %s" % (time_, running[0]))
        else:
            text = "%d of %d exited, %s; waiting for %s"
            self._write(text % (total - len(running), total, time_, _names(running)))
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._write("")
            self._shown = False

    def _width(self) -> "int | None":
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except OSError:  # the null device of Windows is a terminal, too
            return None

    def _write(self, text: str) -> None:
        width = self._width() or 80
        # Windows' console knows escape sequences only once it is told to.
        erase = "\r%*s\r" % (width - 1, "") if os.name == "nt" else "\r\033[K"
        sys.stderr.write(erase + text[: width - 1])
        sys.stderr.flush()


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return "%d:%02d:%02d" % (hours, minutes, seconds) if hours else "%d:%02d" % (minutes, seconds)


def duration(text: str) -> float:
    match = re.match(r"(\d+\.?\d*|\.\d+)([smhd]?)\Z", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(
            "%r is not a duration: give seconds, or a number with s, m, h or d" % text
        )
    return float(match.group(1)) * _UNITS[match.group(2)]


def process_id(text: str) -> int:
    if re.match(r"[+-]?\d+\Z", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError("%r is not a process ID: give a number" % text)
    try:
        return _owners.check_pid(int(text), "PID")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    if re.match(r"\d+\Z", text, re.ASCII) is None or int(text) == 0:
        raise argparse.ArgumentTypeError("%r is not a count: give a number from 1 on" % text)
    return int(text)


def _parser() -> argparse.ArgumentParser:
    prog = "python -m %s" % __package__
    parser = argparse.ArgumentParser(
        prog=prog,
        description=_DESCRIPTION,
        epilog=_EPILOG.format(prog=prog),
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
    add("-e", "--exited", action="store_true", help="a PID without a process is no error")
    add("-v", "--verbose", action="store_true", help="tell of each process how it ended")
    add("--json", action="store_true", help="one JSON object a line for each process")
    add("--probe", action="store_true", help="show what this system offers, and why not more")
    return parser


def main(argv: "Sequence[str] | None" = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] in (["run"], ["patch"]):
        from . import _commands

        return getattr(_commands, arguments[0])(arguments[1:])  # type: ignore[no-any-return]
    parser = _parser()
    # Options between PIDs, where argparse can (Python 3.7).
    parse = getattr(parser, "parse_intermixed_args", parser.parse_args)
    options = parse(arguments)
    if options.probe == bool(options.pids):
        parser.error("give at least one PID, or --probe (-h shows examples)")
    try:
        _probe.backend()
    except (OSError, ValueError) as error:  # from the environment variables
        parser.error(getattr(error, "strerror", None) or str(error))
    try:
        status = _show_probe(options.json) if options.probe else _wait(options, parser.prog)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who read our output has gone: let the interpreter's last flush not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except KeyboardInterrupt:
        if os.name == "nt":
            return STATUS_CONTROL_C_EXIT
        # Shells want to see that a program died of the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 128 + signal.SIGINT


def _wait(options: argparse.Namespace, prog: str) -> int:
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
                    _complain(prog, "there is no process %d (with -e that is no error)" % pid)
        total = len(running)
        # A process that is not there counts as one that has exited.
        left = max(0, len(pids) - (options.count or len(pids)))
        with WaitSet(running) as waiting:
            while len(running) > left:
                exits = _wait_for_some(waiting, list(running.values()), total, deadline, progress)
                progress.clear()
                if not exits:
                    text = "the time was up; still running: %s"
                    _complain(prog, text % _names(list(running.values())))
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
        _print(json.dumps(one.as_dict()))
    elif options.verbose:
        _print(one.as_text())


def _print(text: str) -> None:
    # A process can have any bytes for its name, and stdout any encoding.
    encoding = sys.stdout.encoding or "ascii"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        # The C library of Windows has no number for ERROR_NO_DATA, bpo-35754.
        if os.name == "nt" and error.errno == EINVAL:
            raise BrokenPipeError(EPIPE, os.strerror(EPIPE)) from None
        raise


def _complain(prog: str, text: str) -> None:
    print("%s: %s" % (prog, text), file=sys.stderr, flush=True)


def _show_probe(as_json: bool) -> int:
    answer = _probe.probe()
    if as_json:
        _print(json.dumps(answer, indent=2))
        return 0
    for key in ("system", "python", "backend"):
        _print("%-20s %s" % (key, answer[key]))
    for section in ("backends", "bindings", "calls"):
        _print("\n%s" % section)
        for name, row in answer[section].items():
            via = " (%s)" % row["via"] if row.get("via") else ""
            text = "yes" + via if row["available"] else "no: " + row["reason"]
            _print("  %-18s %s" % (name, text))
    return 0
