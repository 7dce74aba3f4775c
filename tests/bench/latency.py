# SPDX-License-Identifier: BSD-3-Clause
"""Wake-up after a child's exit, and the CPU time of a wait, in microseconds

The child is a small C program that reads from a pipe, tells the time, and exits: the larger it is,
the more the kernel's end of it, which is the same for all, dilutes the ratios. A third process
writes to the pipe 16 to 24 ms after the wait began, so that every waiter is asleep. Children are
started in batches, since after a fork the first wait would pay for shared pages. What a waiter
leaves unreaped is reaped afterwards, outside of the timing.
"""

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


def own_calls():
    """pidfd_open and waitid by the interpreter, or by nothing but ctypes."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open, os.waitid
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    syscall = libc.syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long] * 3

    def pidfd_open(pid, flags):
        fd = syscall(434, pid, flags)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "pidfd_open")
        return fd

    libc_waitid = libc.waitid
    libc_waitid.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_char_p, ctypes.c_int]

    def waitid(idtype, id_, options):
        info = ctypes.create_string_buffer(128)
        if libc_waitid(idtype, id_, info, options) < 0:
            raise OSError(ctypes.get_errno(), "waitid")
        return struct.unpack_from("=i12xi", info.raw, 8)

    return pidfd_open, getattr(os, "waitid", waitid)


def make_inline():
    """pidfd_open, poll, waitid, close: the least that Python code can do for an exit code."""
    pidfd_open, waitid = own_calls()

    def inline(popen):
        fd = pidfd_open(popen.pid, 0)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(TIMEOUT * 1000)
            return waitid(P_PIDFD, fd, OPTIONS)
        finally:
            os.close(fd)

    with subprocess.Popen(["true"]) as child:
        inline(child)
    return inline


def waiters():
    """The variants, and why some are lacking."""
    found = {
        "wait(pid)": lambda popen: pidwait.wait(popen.pid, TIMEOUT),
        "wait(popen)": lambda popen: pidwait.wait(popen, TIMEOUT),
        "Popen.wait": lambda popen: popen.wait(TIMEOUT),
        "os.waitpid": lambda popen: os.waitpid(popen.pid, 0),
    }
    lacks = {"psutil": core.NO_PSUTIL}
    if core.psutil:
        found["psutil"] = lambda popen: core.psutil.Process(popen.pid).wait(TIMEOUT)
    try:
        inline = found["inline"] = make_inline()
        found["inline, poll()"] = lambda popen: (inline(popen), popen.poll())
    except (OSError, AttributeError) as error:
        lacks["inline"] = lacks["inline, poll()"] = "inline is not on this system: {}".format(error)
    return found, lacks


def compile_child(folder):
    path = os.path.join(folder, "child")
    command = ["cc", "-Os", "-static", "-w", "-x", "c", "-o", path, "-"]
    try:
        subprocess.run(command, input=CHILD.encode(), check=True, stderr=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        raise core.Unavailable("the child is compiled by cc: {}".format(error)) from error
    return path


class Children:
    """Children that end when they are told to, and say when that is."""

    def __init__(self, folder):
        self._child = compile_child(folder)
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

    def measure(self, wait):
        """The wake-up and the CPU time of one wait."""
        if not self._ready:
            self._ready = [
                (number, subprocess.Popen([self._child], stdin=reads, stdout=self._tell))
                for number, (reads, _) in enumerate(self._pipes)
            ]
        number, popen = self._ready.pop()
        with popen:
            os.write(self._orders, struct.pack("=Bd", number, random.uniform(0.016, 0.024)))
            cpu = time.process_time()
            wait(popen)
            woken = time.monotonic()
            cpu = time.process_time() - cpu
        (exited,) = struct.unpack("d", os.read(self._times, 8))
        return (woken - exited) * 1e6, cpu * 1e6

    def close(self):
        # Without the writer, whoever still reads from a pipe comes to its end.
        os.close(self._orders)
        os.waitpid(self._teller, 0)
        for _, popen in self._ready:
            popen.wait()
        for fd in [reads for reads, _ in self._pipes] + [self._times, self._tell]:
            os.close(fd)


def rows(results, lacks):
    # From 3.15 on Popen.wait does not poll any more.
    popen_bound = 1 / 30 if sys.version_info < (3, 15) else None
    pairs = (
        ("wait(pid)", "inline", 1.10),
        ("wait(pid)", "psutil", 0.9),
        ("wait(pid)", "os.waitpid", None),
        ("wait(popen)", "inline, poll()", 1.15),
        ("wait(popen)", "psutil", None),
        ("wait(popen)", "Popen.wait", popen_bound),
    )
    for title, column, percent in ("p50", 0, 50), ("p90", 0, 90), ("CPU", 1, 50):
        figures = {
            name: core.percentile([sample[column] for sample in samples], percent)
            for name, samples in results.items()
        }
        for ours, peer, bound in pairs:
            yield core.Row(
                "{} {} : {}".format(title, ours, peer),
                figures[ours],
                figures.get(peer),
                bound=bound if title == "p50" else None,
                lacks=lacks.get(peer),
            )


def run(options):
    if not hasattr(os, "fork"):
        raise core.Unavailable("no os.fork")
    found, lacks = waiters()
    with tempfile.TemporaryDirectory() as folder:
        children = Children(folder)
        try:
            variants = {
                name: lambda wait=wait: children.measure(wait) for name, wait in found.items()
            }
            results = core.in_turns(variants, options.rounds or 300, warm_up=5)
        finally:
            children.close()
    return list(rows(results, lacks))
