# SPDX-License-Identifier: BSD-3-Clause
"""What this system offers: asked by the real call, on first need, and remembered."""

import os
import sys
from errno import ENOSYS

from . import _config, _ffi
from ._errors import PASSING, log
from ._ffi import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

# What a check found: None, or the error that tells the reason.
_answers: "dict[Callable[[], None], OSError | None]" = {}
_backend: "list[ModuleType]" = []
_asked_by: "list[int]" = []


def ask(check: "Callable[[], None]") -> "OSError | None":
    """The error that ``check()`` raises, or None; asked once.

    What passes, such as having no file descriptor left, says nothing about the
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
        if caught.errno in PASSING:
            return None
        error = caught
        # A traceback would keep the frames of the first caller alive.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        log("%s.%s: %s", check.__module__, check.__name__, error)
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


def works(check: "Callable[[], None]") -> bool:
    return ask(check) is None


def surely_works(check: "Callable[[], None]") -> bool:
    """False also where it could not be asked."""
    return works(check) and check in _answers


def still_works(check: "Callable[[], None]") -> bool:
    """Ask again: a policy may have come since."""
    _answers.pop(check, None)
    return surely_works(check)


def backend() -> "ModuleType":
    """The backend for new handles, chosen once."""
    if _backend:
        return _backend[0]
    module = _choose()
    if module.check in _answers:  # else it could not be asked
        _backend.append(module)
    return module


def _backends() -> "dict[str, ModuleType]":
    """All that this system may have, best first."""
    if os.name == "nt":
        from ._backends import polling, win32

        return {"win32": win32, "polling": polling}
    if _ffi.PLATFORM in ("linux", "android"):
        from ._backends import pidfd, polling

        return {"pidfd": pidfd, "polling": polling}
    from ._backends import kqueue, polling

    return {"kqueue": kqueue, "polling": polling}


def _choose() -> "ModuleType":
    known = _backends()
    choice = _config.choice(_config.BACKEND, "pidfd", "kqueue", "win32", "polling")
    if choice == "auto":
        return next(module for module in known.values() if works(module.check))
    error = ask(known[choice].check) if choice in known else OSError(ENOSYS, "not on this system")
    if error is not None:
        raise OSError(error.errno, "%s is %s: %s" % (_config.BACKEND, choice, error.strerror))
    return known[choice]


def forget() -> None:
    """Ask again at the next need, as after a change of the environment variables."""
    _answers.clear()
    _backend.clear()
    calls.forget()


def probe() -> "dict[str, Any]":
    """What this system offers for waiting, and why it does not offer more.

    A dict that json can write. ``backend`` is the one in use; ``backends``,
    ``bindings`` and ``calls`` have an entry for each that there is: ``available``,
    ``via`` (what a call is reached through) and ``reason`` (why it is not
    available, else None). ValueError where PIDWAIT_BACKEND or PIDWAIT_FFI is set
    to something else than the choices, which it lists; OSError where it is set to
    something that this system has not got.
    """
    from . import _spawn

    known = _backends()
    spawn_calls = () if os.name == "nt" else _spawn.CALLS
    return {
        "system": _system(),
        "python": "%s %s" % (sys.implementation.name, sys.version.split()[0]),
        "backend": backend().__name__.rpartition(".")[2],
        "backends": {name: _row(ask(module.check)) for name, module in known.items()},
        "bindings": {name: _row(_ffi.missing(name)) for name in sorted(_ffi.NAMES)},
        "calls": {
            name: dict(_row(ask(check)), via=_via(call))
            for name, call, check in next(iter(known.values())).CALLS + spawn_calls
        },
    }


def _system() -> str:
    if sys.platform == "win32":
        version = "Windows %d.%d.%d" % sys.getwindowsversion()[:3]
        return "%s %s" % (version, os.environ.get("PROCESSOR_ARCHITECTURE", ""))
    system = os.uname()
    return "%s %s %s" % (system[0], system[2], system[4])


def _row(error: "Exception | None") -> "dict[str, Any]":
    reason = None if error is None else getattr(error, "strerror", None) or str(error)
    return {"available": error is None, "reason": reason}


def _via(call: "str | None") -> "str | None":
    try:
        return call and calls.resolve(call)[1]
    except OSError:
        return None
