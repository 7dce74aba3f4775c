# SPDX-License-Identifier: BSD-3-Clause
"""Linux: events that say when a polled process is worth a look.

The proc connector reports every exit, if we may listen to it. An inotify watch reports most exits
of processes that have called execve(2). An event is a hint: a look decides whether the process
has exited. After an event we look a few times, at growing intervals; without one, now and then.
"""

import select
import time
from errno import ENOSYS
from time import monotonic

from .. import _checks, _config, _ffi
from .._deadline import LONGEST, Deadline, intervals
from .._deadline import poll as poll_without
from .._errors import pass_over
from .._fd import poll
from .._highfds import raised

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .contract import Events, Status

# Seconds of a wait from which on events are worth a file descriptor.
_WORTH = 0.003
# Seconds that poll(2), which counts milliseconds, would round up.
_FINE = 0.002


def check_connector() -> None:
    try:
        from . import connector  # few need it

        connector.check()
    except (ImportError, AttributeError) as error:
        _ffi.check_files()  # a lack of file descriptors is transient
        raise OSError(ENOSYS, "Python's sockets have no netlink: %s" % error) from None


def check_inotify() -> None:
    try:
        from . import inotify

        inotify.check()
    except ImportError as error:
        _ffi.check_files()
        raise OSError(ENOSYS, str(error)) from None


def work() -> bool:
    return _connector_works() or _checks.works(check_inotify)


def _connector_works() -> bool:
    return _config.backend() != "polling" and _checks.works(check_connector)


def open_events(pid: "int | None" = None) -> "Events | None":
    """The best source of events that works; an OSError if there is one, but no room for it.

    ``pid``: the only process that will be added; without it there may be many.
    """
    if pid is not None:
        return _open(pid, None)
    # With many, as in any set, the low file descriptors are left to the program.
    return raised(lambda move: _open(None, move))  # type: ignore[no-any-return]


def _open(pid: "int | None", move: "Callable[[Any], Any] | None") -> "Events | None":
    if _connector_works():
        from .connector import Connector

        return Connector(pid, move)
    if _checks.works(check_inotify):
        from .inotify import ExecutableWatches

        return ExecutableWatches()
    return None


def wait(look: "Callable[[], bool]", deadline: Deadline, pid: int) -> "tuple[bool, Status | None]":
    """Call ``look()`` until it is true or the deadline is over.

    Return whether it was true, and what has been heard of the exit code.
    """
    if deadline.expired():
        return look(), None
    if poll_without(look, Deadline(deadline.at_most(_WORTH))):
        return True, None
    try:
        if not deadline.expired():
            events = open_events(pid)
            if events is not None:
                try:
                    has_exited, status = _wait(events, look, deadline, pid)
                finally:
                    events.close()
                if has_exited is not None:
                    return has_exited, status
    except (OSError, ImportError) as error:
        pass_over(error, "pid %d is polled without events", pid)
    return poll_without(look, deadline, LONGEST), None


def _wait(
    events: "Events", look: "Callable[[], bool]", deadline: Deadline, pid: int
) -> "tuple[bool | None, Status | None]":
    """Like wait(), but return (None, None) if the exit would cause no event."""
    found = events.add(pid)
    if found is None:
        return None, None
    key, status = found
    # After an event there are a few looks, as it may come before the exit can be seen.
    delays, end = intervals(), Deadline(2 * LONGEST)
    is_eager = True
    while True:
        seen = monotonic()
        expired = deadline.expired()
        if look():
            # The kernel sends the message about the exit right after it can be seen.
            if status is not None:
                _hear(events, key, status)
                rest = Deadline(deadline.at_most(status.patience))
                while status.is_due() and poll(events.fileno(), select.POLLIN, rest):
                    _hear(events, key, status)
            return True, status
        if expired:
            return False, status
        if is_eager and end.expired():
            is_eager = False
            if status is not None:
                status.forget(seen)
            again = events.add_again(key, pid)
            if again is None:
                return None, None
            key = again
            continue  # from now on there may be no event
        pause = deadline.at_most(next(delays) if is_eager else events.longest)
        if pause < _FINE:
            time.sleep(pause)
        elif poll(events.fileno(), select.POLLIN, Deadline(pause)) and (
            _hear(events, key, status) and events.may_have_exited(key, pid)
        ):
            delays, end = intervals(), Deadline(2 * LONGEST)
            is_eager = True


def _hear(events: "Events", key: int, status: "Status | None") -> bool:
    """Whether there was an event about the process."""
    is_told = False
    for heard, message in events.read():
        if heard is None or heard == key:
            is_told = True
            if message and status is not None:
                status.hear(*message)
    return is_told
