# SPDX-License-Identifier: BSD-3-Clause
"""The command ``run``: GNU timeout's behaviour, and whole trees of processes."""

import _thread
import contextlib
import os
import select
import signal
import sys
from errno import ENOENT, ENOEXEC, ENOSYS

from .. import ProcessInfo, TimeoutExpired, spawn, wait, watch, watch_parent
from .._base.deadline import LONGEST_SLEEP, Deadline
from .._base.errors import PASSING
from .._process import KILL
from .._systems.calls import WAITID, ask
from .._systems.posix import poll
from . import shared

if os.name != "nt":
    import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterator, Sequence

_RUN_TEXT = """\
Start a command, wait until it has exited, and exit as it did. This program and
COMMAND are in a new process group, and HUP, INT, QUIT, TERM, USR1 and USR2 are
passed on to the group.

  -t, --timeout DURATION     after this time, send a signal to the group
  -s, --signal SIGNAL        name or number of the signal; default TERM; 0: none
  -k, --kill-after DURATION  this long after the first signal, send KILL
  -p, --preserve-status      exit as COMMAND did, even after a time-out
  -f, --foreground           make no group: COMMAND can use the terminal, and
                             gets its Ctrl-C; only COMMAND is sent signals
  -v, --verbose              report each signal
      --tree                 wait for all that COMMAND has started, in any group
                             or session, and send the signals to all of it
      --rest kill|wait|leave with --tree, once COMMAND has exited: end the rest,
                             wait for it (the default), or leave it
      --with-parent          send TERM when the parent of this command exits
      --parent PID           the same, and at once if the parent is not PID
      --ancestors            the same for each process above, up to PID if given
      --usage                at the end, report CPU time and memory on stderr;
                             with --tree, of all that COMMAND has started
  -V, --version              show the version
  -h, --help                 show this

DURATION is a number of seconds, or has units: 0.5s, 2m, 1h, 1d, 100ms, 1h30m;
0 and inf mean no limit. On Windows there is no group: COMMAND gets Ctrl-C, too,
and is terminated at the time-out; -s, -k and -f do nothing. Signals that were
ignored stay ignored, as under nohup, except the signal of -s. Unlike GNU
timeout, this command takes the time as -t, passes USR1 and USR2 on, and sends
STOP to COMMAND alone, so that -k can still end it.

exit status: that of COMMAND, or 128 plus the signal's number if one killed it
  124  time-out (not with -p)
  125  this command failed
  126  COMMAND was found, but can't be started
  127  COMMAND was not found
  137  KILL ended COMMAND after the time-out, or ended this command
"""
RUN = shared.Command(" run", "{prog} run [OPTION...] COMMAND [ARGUMENT...]", _RUN_TEXT)
RUN.intermixed = False
RUN.wrong = RUN.failed = 125
_P_ALL = 0  # of Linux, for waitid(2)
_SI_KERNEL = 0x80, 0x10006  # of Linux, of FreeBSD: a key on the terminal has sent the signal


def run_job(options: "dict[str, str]", command: "list[str]") -> int:
    job = (Tree if "tree" in options else Job)(options, command)
    return job.run_on_windows() if os.name == "nt" else job.run()


def _started(start: "Callable[[Sequence[str]], Any]", command: "Sequence[str]") -> "Any":
    """Start the command; a script without #! by the shell, as execvp(3) does."""
    name = command[0]
    try:
        if not name:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), "")
        try:
            return start(command)
        except OSError as error:
            if error.errno != ENOEXEC or os.name == "nt":
                raise
        from shutil import which

        return start(["/bin/sh", which(name) or name, *command[1:]])
    except OSError as error:
        # Before Python 3.8 subprocess repeats the name in strerror. Our own error has ENOSYS.
        why: object = os.strerror(error.errno) if error.errno else error
        why = error.strerror if error.errno == ENOSYS else why
        text = "can't start %r: %s" % (name, why)
        if error.errno == ENOENT:
            with contextlib.suppress(shared.UsageError):
                shared.duration({"timeout": name}, "timeout")
                text += " (to set a time-out, use -t %s)" % name
            raise shared.CommandError(text, 127) from None
        of_command = error.filename or isinstance(error, PermissionError)
        of_command = of_command and error.errno not in PASSING
        raise shared.CommandError(text, 126 if of_command else RUN.failed) from None
    except (ValueError, RuntimeError) as error:  # PIDWAIT_TREE has another value; no thread is left
        raise shared.CommandError("can't start %r: %s" % (name, error), RUN.failed) from None


