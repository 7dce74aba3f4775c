# SPDX-License-Identifier: BSD-3-Clause
"""What the commands print, and about what; stdout and stderr may be closed, full, or unread."""

import contextlib
import os
import sys
import time
from errno import EBADF, EINVAL, EPIPE

from .._base.errors import IS_WHOLE, raise_of_handler
from .._systems.bindings import PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Sequence

READER_GONE = 128 + 13  # SIGPIPE, which Windows has not got
PROGRESS_EVERY = 1.0  # seconds: when the line on the terminal is first drawn, and then anew


class CommandError(Exception):
    """The command can't do its work; ``status`` is the exit status, if not the usual one."""

    def __init__(self, text: str, status: "int | None" = None) -> None:
        super().__init__(text)
        self.status = status


def say(text: str) -> None:
    """Write it to stdout; CommandError if that does not take it."""
    # A process can have any bytes for its name, and stdout any encoding.
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    error = write(sys.stdout, text.encode(encoding, "backslashreplace").decode(encoding))
    if error is not None:
        # The C library of Windows has no number for ERROR_NO_DATA, bpo-35754.
        is_unread = error.errno in ((EPIPE, EINVAL) if os.name == "nt" else (EPIPE,))
        text = "can't write to stdout: %s" % error.strerror
        raise CommandError(text, READER_GONE if is_unread else None)


def write(stream: "Any", text: str) -> "OSError | None":
    """Write it, and return the error if the stream does not take it."""
    if stream is None:
        return OSError(EBADF, os.strerror(EBADF))
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # Keep the interpreter's last flush from failing, which would change the exit status.
        with contextlib.suppress(OSError):  # a program that calls main() has replaced the stream
            number, null = stream.fileno(), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)
        return error
    return None


def _can_erase_lines(stream: "Any") -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def name_of(pid: int) -> "str | None":
    """The whole name, which --name looks at; in a single file, as much as the kernel keeps."""
    found: "Any" = None
    if IS_WHOLE:
        from .. import ProcessInfo

        try:
            return ProcessInfo(pid).name()
        except OSError as error:
            raise_of_handler(error)
    elif os.name == "nt":
        from .._systems.windows_handles import find_entry

        found = find_entry(pid)
    elif PLATFORM in ("linux", "android"):
        from .._systems.procfs import read_stat

        found = read_stat(pid)
    return found.name if found else None


def label(pid: int, name: "str | None") -> str:
    """A process as it is called in each message."""
    if not name:
        return str(pid)
    # A name may try to talk to the terminal.
    return "%d (%s)" % (pid, "".join(char if char.isprintable() else "?" for char in name))


def listed(names: "Sequence[str]") -> str:
    more = ", and %d more" % (len(names) - 3) if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def ending(exitcode: "int | None") -> str:
    """How a process ended: a failure in red, if stdout has colours, and NO_COLOR is not set."""
    if exitcode is None:
        return "exited"
    text = "exited with %d" % exitcode
    if exitcode >= 2**31:  # an NTSTATUS of Windows, known by its hexadecimal form
        text = "exited with 0x%X" % exitcode
    elif exitcode < 0:
        from signal import Signals

        names = {int(one): one.name for one in Signals}
        text = "killed by " + names.get(-exitcode, "signal %d" % -exitcode)
    # Windows' console knows escape sequences only once it is told to.
    if not exitcode or os.name == "nt" or os.environ.get("NO_COLOR"):
        return text
    return "\033[31m%s\033[m" % text if _can_erase_lines(sys.stdout) else text


def as_text(row: "dict[str, Any]") -> str:
    """An object of --json in words."""
    if not row["found"]:
        return "%d: no such process" % row["pid"]
    who = label(row["pid"], row["name"])
    if not row["exited"]:
        return "%s: still running" % who
    return "%s: %s; waited %.3f s" % (who, ending(row["exitcode"]), row["seconds"])


class Progress:
    """A line on the terminal that tells which still run; nothing where stderr is no terminal."""

    def __init__(self, is_wanted: bool = True) -> None:
        self._start = time.monotonic()
        self._shown = False
        self._active = is_wanted and _can_erase_lines(sys.stderr)
        # Windows has no groups; and this terminal may not be the one that controls us.
        with contextlib.suppress(AttributeError, OSError):
            # A shell that has started us with & has the terminal itself.
            self._active = self._active and os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()

    def step(self, seconds: "float | None") -> "float | None":
        """How long to wait for an event before the line is drawn anew."""
        if not self._active:
            return seconds
        return PROGRESS_EVERY if seconds is None else min(seconds, PROGRESS_EVERY)

    def show(self, running: "Sequence[str]", total: int) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        clock = "%d:%02d" % (minutes, seconds)
        if minutes >= 60:
            clock = "%d:%02d:%02d" % (*divmod(minutes, 60), seconds)
        text = "waiting %s for " % clock
        if total > 1:
            text = "%d of %d exited, %s; waiting for " % (total - len(running), total, clock)
        if self._active:
            self._draw(text + listed(running))

    def clear(self) -> None:
        if self._shown:
            self._draw("")

    def _draw(self, text: str) -> None:
        self._shown = bool(text)
        with contextlib.suppress(OSError):  # the null device of Windows is a terminal, too
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            erase = "\r%*s\r" % (width - 1, "") if os.name == "nt" else "\r\033[K"
            write(sys.stderr, erase + text[: width - 1])
