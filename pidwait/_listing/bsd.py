# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, listed: one ps(1) for all processes, or for one.

What ps does not show can't be told: a start time has no fraction, an argument of the command
line may have been parted where it contains a space, and an empty one is missing.
"""

import os
import re
import time
from errno import EACCES, ENOSYS, ESRCH

from .._base.errors import Failed, failed, log
from .._systems.calls import PLATFORM
from .._systems.posix import UserNames
from .._systems.ps import PS, is_there, run_ps, seconds_of_date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match

    from .._types import Any, Iterator

WHERE = PS
READS_LATER = False
NEED_FULL: "frozenset[str]" = frozenset()
_LIST_TIME_LIMIT = 10.0  # seconds; ps takes milliseconds for each hundred processes
# A name may contain anything: it comes first, in a column that its headline makes this wide.
# Names have up to 24 bytes, and ps shows a byte as up to 4 characters. The pid stands at the
# right of the next column, and so tells whether the name has ended.
_NAME_WIDTH, _PID_WIDTH = 100, 10
_HEADLINES = "N" * _NAME_WIDTH, "P" * _PID_WIDTH
_STATUS_LETTERS = {
    "R": "running",
    "O": "running",  # NetBSD: on a processor
    "S": "sleeping",
    "I": "sleeping",  # for more than about 20 seconds
    "D": "disk-sleep",
    "B": "disk-sleep",  # DragonFly: in the kernel's own threads
    "T": "stopped",
    "Z": "zombie",
    "L": "locked",
    "W": "waiting",
}
_NO_TERMINAL = ("-", "?", "??")


class _System:
    """What is peculiar to the ps of a system: from its bin/ps/keyword.c, print.c and fmt.c."""

    def __init__(
        self,
        times: "tuple[str, ...]",
        longest: int = 16,
        escapes_command: bool = True,
        escapes_name: bool = False,
        adds_name: bool = True,
        uninterruptible: str = "suspended",
    ) -> None:
        self.times = times  # keywords of the user's and the system's time, or of their sum
        self.longest = longest  # bytes of a name
        # By vis(3) with VIS_CSTYLE, which can be undone. The others escape by VIS_NOSLASH: what
        # they show as "^J" may also have been just that.
        self.escapes_command = escapes_command
        self.escapes_name = escapes_name
        # " (name)" to a command line that begins with another one.
        self.adds_name = adds_name
        self.status = dict(_STATUS_LETTERS, U=uninterruptible)
        # A terminal is not digits alone: no name can pass for some of the numbers.
        columns = [rb"(-?\d+)"] * 5 + [rb"(\S*[^\s\d]\S*)", rb"(\S+)"]
        columns += [rb"([\d:.d]+|-)"] * len(times)
        columns.append(rb"(-|\w+ +\w+ +\d+ +[\d:]+ +\d+)")
        self.row = re.compile(b" +" + b" +".join(columns) + rb"(?: +(.*))?\n")

    def arguments(self) -> "list[str]":
        keywords = ["ppid", "uid", "ruid", "svuid", "tty", "state", *self.times]
        keywords += ["lstart", "command"]
        found = ["-ww", "-o", "ucomm=" + _HEADLINES[0], "-o", "pid=" + _HEADLINES[1]]
        for keyword in keywords:
            found += ["-o", keyword + "="]
        return found


_SYSTEMS: "dict[str, dict[str, Any]]" = {
    "darwin": {
        "times": ("utime", "stime"),
        "escapes_command": False,
        "adds_name": False,
        "uninterruptible": "disk-sleep",
    },
    "freebsd": {"times": ("usertime", "systime"), "longest": 19},
    "netbsd": {"times": ("utime", "stime")},
    "openbsd": {"times": ("time",), "escapes_name": True},
    "dragonfly": {"times": ("time",)},
}
_made: "dict[str, _System]" = {}


def _this_system() -> _System:
    name = PLATFORM if PLATFORM in _SYSTEMS else "freebsd"
    system = _made.get(name)
    if system is None:
        system = _made[name] = _System(**_SYSTEMS[name])
    return system


class Facts:
    __slots__ = (
        "_command",
        "_fields",
        "_name",
        "_started",
        "_system",
        "_usernames",
        "pid",
    )

    def __init__(
        self, system: _System, name: bytes, row: "Match[bytes]", usernames: UserNames
    ) -> None:
        fields = [field.decode("ascii", "replace") for field in row.groups()[:-1]]
        self.pid = int(fields[0])
        self._system = system
        self._fields = fields
        self._name = name
        self._usernames = usernames
        self._command: bytes = row.groups()[-1]
        self._started = seconds_of_date(fields[-1].split())

    def started(self) -> int:
        if self._started is None:  # NetBSD and OpenBSD print "-" for a zombie
            raise failed(EACCES, "its start time is not shown")
        return self._started

    def name(self) -> str:
        name = os.fsdecode(_plain(self._name) if self._system.escapes_name else self._name)
        if len(self._name) >= self._system.longest:
            # It may have been cut off. As psutil does, look for the rest in the command line.
            words = self.cmdline()
            longer = os.path.basename(words[0]) if words else ""
            # As bytes: the cut may be in the middle of a character.
            if os.fsencode(longer).startswith(os.fsencode(name)):
                return longer
        return name

    def ppid(self) -> int:
        return int(self._fields[1])

    def status(self) -> str:
        letters = self._state()
        return self._system.status.get(letters[0], letters)

    def _state(self) -> str:
        return self._fields[-2 - len(self._system.times)]

    def create_time(self) -> float:
        return float(self.started())

    def cpu_times(self) -> "tuple[float, float, float, float]":
        """Those of the children are not shown; nor is which part of a sum is the user's."""
        texts = self._fields[-1 - len(self._system.times) : -1]
        if "-" in texts:  # NetBSD's zombies
            raise failed(ENOSYS, "its processor time is not shown")
        times = [_duration(text) for text in texts]
        return times[0], times[1] if len(times) > 1 else 0.0, 0.0, 0.0

    def terminal(self) -> "str | None":
        name = self._fields[-3 - len(self._system.times)]
        # FreeBSD shows the number of a terminal without a name as "#C:0x5e".
        return None if name in _NO_TERMINAL or name.startswith("#") else "/dev/" + name

    def cmdline(self) -> "list[str]":
        if self._state().startswith("Z"):
            return []
        command, name = (self._command or b"").strip(), _pattern(self._name)
        # Without arguments ps shows "[name]" or "(name)", also "(name/thread)".
        if re.match(rb"[\[(]%s(/.*)?[\])]\Z" % name, command):
            return []
        words = command.split()
        if self._system.adds_name and not re.match(rb"(.*/)?%s\Z" % name, b"".join(words[:1])):
            words = re.sub(rb" +\(%s(/.*)?\)\Z" % name, b"", command).split()
        if self._system.escapes_command:
            words = [_plain(word) for word in words]
        return [os.fsdecode(word) for word in words]

    def uids(self) -> "tuple[int, int, int]":
        # macOS shows the user nobody as -2.
        effective, real, saved = (int(uid) & 0xFFFFFFFF for uid in self._fields[2:5])
        return real, effective, saved

    def username(self) -> str:
        return self._usernames[self.uids()[0]]

    def close(self) -> None:
        pass


