# SPDX-License-Identifier: BSD-3-Clause
"""What a Popen does otherwise if it stands for a tree of processes; and a Popen's arguments."""

import _signal  # type: ignore[import-not-found]
import os
import subprocess
import sys
from _thread import _local
from errno import ENOSYS
from functools import lru_cache, partial
from types import BuiltinFunctionType

from .._base.arguments import check_grace, check_signal
from .._base.checks import TREE, TREES, choice, why_not
from .._base.deadline import Deadline
from .._base.errors import PASSING, log, raise_of_handler
from .._ending import end_procs
from .._process import KILL
from .._starting.standard import is_standard, with_globals
from .._systems import backend, system
from . import check_reaper

if system.tree == "job":
    from .job import JobTree
else:
    from .group import GroupTree
    from .reaper import ReaperTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

_Base: "Any" = object  # what comes after it is a Popen
of_run = _local()  # ``is_next``: the thread's next Popen is that of a run()

WINDOWS = os.name == "nt"
_CREATE_NEW_PROCESS_GROUP = 0x200  # subprocess has the name from Python 3.7 on
# On Windows the standard parameter does nothing.
HAS_PROCESS_GROUP = not WINDOWS and hasattr(subprocess, "_fork_exec")  # both from 3.11 on
# gevent's os.close closes later, in its hub; that would not run while stdout is read to its end.
_close = os.close
# What the child gets for 0, 1 and 2, and our ends of the pipes.
PAIRS = ("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread")
_found_start: "Any" = getattr(subprocess.Popen, "_execute_child", None)

_warned: "list[str]" = []


def open_tree(rest: str, grace: float) -> "Any":
    """By the best means that works; OSError if the environment asks for one that does not."""
    asked = choice(TREE, *TREES)
    if system.tree == "job":
        if asked in ("auto", "job"):
            return JobTree(rest)
        raise OSError(ENOSYS, "%s is %s: not on this system" % (TREE, asked))
    why = why_not(check_reaper)
    if asked in ("auto", "reaper") and (why is None or why.errno in PASSING):
        return ReaperTree(rest, grace)
    if asked in ("reaper", "job"):
        text = "not on this system" if why is None else why.error.strerror
        raise OSError(ENOSYS, "%s is %s: %s" % (TREE, asked, text))
    if why is not None and str(why) not in _warned:
        _warned.append(str(why))
        log("a tree is a process group, daemons escape from it: %s", why, level="warning")
    return GroupTree(rest, grace)


def with_group(options: "dict[str, Any]") -> "dict[str, Any]":
    """Popen's arguments, with ``process_group`` on every Python."""
    if HAS_PROCESS_GROUP:
        return options
    group = options.pop("process_group", None)
    if group is not None and not isinstance(group, int):
        raise TypeError("process_group must be an int, not %s" % type(group).__name__)
    if group is not None and group >= 0:
        if not WINDOWS:
            options["preexec_fn"] = partial(_enter_group, group, options.get("preexec_fn"))
        elif group:
            raise ValueError("process_group can only be 0 on Windows")
        else:
            options["creationflags"] = options.get("creationflags", 0) | _CREATE_NEW_PROCESS_GROUP
    return options


def _enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    os.setpgid(0, group)
    if preexec_fn is not None:
        preexec_fn()


@lru_cache(None)
def _own_start() -> "Any":
    """The interpreter's own Popen._execute_child(): a hook in its place takes any arguments."""
    found = _found_start
    while not is_standard(found) and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if not is_standard(found):  # a hook from before our import keeps it to itself
        names: "dict[str, Any]" = {"__name__": "subprocess"}
        exec(subprocess.__spec__.loader.get_code("subprocess"), names)  # type: ignore
        found = names["Popen"]._execute_child
    return found


def bound_arguments(values: "Any", named: "Any") -> "tuple[dict[str, Any], int, Any]":
    """Those of _execute_child() by name; and the group and preexec_fn that were asked for."""
    code = _own_start().__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    plan = dict(zip(names, values), **named)
    group, preexec_fn = plan.get("process_group", -1), plan["preexec_fn"]
    if getattr(preexec_fn, "func", None) is _enter_group:
        group, preexec_fn = preexec_fn.args
    return plan, group, preexec_fn


def command_of(plan: "dict[str, Any]") -> "tuple[list[Any], Any]":
    """The words and the program that execve(2) gets."""
    args, executable = plan["args"], plan["executable"]
    if plan["shell"]:
        android = hasattr(sys, "getandroidapilevel")
        args = [executable or ("/system/bin/sh" if android else "/bin/sh"), "-c", *args]
    return args, args[0] if executable is None else executable


