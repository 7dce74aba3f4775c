# SPDX-License-Identifier: BSD-3-Clause
"""One contract, a file for each way to wait.

A backend is a module that can be imported on every system, with

    check()         raises OSError with the reason why it can't be used here
    Handle(pid)     refers to one process; ProcessLookupError if there is none,
                    another OSError if this backend can't, now or ever

and a Handle has

    backend, pid    which way it waits, and for whom
    is_child        in some; set by the parent, who alone reaps: for a shorter way to wait
    identify()      equal for all handles of one process; None if not known
    wait(deadline, reap)
                    RUNNING at the deadline; once it has exited, the exit code or
                    None, and our child is reaped if asked for: NotYet while a
                    tracer keeps it from us
    send_signal(s)  ProcessLookupError if there is no such process any more
    fileno()        readable once it has exited; UnsupportedOperation if polled,
                    and on Windows
    close()

Handles know nothing of threads: who shares one sees to it that it is closed once.
"""

from .. import _probe
from .._errors import log
from . import polling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def open_handle(pid: int) -> "Any":
    """A handle by the best means that works; ProcessLookupError if there is none."""
    backend = _probe.backend()
    try:
        return backend.Handle(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        if backend is polling:
            raise
        log("pid %d is polled: %s", pid, error)
        return polling.Handle(pid)
