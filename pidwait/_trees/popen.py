# SPDX-License-Identifier: BSD-3-Clause
"""What a Popen does otherwise if it stands for a tree of processes."""

import _signal  # type: ignore[import-not-found]
import os
import subprocess
import sys
from _thread import _local
from errno import ENOSYS
from functools import partial

from .._base.arguments import check_grace, check_signal
from .._base.checks import TREE, TREES, choice, still_works, why_not, works
from .._base.deadline import Deadline
from .._base.errors import PASSING, Failed, audit, log, not_by_handler
from .._ending import end_procs
from .._process import KILL
from .._starting import popen as starts
from .._starting.standard import checked_group, with_globals, with_group
from .._systems import backend, system
from .._systems.calls import WAITID
from .._systems.posix import load_usage, usage_by_wait4
from . import check_keeper, check_reaper

if system.tree == "job":
    from .._systems.windows.handle import usage_by_handle
    from .job import JobTree
else:
    from .group import GroupTree
    from .reaper import ReaperTree
if system.tree == "reaper":
    from .._systems.linux.proc import usage_of_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Usage

_Base: "Any" = object  # what comes after it is a Popen
of_run = _local()  # ``is_next``: the thread's next Popen is that of a run()

_warned: "list[str]" = []


def open_tree(rest: str, grace: float, why: "Failed | None" = None) -> "Any":
    """By the best means that works; OSError if the environment asks for one that does not.

    ``why``: the reason why no keeper could start.
    """
    asked = choice(TREE, *TREES)
    if system.tree == "job":
        if asked in ("auto", "job"):
            return JobTree(rest)
        raise OSError(ENOSYS, "%s is %s: not on this system" % (TREE, asked))
    why = why or why_not(check_reaper)
    if asked in ("auto", "reaper") and (why is None or why.errno in PASSING):
        return ReaperTree(rest, grace)
    if asked in ("reaper", "job"):
        text = "not on this system" if why is None else why.error.strerror
        raise OSError(ENOSYS, "%s is %s: %s" % (TREE, asked, text))
    if why is not None and str(why) not in _warned:
        _warned.append(str(why))
        log("a tree is a process group, daemons escape from it: %s", why, level="warning")
    return GroupTree(rest, grace)


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
    popen._is_audited = True
    popen.__init__(tree=False, **options)
    return popen


_asking = _local()


