# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share: options and their values, errors, exit statuses, and printing.

stdout and stderr may be closed, full, or unread.
"""

import _signal  # type: ignore[import-not-found]
import contextlib
import os
import sys
from errno import EBADF, EPIPE

from .. import __version__
from .._base.arguments import check_pid
from .._base.checks import FFI, choice
from .._base.errors import IS_WHOLE, PACKAGE, not_by_handler
from .._systems import backend
from .._systems.bindings import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Sequence

TIMED_OUT = 124  # as in GNU timeout
READER_GONE = 128 + 13  # SIGPIPE, which Windows lacks

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}


class UsageError(Exception):
    """The arguments are wrong."""


class CommandError(Exception):
    """The command can't do its work; ``status`` is the exit status, if not the usual one."""

    def __init__(self, text: object, status: "int | None" = None) -> None:
        super().__init__(text)
        self.status = status


class Command:
    """The common part of all commands: options, help, version, errors."""

    prog = ""  # main() sets it
    wrong: int = 2  # exit statuses
    failed: int = 1
    intermixed = True  # options may come after operands

    def __init__(self, name: str, usage: str, text: str) -> None:
        self._name, self._help = name, "usage: %s\n\n%s" % (usage, text)

    def run(self, work: "Callable[[dict[str, str], list[str]], int]", argv: "Sequence[str]") -> int:
        try:
            try:
                chosen, operands = self.parse(argv)
            except UsageError as error:
                more = "" if self._name else advice(argv)
                raise UsageError("%s%s" % (error, more)) from None
            if "help" in chosen:
                say(self._help.replace("{prog}", self.prog))
                return 0
            if "version" in chosen:
                say("%s %s\n" % (self.prog, __version__))
                return 0
            try:  # an environment variable may force a backend that is not there
                choice(FFI, *NAMES)
                backend()
            except (OSError, ValueError) as error:
                raise CommandError(getattr(error, "strerror", 0) or error, self.wrong) from None
            return work(chosen, operands)
        except UsageError as error:
            self.complain("%s (see %s%s -h)" % (error, self.prog, self._name))
            return self.wrong
        except CommandError as error:
            if error.status != READER_GONE:
                self.complain(error)
            return error.status or self.failed
        except not_by_handler(OSError) as error:
            where = "%s: " % error.filename if error.filename else ""
            self.complain(where + (error.strerror or str(error)))
            return self.failed

    def complain(self, about: object) -> None:
        """Write a line to stderr, if possible: a lost message does not change the exit status."""
        write(sys.stderr, "%s%s: %s\n" % (self.prog, self._name, about))

    def parse(self, argv: "Sequence[str]") -> "tuple[dict[str, str], list[str]]":
        """The options by their long names, and the operands. The help lists the options."""
        if not any(word.startswith("-") for word in argv):
            return {}, list(argv)  # getopt loads gettext
        import getopt
        import re

        # The letter; the name; the value's name. USER,... is a list, and so may be repeated.
        options = re.findall(r"^  (?:-(\w),|   ) --([\w-]+)( \w\S*)?", self._help, re.M)
        read = getopt.gnu_getopt if self.intermixed else getopt.getopt
        short = "".join(one + ":" * bool(value) for one, _, value in options if one)
        long_ = [name + "=" * bool(value) for _, name, value in options]
        lists = [name for _, name, value in options if value.endswith(",...")]
        once = [name for _, name, value in options if value in (" FILE", " PATTERN")]
        names = {"-" + one: "--" + name for one, name, _ in options}
        try:
            found, operands = read(list(argv), short, long_)
        except getopt.GetoptError as error:
            raise UsageError(str(error)) from None
        chosen: "dict[str, str]" = {}
        for name, value in found:
            name = names.get(name, name)[2:]
            if name in chosen and name in once:
                raise UsageError("--%s can't be given twice" % name)
            several = name in chosen and name in lists
            chosen[name] = chosen[name] + "," + value if several else value
        return chosen, operands


def called_by(is_program: bool) -> str:
    """What messages call this command: if it is the program, by the name of its file."""
    name, python = map(os.path.basename, (sys.argv[0], sys.executable or "python3"))
    python = python.partition(".exe")[0]
    if is_program and name not in ("", "-c", "__main__.py"):
        return python + " -" if name == "-" else name
    return "%s -m %s" % (python, PACKAGE)


