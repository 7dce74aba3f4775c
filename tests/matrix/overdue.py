# SPDX-License-Identifier: BSD-3-Clause
"""Stop the commands that take too long, so that a hang becomes a failure that says where it is.

Each process of such a command gets SIGABRT, at which pytest prints the tracebacks of all threads;
what is left of them 10 seconds later is killed. From /proc, so on Linux only.
"""

import os
import signal
import threading
import time

PERIOD = 5
GRACE = 10
TICKS = os.sysconf("SC_CLK_TCK")


def processes():
    """{pid: (its parent's pid, its start in seconds since boot)}"""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/{}/stat".format(name), "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has exited
            continue
        found[int(name)] = int(fields[1]), int(fields[19]) / TICKS
    return found


def tree(top, table):
    """``top`` and its descendants."""
    pids = [top]
    for pid in pids:
        pids.extend(child for child, (parent, _) in table.items() if parent == pid)
    return pids


def send(number, pids):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def stop(top, table):
    pids = tree(top, table)
    send(signal.SIGABRT, pids)
    end = time.monotonic() + GRACE
    while pids and time.monotonic() < end:
        time.sleep(0.1)
        now = processes()
        # Another process may have got the pid of one that has exited.
        pids = [pid for pid in pids if pid in now and now[pid][1] == table[pid][1]]
    send(signal.SIGKILL, pids)


def command_line(pid):
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return "{}, which has exited".format(pid)
    return text.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def look(parent, limit):
    table = processes()
    for pid, (its_parent, start) in table.items():
        if its_parent == parent and time.clock_gettime(time.CLOCK_BOOTTIME) - start > limit:
            print("OVERDUE, {:.0f} s: {}".format(limit, command_line(pid)), flush=True)
            stop(pid, table)


class Watch:
    """Within the block: stop the children of ``parent`` that have run for ``limit`` seconds."""

    def __init__(self, parent, limit):
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(parent, limit))

    def _run(self, parent, limit):
        while not self._over.wait(PERIOD):
            look(parent, limit)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
