# SPDX-License-Identifier: BSD-3-Clause
"""What the commands print, and about what; stdout and stderr may be closed, full, or unread."""

import contextlib
import os
import sys
from errno import EBADF, EINVAL, EPIPE

from .._base.errors import IS_WHOLE, raise_of_handler
from .._systems.bindings import PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Sequence

READER_GONE = 128 + 13  # SIGPIPE, which Windows has not got


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
    if exitcode is None:
        return "exited"
    if exitcode < 0:
        from signal import Signals

        names = {int(one): one.name for one in Signals}
        return "killed by " + names.get(-exitcode, "signal %d" % -exitcode)
    # From there on it is an NTSTATUS of Windows, known by its hexadecimal form.
    return ("exited with 0x%X" if exitcode >= 2**31 else "exited with %d") % exitcode


def as_text(row: "dict[str, Any]") -> str:
    """An object of --json in words."""
    if not row["found"]:
        return "%d: no such process" % row["pid"]
    who = label(row["pid"], row["name"])
    if not row["exited"]:
        return "%s: still running" % who
    return "%s: %s; waited %.3f s" % (who, ending(row["exitcode"]), row["seconds"])
