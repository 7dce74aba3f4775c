# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors that are closed whatever a signal handler raises, and wherever."""

import io
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

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
