# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: what ps(1) shows of a process; and the polled handle.

The structures of these kernels differ from version to version; the output of ps does not. Each ps
is a process, so waitid(2) and kill(2) are asked first, and ps gets 5 % of the time.
"""

import os
import time
from _thread import get_ident
from errno import ECHILD, EDEADLK, ENOSYS, ESRCH, ETIMEDOUT

from ..._base.deadline import Deadline
from ..._base.errors import Failed, call, log, not_by_handler
from ..._base.handle import PENDING, RUNNING, Handle
from ..bindings import PLATFORM
from ..posix import code_of_status, is_found, is_our_child, look_at_child, usage_by_wait4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Identity, Iterable, Outcome

PS = "/bin/ps"
# NetBSD cuts a date to the width of the headline; without a headline, of the usual headline.
START = "lstart=" + "S" * 24
# State, wait status and start time, below a headline: "Z 900 Sat Nov 21 03:11:52 2026".
# The keywords are in no standard, but in keyword.c of all of these systems since 4.4BSD. None is an
# alias, as "stat" is: the ps of DragonFly and of older OpenBSDs gives an alias the headline of its
# keyword, even if the caller sets an empty one.
_ARGUMENTS = ("-o", "state=", "-o", "xstat=", "-o", START, "-p")
ENVIRONMENT = {"TZ": "UTC0"}
_TIME_LIMIT = 1.0  # seconds; ps takes milliseconds
_FIRST_PS = 0.05  # seconds of a wait before it asks ps
_PER_RUN = 19  # seconds between two ps, for each second that a ps takes
# (process, thread) of each thread that is waiting for a ps now: see run_ps().
_asking: "set[tuple[int, int]]" = set()
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"

ps_clock = time.monotonic  # the cost of a look at a polled process is the time of ps


class PsStat:
    """Whether a process has exited, its exit code if that is shown, and when it started."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.exited = words[0].startswith("Z")
        status = int(words[1], 16)
        # 0 may also mean that the status is not shown.
        self.code = code_of_status(status) if self.exited and status else None
        self.started = seconds_of_date(words[2:])
        self._offset = time.monotonic() - time.time()

    def is_other(self, other: "PsStat | None") -> bool:
        """Whether the two belong to processes that started at different times."""
        if other is None or self.started is None or other.started is None:
            return False
        # Setting the clock changes either the start time, if that is counted from boot (FreeBSD),
        # or else the time since the start, but never both.
        later = self.started - other.started
        return abs(later) > 1 and abs(later + self._offset - other._offset) > 2


def seconds_of_date(words: "list[str]") -> "int | None":
    """The seconds from the epoch to a date of ctime(3); None for "-", or anything but a date."""
    from datetime import datetime

    try:
        month = _MONTHS.index(words[1]) // 3 + 1
        hours, minutes, seconds = map(int, words[3].split(":"))
        when = datetime(int(words[4]), month, int(words[2]), hours, minutes, seconds)
    except not_by_handler(ValueError, LookupError):
        return None
    return int((when - datetime(1970, 1, 1)).total_seconds())


def read_ps(pid: int) -> "PsStat | None":
    """The state from ps; None if ps can't be run, or prints nothing."""
    try:
        text = run_ps([*_ARGUMENTS, str(pid)], _TIME_LIMIT)[2].decode("ascii", "replace")
        row = text.partition("\n")[2]
        return PsStat(row) if row else None
    except not_by_handler(Failed, ValueError, LookupError) as why:  # a sandbox, say
        log("%s of pid %d: %s", PS, pid, why)
        return None


def run_ps(arguments: "Iterable[str]", limit: float) -> "tuple[int, int, bytes, bytes]":
    """Its pid, exit code, output and messages; Failed if it takes more than ``limit`` seconds."""
    thread = os.getpid(), get_ident()
    if thread in _asking:
        # subprocess has been patched, and now waits for that ps by polling: the wait would run
        # another ps, and so on.
        raise Failed(EDEADLK, "%s is being run by this thread" % PS)
    # In the C locale macOS's ps shows non-ASCII bytes as "M-C", which can't be undone
    # (VIS_NOSLASH). Other categories than the named one are C.
    name, locale = ("LC_CTYPE", "UTF-8") if PLATFORM == "darwin" else ("LC_ALL", "C")
    environment = dict(ENVIRONMENT, **{name: locale})
    _asking.add(thread)
    try:
        from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

        command = [PS, *arguments]
        with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment) as process:
            try:
                printed, errors = process.communicate(timeout=limit)
            except not_by_handler(TimeoutExpired):
                text = "%s took longer than %g seconds" % (PS, limit)
                raise Failed(ETIMEDOUT, text) from None
            finally:
                process.kill()  # if it has not ended
        return process.pid, process.returncode, printed, errors
    except not_by_handler(OSError, ImportError) as error:  # no file descriptor left
        raise Failed(OSError(getattr(error, "errno", ENOSYS), str(error))) from None
    finally:
        _asking.discard(thread)


