# SPDX-License-Identifier: BSD-3-Clause
"""What is written to stdout and stderr, either of which may be closed, full, or read no more."""

import os
import sys
from errno import EBADF, EINVAL, EPIPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

READER_GONE = 128 + 13  # SIGPIPE, which Windows has not got


class Lost(Exception):
    """stdout did not take what was written."""

    def __init__(self, error: OSError) -> None:
        super().__init__("can't write to stdout: %s" % error.strerror)
        # The C library of Windows has no number for ERROR_NO_DATA, bpo-35754.
        numbers = (EPIPE, EINVAL) if os.name == "nt" else (EPIPE,)
        self.reader_gone: bool = error.errno in numbers


def write(text: str) -> None:
    """Write it to stdout, and raise Lost if it does not get there."""
    stream = sys.stdout
    if stream is None:
        raise Lost(OSError(EBADF, os.strerror(EBADF)))
    # A process can have any bytes for its name, and stdout any encoding.
    encoding = stream.encoding or "ascii"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        _give_up(stream)
        raise Lost(error) from None


def complain(text: str) -> None:
    """A line for stderr, if that takes it: a message that gets lost changes no exit status."""
    put(text + "\n")


def put(text: str) -> None:
    stream = sys.stderr
    if stream is None:  # print() would take stdout instead
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        _give_up(stream)


def _give_up(stream: "TextIO") -> None:
    """Keep the interpreter's last flush from failing, which would change the exit status."""
    try:
        number = stream.fileno()
    except OSError:  # a program that calls main() has put something in its place
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def is_terminal(stream: "TextIO | None") -> bool:
    """Whether it is a terminal that can erase a line."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def red(text: str) -> str:
    """For stdout: in red, if that is a terminal with colours, and NO_COLOR is not set."""
    # Windows' console knows escape sequences only once it is told to.
    if os.name == "nt" or os.environ.get("NO_COLOR") or not is_terminal(sys.stdout):
        return text
    return "\033[31m%s\033[m" % text
