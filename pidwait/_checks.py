# SPDX-License-Identifier: BSD-3-Clause
"""What works here: each check makes a real call once, and its answer is remembered.

A check is a function that raises an OSError if something can't be used; the error says why.
"""

import os

from ._errors import TRANSIENT, log, raise_of_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    Check = Callable[[], object]

# What each check found: None, or the error that says why. Threads that ask at the same time
# make the call twice; what each one returns is what it found itself.
_answers: "dict[Check, OSError | None]" = {}
# known(check, default) tells it without making the call: ``default`` if nobody has made it yet.
known = _answers.get
_UNASKED = _UNSURE = OSError()
_asked_by: "list[int]" = []


def ask(check: "Check") -> "OSError | None":
    """The error that ``check()`` raises, or None; ``check`` is called once.

    A transient failure, such as having no file descriptor left, says nothing about the
    system: it is not remembered, and the answer is None.
    """
    error = _find(check)
    return None if error is _UNSURE else error


def _find(check: "Check") -> "OSError | None":
    """As ask(), but _UNSURE after a transient failure."""
    _forget_in_forked_child()
    known = _answers.get(check, _UNASKED)
    if known is not _UNASKED:
        return known
    try:
        check()
        error = None
    except OSError as caught:
        raise_of_handler(caught)
        if caught.errno in TRANSIENT:
            return _UNSURE
        error = caught
        # A traceback would keep the frames of the first caller alive.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        name = getattr(check, "__name__", "check")
        log("%s.%s: %s", check.__module__, name, error)
    _answers[check] = error
    return error


def _forget_in_forked_child() -> None:
    # The child can be in another PID namespace, but see the same /proc.
    if hasattr(os, "register_at_fork"):  # Python 3.7
        if not _asked_by:
            os.register_at_fork(after_in_child=_answers.clear)  # novm
            _asked_by.append(0)
    elif _asked_by != [os.getpid()]:
        _answers.clear()
        _asked_by[:] = [os.getpid()]


def is_known(check: "Check") -> bool:
    """Whether the answer is remembered: a transient failure is not."""
    return check in _answers


def works(check: "Check") -> bool:
    return ask(check) is None


def surely_works(check: "Check") -> bool:
    """As works(), but False after a transient failure."""
    return _find(check) is None


def still_works(check: "Check") -> bool:
    """As surely_works(), but check again: a policy may have been set since."""
    _answers.pop(check, None)
    return surely_works(check)


def forget() -> None:
    """Check again at the next need."""
    _answers.clear()
