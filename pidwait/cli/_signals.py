# SPDX-License-Identifier: BSD-3-Clause
"""Signals by name and number, as GNU timeout takes and tells them."""

import re
import signal

from ._common import Usage

_NAMES = {
    name[3:]: int(number)
    for name, number in signal.Signals.__members__.items()
    if name.startswith("SIG")  # Windows has console events, too
}
_FIRST, _LAST = getattr(signal, "SIGRTMIN", 1), getattr(signal, "SIGRTMAX", 0)


def number(text: str) -> int:
    """From a name, with or without SIG, a number, or a shell's status for it; 0 is none."""
    if re.match(r"\d+\Z", text, re.ASCII):
        found = int(text)
        if 128 < found < 256:
            found -= 128
        if found == 0 or found in _NAMES.values() or _FIRST <= found <= _LAST:
            return found
    name = text.upper()
    name = name[3:] if name.startswith("SIG") else name
    if name == "EXIT":
        return 0
    if name in _NAMES:
        return _NAMES[name]
    match = re.match(r"RTM(?:IN\+|AX-)(\d+)\Z", name, re.ASCII)
    if match is not None:
        found = int(match.group(1))
        found = _FIRST + found if name.startswith("RTMIN") else _LAST - found
        if _FIRST <= found <= _LAST:
            return found
    raise Usage("%r is not a signal" % text)


def name(number: int) -> str:
    """It has no SIG before it."""
    if number == 0:
        return "EXIT"
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        if number - _FIRST <= _LAST - number:
            return "RTMIN+%d" % (number - _FIRST)
        return "RTMAX-%d" % (_LAST - number)
