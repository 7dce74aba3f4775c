# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arguments: each error names the argument."""

import _signal  # type: ignore[import-not-found]

from .errors import has, not_by_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any

PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid") -> int:
    if type(pid) is int and 0 < pid <= PID_MAX:
        return pid
    # An object with a pid is not a number. A mock has every attribute, so __index__, too.
    if isinstance(pid, bool) or not hasattr(type(pid), "__index__") or has(pid, "pid"):
        instead = ": wait() takes objects with a pid" if has(pid, "pid") else ""
        raise TypeError("%s must be an int, not %s%s" % (name, type(pid).__name__, instead))
    number: int = pid.__index__()
    if number <= 0:
        raise ValueError("%s must be positive, not %d" % (name, number))
    if number > PID_MAX:
        raise ValueError("%s must be at most %d, not %d" % (name, PID_MAX, number))
    return number


def check_fd(name: str, value: "Any") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("%s must be a file descriptor, not %s" % (name, type(value).__name__))
    if not 0 <= value < 2**31:
        raise ValueError("%s is not a file descriptor: %d" % (name, value))
    return value


def check_callback(callback: object) -> None:
    if not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)


def check_signal(sig: int) -> None:
    if isinstance(sig, bool) or not isinstance(sig, int):
        raise TypeError("sig must be a signal number, not %s" % type(sig).__name__)
    if not 0 <= sig < _signal.NSIG:
        raise ValueError("sig must be from 0 to %d, not %d" % (_signal.NSIG - 1, sig))


def seconds(timeout: "Any", name: str = "timeout") -> float:
    if isinstance(timeout, complex) or not hasattr(timeout, "__float__"):
        raise TypeError("%s must be a number of seconds, not %s" % (name, type(timeout).__name__))
    try:
        return float(timeout)
    except not_by_handler(OverflowError):  # of an int too large for a float
        return float("inf" if timeout > 0 else "-inf")


def check_grace(grace: "Any", name: str = "grace") -> float:
    value = seconds(grace, name)
    if not value >= 0:
        raise ValueError("%s must be 0 or more seconds, not %s" % (name, grace))
    return value
