# SPDX-License-Identifier: BSD-3-Clause
"""Linux, listed: /proc/<pid>/stat, and status and cmdline for the other attributes."""

import os
import time
from errno import EACCES, ENOENT, ESRCH
from functools import partial

from ..._base.checks import why_not
from ..._base.errors import GONE, Failed
from ..posix import close, is_found, opened, user_name, whole_name
from .proc import ProcStat, check_procfs, read_file, whole_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import File, Iterator

_TICKS = os.sysconf("SC_CLK_TCK")  # a second
_BOOTTIME = 7  # CLOCK_BOOTTIME, which the time module has from Python 3.7 on
# The names of psutil.
_STATUS = {"R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "Z": "zombie"}
_STATUS.update(t="tracing-stop", X="dead", I="idle", P="parked")
_boot = [0.0]


class LinuxFacts:
    _stat: "ProcStat | None" = None
    _cmdline: "list[str] | None" = None
    _uids: "tuple[int, int, int] | None" = None
    # Once the process has been reaped, opening a file below its directory fails with ESRCH, even
    # if the pid is reused.
    _directory: "File | None" = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _read(self, name: str) -> bytes:
        try:
            if self._directory is None:
                self._directory = opened(os.open, "/proc/%d" % self.pid, os.O_CLOEXEC)
            open_ = partial(os.open, dir_fd=self._directory.fileno())
            return read_file(name, open_, name == "cmdline")
        except Failed as why:
            if why.errno not in GONE:  # hidepid=1 refuses it
                raise
            # hidepid=2 hides the process. Or the pid has been reused since.
            if is_found(self.pid) and not os.path.exists("/proc/%d" % self.pid):
                raise Failed(EACCES, "the process is hidden") from None
            raise Failed(ESRCH) from None

    def _shown(self) -> ProcStat:
        self._stat = self._stat or whole_stat(self._read, "stat")
        if self._stat is None:
            raise Failed(ESRCH)
        return self._stat

    def started(self) -> int:
        return self._shown().started

    def comm(self) -> str:
        return self._shown().name

    def name(self) -> str:
        name = self.comm()  # the kernel keeps 15 bytes of it
        return name if len(os.fsencode(name)) < 15 else whole_name(name, self.cmdline())

    def ppid(self) -> int:
        return self._shown().parent

    def group(self) -> int:
        return self._shown().group

    def status(self) -> str:
        state = self._shown().state
        return _STATUS.get(state, state)

    def create_time(self) -> float:
        return self.started() / _TICKS + _boot_time()

    def cmdline(self) -> "list[str]":
        if self._cmdline is None:
            text = self._read("cmdline")
            # If a process has written a title over its arguments, there is no NUL at the end.
            separator = b"\0" if text.endswith(b"\0") else b" "
            words = (text[:-1] if text.endswith(separator) else text).split(separator)
            self._cmdline = [os.fsdecode(word) for word in words] if text else []
        return self._cmdline

    def uids(self) -> "tuple[int, int, int]":
        if self._uids is None:
            # The program's name, in a line above, has no newline: the kernel writes "\\n".
            found = self._read("status").partition(b"\nUid:")[2].split(None, 3)
            self._uids = int(found[0]), int(found[1]), int(found[2])
        return self._uids

    def username(self) -> str:
        return user_name(self.uids()[0])

    def close(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            close(directory)


def _boot_time() -> float:
    """Seconds from the epoch to the boot: the same at each call, unless the clock is set."""
    # If another process has run between the two readings, the result is too early.
    found = max(time.time() - time.clock_gettime(_BOOTTIME) for _ in range(3))
    if abs(found - _boot[0]) > 0.02:
        _boot[0] = found
    return _boot[0]


def _check() -> None:
    user_name.cache_clear()
    why = why_not(check_procfs)
    if why is not None:
        raise OSError(ENOENT, "processes can't be listed in /proc: %s" % why.error.strerror)


class LinuxLister:
    """See listers.py."""

    where = "/proc"
    clock_is_steady = True

    def now(self) -> int:
        return int(time.clock_gettime(_BOOTTIME) * _TICKS)

    def read(self, pid: int) -> LinuxFacts:
        _check()
        return LinuxFacts(pid)

    def read_all(self) -> "Iterator[LinuxFacts]":
        _check()
        return map(LinuxFacts, sorted(map(int, filter(str.isdigit, os.listdir("/proc")))))
