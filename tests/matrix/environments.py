# SPDX-License-Identifier: BSD-3-Clause
"""Run environments of tox.ini side by side; each has a time limit and a verdict of its own.

python -m tests.matrix.environments landing|deep [NAME...]

The sections [landing] and [deep] of tox.ini name the environments, and the minutes that each may
take. The logs are in .tox/log. What fails runs once more, alone: in an environment of pytest, the
tests that failed. Only what fails twice is red; what failed once is printed as flaky. What takes
too long is stopped, and begun again alone at the end. After --minutes everything is stopped.

It needs psutil and tox: `python -m tests landing` makes a virtual environment with both.
"""

import argparse
import collections
import configparser
import os
import re
import signal
import subprocess
import sys
import time

import psutil

from ..venvs import FOLDER, ROOT
from .interpreters import search_path

LOGS = FOLDER / "log"
# For two cores: the tests wait for half of their time.
AT_ONCE = 3
GRACE = 10  # seconds from SIGABRT, at which pytest prints all tracebacks, to SIGKILL
TOTALS = re.compile(r"(?m)^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b")
FAILURES = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+)")
TELLING = re.compile(r"(?m)^(?:FAILED |ERROR |E   |SKIPPED \[|.*\berror:).*")
LONGEST_REPORT = 40  # lines


def environments(kind):
    """{name: the seconds that it may take}, the longest first."""
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(str(ROOT / "tox.ini"))
    limits = {name: float(minutes) * 60 for name, minutes in ini.items(kind)}
    return dict(sorted(limits.items(), key=lambda item: -item[1]))


class Attempt:
    """One run of an environment, by a tox of its own."""

    def __init__(self, name, limit, again=""):
        """``again``: more options for pytest."""
        self.name = name
        self.is_late = False
        self._log = LOGS / (name + (".again" if again else "") + ".txt")
        self._began = time.monotonic()
        self._end = self._began + limit
        env = dict(os.environ, PATH=search_path(), PYTEST_AGAIN=again)
        with self._log.open("wb") as log:
            self._process = psutil.Popen(
                [sys.executable, "-m", "tox", "run", "-e", name],
                cwd=str(ROOT),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def poll(self):
        """Whether it has ended; stops it when its time is up."""
        if self._process.poll() is None and time.monotonic() > self._end:
            self.is_late = True
            self.stop()
        return self._process.poll() is not None

    def stop(self):
        """End it and all that it has started, so that a hang says where it is."""
        tree = [self._process, *self._process.children(recursive=True)]
        for send in signal.SIGABRT, signal.SIGKILL:
            for process in tree:
                try:
                    process.send_signal(send)
                except psutil.NoSuchProcess:
                    continue
            _, tree = psutil.wait_procs(tree, timeout=GRACE)

    @property
    def is_ok(self):
        return self._process.returncode == 0 and not self.is_late

    def output(self):
        return self._log.read_text(encoding="utf-8", errors="replace")

    def totals(self):
        totals = collections.Counter()
        for line in TOTALS.findall(self.output()):
            for part in line.split(", "):
                count, kind = part.split()
                totals[kind] += int(count)
        return totals

    def failures(self):
        return FAILURES.findall(self.output())

    def tell(self):
        word = "ok" if self.is_ok else "late" if self.is_late else "failed"
        parts = ["%d %s" % (count, kind) for kind, count in sorted(self.totals().items())]
        took = time.monotonic() - self._began
        print("%-15s %-7s %4.0f s  %s" % (self.name, word, took, ", ".join(parts)))
        if not self.is_ok:
            lines = TELLING.findall(self.output()) or self.output().splitlines()
            for line in lines[-LONGEST_REPORT:]:
                print("    " + line)
        sys.stdout.flush()


def run(names, limits, end, at_once=1, again=""):
    """{name: its attempt}; those without a name have not been begun when the time was up."""
    waiting, running, attempts = list(names), [], {}
    while waiting or running:
        if time.monotonic() > end:
            waiting.clear()
            for attempt in running:
                attempt.is_late = True
                attempt.stop()
        while waiting and len(running) < at_once:
            name = waiting.pop(0)
            attempts[name] = Attempt(name, limits[name], again)
            running.append(attempts[name])
        time.sleep(0.5)
        for attempt in [one for one in running if one.poll()]:
            running.remove(attempt)
            attempt.tell()
    return attempts


def main(args):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("landing", "deep"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--minutes", type=float, default=None)
    options = parser.parse_args(args)
    limits = environments(options.kind)
    unknown = set(options.names) - set(limits)
    if unknown:
        parser.error("no such environment: %s; there are %s" % (unknown, " ".join(limits)))
    limits = {name: limits[name] for name in limits if not options.names or name in options.names}
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    end = began + 60 * (options.minutes or (44 if options.kind == "landing" else 24 * 60))
    first = run(limits, limits, end, AT_ONCE)
    failed = [name for name, attempt in first.items() if not attempt.is_ok and not attempt.is_late]
    late = [name for name, attempt in first.items() if attempt.is_late]
    print("\nOnce more, alone: %s" % (" ".join(failed + late) or "none"), flush=True)
    second = run(failed, limits, end, again="--lf")
    second.update(run(late, limits, end, again="--cache-clear"))
    red = []
    for name in limits:
        if name not in first or not (second.get(name) or first[name]).is_ok:
            red.append(name)
        elif name in second:
            print("flaky: %s: %s" % (name, " ".join(first[name].failures()) or "late, or no test"))
    attempts = list(first.values()) + list(second.values())
    passed = sum(attempt.totals()["passed"] for attempt in attempts)
    print("%d environments in %.0f s" % (len(limits), time.monotonic() - began))
    print("red: %s" % (" ".join(red) or "none"))
    print("%d passed, %d failed" % (passed, len(red)))
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
