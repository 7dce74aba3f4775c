# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share: options, durations, errors, exit statuses, what they are called."""

import os
import sys

from .. import __version__, _parts
from ._output import READER_GONE, Lost, complain, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence

NO_PROCESS = 1
NOT_FOUND = 127  # with --exit-code, as a shell's wait says it of a process that it does not know
TIMED_OUT = 124  # as GNU timeout says it

# What is run is the package above this one, in a vendored copy, too. __name__ tells it, as
# __package__ is not set yet where zipimport loads this, before Python 3.10.
PROG = "python -m " + __name__.rsplit(".", 2)[0]
if _parts.SINGLE_FILE:
    PROG = "python %s" % (sys.argv[0] if __name__ == "__main__" else __name__)

_DIGITS = frozenset("0123456789")

# As GNU timeout takes them, which are strtod(3)'s numbers, and more units.
_DECIMAL = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_OTHER = r"(?i:0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)(?:p[+-]?\d+)?|inf(?:inity)?)"
_SINGLE = r"\+?(?:(%s)|(%s))(ms|[dhms]?)\Z" % (_DECIMAL, _OTHER)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001, "": 1}
_SEVERAL = "".join("(?:(%s)%s)?" % (_DECIMAL, unit) for unit in list(_UNITS)[:-1]) + r"\Z"


class Usage(Exception):
    """The arguments are wrong, or the environment variables."""


class CommandError(Exception):
    """The command can't do its work."""

    status: "int | None" = None


class Command:
    """What is the same in all commands: options, help, version, errors."""

    def __init__(self, name: str, usage: str, text: str, options: str) -> None:
        """``options`` is like "t|timeout: any", with a colon after those that take a value."""
        self.name: str = PROG + name
        self.wrong: int = 2  # exit statuses
        self.failed: int = 1
        self.intermixed: bool = True  # options may come after operands
        self.lists: "Sequence[str]" = ()  # options that take a list, and so may be given again
        self._usage = "usage: " + usage.replace("{prog}", PROG)
        self._text = text.replace("{prog}", PROG)
        self._options = [one.rpartition("|") for one in (options + " h|help V|version").split()]

    def run(self, work: "Callable[[dict[str, str], list[str]], int]", argv: "Sequence[str]") -> int:
        try:
            chosen, operands = self._parse(argv)
            if "help" in chosen:
                write("%s\n\n%s" % (self._usage, self._text))
                return 0
            if "version" in chosen:
                write("%s %s\n" % (PROG, __version__))
                return 0
            return work(chosen, operands)
        except Usage as error:
            complain("%s\n%s: %s" % (self._usage, self.name, error))
            return self.wrong
        except CommandError as error:
            complain("%s: %s" % (self.name, error))
            return error.status or self.failed
        except Lost as error:
            if error.reader_gone:
                return READER_GONE
            complain("%s: %s" % (self.name, error))
            return self.failed

    def _parse(self, argv: "Sequence[str]") -> "tuple[dict[str, str], list[str]]":
        """The options by their long names, and the operands."""
        if not any(word.startswith("-") for word in argv):
            return {}, list(argv)  # getopt loads gettext
        import getopt

        read = getopt.gnu_getopt if self.intermixed else getopt.getopt
        short = "".join(one + ":" * name.endswith(":") for one, _, name in self._options if one)
        names = {"-" + one: "--" + name.rstrip(":") for one, _, name in self._options if one}
        long_ = [name.replace(":", "=") for _, _, name in self._options]
        try:
            found, operands = read(list(argv), short, long_)
        except getopt.GetoptError as error:
            raise Usage(str(error)) from None
        chosen: "dict[str, str]" = {}
        for name, value in found:
            name = names.get(name, name)[2:]
            several = name in chosen and name in self.lists
            chosen[name] = chosen[name] + "," + value if several else value
        return chosen, operands


def check_environment() -> None:
    """Raise Usage if a variable forces what there is not."""
    from .._base import probe

    if not os.environ.get(probe.BACKEND) and not os.environ.get(probe.FFI):
        return
    from .. import _systems
    from .._systems import bindings

    try:
        probe.choice(probe.FFI, *bindings.NAMES)
        _systems.backend()
    except (OSError, ValueError) as error:
        raise Usage(getattr(error, "strerror", None) or str(error)) from None


def digits(text: str) -> "int | None":
    """The number that the text is; None if there is anything but digits."""
    return int(text) if text and _DIGITS.issuperset(text) and len(text) < 100 else None


def duration(text: str) -> float:
    """The seconds in the value of an option."""
    import re

    stripped = text.strip()
    single = re.match(_SINGLE, stripped, re.ASCII)
    if single is not None:
        decimal, other, unit = single.groups()
        return (float(decimal) if decimal else _other_number(other)) * _UNITS[unit]
    several = re.match(_SEVERAL, stripped, re.ASCII)
    if several is None or not stripped:
        raise Usage("%r is not a duration: give seconds, or a number with d, h, m, s, ms" % text)
    parts = zip(several.groups(), _UNITS.values())
    return sum(float(number) * seconds for number, seconds in parts if number)


def no_process(exits_as_they_do: bool) -> int:
    """The exit status where there is no process to wait for."""
    return NOT_FOUND if exits_as_they_do else NO_PROCESS


def as_status(code: int) -> int:
    """What to exit with for a process's exit code, as shells do."""
    if code < 0:
        return 128 - code
    return code - 2**32 if code >= 2**31 else code  # as signed as sys.exit() takes it


def _other_number(text: str) -> float:
    try:
        return float.fromhex(text)  # it knows inf, too
    except OverflowError:
        return float("inf")
