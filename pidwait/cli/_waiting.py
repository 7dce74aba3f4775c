# SPDX-License-Identifier: BSD-3-Clause
"""The wait itself: for all processes of one command line, each reported as it exits."""

import os
import time

from ._common import PROG, TIMED_OUT, Usage, as_status, no_process
from ._output import Lost, complain, write
from ._progress import Progress, names
from ._waited import NOT_THERE, Waited, is_gone, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

    from .._base.deadline import Deadline
    from .._process import Process
    from .._sets import WaitSet

NOT_WRITTEN = 1
# With --exit-code, as GNU timeout says that it has failed.
UNKNOWN = 125


def refuse_what_never_ends(pids: "Sequence[int]", count: int, deadline: "Deadline") -> None:
    if os.getpid() in pids:
        raise Usage("%d is this very process, and does not wait for itself" % os.getpid())
    if deadline.remaining() is not None or os.name == "nt":
        return
    there = [pid for pid in pids if not is_gone(pid)]
    if not there:
        return
    from ._family import waits_for_us

    blocked = [pid for pid in there if waits_for_us(pid)]
    if blocked and count > len(pids) - len(blocked):
        one = Waited(blocked[0])
        one.name = name_of(one.pid)
        raise Usage(
            "the wait for %s would never end, as that waits for this process"
            " (run this in the background, or with -t)" % one
        )


class Wait:
    """Waits for the processes of one command line, and reports them."""

    def __init__(self, options: "Mapping[str, str]", deadline: "Deadline") -> None:
        self._json = "json" in options
        self._verbose = "verbose" in options
        self._ignores_missing = "exited" in options
        self._exits_as_they_do = "exit-code" in options
        self._deadline = deadline
        self._start = time.monotonic()
        self._progress = Progress()
        self._status = 0
        self._running: "dict[Process, Waited]" = {}

    def run(self, all_: "Sequence[Waited]", count: int) -> int:
        try:
            for one in all_:
                self._open(one)
            # A process that is not there counts as one that has exited.
            return self._wait(max(0, len(all_) - count)) or self._status
        finally:
            self._progress.clear()
            for process in self._running:
                process.close()

    def _open(self, one: Waited) -> None:
        if one.open():
            assert one.process is not None
            self._running[one.process] = one
            return
        if one.chosen is not None:
            self._tell_exit(one)
            return
        if not self._ignores_missing:
            self._status = self._status or no_process(self._exits_as_they_do)
            complain(NOT_THERE % (PROG, one.pid))
        if self._json or self._ignores_missing:
            self._report(one)

    def _tell_exit(self, one: Waited) -> None:
        one.seconds = time.monotonic() - self._start
        self._report(one)
        if not self._exits_as_they_do:
            return
        code = one.exitcode
        if code is None:
            self._complain("the system does not tell the exit code of %s" % one)
        # The first that is not 0.
        self._status = self._status or (UNKNOWN if code is None else as_status(code))

    def _wait(self, left: int) -> int:
        total = len(self._running)
        if not total:
            return 0
        from .._sets import WaitSet
        from ._readers import Readers

        self._readers = Readers(self._json or self._verbose)
        with WaitSet(self._running) as waiting:
            while len(self._running) > left:
                exits = self._some(waiting, total)
                self._progress.clear()
                for process, _ in exits:
                    self._tell_exit(self._running.pop(process))
                    process.close()
                if not exits:
                    running = names(list(self._running.values()))
                    self._complain("the time was up; still running: %s" % running)
                    break
        in_time = len(self._running) <= left
        if self._json or not in_time:
            for one in self._running.values():
                self._report(one)
        return 0 if in_time else TIMED_OUT

    def _some(
        self, waiting: "WaitSet[Process]", total: int
    ) -> "Sequence[tuple[Process, int | None]]":
        while True:
            exits = self._readers.wait(waiting, self._progress.step(self._deadline.remaining()))
            if exits or self._deadline.expired():
                return exits
            self._progress.show(list(self._running.values()), total)

    def _report(self, one: Waited) -> None:
        if not self._json and not self._verbose:
            return
        try:
            write((one.as_json() if self._json else one.as_text()) + "\n")
        except Lost as error:
            if error.reader_gone:
                raise
            # The wait goes on, and the exit status shows the failure.
            self._complain(str(error))
            self._json = self._verbose = False
            self._status = UNKNOWN if self._exits_as_they_do else NOT_WRITTEN

    def _complain(self, text: str) -> None:
        complain("%s: %s" % (PROG, text))
