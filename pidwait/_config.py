# SPDX-License-Identifier: BSD-3-Clause
"""The environment variables that force a choice.

Their names stay the same in a vendored copy: somebody who debugs a program that contains one
looks for the documented names.
"""

import os

BACKEND = "PIDWAIT_BACKEND"
FFI = "PIDWAIT_FFI"
_BACKENDS = ("pidfd", "connector", "kqueue", "win32", "polling")


def choice(variable: str, *allowed: str) -> str:
    """The value of an environment variable; "auto" if it is unset or empty."""
    value = os.environ.get(variable) or "auto"
    if value != "auto" and value not in allowed:
        raise ValueError(
            "%s must be one of %s, not %r" % (variable, ", ".join(("auto",) + allowed), value)
        )
    return value


def backend() -> str:
    return choice(BACKEND, *_BACKENDS)
