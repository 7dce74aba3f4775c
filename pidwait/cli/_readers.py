# SPDX-License-Identifier: BSD-3-Clause
"""Whether anybody can still read what the wait has to say: if not, it ends.

When a connection breaks, sshd closes its ends of our pipes, and sends a signal only if there is
a terminal: without this the wait would stay behind on that machine. GNU tail -f does the same.
"""

import _signal  # type: ignore[import-not-found]
import os
import select
import sys
from errno import EPIPE
from stat import S_ISFIFO, S_ISSOCK

from .._base.deadline import Deadline
from ._output import Lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from .._process import Process
    from .._sets import WaitSet

    Exits = Sequence[tuple[Process, int | None]]  # novm

# Seconds between two looks at the readers where a set has no file descriptor.
_EVERY = 1.0


class Readers:
    """Those who read stdout and stderr at the other end of a pipe or a socket."""

    def __init__(self, prints: bool) -> None:
        """``prints``: whether the wait is to say on stdout how it ended."""
        self._fds: "list[int]" = []
        if hasattr(select, "poll") and not _hang_up_is_ignored():
            self._fds = _with_readers(prints)

    def wait(self, waiting: "WaitSet[Process]", seconds: "float | None") -> "Exits":
        """``waiting.wait(seconds)``, or raise Lost once the last reader has gone."""
        fds = self._fds
        if not fds:
            return waiting.wait(seconds)
        deadline = Deadline(seconds)
        poll = select.poll()
        for fd in fds:
            poll.register(fd, 0)  # POLLERR and POLLHUP come unasked
        while True:
            last = deadline.expired()
            exits = _sleep(poll, waiting, deadline)
            if exits:
                return exits
            for fd, _ in poll.poll(0):
                fds.remove(fd)
                poll.unregister(fd)
            if not fds:
                raise Lost(OSError(EPIPE, os.strerror(EPIPE)))
            if last:
                return exits


def _with_readers(prints: bool) -> "list[int]":
    """What has a reader that can go, if there is no other: a file or a terminal has one."""
    found = []
    # What is to be printed on stdout nobody reads on stderr.
    for stream in (sys.stdout,) if prints else (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            number = stream.fileno()
            status = os.fstat(number)
        except (AttributeError, OSError):  # a program that calls main() has replaced it
            return []
        if S_ISFIFO(status.st_mode) or S_ISSOCK(status.st_mode):
            if number not in found:
                found.append(number)
        elif not os.path.samestat(status, os.stat(os.devnull)):
            return []
    return found


def _sleep(poll: "select.poll", waiting: "WaitSet[Process]", deadline: Deadline) -> "Exits":
    """Until there are exits, or one of the readers has gone, or the time is up."""
    try:
        fd = waiting.fileno()
    except OSError:  # it has none
        return waiting.wait(deadline.at_most(_EVERY))
    poll.register(fd, select.POLLIN)
    poll.poll(deadline.milliseconds()[0])
    poll.unregister(fd)
    return waiting.wait(0)


def _hang_up_is_ignored() -> bool:
    """As nohup wants it."""
    from ._family import is_ignored

    # PyPy's getsignal() does not know of what was ignored when we started: /proc does.
    return _signal.getsignal(_signal.SIGHUP) == _signal.SIG_IGN or is_ignored(_signal.SIGHUP)
