# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors: closed whatever a signal handler raises, and wherever; poll(2) on one."""

import io
import select
from errno import EBADF, ENOSYS

from ._errors import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._deadline import Deadline

# own(fd) is an object that closes the fd, at the latest when it goes itself. It is
# C's: a __del__ of Python's could be interrupted as well, and what a signal handler
# raises there is printed and lost. An epoll object made from an fd, of whatever
# kind, makes no system call but close(2); a FileIO would add an fstat(2).
own = getattr(getattr(select, "epoll", None), "fromfd", io.FileIO)


def opened(function: "Callable[..., int]", *arguments: object) -> "Any":
    """``own(function(*arguments))``, without a bytecode between the two.

    A signal that comes during the system call has its handler run at the next
    bytecode; if that raises, a mere number would be lost.
    """
    return next(map(own, map(function, *zip(arguments))))


def close(file: "Any") -> None:
    try:
        file.close()
    except OSError as error:  # somebody else has closed it; Python >= 3.15 tells
        log("close: %s", error)


def poll(fd: int, mask: int, deadline: "Deadline") -> int:
    """What happened to the file descriptor, see poll(2); 0 at the deadline."""
    try:
        poll = select.poll()
    except AttributeError:  # where threads are replaced by something else
        raise OSError(ENOSYS, "the select module has no poll") from None
    poll.register(fd, mask)
    while True:
        for _, event in poll.poll(deadline.milliseconds()):
            if event != mask and event & select.POLLNVAL:
                raise OSError(EBADF, "poll, fd %d" % fd)  # not an exit: it is not open
            return event
        if deadline.expired():
            return 0