def _reason(why: Failed) -> Failed:
    """Why no keeper starts: check again, so that probe() says the same from now on."""
    if vars(_asking):  # the check's own start is a tree, as a program has made all of them
        return why
    _asking.now = True
    try:
        found = None if still_works(check_keeper) else why_not(check_keeper)
    finally:
        vars(_asking).clear()
    return why if found is None or found.is_passing else found


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
    _output = _usage = None  # type: Any
    returncode: "int | None"

    def __init__(
        self, *args: "Any", tree: "bool | str" = False, grace: "float | None" = None, **more: "Any"
    ) -> None:
        hook = more.get("preexec_fn")
        # Then no Python runs in a forked child. Windows has neither function.
        if hook is getattr(os, "setsid", self):
            more.update(preexec_fn=None, start_new_session=True)
        elif hook is getattr(os, "setpgrp", self):
            more.update(preexec_fn=None, process_group=0)
        if tree not in (False, True, "kill", "wait", "leave"):
            raise ValueError("tree must be a bool, 'kill', 'wait' or 'leave', not %r" % (tree,))
        if tree:
            # Before the start: from then on, an interruption has it end the tree.
            if vars(of_run).pop("is_next", False):
                self.__class__ = type("Popen", (RunPopen, type(self)), {})
            self._grace = None if grace is None else check_grace(grace)
            self._rest = tree if isinstance(tree, str) else "kill"
            self._tree, self._starter = open_tree(self._rest, self._grace or 0.0), os.getpid()
        elif grace is not None:
            raise ValueError("grace needs tree")
        backend()  # what waits need is loaded now: later there may be no file descriptor left
        self._wait4 = starts.Wait4()
        works(load_usage)
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
        if system.tree == "job":
            own = starts.own_start()
            self._tree.start(lambda api: with_globals(own, _winapi=api)(self, *values, **named))
            return
        plan, group, preexec_fn = starts.bound_arguments(values, named)
        args = plan["args"]
        is_path = hasattr(args, "__fspath__")
        if is_path and plan["shell"]:
            raise TypeError("path-like args is not allowed when shell is true")
        plan["args"] = [args] if is_path or isinstance(args, (str, bytes)) else list(args)
        plan["args"], plan["executable"] = starts.command_of(plan)
        for name, _ in starts.PAIRS:
            if plan[name] != -1:
                os.fstat(plan[name])  # if it is closed, a file of ours would get the number
        plan.update(shell=False, pass_fds=tuple(plan["pass_fds"]))
        plan.update(process_group=checked_group(group), preexec_fn=preexec_fn)
        audit("subprocess.Popen", *map(plan.get, ("executable", "args", "cwd", "env")))
        try:
            self._tree.start(plan, partial(_start_alone, kind))
        except Failed as why:  # there is no interpreter to start, or it ends at once
            self._tree = open_tree(self._rest, self._grace or 0.0, _reason(why))
            self._tree.start(plan, partial(_start_alone, kind))
        self.pid, self._child_created = self._tree.pid, True
        starts.close_ends(self, plan)

    @property
    def mechanism(self) -> "Any":
        """What ends the tree: "reaper" (Linux), "job" (Windows) or "group"; None without a tree."""
        return None if self._tree is None else self._tree.mechanism

    @property
    def left(self) -> "Any":
        """Pids of processes that we may not end, such as root's; None if the keeper was killed."""
        return [] if self._tree is None else self._tree.left

    @property
    def usage(self) -> "Usage | None":
        """The Usage of it, or of its whole tree; None until it has been reaped, or if it is not
        known: if other code has reaped it, say."""
        if self.returncode is None:
            return None
        if self._tree is not None:
            return self._tree.usage  # type: ignore[no-any-return]
        if starts.IS_WINDOWS:
            return usage_by_handle(int(self._handle))
        pid, _, rusage = self._wait4.result[0]
        return usage_by_wait4(rusage) if pid else self._usage

    def _internal_poll(self, **more: "Any") -> "Any":
        if self._tree is None:
            # __del__ has an argument, and may run when Python ends and our modules are cleared.
            if self.returncode is None and not more:
                if system.tree == "reaper":  # Linux shows it before the standard code reaps
                    self._usage = usage_of_child(WAITID["P_PID"], self.pid) or self._usage
                elif system.tree == "group":
                    more[starts.WAITPID] = self._wait4
            return super()._internal_poll(**more)
        if self.returncode is None:
            code = self._tree.poll()
            if code is not None:  # else it might replace what another thread has just stored
                self.returncode = code
        return self.returncode

    def _wait_for_tree(self, timeout: "float | None") -> "Any":
        deadline = Deadline(timeout)
        while self._internal_poll() is None:
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
        except not_by_handler(subprocess.TimeoutExpired) as late:
            is_in_time = self._is_in_time()
            if not is_in_time:
                if self._tree is None or not self._is_run:
                    raise
                self._give_up(None)
            output = self._read_rest(late, is_in_time)
            if self._is_run:  # Python 3.6's run() asks again, and so does Windows'
                self._output = output or (late.output, late.stderr)
            if is_in_time and output:
                return output
            raise

    def _read_rest(self, late: "Any", is_in_time: bool) -> "Any":
        """Read to the end, as the tree ends. If others hold the pipes: for a second more."""
        output, last = None, Deadline(None)
        while not (output or last.expired()):
            if last.timeout is None and self._internal_poll() is not None:
                last = Deadline(1)
            try:
                output = late.output, late.stderr = super().communicate(timeout=0.2)
            except not_by_handler(subprocess.TimeoutExpired):
                continue
            except not_by_handler(UnicodeError):
                if is_in_time:
                    raise
                break  # a character that was cut off
        for name in () if system.tree == "job" else ("stdout", "stderr"):
            chunks = self._fileobj2output.get(getattr(self, name))
            # As subprocess does: bytes, also of text.
            setattr(late, name, None if chunks is None else b"".join(chunks))
        return output

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command; SIGTERM and SIGKILL go to all of a tree."""
        if self._tree is None:
            super().send_signal(sig)
        else:
            check_signal(sig)
            self._send_to_tree(int(sig), sig in (_signal.SIGTERM, KILL))

    def _may_end(self) -> bool:
        """Whether the tree runs and is this process's. In a forked child nothing ends it."""
        runs, is_ours = self._internal_poll() is None, self._starter == os.getpid()
        if runs and not is_ours:
            log("pid %d, its tree is of process %d, which alone ends it", self.pid, self._starter)
        return runs and is_ours

    def _send_to_tree(self, sig: int, everybody: bool) -> None:
        if self._may_end():
            if everybody and sig == KILL:
                self._tree.end(sig, 0.0)
            else:
                self._tree.send(sig, everybody)

    if system.tree == "job":

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
        elif self._may_end():
            self._tree.end(int(sig), grace)
        return self.wait()

    def _give_up(self, kind: "Any") -> None:
        """Have the tree ended, because of an exception of that type."""
        if not self._is_given_up and self._may_end():
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
