# SPDX-License-Identifier: BSD-3-Clause
"""One contract, a file for each way to wait.

A backend is a module that can be imported on every system, with

    check()         raises OSError with the reason why it can't be used here
    Handle(pid)     refers to one process; ProcessLookupError if there is none,
                    another OSError if this backend can't, now or ever
    many(shared)    waits for any number of them; with ``shared``, from several threads.
                    OSError if this backend can't, now or ever

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

What many() returns has members: objects with a ``pid``, a ``proc`` it came from, and a
``ticket`` to keep in it what is needed to find them again. Several may have one pid.
poll() is called without the lock of who shares it, from any number of threads at once,
all else with the lock.

    add(members)    registers them; returns [(member, OSError)] of those it could not:
                    ProcessLookupError where there is no such process
    discard(member) forgets it, if it is there: it is not reported any more
    poll(ms)        sleeps until there is something to take, ``ms`` milliseconds at most
                    (None: for ever), or less; returns what happened
    take(events, report)
                    calls report((member, exit code or None)) for each that has exited,
                    and forgets it; it may have been discarded since, and another one be
                    where it was
    recover()       find again what an exception of a signal handler has lost, in poll(),
                    in take(), or in between
    ring(on)        while it is on, poll() returns at once, in every thread, and fileno()
                    is readable
    fileno()        readable when take() would have something; UnsupportedOperation
    forked()        what takes its place in a forked child; the parent's stays as it is;
                    OSError if nothing can, and all are polled there
    close()
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


def open_many(shared: bool) -> "Any":
    """What waits for many by the best means that works."""
    backend = _probe.backend()
    try:
        return backend.many(shared)
    except OSError as error:
        log("all are polled: %s", error)
        return polling.many(shared)


def forked_many(many: "Any") -> "Any":
    """What takes the place of ``many`` in a forked child."""
    try:
        return many.forked()
    except OSError as error:
        log("all are polled: %s", error)
        return polling.many(True)