class Job:
    """A command, and this process, in a new process group, as with GNU timeout: POSIX.

    So a terminal treats both as one job: Ctrl-Z stops both.
    """

    child: "Any"
    _code: "int | None" = None
    _caught: "set[int]" = set()  # these signals are blocked; sigtimedwait() returns them

    def __init__(self, options: "dict[str, str]", command: "list[str]") -> None:
        # 0 means no limit, as in GNU timeout.
        self._timeout = shared.duration(options, "timeout") or None
        self._kill_after = shared.duration(options, "kill-after") or None
        # Windows lacks most of them: there -s does nothing.
        self._signal = 0 if os.name == "nt" else shared.signal_number(options.get("signal", "TERM"))
        self._options, self._began = options, Deadline.now()
        self._foreground = "foreground" in options
        if not command:
            raise shared.UsageError("give a COMMAND")
        self._rest = options.get("rest", "wait")
        if "rest" in options and "tree" not in options:
            raise shared.UsageError("--rest needs --tree")
        if self._rest not in ("kill", "wait", "leave"):
            raise shared.UsageError("--rest: %r is not kill, wait or leave" % self._rest)
        self._command = command
        parent = options.get("parent")
        self._parent = None if parent is None else shared.process_id(parent, "--parent")
        self._timed_out = self._has_begun = False  # -k's time has
        # Signals to pass on; each is there once, however often it came.
        self._came: "list[int]" = []

    def start(self, command: "Sequence[str]") -> "Any":
        # The command keeps open file descriptors, as in a shell: diff <(a) <(b), make's jobs.
        with self._callers_mask():
            return spawn(command, close_fds=os.name == "nt")

    @contextlib.contextmanager
    def _callers_mask(self) -> "Iterator[None]":
        """In the block, signals are blocked as our caller has it: COMMAND inherits that."""
        if self._caught:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            yield
        finally:
            if self._caught:
                signal.pthread_sigmask(signal.SIG_BLOCK, self._caught)

    def _watch_parent(self, end: "Callable[[], object]") -> None:
        if self._options.keys() & {"with-parent", "parent", "ancestors"}:
            try:
                watch_parent(end, self._parent, "ancestors" in self._options)
            except RuntimeError as error:  # no thread is left
                raise shared.CommandError("--with-parent: %s" % error, RUN.failed) from None

    def run_on_windows(self) -> int:
        with _started(self.start, self._command) as self.child:  # in our group: it gets Ctrl-C, too
            self._watch_parent(self.child.terminate)
            try:
                code = wait(self.child, self._timeout)
            except TimeoutExpired:
                self._timed_out = True
                self._tell("TERM")
                self.child.terminate()
                code = self.child.wait()
        return self._status(code)

    def run(self) -> int:
        # A shell that has us in the background sees us stop for the terminal, with COMMAND. But not
        # if there is a time to keep, or no shell that made this group, and would continue us.
        is_job = os.getpgrp() == os.getpid() and self._timeout is None
        self._unheeded = () if is_job else (signal.SIGTTIN, signal.SIGTTOU)
        if not self._foreground:
            with contextlib.suppress(PermissionError):  # we lead a session, and so a group
                os.setpgid(0, 0)
        self._catch_signals()
        self._watch_parent(self._end_with_parent)
        self._deadline = Deadline(self._timeout)
        with _started(self.start, self._command) as self.child:
            # From here on our messages on the terminal stop nobody. For the command, these
            # signals have their default action.
            for number in self._unheeded:
                signal.signal(number, signal.SIG_IGN)
            while not self.reap():
                if os.getpid() == 1:  # of a container, where nobody else reaps them
                    self._reap_orphans()
                while self._came:
                    self._pass_on(self._came.pop(0))
                self._sleep()
        return self._status(self._code)

    def _sleep(self) -> None:
        """Sleep until a signal comes, or the time is up; pass the signal on."""
        if self._caught:
            info: "Any" = signal.sigtimedwait(self._caught, self._deadline.at_most(LONGEST_SLEEP))
            # Ours are those that have woken us, and those to our group.
            if info and info.si_pid != os.getpid() and info.si_signo != signal.SIGCHLD:
                self._pass_on(info.si_signo, self._has_reached_group(info))
        elif poll(self._reader, select.POLLIN, self._deadline):
            os.read(self._reader, 65536)
        if self._deadline.expired():
            self._pass_on(signal.SIGALRM)

    def _has_reached_group(self, info: "Any") -> bool:
        """Whether all of our group have got the signal: from the terminal, or from one of them."""
        has_key = info.si_signo in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
        if not has_key or info.si_code in _SI_KERNEL:
            return has_key
        try:  # a group that we do not lead has others than COMMAND, which may mean us alone
            return info.si_pid > 0 and os.getpgid(info.si_pid) == os.getpgrp() == os.getpid()
        except ProcessLookupError:
            return False

    def _report_usage(self, code: "int | None") -> None:
        text = "%s; %.3f s" % (shared.ending(code), Deadline.now() - self._began)
        used = self.child.usage
        if used is not None:
            text += ", user %.3f s, system %.3f s, %.1f MB" % (*used[:2], used.max_rss / 1e6)
        shared.write(sys.stderr, text + "\n")

    def _catch_signals(self) -> None:
        # A handler, not SIG_IGN, which the command would inherit.
        for number in (signal.SIGCHLD, *self._unheeded):
            signal.signal(number, _drop)
        passed_on = map(shared.signal_number, "HUP INT QUIT TERM USR1 USR2 ALRM".split())
        # Ignored signals stay ignored, for nohup. But not the signal that ends the command: a
        # script's background job ignores INT.
        wanted = {one for one in passed_on if not shared.ignores(one)} | {self._signal}
        caught = wanted - {0, signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}
        for one in caught:
            signal.signal(one, self._note)
        if hasattr(signal, "sigtimedwait"):  # else a signal before the sleep leaves a byte there
            self._caught = {signal.SIGCHLD, *caught}
        else:
            self._reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer)
        # Our parent may have blocked SIGCHLD, and children inherit that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._caught)

    def _note(self, number: int, frame: object) -> None:
        if number not in self._came:
            self._came.append(number)

    def _end_with_parent(self) -> None:
        self._note(signal.SIGTERM, None)
        os.kill(os.getpid(), signal.SIGCHLD)

    def _reap_orphans(self) -> None:
        ours = getattr(getattr(self.child, "_tree", None), "_keeper", self.child)
        for found in iter(lambda: ask("waitid", _P_ALL, 0, WAITID["LOOK"]), None):
            if found.si_pid == ours.pid:
                break
            os.waitpid(found.si_pid, 0)

    def reap(self) -> bool:
        """Whether the command has exited."""
        if self.child.has_exited():
            self._code = self.child.wait()
        return self.child.reaped  # type: ignore[no-any-return]

    def _pass_on(self, number: int, has_reached_group: bool = False) -> None:
        """Send a signal that came; SIGALRM means that the time is up."""
        if number == signal.SIGALRM:
            self._timed_out = self._timed_out or not self._has_begun
            self._deadline, number = Deadline(None), self._signal
        if not has_reached_group:
            self._tell(next(name for name, its in shared.signals().items() if its == number))
        self.send(number, has_reached_group)
        if not self._foreground and number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            self.send(signal.SIGCONT, has_reached_group)  # stopped processes must run to end
        if self._kill_after is not None:  # the time counts from the first signal
            self._deadline = Deadline(self._kill_after)
            self._signal, self._kill_after, self._has_begun = signal.SIGKILL, None, True

    def _tell(self, name: str) -> None:
        if "verbose" in self._options:
            RUN.complain("sending signal %s to command %r" % (name, self._command[0]))

    def send(self, number: int, has_reached_group: bool) -> None:
        """Send it to the group without us. But SIGKILL ends us, too, as it ends GNU timeout."""
        # SIGSTOP would stop us, and with us the timer of -k.
        alone = self._foreground or number == signal.SIGSTOP
        is_new = alone and not has_reached_group
        if is_new or os.getpgid(self.child.pid) != os.getpgrp():  # it has made its own group
            with contextlib.suppress(ProcessLookupError, PermissionError):  # setuid programs
                self.child.send_signal(number)
        if alone or has_reached_group:
            return
        # Not SIG_IGN: Python complains about a signal that came just before, bpo-43406.
        is_caught = number and signal.getsignal(number) == self._note
        if is_caught:
            signal.signal(number, _drop)
        os.killpg(0, number)
        if is_caught:
            signal.signal(number, self._note)

    def _status(self, code: "int | None") -> int:
        if "usage" in self._options:
            self._report_usage(code)
        if self._timed_out and not ("preserve-status" in self._options or code == -KILL):
            return shared.TIMED_OUT
        if code is not None and code < 0 and not self._timed_out:
            _die_of(-code)
        return shared.as_status(code or 0)


