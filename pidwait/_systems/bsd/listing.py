# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, listed: one ps(1) for all processes, or for one.

The output of ps has limits: start times have no fraction, an argument with a space may be split
there, and an empty argument is missing.
"""

import os
import re
import time
from errno import EACCES, ENOSYS, ESRCH

from ..._base.errors import Failed, log
from ..bindings import PLATFORM
from ..posix import user_name, whole_name
from .ps import PS, START, is_there, run_ps, seconds_of_date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match

    from ..._types import Iterator

_LIST_TIME_LIMIT = 10.0  # seconds; ps takes milliseconds for each hundred processes
# A name may contain anything: so it comes first, in a column that its headline makes this wide.
# Names have up to 24 bytes, and ps shows a byte as up to 4 characters. The pid is right-aligned
# in the next column, and so shows where the name has ended.
_NAME_WIDTH, _PID_WIDTH = 100, 10
_HEADLINES = "N" * _NAME_WIDTH, "P" * _PID_WIDTH
_STATUS_LETTERS = {"R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped"}
_STATUS_LETTERS.update(Z="zombie", L="locked", W="waiting")
# On a processor (NetBSD); for more than about 20 seconds; a kernel thread (DragonFly).
_STATUS_LETTERS.update(O="running", I="sleeping", B="disk-sleep")

# The columns between the pid and the command, and patterns for their values.
_COLUMNS = dict.fromkeys(("ppid", "pgid", "uid", "ruid", "svuid"), r"-?\d+")
# A state does not begin with a digit: so no part of a name can pass for a row.
_COLUMNS.update(state=r"[^\s\d]\S*", lstart=r"-|\w+ +\w+ +\d+ +\d+:\d+:\d+ +\d+")

# The systems' peculiarities are from their bin/ps/keyword.c, print.c and fmt.c. Escapes of vis(3)
# with VIS_CSTYLE can be undone. With VIS_NOSLASH, "^J" may be an escape or those two characters: on
# macOS in all columns, and in names everywhere but on OpenBSD.


class BsdFacts:
    def __init__(self, name: bytes, row: "Match[bytes]") -> None:
        self.pid = int(row.group("pid"))
        self._name, self._row = name, row

    def _text(self, keyword: str) -> str:
        return str(self._row.group(keyword), "ascii", "replace")

    def started(self) -> int:
        started = seconds_of_date(self._text("lstart").split())
        if started is None:  # NetBSD and OpenBSD print "-" for a zombie
            raise Failed(EACCES, "its start time is not shown")
        return started

    def comm(self) -> str:
        return os.fsdecode(_plain(self._name) if PLATFORM == "openbsd" else self._name)

    def name(self) -> str:
        is_whole = len(self._name) < (19 if PLATFORM == "freebsd" else 16)
        return self.comm() if is_whole else whole_name(self.comm(), self.cmdline())

    def ppid(self) -> int:
        return int(self._text("ppid"))

    def group(self) -> int:
        return int(self._text("pgid"))

    def status(self) -> str:
        state = self._text("state")
        if state[0] == "U":
            return "disk-sleep" if PLATFORM == "darwin" else "suspended"
        return _STATUS_LETTERS.get(state[0], state)

    def create_time(self) -> float:
        return float(self.started())

    def cmdline(self) -> "list[str]":
        if self.status() == "zombie":
            return []
        command, name = self._row.group("command").strip(), _pattern(self._name)
        # Without arguments ps shows "[name]" or "(name)", also "(name/thread)".
        if re.match(rb"[\[(]%s(/.*)?[\])]\Z" % name, command):
            return []
        words = command.split()
        if PLATFORM != "darwin":
            if not re.match(rb"(.*/)?%s\Z" % name, b"".join(words[:1])):  # " (name)" is added
                words = re.sub(rb" +\(%s(/.*)?\)\Z" % name, b"", command).split()
            words = [_plain(word) for word in words]
        return [os.fsdecode(word) for word in words]

    def uids(self) -> "tuple[int, int, int]":
        # macOS shows the user nobody as -2.
        uids = (int(self._text(keyword)) & 0xFFFFFFFF for keyword in ("ruid", "uid", "svuid"))
        return tuple(uids)  # type: ignore[return-value]

    def username(self) -> str:
        return user_name(self.uids()[0])

    def close(self) -> None:
        """Nothing is open."""


def _pattern(name: bytes) -> bytes:
    """A regular expression for a name in a command line, where it may be escaped in other ways."""
    return b"".join(
        re.escape(bytes((byte,))) if 32 <= byte < 127 and byte != 0x5C else b".{1,4}"
        for byte in name
    )


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


def _list(*which: str) -> "list[BsdFacts]":
    user_name.cache_clear()
    arguments = [*which, "-ww", "-o", "ucomm=" + _HEADLINES[0], "-o", "pid=" + _HEADLINES[1]]
    for keyword in [*_COLUMNS, "command"]:
        arguments += ["-o", START if keyword == "lstart" else keyword + "="]
    try:
        ps, code, printed, errors = run_ps(arguments, _LIST_TIME_LIMIT)
        headline, _, rows = printed.partition(b"\n")
        # A ps that finds no process exits with 1, but prints the headline. A killed ps may have
        # printed a part of the processes.
        if code < 0 or not headline.startswith(" ".join(_HEADLINES).encode()):
            text = errors.decode("utf-8", "replace").partition("\n")[0]
            raise Failed(ENOSYS, text or "%s exited with %d" % (PS, code))
        found = list(_parse(rows))
        if rows and not found:
            raise Failed(ENOSYS, "%s prints an unknown format" % PS)
    except Failed as why:
        text = "processes can't be listed: %s" % why.error.strerror
        raise OSError(why.errno or ENOSYS, text) from why.error
    # FreeBSD's kernel has pid 0, and DragonFly's kernel threads have -1.
    return [facts for facts in found if facts.pid > 0 and facts.pid != ps]


def _parse(rows: bytes) -> "Iterator[BsdFacts]":
    named = "".join(" +(?P<%s>%s)" % column for column in _COLUMNS.items())
    match = re.compile((r" +(?P<pid>-?\d+)%s *(?P<command>.*)\n" % named).encode()).match
    at = 0
    while at < len(rows):
        end = rows.find(b"\n", at) + 1 or len(rows)
        # FreeBSD's ps prints with libxo, which pads a column by the width on a terminal, where
        # control characters have none.
        first = at + _NAME_WIDTH
        extra = sum(byte < 32 or byte > 126 for byte in rows[at:first])
        for start in range(first, first + extra + 1):
            row = match(rows, start)
            if row is not None and row.end("pid") == start + 1 + _PID_WIDTH:
                yield BsdFacts(rows[at:start].rstrip(b" "), row)
                end = row.end()
                break
        else:
            log("%s: not a process: %r", PS, rows[at:end])
        at = end


class BsdLister:
    """See listers.py."""

    where = PS

    def now(self) -> int:
        return int(time.time())

    def read(self, pid: int) -> BsdFacts:
        # Twice: the pid may have been reused since.
        for _ in range(2):
            for facts in _list("-p", str(pid)):
                return facts
            if not is_there(pid):
                raise Failed(ESRCH)
        raise Failed(EACCES, "the process is hidden")

    def read_all(self) -> "Iterator[BsdFacts]":
        return iter(sorted(_list("-ax"), key=lambda facts: facts.pid))
