# SPDX-License-Identifier: BSD-3-Clause
"""The ps of macOS and of the BSDs, on Linux: what each prints for the processes of this machine.

Keywords, widths and quirks are those of bin/ps/keyword.c, print.c and fmt.c of each system. Each
shows some processes of a kernel, too.
"""

import os
import sys
import time

PLATFORM = sys.argv[1]
TICKS = os.sysconf("SC_CLK_TCK")
LONGEST = {"freebsd": 19, "openbsd": 23}.get(PLATFORM, 16)
CSTYLE = {10: b"\\n", 13: b"\\r", 8: b"\\b", 7: b"\\a", 11: b"\\v", 9: b"\\t", 12: b"\\f"}
# Without a parent, without arguments. Linux has no such pids.
KERNEL = {
    "freebsd": [(0, b"kernel"), (9999990, b"pagedaemon")],
    "netbsd": [(0, b"system")],
    "openbsd": [(9999990, b"softclock")],
    "dragonfly": [(-1, b"idle_0"), (-1, b"helper 1"), (9999990, b"pagedaemon")],
    "darwin": [],
}[PLATFORM]


def is_plain(text):
    """Whether it is shown as it is. A process may have megabytes of arguments."""
    try:
        return b"\\" not in text and text.decode("ascii").isprintable()
    except UnicodeDecodeError:
        return False


def vis(text, cstyle, tab=True):
    """strvis(3) with VIS_NL, and VIS_CSTYLE or VIS_NOSLASH, in the C locale."""
    if is_plain(text):
        return text
    shown = bytearray()
    slash = b"\\" if cstyle else b""
    for byte in text:
        low = byte & 0x7F
        if byte == 0x5C and cstyle:
            shown += b"\\\\"
        elif 32 <= byte < 127 or (byte == 9 and not tab):
            shown += bytes([byte])
        elif cstyle and byte in CSTYLE:
            shown += CSTYLE[byte]
        elif low == 32:
            shown += b"\\%03o" % byte
        else:
            shown += slash + (b"M" if byte > 127 else b"")
            if low < 32 or low == 127:
                shown += b"^" + bytes([low ^ 64])
            else:
                shown += b"-" + bytes([low])
    return bytes(shown)


def vis_utf8(text):
    """strvis(3) with VIS_NL and VIS_NOSLASH, in a locale with UTF-8."""
    if is_plain(text):
        return text
    shown = bytearray()
    for char in text.decode("utf-8", "surrogateescape"):
        raw = char.encode("utf-8", "surrogateescape")
        shown += raw if len(raw) > 1 and char.isprintable() else vis(raw, False)
    return bytes(shown)


class Process:
    def __init__(self, pid):
        folder = "/proc/%d/" % pid
        head, _, tail = read(folder + "stat").rpartition(b")")
        self.pid = pid
        self.name = head.partition(b"(")[2]
        fields = tail.split()
        self.state = fields[0].decode()
        self.ppid, self.pgid, self.sid, self.tty, self.tpgid = map(int, fields[1:6])
        self.started = int(fields[19]) // TICKS
        self.is_zombie = self.state == "Z" and fields[17] == b"1"
        if self.state == "Z" and not self.is_zombie:  # its main thread has ended
            self.state = "S"
        self.status = int(fields[49]) if self.is_zombie else 0
        for line in read(folder + "status").splitlines():
            if line.startswith(b"Uid:"):
                self.ruid, self.uid, self.svuid = map(int, line.split()[1:4])
        self.args = [] if self.is_zombie else read(folder + "cmdline").split(b"\0")[:-1]
        first = os.path.basename(self.args[0]) if self.args else b""
        if len(self.name) == 15 and first.startswith(self.name):
            self.name = first[:LONGEST]
        self.is_system = not self.is_zombie and not self.args


class KernelProcess:
    def __init__(self, pid, name):
        self.pid, self.name = pid, name
        self.state, self.args = "D", []
        self.is_system, self.is_zombie = True, False
        self.ppid = self.pgid = self.sid = self.ruid = self.uid = self.svuid = self.tty = 0
        self.tpgid = self.status = self.started = 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


def ucomm(one):
    if PLATFORM == "openbsd":
        return vis(one.name, True)
    return vis(one.name, False) if PLATFORM == "dragonfly" else one.name


def state(one):
    letter = {"t": "T", "I": "D", "P": "D"}.get(one.state, one.state)
    if PLATFORM == "netbsd" and letter == "R":
        letter = "O"
    if PLATFORM == "darwin" and letter == "D":
        letter = "U"
    if PLATFORM == "dragonfly" and letter in "SRD":
        letter += "0"
    if one.is_system:
        letter += "L" if PLATFORM in ("freebsd", "dragonfly") else "K"
    letter += "s" * (one.pid == one.sid) + "+" * (one.tty != 0 and one.pgid == one.tpgid)
    if PLATFORM == "openbsd" and letter[0] == "R":
        letter += "/1"
    return letter.encode()


def lstart(one):
    if one.is_zombie and PLATFORM in ("netbsd", "openbsd"):
        return b"-"
    return time.strftime("%c", time.gmtime(BOOT + one.started)).encode()


