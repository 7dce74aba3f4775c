# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: what ps(1) tells.

Their kernels' structures differ from version to version; what ps prints does not.
"""

import os
from _thread import get_ident
from errno import ENOSYS
from time import monotonic, time

from .._errors import is_of_signal_handler, log

PS = "/bin/ps"
# State, wait status and start time without a headline: "Z 900 Sat Nov 21 03:11:52 2026".
# The keywords are in no standard, but in keyword.c of all of these systems since 4.4BSD.
ARGUMENTS = ("-o", "stat=", "-o", "xstat=", "-o", "lstart=", "-p")
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0"}
_TIME_LIMIT = 1.0  # seconds, for what takes milliseconds
# Threads of a process that wait for a ps now.
_asking: "set[tuple[int, int]]" = set()
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Stat:
    """Whether, and since when, a process lives."""

    __slots__ = ("exited", "since", "started", "status")

    def __init__(self, line: str) -> None:
        words = line.split()
        self.exited = words[0].startswith("Z")
        self.status = int(words[1], 16)
        # Of a zombie NetBSD and OpenBSD print "-".
        self.started = _seconds(words[2:])
        self.since = None if self.started is None else self.started - time() + monotonic()

    def is_other(self, other: "Stat") -> bool:
        """Whether the two are of processes that started at different times."""
        if self.started is None or self.since is None:
            return False
        if other.started is None or other.since is None:
            return False
        # A clock that is set moves either the time of the start, where that is counted
        # from boot (FreeBSD), or else its distance from now: never both.
        return abs(self.started - other.started) > 1 and abs(self.since - other.since) > 2


def _seconds(words: "list[str]") -> "int | None":
    """Since the epoch, of a date as ctime(3) writes it."""
    if len(words) != 5 or words[1] not in _MONTHS:
        return None
    hours, minutes, seconds = map(int, words[3].split(":"))
    month, day, year = _MONTHS.index(words[1]) // 3 + 1, int(words[2]), int(words[4])
    # Years that begin in March have their leap day at the end.
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    days = (
        year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719469
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_stat(pid: int) -> "Stat | None":
    """None where ps can't be run, or tells nothing."""
    thread = os.getpid(), get_ident()
    if thread in _asking:
        # What subprocess is now, where somebody has patched it, waits for that ps by polling,
        # and would run a ps for it, and so on.
        return None
    _asking.add(thread)
    try:
        line = _run(pid)
        return Stat(line) if line.strip() else None
    except (ValueError, LookupError) as error:
        log("%s of pid %d: %s", PS, pid, error)
        return None
    finally:
        _asking.discard(thread)


def _run(pid: int) -> str:
    """The first line of what ps prints; nothing where it can't be run."""
    import subprocess

    try:
        done = subprocess.run(
            (PS, *ARGUMENTS, str(pid)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            timeout=_TIME_LIMIT,
        )
    except (OSError, subprocess.SubprocessError) as error:  # no file descriptor left, a sandbox
        if is_of_signal_handler(error):
            raise
        log("%s: %s", PS, error)
        return ""
    return done.stdout.decode("ascii", "replace").partition("\n")[0]


def check() -> None:
    """Ask ps about this very process."""
    stat = read_stat(os.getpid())
    if stat is None or stat.exited or stat.started is None:
        raise OSError(ENOSYS, "%s does not tell state and start time" % PS)
