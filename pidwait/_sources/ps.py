# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: what ps(1) tells about a process.

The structures of their kernels differ from version to version; what ps prints does not.
"""

import os
from _thread import get_ident
from errno import EDEADLK, ENOSYS, ETIMEDOUT
from time import monotonic, time

from .. import _ffi
from .._errors import log, pass_over, raise_of_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PS = "/bin/ps"
# State, wait status and start time without a headline: "Z 900 Sat Nov 21 03:11:52 2026".
# The keywords are in no standard, but in keyword.c of all of these systems since 4.4BSD. None
# is an alias, as "stat" is: DragonFly's ps, and the older ones of OpenBSD, give an alias the
# headline of what it stands for, even if an empty one is asked for.
ARGUMENTS = ("-o", "state=", "-o", "xstat=", "-o", "lstart=", "-p")
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0"}
_TIME_LIMIT = 1.0  # seconds; ps takes milliseconds
# Threads that are waiting for a ps now, each with its process: see run().
_asking: "set[tuple[int, int]]" = set()
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Stat:
    """Whether a process has exited, its wait status, and when it started."""

    __slots__ = ("exited", "since", "started", "status")

    def __init__(self, line: str) -> None:
        words = line.split()
        self.exited = words[0].startswith("Z")
        self.status = int(words[1], 16)
        # NetBSD and OpenBSD print "-" for a zombie.
        self.started = seconds(words[2:])
        self.since = None if self.started is None else self.started - time() + monotonic()

    def is_other(self, other: "Stat") -> bool:
        """Whether the two belong to processes that started at different times."""
        if self.started is None or self.since is None:
            return False
        if other.started is None or other.since is None:
            return False
        # Setting the clock changes either the start time, where that is counted from boot
        # (FreeBSD), or else the time that has passed since the start, but never both.
        return abs(self.started - other.started) > 1 and abs(self.since - other.since) > 2


def seconds(words: "list[str]") -> "int | None":
    """The seconds from the epoch to a date in the format of ctime(3)."""
    if len(words) != 5 or words[1] not in _MONTHS:
        return None
    hours, minutes, seconds = map(int, words[3].split(":"))
    month, day, year = _MONTHS.index(words[1]) // 3 + 1, int(words[2]), int(words[4])
    # If years begin in March, the leap day is at their end.
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    days = (
        year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719469
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_stat(pid: int) -> "Stat | None":
    """What ps tells; None if it can't be run, or tells nothing."""
    try:
        line = _first_line(pid)
        return Stat(line) if line.strip() else None
    except (ValueError, LookupError) as error:
        log("%s of pid %d: %s", PS, pid, error)
        return None


def _first_line(pid: int) -> str:
    """The first line that ps prints; an empty one if ps can't be run."""
    try:
        text = run((*ARGUMENTS, str(pid)), _TIME_LIMIT).printed
    except OSError as error:  # no file descriptor left, a sandbox
        pass_over(error, "%s", PS)
        return ""
    return text.decode("ascii", "replace").partition("\n")[0]


class Run:
    """A ps that has ended: its pid, its exit code, and what it printed."""

    __slots__ = ("errors", "pid", "printed", "returncode")

    def __init__(self, pid: int, returncode: int, printed: bytes, errors: bytes) -> None:
        self.pid = pid
        self.returncode = returncode
        self.printed = printed
        self.errors = errors


def run(arguments: "Iterable[str]", time_limit: float, keep_errors: bool = False) -> Run:
    """Run ps; OSError if that can't be done, or takes longer than the limit."""
    thread = os.getpid(), get_ident()
    if thread in _asking:
        # subprocess has been patched, and now waits for that ps by polling: it would run
        # another ps for that, and so on.
        raise OSError(EDEADLK, "%s is being run by this thread" % PS)
    _asking.add(thread)
    try:
        return _run((PS, *arguments), time_limit, keep_errors)
    finally:
        _asking.discard(thread)


def _run(command: "tuple[str, ...]", time_limit: float, keep_errors: bool) -> Run:
    import subprocess

    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if keep_errors else subprocess.DEVNULL,
            env=_environment(),
        ) as process:
            try:
                printed, errors = process.communicate(timeout=time_limit)
            except BaseException:
                process.kill()
                raise
    except subprocess.TimeoutExpired as error:
        raise_of_handler(error)
        raise OSError(ETIMEDOUT, "%s took longer than %g seconds" % (PS, time_limit)) from None
    except subprocess.SubprocessError as error:
        raise_of_handler(error)
        raise OSError(ENOSYS, "%s: %s" % (PS, error)) from error
    return Run(process.pid, process.returncode, printed, errors or b"")


def _environment() -> "dict[str, str]":
    if _ffi.PLATFORM != "darwin":
        return ENVIRONMENT
    # In the C locale macOS's ps shows what is not ASCII as "M-C", from which it can't be told
    # what it was (VIS_NOSLASH). Where a locale is not named, it is C.
    environment = dict(ENVIRONMENT, LC_CTYPE="UTF-8")
    del environment["LC_ALL"]
    return environment


def check() -> None:
    """Ask ps about our own process."""
    stat = read_stat(os.getpid())
    if stat is None or stat.exited or stat.started is None:
        raise OSError(ENOSYS, "%s does not tell state and start time" % PS)