def _pattern(name: bytes) -> bytes:
    """A regular expression for a name in a command line, where it may be escaped in other ways."""
    return b"".join(
        re.escape(bytes((byte,))) if 32 <= byte < 127 and byte != 0x5C else b".{1,4}"
        for byte in name
    )


def _duration(text: str) -> float:
    """The seconds of "0:01.50", "1.500000", "100:01", "1:40:01" or DragonFly's "3d04:05"."""
    days, _, rest = text.rpartition("d")
    if days:
        rest += ":00"
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + int(days or 0) * 86400


_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|(M?)([-^])(.)|(.))", re.DOTALL)
_LETTERS = dict(zip(b"nrbavtfs", b"\n\r\b\a\v\t\f "))


def _plain(text: bytes) -> bytes:
    r"""Undo vis(3): \n, \033, \^C, \M-C, \M^C."""
    return _ESCAPE.sub(_unescaped, text) if b"\\" in text else text


def _unescaped(match: "Match[bytes]") -> bytes:
    octal, meta, kind, char, letter = match.groups()
    if octal:
        return bytes((int(octal, 8) & 0xFF,))
    if letter:
        return bytes((_LETTERS.get(letter[0], letter[0]),))
    code = char[0]
    if kind == b"^":
        code = 0x7F if char == b"?" else code & 0x1F
    return bytes((code | 0x80 if meta else code,))


def now() -> int:
    return int(time.time())


def read(pid: int, full: bool) -> Facts:
    # Twice: the pid may have been given to another process since.
    for _ in range(2):
        for facts in _list("-p", str(pid)):
            if facts.pid == pid:
                return facts
        if not is_there(pid):
            raise failed(ESRCH)
    raise failed(EACCES, "the process is hidden")


def read_all(full: bool) -> "Iterator[Facts]":
    return iter(sorted(_list("-ax"), key=lambda facts: facts.pid))


def _list(*which: str) -> "list[Facts]":
    system = _this_system()
    try:
        arguments = (*which, *system.arguments())
        ps, code, printed, errors = run_ps(arguments, _LIST_TIME_LIMIT)
    except Failed as why:
        raise _not_listed(why.errno, why.error.strerror) from why.error
    headline, _, rows = printed.partition(b"\n")
    # A ps that finds no process exits with 1, but prints the headline. One that has been killed
    # may have printed a part of the processes.
    if code < 0 or not headline.startswith(" ".join(_HEADLINES).encode()):
        text = errors.decode("utf-8", "replace").partition("\n")[0]
        raise _not_listed(ENOSYS, text or "%s exited with %d" % (PS, code))
    found = _parse(system, rows)
    if rows and not found:
        raise _not_listed(ENOSYS, "%s prints something else" % PS)
    # FreeBSD's kernel has pid 0, and DragonFly's threads of the kernel -1.
    return [facts for facts in found if facts.pid > 0 and facts.pid != ps]


def _not_listed(code: "int | None", text: "str | None") -> OSError:
    return OSError(code or ENOSYS, "processes can't be listed: %s" % text)


def _parse(system: _System, rows: bytes) -> "list[Facts]":
    found = []
    usernames = UserNames()
    at = 0
    while at < len(rows):
        name = rows[at : at + _NAME_WIDTH]
        # FreeBSD's ps prints with libxo, which fills up a column by what a terminal shows: of
        # control characters nothing.
        for extra in range(1 + sum(byte < 32 or byte > 126 for byte in name)):
            start = at + _NAME_WIDTH + extra
            row = system.row.match(rows, start)
            if row is not None and row.end(1) == start + 1 + _PID_WIDTH:
                break
        else:
            row = None
        end = rows.find(b"\n", at) + 1 or len(rows)
        try:
            if row is None:
                raise ValueError("not a process")
            found.append(Facts(system, rows[at : row.start()].rstrip(b" "), row, usernames))
            end = row.end()
        except (ValueError, LookupError) as error:
            log("%s: %s: %r", PS, error, rows[at:end])
        at = end
    return found
