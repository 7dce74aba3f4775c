# SPDX-License-Identifier: BSD-3-Clause
"""One process that is waited for, and what the command line prints about it."""

import os
import sys

from .._base.errors import log, raise_of_handler
from ._output import red

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._finding import ProcessInfo
    from .._process import Process

NOT_THERE = "%s: there is no process %d (with -e that is no error)"


class Waited:
    """One PID of the command line, or one process that it has chosen, and how its wait ended."""

    process: "Process | None" = None
    name: "str | None" = None
    seconds: "float | None" = None

    def __init__(self, pid: int, chosen: "ProcessInfo | None" = None) -> None:
        self.pid = pid
        self.chosen = chosen
        if chosen is not None:
            self.name = chosen.info["name"]

    def open(self) -> bool:
        """Whether there is such a process."""
        if is_gone(self.pid):
            return False
        from .._process import Process

        try:
            process = Process(self.pid)
        except ProcessLookupError as error:
            raise_of_handler(error)
            return False
        if self.chosen is None:
            self.name = name_of(self.pid)
        # It may have exited after it was chosen, and its pid been given to another process before
        # we had the handle. If it is there now, the handle is on it.
        elif not _is_running(self.chosen):
            process.close()
            return False
        self.process = process
        return True

    @property
    def found(self) -> bool:
        return self.process is not None or self.chosen is not None

    @property
    def exitcode(self) -> "int | None":
        return None if self.process is None else self.process.exitcode

    def __str__(self) -> str:
        if not self.name:
            return str(self.pid)
        # A name may try to talk to the terminal.
        name = "".join(char if char.isprintable() else "?" for char in self.name)
        return "%d (%s)" % (self.pid, name)

    def as_json(self) -> str:
        import json

        about = {
            "pid": self.pid,
            "name": self.name,
            "found": self.found,
            "exited": not self.found or self.seconds is not None,
            "exitcode": self.exitcode,
            "seconds": self.seconds,
        }
        return json.dumps(about)

    def as_text(self) -> str:
        if not self.found:
            return "%d: no such process" % self.pid
        if self.seconds is None:
            return "%s: still running" % self
        code = self.exitcode
        how = red(_how(code)) if code else _how(code)
        return "%s: %s; waited %.3f s" % (self, how, self.seconds)


def is_gone(pid: int) -> bool:
    """Whether it is certain, without all that a handle needs, that no process has the pid."""
    if not sys.platform.startswith("linux"):  # on Windows the call would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError as error:
        raise_of_handler(error)
        return True
    except OSError as error:
        raise_of_handler(error)
        return False
    return False


def _is_running(chosen: "ProcessInfo") -> bool:
    try:
        return chosen.is_running()
    except OSError as error:  # no file descriptor left
        raise_of_handler(error)
        log("pid %d: %s", chosen.pid, error)
        return True


def name_of(pid: int) -> "str | None":
    if os.name == "nt":
        from .._systems import windows_handles

        entry = windows_handles.find_entry(pid)
        return entry.name if entry else None
    from .._systems import procfs

    stat = procfs.read_stat(pid)
    return stat.name if stat else None


def _how(exitcode: "int | None") -> str:
    if exitcode is None:
        return "exited"
    if exitcode >= 0:
        # Above are the NTSTATUS codes of Windows, known by their hexadecimal form.
        return ("exited with %d" if exitcode < 2**31 else "exited with 0x%X") % exitcode
    from signal import Signals

    try:
        return "killed by %s" % Signals(-exitcode).name
    except ValueError:
        return "killed by signal %d" % -exitcode
