# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors that get closed wherever a signal handler raises; and poll(2) on one."""

import io
import select
from errno import EBADF, ENOSYS

from ._errors import pass_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._deadline import Deadline

# own(fd) is an object that closes the fd, at the latest when it is freed itself. Its type is
# written in C: a signal handler could interrupt a __del__ written in Python, and an exception
# there is printed and lost. An epoll object can be made from any fd, and makes no system call
# but close(2); a FileIO would add an fstat(2).
own = getattr(getattr(select, "epoll", None), "fromfd", io.FileIO)


def opened(function: "Callable[..., int]", *arguments: object) -> "Any":
    """``own(function(*arguments))``, without a bytecode between the two calls.

    If a signal comes during the system call, its handler runs at the next bytecode; if the
    handler raised there, a plain number would be lost, and the fd leaked.
    """
    return next(map(own, map(function, *zip(arguments))))


def close(file: "Any") -> None:
    try:
        file.close()
    except OSError as error:  # somebody else has closed it: Python >= 3.15 raises
        pass_over(error, "close")


def poll(fd: int, mask: int, deadline: "Deadline") -> int:
    """The event on the file descriptor, as poll(2) returns it; 0 at the deadline."""
    try:
        poll = select.poll()
    except AttributeError:  # eventlet, say, has removed it
        raise OSError(ENOSYS, "the select module has no poll") from None
    poll.register(fd, mask)
    while True:
        for _, event in poll.poll(deadline.milliseconds()):
            if event != mask and event & select.POLLNVAL:
                raise OSError(EBADF, "poll, fd %d" % fd)  # the fd is not open: not an exit
            return event
        if deadline.expired():
            return 0
