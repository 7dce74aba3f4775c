# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share: options, durations, errors, exit statuses, what they are called."""

import re

from .. import __version__, _backends, _config, _ffi
from ._output import READER_GONE, Lost, complain, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence

TIMED_OUT = 124  # as GNU timeout says it

# What is run is the package above this one, in a vendored copy, too. __name__ tells it, as
# __package__ is not set yet where zipimport loads this, before Python 3.10.
PROG = "python -m " + __name__.rsplit(".", 2)[0]

# As GNU timeout takes them, which are strtod(3)'s numbers, and more units.
_DECIMAL = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_OTHER = r"(?i:0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)(?:p[+-]?\d+)?|inf(?:inity)?)"
_SINGLE = r"\+?(?:(%s)|(%s))(ms|[dhms]?)\Z" % (_DECIMAL, _OTHER)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001, "": 1}
_SEVERAL = "".join("(?:(%s)%s)?" % (_DECIMAL, unit) for unit in list(_UNITS)[:-1]) + r"\Z"


class Usage(Exception):
    """The arguments are wrong, or the environment variables."""


class Failed(Exception):
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
        self._usage = "usage: " + usage.replace("{prog}", PROG)
        self._text = text.replace("{prog}", PROG)
        self._options = [one.rpartition("|") for one in (options + " h|help version").split()]

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
        except Failed as error:
            complain("%s: %s" % (self.name, error))
            return error.status or self.failed
        except Lost as error:
            if error.reader_gone:
                return READER_GONE
            complain("%s: %s" % (self.name, error))
            return self.failed

    def _parse(self, argv: "Sequence[str]") -> "tuple[dict[str, str], list[str]]":
        """The options by their long names, and the operands."""
        import getopt

        read = getopt.gnu_getopt if self.intermixed else getopt.getopt
        short = "".join(one + ":" * name.endswith(":") for one, _, name in self._options if one)
        names = {"-" + one: "--" + name.rstrip(":") for one, _, name in self._options if one}
        long_ = [name.replace(":", "=") for _, _, name in self._options]
        try:
            found, operands = read(list(argv), short, long_)
        except getopt.GetoptError as error:
            raise Usage(str(error)) from None
        return {names.get(name, name)[2:]: value for name, value in found}, operands


def check_environment() -> None:
    """Raise Usage if a variable forces what there is not."""
    try:
        _config.choice(_config.FFI, *_ffi.NAMES)
        _backends.backend()
    except (OSError, ValueError) as error:
        raise Usage(getattr(error, "strerror", None) or str(error)) from None


def duration(text: str) -> float:
    """The seconds in the value of an option."""
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


def _other_number(text: str) -> float:
    try:
        return float.fromhex(text)  # it knows inf, too
    except OverflowError:
        return float("inf")
