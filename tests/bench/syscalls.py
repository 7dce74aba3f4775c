# SPDX-License-Identifier: BSD-3-Clause
"""System calls of one wait, after a warm-up, as strace sees them

The traced process marks the beginning and the end of each wait by access(2) on paths that don't
exist. Of several waits the one with the median number of calls counts, since malloc may ask for
memory in one of them; where a stranger's parent races with us for the exit, the shortest and the
longest.
"""

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from operator import attrgetter

from .. import pidwait
from . import core

TIMEOUT = 1
CHILD = ["sleep", "0.1"]
WAITS = 5
RACES = 20
MARK = "pidwait-bench/"
RACE = "stranger, reaped at once"

# What to wait for; the bound; for us and for the peer: how to get at the process, and the call.
Case = collections.namedtuple("Case", "name start bound ours peer")


class Stranger:
    """A child of another process, which reaps it at once, or not before wait()."""

    def __init__(self, reaped):
        reads, self._writes = os.pipe()
        self._reads, writes = os.pipe()
        self._parent = os.fork()
        if self._parent == 0:
            try:
                os.close(self._writes)
                child = subprocess.Popen(CHILD)
                os.write(writes, b"%d" % child.pid)
                if reaped:
                    os.waitpid(child.pid, 0)
                os.read(reads, 1)
            finally:
                os._exit(0)
        os.close(reads)
        os.close(writes)
        self.pid = int(os.read(self._reads, 16))

    def wait(self):
        os.close(self._writes)
        os.close(self._reads)
        os.waitpid(self._parent, 0)


def cases():
    def own():
        return subprocess.Popen(CHILD)

    def psutil_wait(pid):
        core.psutil.Process(pid).wait(TIMEOUT)

    def wait(proc):
        pidwait.wait(proc, TIMEOUT)

    def method(proc):
        proc.wait(TIMEOUT)

    def popen(proc):
        return proc

    pid = attrgetter("pid")
    ours, psutil = (pid, wait), core.psutil and (pid, psutil_wait)
    return [
        Case("child, by pid", own, 5, ours, psutil),
        # One more than by pid with reap: it checks that the child is still ours. Without a
        # time-out this check takes the place of poll.
        Case("child, by Popen", own, 6, (popen, wait), (popen, method)),
        Case(
            "child, by Process, opened before",
            own,
            5,
            (lambda child: pidwait.Process(child.pid), method),
            core.psutil and (lambda child: core.psutil.Process(child.pid), method),
        ),
        Case(RACE, lambda: Stranger(True), 7, ours, psutil),
        Case("stranger, left a zombie", lambda: Stranger(False), 9, ours, psutil),
    ]


def marked(name, call, subject):
    """Make one call between its marks, in the traced process."""
    os.access(MARK + name, os.F_OK)
    try:
        call(subject)
    except Exception as error:
        if type(error).__name__ != "TimeoutExpired":
            raise
    os.access(MARK, os.F_OK)


def trace_me():
    pidwait.probe()  # makes the checks that the first waits would make
    for case in cases():
        for who in "ours", "peer":
            if getattr(case, who) is None:
                continue
            get_at, call = getattr(case, who)
            for _ in range(1 + (RACES if case.name == RACE else WAITS)):
                process = case.start()
                subject = get_at(process)
                marked("{}/{}".format(who, case.name), call, subject)
                if hasattr(subject, "close"):
                    subject.close()
                process.wait()


def parse(lines):
    """{mark: [[call, ...] of each wait]}"""
    found = collections.defaultdict(list)
    calls = []
    for line in lines:
        mark = re.search('"{}([^"]*)"'.format(MARK), line)
        name = re.match(r"(\w+)\((?:<\.\.\. resuming interrupted (\w+))?", line)
        if mark:
            calls = []
            if mark.group(1):
                found[mark.group(1)].append(calls)
        # A tracer makes SIGCHLD interrupt calls, which then begin again. The
        # clock is a system call only where the vDSO can't read it.
        elif name and "= ? ERESTART" not in line and name.group(1) != "clock_gettime":
            calls.append(name.group(2) or name.group(1))
    return found


def typical(waits, percent=50):
    """The wait with the median number of calls, or at another percentile, without the warm-up."""
    waits = sorted(waits[1:], key=len)
    return waits[min(len(waits) * percent // 100, len(waits) - 1)]


def sequence(calls):
    """Like "openat (read close)x3"."""

    def repeated(match):
        unit = match.group(1)
        return "({})x{} ".format(unit.strip(), len(match.group(0)) // len(unit))

    return re.sub(r"(?<!\S)((?:\S+ )+?)\1+", repeated, " ".join(calls) + " ").strip()


def traced(module=__name__, **env):
    """What strace sees of a module that is run, and marks its calls."""
    strace = shutil.which("strace")
    if strace is None:
        raise core.Unavailable("strace is not installed (Debian package: strace)")
    with tempfile.NamedTemporaryFile("r") as log:
        core.output(
            [strace, "-o", log.name] + core.script(module),
            cwd=str(core.ROOT),
            env=dict(os.environ, **env),
        )
        return parse(log)


def rows(title, found, bounds, chosen=None):
    for case in cases()[:chosen]:
        waits = found["ours/" + case.name]
        ours = typical(waits, 0 if case.name == RACE else 50)
        notes = [sequence(ours)]
        peer, lacks = None, core.NO_PSUTIL
        if case.peer:
            lacks, calls = None, typical(found["peer/" + case.name])
            peer = len(calls)
            label = "Popen.wait" if "Popen" in case.name else "psutil"
            notes.append("{}: {}".format(label, sequence(calls)))
        bound = case.bound if bounds else None
        yield core.Row(case.name + title, len(ours), peer, "count", bound, lacks, notes)
        if case.name == RACE:
            ours, notes = typical(waits, 100), [sequence(typical(waits, 100))]
            bound = 9 if bounds else None
            yield core.Row("stranger, in the race", len(ours), None, "count", bound, None, notes)


def run(options):
    if not sys.platform.startswith("linux"):
        raise core.Unavailable("strace is Linux's")
    facts = pidwait.probe()
    result = list(rows("", traced(), facts["backend"] != "polling"))
    for name, binding in facts["bindings"].items():
        title = "; " + name
        if binding["available"]:
            result += rows(title, traced(PIDWAIT_FFI=name), facts["backend"] != "polling", 1)
        else:
            result.append(core.Row("child, by pid" + title, None, lacks=binding["reason"]))
    return result + list(rows("; polling", traced(PIDWAIT_BACKEND="polling"), False, 2))


if __name__ == "__main__":
    trace_me()
