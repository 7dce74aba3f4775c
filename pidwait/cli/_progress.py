# SPDX-License-Identifier: BSD-3-Clause
"""The line on the terminal that tells how far the wait is."""

import os
import sys
import time

from ._output import is_terminal, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence


EVERY = 1.0  # seconds: when the line is first drawn, and then anew


class Progress:
    """A line on the terminal that tells which still run; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = False
        self.active: bool = self._width() is not None and _in_foreground()

    def step(self, seconds: "float | None") -> "float | None":
        """How long to wait for an event before the line is drawn anew."""
        if not self.active or (seconds is not None and seconds < EVERY):
            return seconds
        return EVERY

    def show(self, running: "Sequence[object]", total: int) -> None:
        if not self.active:
            return
        time_ = _clock(int(time.monotonic() - self._start))
        if total == 1:
            self._write("waiting %s for %s" % (time_, running[0]))
        else:
            text = "%d of %d exited, %s; waiting for %s"
            self._write(text % (total - len(running), total, time_, names(running)))
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._write("")
            self._shown = False

    def _width(self) -> "int | None":
        if sys.stderr is None or not is_terminal(sys.stderr):
            return None
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except OSError:  # the null device of Windows is a terminal, too
            return None

    def _write(self, text: str) -> None:
        width = self._width() or 80
        # Windows' console knows escape sequences only once it is told to.
        erase = "\r%*s\r" % (width - 1, "") if os.name == "nt" else "\r\033[K"
        put(erase + text[: width - 1])


def _in_foreground() -> bool:
    """Whether nobody else has the terminal, as the shell has that started us with &."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (AttributeError, OSError):  # Windows; not the terminal that we are controlled by
        return True


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return "%d:%02d:%02d" % (hours, minutes, seconds) if hours else "%d:%02d" % (minutes, seconds)


def names(processes: "Sequence[object]") -> str:
    more = ", and %d more" % (len(processes) - 3) if len(processes) > 3 else ""
    return ", ".join(str(one) for one in processes[:3]) + more
