# SPDX-License-Identifier: BSD-3-Clause
"""A Popen's start by posix_spawn, from the arguments of the standard library's _execute_child."""

import os
import sys
from errno import ENOENT, EPERM

from . import _hooks, _posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# gevent's os.close closes later, in its hub; that would not run while stdout is read to its end.
_close = os.close


def start(self: "Any", plan: "dict[str, Any]", group: int, own: "Any") -> bool:
    """Start by posix_spawn. False if the standard code has to start it, or to raise an error."""
    # Iterators can be read only once, and the standard code may need their items later.
    if not isinstance(plan["args"], (str, bytes)) and not hasattr(plan["args"], "__fspath__"):
        plan["args"] = list(plan["args"])
    try:
        passed = iter(plan["pass_fds"])
    except TypeError:  # the standard code raises it, or does not need pass_fds
        return False
    plan["pass_fds"] = tuple(passed)
    if (
        plan["preexec_fn"] is not None
        or any(plan.get(name) is not None for name in ("gid", "gids", "uid"))
        or plan.get("umask", -1) != -1
        or not plan["args"]
        or hasattr(plan["args"], "__fspath__")
        # How other mappings are read is up to the standard code.
        or not (plan["env"] is None or type(plan["env"]) in (dict, type(os.environ)))
        or not _is_plain(plan)
    ):
        return False
    request = getattr(self, "_refused", None)  # a request that posix_spawn refused in spawn()
    if request is None:
        executable, args = _command(plan)
        try:
            request = _posix_spawn.Request(
                args=args,
                executable=executable,
                env=plan["env"],
                cwd=plan["cwd"],
                stdio=(plan["p2cread"], plan["c2pwrite"], plan["errwrite"]),
                close_fds=plan["close_fds"],
                pass_fds=plan["pass_fds"],
                group=group,
                session=plan["start_new_session"],
                restore_signals=plan["restore_signals"],
            )
        except Exception:  # anything: an object with __fspath__ may raise what it likes
            return False
        if hasattr(sys, "audit"):  # Python 3.8
            sys.audit("subprocess.Popen", executable, args, plan["cwd"], plan["env"])  # novm
        try:
            pid = _posix_spawn.start(request)
            if pid is not None:
                self.pid = pid
                self._child_created = True
                _close_ends(self, plan)
                return True
        except BaseException as error:
            if request.started[0]:
                # A signal handler has raised. The caller never gets the Popen, which has its child
                # reaped when it is freed.
                self.pid, self._child_created = request.started[0], True
                raise
            if isinstance(error, (TypeError, ValueError, AttributeError)):
                return False
            if not isinstance(error, FileNotFoundError) or not _hooks.repeats_name(own):
                raise
            text = "%s: %r" % (error.strerror, error.filename)
            raise FileNotFoundError(ENOENT, text, error.filename) from None
    if request.group_is_refused and "process_group" not in plan:
        # The standard code would raise "Exception occurred in preexec_fn".
        raise PermissionError(EPERM, os.strerror(EPERM))
    return False


def _is_plain(plan: "dict[str, Any]") -> bool:
    """Whether all values are usual ones; others are left to the standard code."""
    files = plan["p2cread"], plan["c2pwrite"], plan["errwrite"]
    switches = plan["restore_signals"], plan["start_new_session"]
    ends = [end for end in (plan["p2cwrite"], plan["c2pread"], plan["errread"]) if end != -1]
    return (
        # fileno() can return anything.
        all(isinstance(file, int) and file >= -1 for file in files)
        and all(isinstance(switch, bool) for switch in switches)
        and isinstance(plan.get("process_group", -1), int)
        # A pipe may have got the number of a closed fd: our end of it must not be passed on.
        and not any(end in files + plan["pass_fds"] for end in ends)
    )


def _command(plan: "dict[str, Any]") -> "tuple[Any, list[Any]]":
    """The executable, and the arguments, as the standard code makes them."""
    args, executable = plan["args"], plan["executable"]
    args = [args] if isinstance(args, (str, bytes)) else list(args)
    if plan["shell"]:
        android = hasattr(sys, "getandroidapilevel")
        args = ["/system/bin/sh" if android else "/bin/sh", "-c"] + args
        if executable:
            args[0] = executable
    return (args[0] if executable is None else executable), args


def _close_ends(self: "Any", plan: "dict[str, Any]") -> None:
    """Close the ends that only the child needs, as the standard code does."""
    devnull = getattr(self, "_devnull", None)
    ends = (("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread"))
    for child, parent in ends:
        if plan[child] != -1 and plan[parent] != -1 and plan[child] != devnull:
            _close(plan[child])
    if devnull is not None:
        _close(devnull)
    self._closed_child_pipe_fds = True  # so that __init__ does not, should it fail from here on
