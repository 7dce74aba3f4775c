# SPDX-License-Identifier: BSD-3-Clause
"""Wake-up after a child's exit, and the CPU time of a wait, in microseconds

The child is a small C program that reads from a pipe, reports the time, and exits. It is small
because the kernel's work to end it, the same for all, dilutes the ratios. A third process writes to
the pipe 16 to 24 ms after the wait began, so that every waiter is asleep. Children are started in
batches, since after a fork the first wait would pay for shared pages. A child that is not reaped by
the wait is reaped afterwards, outside of the timing.
"""

import importlib.util
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time

from .. import pidwait
from . import core

TIMEOUT = 30
BATCH = 30
CHILD = r"""
#include <time.h>
#include <unistd.h>

int main(void)
{
    struct timespec now;
    char byte;
    double seconds;

    read(0, &byte, 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    seconds = now.tv_sec + now.tv_nsec / 1e9;
    write(1, &seconds, sizeof seconds);
    _exit(7);
}
"""
P_PIDFD = 3
OPTIONS = 0x01000005  # WEXITED | WNOHANG | WNOWAIT


def make_inline():
    """pidfd_open, poll, waitid, close: the least that Python code can do for an exit code."""

    def inline(popen):
        fd = os.pidfd_open(popen.pid, 0)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(TIMEOUT * 1000)
            return os.waitid(P_PIDFD, fd, OPTIONS)
        finally:
            os.close(fd)

    with subprocess.Popen(["true"]) as child:
        inline(child)
    return inline


