# SPDX-License-Identifier: BSD-3-Clause
"""What works here: each check asks the system once, by a real call, and is remembered.

A check is a function that raises an OSError with the reason why something can't be used.
"""

import os

from ._errors import TRANSIENT, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    Check = Callable[[], object]

# What a check found: None, or the error that tells the reason.
_answers: "dict[Check, OSError | None]" = {}
_asked_by: "list[int]" = []


def ask(check: "Check") -> "OSError | None":
    """The error that ``check()`` raises, or None; asked once.

    A transient failure, such as having no file descriptor left, says nothing about the
    system: it is not remembered, and counts as available.
    """
    _forget_in_forked_child()
    try:
        return _answers[check]
    except KeyError:
        pass
    try:
        check()
        error = None
    except OSError as caught:
        if caught.errno in TRANSIENT:
            return None
        error = caught
        # A traceback would keep the frames of the first caller alive.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        name = getattr(check, "__name__", "check")
        log("%s.%s: %s", check.__module__, name, error)
    _answers[check] = error
    return error


def _forget_in_forked_child() -> None:
    # It can be in another PID namespace, under the same /proc.
    if hasattr(os, "register_at_fork"):  # Python 3.7
        if not _asked_by:
            os.register_at_fork(after_in_child=_answers.clear)  # novm
            _asked_by.append(0)
    elif _asked_by != [os.getpid()]:
        _answers.clear()
        _asked_by[:] = [os.getpid()]


def is_known(check: "Check") -> bool:
    """Whether the answer is remembered; it is not after a transient failure."""
    return check in _answers


def works(check: "Check") -> bool:
    return ask(check) is None


def surely_works(check: "Check") -> bool:
    """False also where it could not be asked."""
    return works(check) and check in _answers


def still_works(check: "Check") -> bool:
    """Ask again: a policy may have come since."""
    _answers.pop(check, None)
    return surely_works(check)


def forget() -> None:
    """Ask again at the next need."""
    _answers.clear()
