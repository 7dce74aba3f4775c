# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.zoo.strangers PROGRAM SECONDS: whom it hits when pids are reused at once.

Another process starts short-lived ones all the time, with the lowest numbers that are free: those
of the animals that have just been ended. Each exits with 0 by itself, unless it is hit.
"""

import itertools
import os
import signal
import sys
import time

from .. import trouble
from ..trouble import system
from .tries import GRACES, MECHANISMS, attempt, wrongs

LOWEST = 50
AT_ONCE = 12


def crowd(seconds, report):
    """Be the parent of strangers; write how many there were, of how many numbers, and hit."""
    os.setpgid(0, 0)
    end = time.monotonic() + seconds
    alive, numbers, count, hits = set(), set(), 0, []
    while alive or time.monotonic() < end:
        if len(alive) < AT_ONCE and time.monotonic() < end:
            system.next_pid(LOWEST)
            count += 1
            pid = os.fork()
            if pid == 0:
                time.sleep(0.02 * (count % 4 == 0))
                os._exit(0)
            alive.add(pid)
            numbers.add(pid)
        for pid in list(alive):
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if status:
                hits.append(status)
            if found and os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
            elif found:
                alive.discard(pid)
    os.write(report, ("%d %d %d" % (count, len(numbers), len(hits))).encode())


def strangers(program, seconds, mechanism):
    """How many there were, how many numbers they had, how many were hit; and what went wrong."""
    reader, writer = os.pipe()
    pid = trouble.fork(crowd, seconds, writer)
    os.close(writer)
    end, results = time.monotonic() + seconds, []
    for animal, grace in itertools.cycle(itertools.product(MECHANISMS[mechanism], GRACES)):
        if time.monotonic() > end:
            break
        results.append(attempt(program, animal, 0.02, tree=True, grace=grace))
    figures = os.read(reader, 100).split()
    os.close(reader)
    os.waitpid(pid, 0)
    return (*map(int, figures), wrongs(results))


def check_strangers(program, mechanism, seconds=1):
    count, numbers, hits, wrong = strangers(program, seconds, mechanism)
    assert numbers * 2 < count and not hits and not wrong, (count, numbers, hits, wrong)


def main(program, seconds):
    figures = strangers(program, float(seconds), os.environ["PIDWAIT_TREE"])
    print("%d strangers with %d numbers: %d hit; animals: %s" % (*figures[:3], dict(figures[3])))
    return any(figures[2:])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
