# SPDX-License-Identifier: BSD-3-Clause
"""What works on this system: each check makes a real call once, and its answer is remembered.

A check is a function that raises Failed if something can't be used; the error says why. Two
threads may run a check at once; each returns its own result.
"""

import os

from .errors import Failed, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Check

# The environment variables that force a choice. A vendored copy reads the same names, so that the
# documentation is right for it, too.
BACKEND = "PIDWAIT_BACKEND"
FFI = "PIDWAIT_FFI"
TREE = "PIDWAIT_TREE"
BACKENDS = ("pidfd", "kqueue", "win32", "polling")
TREES = ("reaper", "job", "group")

# The result of each check: None, or the Failed that says why not.
_answers: "dict[Check, Failed | None]" = {}
_asked_by: "list[int]" = []


def why_not(check: "Check") -> "Failed | None":
    """None if it works, else why not: a transient failure is not remembered."""
    if _asked_by != [os.getpid()]:  # a forked child may be in another PID namespace
        _asked_by[:] = [os.getpid()]
        _answers.clear()
    if check in _answers:
        return _answers[check]
    found = None
    try:
        check()
    except Failed as why:
        found = why
        if why.is_passing:
            return why
        # A traceback would keep the frames of the first caller alive.
        why.__traceback__ = why.__context__ = None
        log("%s.%s: %s", check.__module__, check.__name__, why)
    _answers[check] = found
    return found


def works(check: "Check") -> bool:
    """Whether it works; no after a transient failure."""
    return why_not(check) is None


def still_works(check: "Check") -> bool:
    """As works(), but check again: a policy may have been set since."""
    _answers.pop(check, None)
    return works(check)


def choice(variable: str, *allowed: str) -> str:
    """The value of an environment variable; "auto" if it is unset or empty."""
    value = os.environ.get(variable) or "auto"
    if value != "auto" and value not in allowed:
        raise ValueError(
            "%s must be one of %s, not %r" % (variable, ", ".join(("auto",) + allowed), value)
        )
    return value