def loaded(folder):
    """The package of another checkout, under another name."""
    path = os.path.join(str(folder), pidwait.__name__)
    spec = importlib.util.spec_from_file_location(
        "beside", os.path.join(path, "__init__.py"), submodule_search_locations=[path]
    )
    module = sys.modules["beside"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def waiters(beside=None):
    """The variants, and the reasons why some are missing."""
    if beside:
        other = loaded(beside)
        return {
            "wait(pid)": lambda popen: pidwait.wait(popen.pid, TIMEOUT),
            "the other's wait(pid)": lambda popen: other.wait(popen.pid, TIMEOUT),
            "wait(popen)": lambda popen: pidwait.wait(popen, TIMEOUT),
            "the other's wait(popen)": lambda popen: other.wait(popen, TIMEOUT),
        }, {}
    found = {
        "wait(pid)": lambda popen: pidwait.wait(popen.pid, TIMEOUT),
        "wait(popen)": lambda popen: pidwait.wait(popen, TIMEOUT),
        "Popen.wait": lambda popen: popen.wait(TIMEOUT),
        "os.waitpid": lambda popen: os.waitpid(popen.pid, 0),
    }
    lacks = {"psutil": core.NO_PSUTIL, "psutil.Popen": core.NO_PSUTIL}
    if core.psutil:
        found["psutil"] = lambda popen: core.psutil.Process(popen.pid).wait(TIMEOUT)
        # The child is a psutil.Popen, too: see Children.
        found["psutil.Popen"] = lambda popen: popen.theirs.wait(TIMEOUT)
    try:
        inline = found["inline"] = make_inline()
        found["inline, poll()"] = lambda popen: (inline(popen), popen.poll())
    except (OSError, AttributeError) as error:  # before Python 3.9 there is no os.pidfd_open
        lacks["inline"] = lacks["inline, poll()"] = "inline is not on this system: {}".format(error)
    return found, lacks


class Children:
    """Children that exit on order, and report when."""

    def __init__(self, folder):
        path = os.path.join(folder, "child")
        self._child = core.build(CHILD.encode(), path, "-Os", "-static")
        self._pipes = [os.pipe() for _ in range(BATCH)]
        self._times, self._tell = os.pipe()
        self._ready = []
        reads, self._orders = os.pipe()
        self._teller = os.fork()
        if self._teller == 0:
            try:
                os.close(self._orders)
                self._obey(reads)
            finally:
                os._exit(0)
        for fd in [reads] + [writes for _, writes in self._pipes]:
            os.close(fd)

    def _obey(self, orders):
        for order in iter(lambda: os.read(orders, 9), b""):
            number, seconds = struct.unpack("=Bd", order)
            time.sleep(seconds)
            os.write(self._pipes[number][1], b"\n")

    def measure(self, wait, moment=lambda result: time.monotonic()):
        """The wake-up and the CPU time of one wait; ``moment`` takes its result."""
        if not self._ready:
            self._ready = [
                (number, self._start(reads)) for number, (reads, _) in enumerate(self._pipes)
            ]
        number, popen = self._ready.pop()
        with popen:
            self._end(number)
            cpu = time.process_time()
            woken = moment(wait(popen))
            cpu = time.process_time() - cpu
        return (woken - self._exited()) * 1e6, cpu * 1e6

    def _start(self, reads):
        """A Popen; psutil's, which has one, as its attribute theirs."""
        command = {"args": [self._child], "stdin": reads, "stdout": self._tell}
        if core.psutil is None:
            return subprocess.Popen(**command)
        theirs = core.psutil.Popen(**command)
        popen = theirs._Popen__subproc
        popen.theirs = theirs
        return popen

    def _end(self, number):
        os.write(self._orders, struct.pack("=Bd", number, random.uniform(0.016, 0.024)))

    def _exited(self):
        return struct.unpack("d", os.read(self._times, 8))[0]

    def close(self):
        # Without a writer, each child that still reads from a pipe finds its end, and exits.
        os.close(self._orders)
        os.waitpid(self._teller, 0)
        for _, popen in self._ready:
            popen.wait()
        for fd in [reads for reads, _ in self._pipes] + [self._times, self._tell]:
            os.close(fd)


def rows_beside(results):
    for ours in "wait(pid)", "wait(popen)":
        for title, column, bound in ("p50", 0, None), ("CPU", 1, 1.03):
            both = (
                [sample[column] for sample in results[name]]
                for name in (ours, "the other's " + ours)
            )
            yield core.paired_row("%s %s : the other's" % (title, ours), *both, bound)


def rows(results, lacks):
    # From 3.15 on Popen.wait does not poll any more.
    popen_bound = 1 / 30 if sys.version_info < (3, 15) else None
    pairs = (
        ("wait(pid)", "inline", None),
        ("wait(pid)", "psutil", 1.1),
        ("wait(pid)", "os.waitpid", None),
        ("wait(popen)", "inline, poll()", None),
        ("wait(popen)", "psutil.Popen", 1.25),
        ("wait(popen)", "Popen.wait", popen_bound),
    )
    cpu_bounds = {
        ("wait(pid)", "psutil"): 0.7,
        ("wait(popen)", "psutil.Popen"): 1.6,
    }
    for title, column, percent in ("p50", 0, 50), ("p90", 0, 90), ("CPU", 1, 50):
        figures = {
            name: core.percentile([sample[column] for sample in samples], percent)
            for name, samples in results.items()
        }
        for ours, peer, bound in pairs:
            ratio = None
            if title == "CPU" and peer in results:
                # A busy machine hits both waits of a round alike.
                ratio = core.median(
                    [one[1] / other[1] for one, other in zip(results[ours], results[peer])]
                )
            yield core.Row(
                "{} {} : {}".format(title, ours, peer),
                figures[ours],
                figures.get(peer),
                bound={"p50": bound, "CPU": cpu_bounds.get((ours, peer))}.get(title),
                lacks=lacks.get(peer),
                ratio=ratio,
            )


def measure(rounds, beside=None):
    """{variant: [(wake-up, CPU time) of each wait]}, and the reasons why some are missing."""
    if not hasattr(os, "fork"):
        raise core.Unavailable("no os.fork")
    found, lacks = waiters(beside)
    with tempfile.TemporaryDirectory() as folder:
        children = Children(folder)
        try:
            variants = {
                name: lambda wait=wait: children.measure(wait) for name, wait in found.items()
            }
            return core.in_turns(variants, rounds, warm_up=5), lacks
        finally:
            children.close()


def run(options):
    results, lacks = measure(options.rounds or 300, options.beside)
    return list(rows_beside(results) if options.beside else rows(results, lacks))