def command(one):
    if PLATFORM == "freebsd" and one.is_zombie:
        return b"<defunct>"
    name = ucomm(one) if PLATFORM in ("freebsd", "openbsd") else one.name
    if PLATFORM == "netbsd":
        name = vis(name, True)
    if not one.args:
        brackets = b"[%s]" if one.is_system and PLATFORM in ("freebsd", "netbsd") else b"(%s)"
        shown = brackets % name
        return b" " + shown if PLATFORM == "dragonfly" else vis_last(shown)
    first = os.path.basename(one.args[0])
    if PLATFORM == "darwin":
        return vis_utf8(b" ".join(one.args))
    if PLATFORM in ("freebsd", "dragonfly"):
        shown = b" ".join(vis(arg, True, False) for arg in one.args if arg)
        # Both parts are compared and shown as far as a name may go.
        differs = first[:LONGEST] != one.name
    else:
        shown = b" ".join(vis(arg, True) for arg in one.args)
        titles = [one.name] + ([b"-" + one.name] if PLATFORM == "netbsd" else [])
        differs = first not in titles
        if PLATFORM == "netbsd":
            shown += b" "
            return shown + (b"(%s)" % name if differs else b"")
    return vis_last(shown + (b" (%s)" % name if differs else b""))


def vis_last(text):
    return vis(text, False) if PLATFORM in ("freebsd", "dragonfly", "darwin") else text


def number(name, width=5):
    return name.upper(), width, False, lambda one: b"%d" % getattr(one, name)


# keyword: (headline, width, to the left, value)
COLUMNS = {
    "pid": number("pid"),
    "ppid": number("ppid"),
    "pgid": number("pgid"),
    "uid": number("uid"),
    "ruid": number("ruid"),
    "svuid": number("svuid"),
    "lstart": ("STARTED", 28, True, lstart),
    "state": ("STAT", 4, True, state),
    "xstat": ("XSTAT", 4, False, lambda one: b"%x" % one.status),
    "ucomm": ("UCOMM", LONGEST, True, ucomm),
    "command": ("COMMAND", 16, True, command),
    "sess": ("SESS", 6, False, lambda one: b"0"),
}
COLUMNS["stat"] = COLUMNS["state"]
if PLATFORM in ("freebsd", "netbsd"):
    COLUMNS["sid"] = number("sid")
if PLATFORM == "dragonfly":
    COLUMNS["sess"] = ("SESS", 6, False, lambda one: b"%d" % one.sid)


class Column:
    def __init__(self, keyword, headline):
        default, self.width, self.left, self.value = COLUMNS[keyword]
        self.headline = default.encode() if headline is None else headline.encode()
        # Theirs are as wide as what they show; NetBSD's, if an empty headline is asked for, at
        # least as the usual one.
        if PLATFORM in ("netbsd", "freebsd"):
            self.width = len(default) if PLATFORM == "netbsd" and headline == "" else 0
        self.is_cut = (
            PLATFORM == "netbsd" and self.left or PLATFORM == "openbsd" and keyword == "ucomm"
        )

    def widen(self, texts):
        if PLATFORM == "freebsd" or (
            PLATFORM == "netbsd"
            and self.value is not command
            and (self.value is not lstart or self.width == 0)
        ):
            self.width = max([self.width] + list(map(len, texts)))
        self.width = max(self.width, len(self.headline))

    def pad(self, text, is_last, is_headline):
        if (
            self.left
            and is_last
            and (is_headline or PLATFORM == "freebsd" or self.value is command)
        ):
            return text
        if PLATFORM == "netbsd" and self.value is lstart and text == b"-":
            return text.rjust(self.width)
        text = text[: self.width] if self.is_cut else text
        # libxo, of FreeBSD, counts what a terminal shows: of control characters nothing.
        width = self.width + PLATFORM.count("freebsd") * sum(byte < 32 for byte in text)
        return text.ljust(width) if self.left else text.rjust(width)


def line(columns, texts, is_headline=False):
    last = len(columns) - 1
    cells = [
        one.pad(text, n == last, is_headline) for n, (one, text) in enumerate(zip(columns, texts))
    ]
    return b" ".join(cells) + b"\n"


def columns_of(formats):
    for text in formats:
        keyword, is_given, headline = text.partition("=")
        yield Column(keyword, headline if is_given else None)


def processes(pid):
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if pid is None or int(name) == pid:
            try:
                yield Process(int(name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    for number, name in KERNEL:
        if pid is None or number == pid:
            yield KernelProcess(number, name)


def main(arguments):
    formats, pid = [], None
    arguments = iter(arguments)
    for argument in arguments:
        if argument == "-o":
            formats.append(next(arguments))
        elif argument == "-p":
            pid = int(next(arguments))
        else:
            assert argument in ("-ax", "-ww")
    columns = list(columns_of(formats))
    rows = [(one.tty, [column.value(one) for column in columns]) for one in processes(pid)]
    rows = [row for _, row in sorted(rows, key=lambda row: row[0])]
    for n, column in enumerate(columns):
        column.widen([row[n] for row in rows])
    printed = b""
    if any(column.headline for column in columns):
        printed = line(columns, [column.headline for column in columns], True)
    sys.stdout.buffer.write(printed + b"".join(line(columns, row) for row in rows))
    return 0 if rows else 1


for entry in read("/proc/stat").splitlines():
    if entry.startswith(b"btime"):
        BOOT = int(entry.split()[1])
sys.exit(main(sys.argv[2:]))
