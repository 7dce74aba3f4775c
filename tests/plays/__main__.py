# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.plays KIND: each way to wait, for processes of that kind.

Prints a line for each case, as JSON: of test_kinds.
"""

import itertools
import json
import os
import re
import sys
import tempfile
import threading

from .. import pidwait
from ..processes import eventually, state
from ..waiting.ways import WAYS
from .kinds import KINDS
from .loops import LOOPS
from .pools import POOLS

CODES = 0, 3, -9
# When it exits: while the wait sleeps; before it; before it, and its owner knows.
TIMES = WHILE, BEFORE, KNOWN = "while it is waited for", "before", "before, and its owner knows"


def cases():
    """Each way at each time; over the three times, each way has each code."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (when, way) in enumerate(itertools.product(TIMES, WAYS)):
            fifo = os.path.join(folder, str(number))
            os.mkfifo(fifo)
            yield when, way, CODES[number % len(CODES)], fifo


def is_running(process):
    try:
        code = pidwait.wait(process, 0)
    except pidwait.TimeoutExpired:
        return
    raise AssertionError("has exited with %s before it was told to" % code)


def tell(fifo):
    with open(fifo, "w"):
        pass


def tell_soon(fifo, pid):
    """Tell it once the wait has a pidfd; by polling, it may exit before the wait."""

    def soon():
        if pidwait.probe()["backend"] == "pidfd":
            eventually(lambda: pid in pids_of_pidfds())
        tell(fifo)

    threading.Thread(target=soon).start()


def pids_of_pidfds():
    for fd in os.listdir("/proc/self/fdinfo"):
        try:
            with open("/proc/self/fdinfo/" + fd) as file:
                found = re.search("^Pid:\t([0-9]+)$", file.read(), re.M)
        except FileNotFoundError:  # that of the folder
            continue
        if found:
            yield int(found.group(1))


def has_exited(pid):
    return state(pid) in ("Z", None)


def report(when, way, code, told, owner, left, end):
    print(json.dumps([when, way.__name__, code, told, owner, left, end]), flush=True)


def check(make):
    for when, way, code, fifo in cases():
        process, owner = make(fifo, code)
        pid = process.pid
        is_running(process)
        owners = None
        if when == WHILE:
            tell_soon(fifo, pid)
        else:
            tell(fifo)
            eventually(lambda pid=pid: has_exited(pid))
        if when == KNOWN:
            pidwait.wait(process, 30)
            owners = owner()
        told = way(process)
        left = state(pid)
        if when != KNOWN:
            owners = owner()
        report(when, way, code, told, owners, left, state(pid))


async def check_loop(start, in_thread):
    for when, way, code, fifo in cases():
        process = await start(fifo, code)
        pid = process.pid
        is_running(process)
        if when == WHILE:
            tell_soon(fifo, pid)
        else:
            tell(fifo)
            eventually(lambda pid=pid: has_exited(pid))  # the loop must not know yet
        if when == KNOWN:
            await process.wait()
        told = await in_thread(way, process)
        left = state(pid)
        owners = await process.wait()
        assert owners == process.returncode
        report(when, way, code, told, owners, left, state(pid))


if __name__ == "__main__":
    name = sys.argv[1]
    if name in LOOPS:
        LOOPS[name](check_loop)
    else:
        check(POOLS[name] if name in POOLS else KINDS[name][0])