def close_ends(popen: "Any", plan: "dict[str, Any]") -> None:
    """Close the ends of pipes that only the child needs."""
    ends = {plan[child] for child, parent in PAIRS if plan[parent] != -1}
    for fd in (ends | {getattr(popen, "_devnull", -1)}) - {-1}:
        _close(fd)
    popen._closed_child_pipe_fds = True  # so that __init__ does not, should it fail from here on


def _start_alone(kind: "Any", plan: "dict[str, Any]") -> "Any":
    """Start a tree's keeper, or its command: audit hooks have seen the start of the tree."""
    names = "args executable preexec_fn close_fds pass_fds cwd env restore_signals"
    options = {name: plan[name] for name in (*names.split(), "start_new_session")}
    others = {"stdin": "p2cread", "stdout": "c2pwrite", "stderr": "errwrite", "umask": "umask"}
    others.update(user="uid", group="gid", extra_groups="gids", process_group="process_group")
    for name, ours in others.items():
        if plan.get(ours, -1) not in (-1, None):
            options[name] = plan[ours]
    popen = kind.__new__(kind)
    popen._is_told = True
    popen.__init__(tree=False, **options)
    return popen


class TreePopen(_Base):  # type: ignore[misc]
    """As the standard Popen; with ``tree`` it stands for a command and all that it starts.

    ``tree`` is False, or what happens to the others when the command itself has exited: True or
    "kill" ends them, "wait" waits for them, "leave" leaves them. wait(), poll() and communicate()
    report an exit only when nothing is left. A time-out of run(), an exception in a ``with`` block
    and the death of this program end all of it, by SIGTERM, and SIGKILL ``grace`` seconds later;
    with 0, the default, by SIGKILL at once. So do kill() and terminate(), with their signals.
    ``pid`` and ``returncode`` are the command's.
    """

    _tree: "Any" = None
    _grace: "float | None" = None
    _is_given_up = _is_run = False
    _output: "Any" = None
    if TYPE_CHECKING:
        returncode: "int | None"

    def __init__(
        self, *args: "Any", tree: "bool | str" = False, grace: "float | None" = None, **more: "Any"
    ) -> None:
        hook = more.get("preexec_fn")
        if isinstance(hook, BuiltinFunctionType):  # then no Python runs in a forked child
            if hook is getattr(os, "setsid", None):
                more.update(preexec_fn=None, start_new_session=True)
            elif hook is getattr(os, "setpgrp", None):
                more.update(preexec_fn=None, process_group=0)
        if tree not in (False, True, "kill", "wait", "leave"):
            raise ValueError("tree must be a bool, 'kill', 'wait' or 'leave', not %r" % (tree,))
        if tree:
            # Before the start: from then on, an interruption has it end the tree.
            if vars(of_run).pop("is_next", False):
                self.__class__ = type("Popen", (RunPopen, type(self)), {})
            self._grace = None if grace is None else check_grace(grace)
            self._rest = tree if isinstance(tree, str) else "kill"
            self._tree = open_tree(self._rest, self._grace or 0.0)
        elif grace is not None:
            raise ValueError("grace needs tree")
        backend()  # what waits need is loaded now: later there may be no file descriptor left
        try:
            super().__init__(*args, **with_group(more))
        except BaseException:
            if getattr(self._tree, "pid", 0):  # nobody gets it
                self._give_up(None)
            raise
        if tree:
            self._sigint_wait_secs = 0  # it is ended, in its time

    def _start_tree(self, kind: "Any", values: "Any", named: "Any") -> None:
        """Do what _execute_child() does; ``kind`` is our Popen, whatever this one is."""
        if WINDOWS:
            own = _own_start()
            self._tree.start(lambda api: with_globals(own, _winapi=api)(self, *values, **named))
            return
        plan, group, preexec_fn = bound_arguments(values, named)
        args = plan["args"]
        is_path = hasattr(args, "__fspath__")
        if is_path and plan["shell"]:
            raise TypeError("path-like args is not allowed when shell is true")
        plan["args"] = [args] if is_path or isinstance(args, (str, bytes)) else list(args)
        plan["args"], plan["executable"] = command_of(plan)
        plan.update(shell=False, pass_fds=tuple(plan["pass_fds"]))
        plan.update(process_group=group, preexec_fn=preexec_fn)
        if hasattr(sys, "audit"):  # Python 3.8
            event = map(plan.get, ("executable", "args", "cwd", "env"))
            sys.audit("subprocess.Popen", *event)  # novm
        self._tree.start(plan, partial(_start_alone, kind))
        self.pid, self._child_created = self._tree.pid, True
        close_ends(self, plan)

    @property
    def mechanism(self) -> "Any":
        """What ends the tree: "reaper" (Linux), "job" (Windows) or "group"; None without a tree."""
        return None if self._tree is None else self._tree.mechanism

    @property
    def left(self) -> "Any":
        """Pids of processes that we may not end, such as root's; None if the keeper was killed."""
        return [] if self._tree is None else self._tree.left

    def _internal_poll(self, *args: "Any", **more: "Any") -> "Any":
        if self._tree is None:
            return super()._internal_poll(*args, **more)
        if self.returncode is None:
            self.returncode = self._tree.poll()
        return self.returncode

    def _wait_for_tree(self, timeout: "float | None") -> "Any":
        deadline = Deadline(timeout)
        while self.poll() is None:
            if deadline.expired():
                if not self._is_in_time():
                    raise subprocess.TimeoutExpired(self.args, timeout)  # type: ignore[arg-type]
                deadline = Deadline(None)
            self._tree.sleep(deadline.remaining())
        return self.returncode

    def _is_in_time(self) -> bool:
        """Whether a time-out does not count: the command has exited, and its rest is ended."""
        return self._tree is not None and self._rest == "kill" and self._tree.has_exited()

    def communicate(self, input: "Any" = None, timeout: "float | None" = None) -> "Any":
        if self._output is not None:
            return self._output
        try:
            return super().communicate(input, timeout)
        except subprocess.TimeoutExpired as late:
            raise_of_handler(late)
            is_in_time = self._is_in_time()
            if not is_in_time:
                if self._tree is None or not self._is_run:
                    raise
                self._give_up(None)
            is_all = self._read_rest(late)
            if self._is_run:  # Python 3.6's run() asks again, and so does Windows'
                self._output = late.output, late.stderr
            if is_in_time and is_all:
                return late.output, late.stderr
            raise

    def _read_rest(self, late: "Any") -> bool:
        """Read to the end, as the tree ends. If others hold the pipes: for a second more."""
        while True:
            has_ended = self.poll() is not None
            try:
                late.output, late.stderr = super().communicate(timeout=1)
                return True
            except subprocess.TimeoutExpired as error:
                raise_of_handler(error)
                if has_ended:
                    late.output = _as_text(self.stdout, error.output)
                    late.stderr = _as_text(self.stderr, error.stderr)
                    return False

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command; SIGTERM and SIGKILL go to all of a tree."""
        if self._tree is None:
            super().send_signal(sig)
        else:
            check_signal(sig)
            self._send_to_tree(int(sig), sig in (_signal.SIGTERM, KILL))

    def _send_to_tree(self, sig: int, everybody: bool) -> None:
        if self.poll() is None:
            if everybody and sig == KILL:
                self._tree.end(sig, 0.0)
            else:
                self._tree.send(sig, everybody)

    if WINDOWS:

        def terminate(self) -> None:
            if self._tree is None:
                super().terminate()
            else:
                self.send_signal(_signal.SIGTERM)

        kill = terminate

    def end(self, grace: "float | None" = None, sig: int = _signal.SIGTERM) -> "Any":
        """Send ``sig`` to all, and SIGKILL after ``grace`` seconds; return the returncode.

        By default ``grace`` is that of Popen, or else 5. It returns when nothing is left.
        """
        check_signal(sig)
        default = 5.0 if self._grace is None else self._grace
        grace = default if grace is None else check_grace(grace)
        if self._tree is None:
            if end_procs([self], grace, sig)[1]:
                return None  # it is another user's
        elif self.poll() is None:
            self._tree.end(int(sig), grace)
        return self.wait()

    def _give_up(self, kind: "Any") -> None:
        """Have the tree ended, because of an exception of that type."""
        if not self._is_given_up and self.poll() is None:
            # After Ctrl-C it has a moment, as without a tree.
            least = 0.25 if kind is not None and issubclass(kind, KeyboardInterrupt) else 0.0
            self._tree.end(_signal.SIGTERM, max(self._grace or 0.0, least))
            self._is_given_up = True  # last: after an exception, the next call tries again

    def __exit__(self, kind: "Any", error: "Any", traceback: "Any") -> None:
        if self._tree is not None and kind is not None:
            self._give_up(kind)
            kind = error = traceback = None  # wait for its end
        super().__exit__(kind, error, traceback)


class RunPopen(TreePopen):
    """A tree of run() and its like. They kill after an exception, but it has its grace then."""

    _is_run = True

    def kill(self) -> None:
        self._give_up(sys.exc_info()[0])

    def __del__(self, *args: "Any", **more: "Any") -> None:
        if getattr(self._tree, "pid", 0):  # run() may have been interrupted before its block
            self._give_up(None)
        super().__del__(*args, **more)


def _as_text(pipe: "Any", output: "Any") -> "Any":
    """What has been read so far, as text if the pipe is one of text."""
    if output is None or not hasattr(pipe, "encoding"):
        return output
    return output.decode(pipe.encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")
