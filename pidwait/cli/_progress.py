# SPDX-License-Identifier: BSD-3-Clause
"""The line on the terminal that tells how far the wait is."""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence


class Progress:
    """A line on the terminal that tells which still run; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = False
        self.active = self._width() is not None

    def show(self, running: "Sequence[object]", total: int) -> None:
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
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except OSError:  # the null device of Windows is a terminal, too
            return None

    def _write(self, text: str) -> None:
        width = self._width() or 80
        # Windows' console knows escape sequences only once it is told to.
        erase = "\r%*s\r" % (width - 1, "") if os.name == "nt" else "\r\033[K"
        sys.stderr.write(erase + text[: width - 1])
        sys.stderr.flush()


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return "%d:%02d:%02d" % (hours, minutes, seconds) if hours else "%d:%02d" % (minutes, seconds)


def names(processes: "Sequence[object]") -> str:
    more = ", and %d more" % (len(processes) - 3) if len(processes) > 3 else ""
    return ", ".join(str(one) for one in processes[:3]) + more