def parent_as_ps_tells(pid: int) -> "int | None":
    if pid == os.getpid():
        return os.getppid()
    try:
        return int(run_ps(["-o", "ppid=", "-p", str(pid)], _TIME_LIMIT)[2])
    except not_by_handler(Failed, ValueError) as why:
        log("%s of pid %d: %s", PS, pid, why)
        return None


def is_there(pid: int) -> bool:
    """Whether a process or thread, running or a zombie, has the pid."""
    if is_found(pid):
        return True
    # On older OpenBSDs kill() does not find a zombie. waitid(2) finds our own; where there is no
    # waitid(2), ps finds it.
    is_ours = is_our_child(pid)
    return read_ps(pid) is not None if is_ours is None else is_ours


class PsHandle(Handle):
    """A pid, and the start time of the process that had it when ps was first asked."""

    pid: int
    _stat: "PsStat | None" = None  # the first answer of ps
    _ask_again = 0.0
    _ps_saw_exit = False  # ps is asked now and then only, so the answer is kept

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if not is_there(pid):
            raise Failed(ESRCH)

    def look(self, reap: bool = False) -> "Outcome":
        try:
            exited = look_at_child(self.pid) is not RUNNING
            asks = self._stat is not None  # the pid may belong to another child by now
        except Failed:  # somebody else's, or there is no waitid
            exited = self._ps_saw_exit or not is_found(self.pid)
            asks = True  # it may be a zombie
        if asks and not exited and Deadline.now() >= self._ask_again:
            exited = self._ps_saw_exit = self._ps_tells_exit()
        return self._code(reap) if exited else RUNNING

    def _ps_tells_exit(self) -> bool:
        began = Deadline.now()
        stat = read_ps(self.pid)
        now = Deadline.now()
        self._ask_again = now + _PER_RUN * (now - began)
        if stat is None:
            return not is_found(self.pid)
        self._stat = self._stat or stat
        return stat.exited or stat.is_other(self._stat)

    def _code(self, reap: bool) -> "Outcome":
        # The code is found by the pid: it counts if the pid still belongs to this process.
        stat = None if self._stat is None else read_ps(self.pid)
        if stat is not None and stat.is_other(self._stat):
            return None
        code = self._code_of_child(reap)
        if code is RUNNING and reap:
            return PENDING
        if code is None or code is RUNNING:
            stat = stat or read_ps(self.pid)
            code = None if stat is None else stat.code
        return code

    def _code_of_child(self, reap: bool) -> "Outcome":
        """The outcome by waitid(2), or wait4(2); None if it is not our child."""
        try:
            if not reap:
                return look_at_child(self.pid)
            reaped, status, rusage = call(os.wait4, self.pid, os.WNOHANG)
            self.usage = usage_by_wait4(rusage) if reaped else None
            return code_of_status(status) if reaped else RUNNING
        # ImportError: wait4() can't import resource at the interpreter's end.
        except not_by_handler(Failed, ImportError) as why:
            if getattr(why, "errno", None) != ECHILD:
                log("waitid, pid %d: %s", self.pid, why)
            return None

    def identify(self) -> "Identity | None":
        if self._stat is None:
            self._ps_tells_exit()
        started = self._stat and self._stat.started
        return None if started is None else ("start", self.pid, started)

    def wait(self, deadline: Deadline, reap: bool = False) -> "Outcome":
        self._ask_again = max(self._ask_again, Deadline.now() + _FIRST_PS)
        outcome = super().wait(deadline, reap)
        if outcome is RUNNING:
            self._ask_again = 0.0  # the last look: ask ps, whatever it takes
            outcome = self.look(reap)
        return outcome


def check_ps() -> None:
    """Ask ps about our own process."""
    stat = read_ps(os.getpid())
    if stat is None or stat.exited or stat.started is None:
        raise Failed(ENOSYS, "%s does not show state and start time" % PS)