def advice(words: "Sequence[str]", by_name: bool = False) -> str:
    """For words that were not understood: what may be meant."""
    import difflib

    for word in [one.lstrip("-") for one in words if IS_WHOLE]:
        if word in ("run", "vendor"):
            return "; put the options of {0} after the word {0}, as in {0} -h".format(word)
        for near in difflib.get_close_matches(word, ("run", "vendor")):
            return "; did you mean %s, or --name %s?" % (near, word)
        if by_name and word[:1].isalpha():
            return "; to wait by name: --name " + word
    return ""


def digits(text: str) -> "int | None":
    """The number; None if the text has anything but digits."""
    return int(text) if set(text) <= set("0123456789") and 0 < len(text) < 100 else None


def process_id(text: str, name: str) -> int:
    number = digits(text)
    if number is None:
        raise UsageError("%s: %r is not a number" % (name, text))
    try:
        return check_pid(number, name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def duration(options: "dict[str, str]", name: str) -> float:
    """The seconds in a number, as 0.5, or in numbers with units, as 1h30m or 100ms; inf, too."""
    import re

    given = options.get(name, "0")
    text = given.strip(" \t\n")
    number = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    if re.fullmatch(r"\+?%s|inf" % number, text, re.ASCII):
        return float(text)
    parts = re.fullmatch("".join("(?:%s%s)?" % (number, unit) for unit in _UNITS), text, re.ASCII)
    if not parts or not text:
        raise UsageError("--%s: %r is not a duration, such as 90, 0.5s or 1h30m" % (name, given))
    return sum(float(found) * unit for found, unit in zip(parts.groups("0"), _UNITS.values()))


def signals() -> "dict[str, int]":
    """{name without SIG: number}, as in GNU timeout; of two names the first is shown."""
    names = [one[3:] for one in dir(_signal) if one[:3] == "SIG" and one[3] != "_"]
    found = {"EXIT": 0, **{name: getattr(_signal, "SIG" + name) for name in names}}
    first, last = found.get("RTMIN", 1), found.get("RTMAX", 0)
    for number in range(last - first + 1):
        found["RTMIN+%d" % number] = first + number
        found["RTMAX-%d" % number] = last - number
    return found


def signal_number(text: str) -> int:
    """From a name, with or without SIG, or a number."""
    name, known = text.upper(), signals()
    number = digits(text)
    if number not in known.values():
        number = known.get(name[3:] if name.startswith("SIG") else name)
    if number is None:
        raise UsageError("--signal: %r is not a signal" % text)
    return number


def as_status(code: int) -> int:
    """The exit status for a process's exit code, as in shells."""
    if code < 0:
        return 128 - code
    return code - 2**32 if code >= 2**31 else code  # as signed as sys.exit() takes it


def ending(exitcode: "int | None") -> str:
    if exitcode is None:
        return "exited"
    if exitcode < 0:
        # There may be no file descriptor left to load signal's enums. SIG* overwrite SIG_*.
        names = {getattr(_signal, one): one for one in dir(_signal)[::-1] if one[:3] == "SIG"}
        return "killed by " + names.get(-exitcode, "signal %d" % -exitcode)
    # Larger codes are Windows' NTSTATUS, known by their hexadecimal form.
    return ("exited with 0x%X" if exitcode >= 2**31 else "exited with %d") % exitcode


def ignores(number: int) -> bool:
    """Whether this process ignores a signal, as under nohup."""
    try:  # PyPy's getsignal() does not know which signals were ignored when we started
        with open("/proc/self/status", "rb") as file:
            (mask,) = [line.split()[1] for line in file if line.startswith(b"SigIgn:")]
        return bool(int(mask, 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        return bool(_signal.getsignal(number) == _signal.SIG_IGN)


def say(text: str) -> None:
    """Write it to stdout; CommandError if that fails."""
    # A process can have any bytes in its name, and stdout any encoding.
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    error = write(sys.stdout, text.encode(encoding, "backslashreplace").decode(encoding))
    if error is not None:
        status = READER_GONE if error.errno == EPIPE else None
        raise CommandError("can't write to stdout: %s" % error.strerror, status)


def write(stream: "Any", text: str) -> "OSError | None":
    """Write it; return the error if that fails."""
    if stream is None:
        return OSError(EBADF, os.strerror(EBADF))
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # Keep the interpreter's last flush from failing, which would change the exit status.
        with contextlib.suppress(OSError):  # a program that calls main() has replaced the stream
            number, null = stream.fileno(), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)
        return error
    return None


def label(pid: int, name: "str | None") -> str:
    """How all messages refer to a process."""
    if not name:
        return str(pid)
    # A name may contain escape sequences for the terminal.
    return "%d (%s)" % (pid, "".join(char if char.isprintable() else "?" for char in name))