def _drop(number: int, frame: object) -> None:
    """The handler for a signal that we have sent to our own group."""


def _die_of(number: int) -> None:
    """End this process by a signal, so that a shell sees which signal ended the command."""
    # One core dump is enough.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL, and signals that the C library reserves
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)


class Tree(Job):
    """A command with all that it starts: its Popen stands for the whole tree."""

    _popen: "Any" = None

    def start(self, command: "Sequence[str]") -> "Any":
        from .. import subprocess  # few need it

        popen: "Any" = subprocess.Popen
        options = {"tree": self._rest, "grace": self._kill_after or 0.0}
        has_started = _thread.allocate_lock()
        with has_started, contextlib.ExitStack() as stack:
            if os.name != "nt":  # the tree may end without the exit of a child of ours
                _thread.start_new_thread(self._tell_end, (has_started,))
                # "group" uses this thread: all have to start while the signals are blocked.
                stack.callback(watch(os.getpid(), print).cancel)
            with self._callers_mask():
                self._popen = popen(command, close_fds=os.name == "nt", **options)
        if self._popen.mechanism == "group":
            RUN.complain("processes that leave the process group of COMMAND can escape here")
        return self._popen

    def _tell_end(self, has_started: "Any") -> None:
        with has_started:
            pass
        if self._popen is not None:  # else it can't be started
            self._popen.wait()
            os.kill(os.getpid(), signal.SIGCHLD)

    def reap(self) -> bool:
        self._code = self.child.poll()
        return self._code is not None

    def send(self, number: int, has_reached_group: bool) -> None:
        if not has_reached_group or self.child.mechanism == "group":
            self.child._send_to_tree(number, number != signal.SIGSTOP)
            return
        with contextlib.suppress(ProcessLookupError):
            for info in ProcessInfo(self.child._tree._keeper.pid).children(recursive=True):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(info.pid) != os.getpgrp():
                        info.send_signal(number)
