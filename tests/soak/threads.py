# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.threads COUNT: sixteen threads on one WaitSet; each exit is told once.

All of them add, discard, wait and look. Each exit is reported to one of them, which reaps.
"""

import os
import struct
import subprocess
import sys
import threading

from .. import pidwait
from .waits import has_child, open_fds

THREADS = 16
PATIENCE = 60

# Where threads run at the same time, a fork stops them all, for milliseconds. So another
# process forks, and its children are ours: CLONE_PARENT.
NURSERY = """if True:
    import ctypes, os, signal, struct, time
    clone = 56 if os.uname().machine == "x86_64" else 220
    libc = ctypes.CDLL(None)
    number = 0
    while os.read(0, 1):
        pid = libc.syscall(clone, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            try:
                time.sleep(number % 3 / 4000)
            finally:
                os._exit(number % 256)
        os.write(1, struct.pack("@2i", pid, number % 256))
        number += 1
"""


class Nursery:
    def __init__(self):
        command = [sys.executable, "-S", "-E", "-c", NURSERY]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def start(self):
        """Any thread may call it: each gets one process, whichever; return its pid and code."""
        os.write(self._process.stdin.fileno(), b"1")
        return struct.unpack("@2i", os.read(self._process.stdout.fileno(), 8))

    def close(self):
        self._process.communicate()


class Storm:
    def __init__(self, nursery):
        self.nursery = nursery
        self.waiting = pidwait.WaitSet()
        self.codes = {}  # of the processes that have not been reported
        self.counts = [dict.fromkeys(("right", "wrong", "twice"), 0) for _ in range(THREADS)]
        self.errors = []

    def run(self, count):
        shares = [len(range(number, count, THREADS)) for number in range(THREADS)]
        threads = [
            threading.Thread(target=self.guarded, args=pair) for pair in zip(shares, self.counts)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def guarded(self, share, counts):
        try:
            self.take_part(share, counts)
        except BaseException as error:
            self.errors.append(error)
            raise

    def take_part(self, share, counts):
        for number in range(share):
            pid, code = self.nursery.start()
            self.codes[pid] = code
            self.waiting.add(pid)
            if number % 4 == 1:
                self.waiting.add(os.getpid())
                list(self.waiting)
                self.waiting.discard(os.getpid())
            self.report(counts, (None, 0, 0.001, PATIENCE)[number % 4])
        while len(self.waiting):
            if not self.report(counts, PATIENCE) and len(self.waiting):
                return

    def report(self, counts, timeout):
        exits = self.waiting.wait(timeout)
        for pid, code in exits:
            expected = self.codes.pop(pid, None)
            kind = "twice" if expected is None else "right" if code == expected else "wrong"
            counts[kind] += 1
            if expected is not None:
                os.waitpid(pid, 0)
        return exits

    def told(self):
        total = {kind: sum(counts[kind] for counts in self.counts) for kind in self.counts[0]}
        return dict(total, lost=len(self.codes))


def main():
    count = int(sys.argv[1])
    before = open_fds()
    nursery = Nursery()
    storm = Storm(nursery)
    with storm.waiting:
        storm.run(count)
    nursery.close()
    told = storm.told()
    print("{right} right, {wrong} wrong, {lost} lost, {twice} twice".format(**told))
    assert not storm.errors, storm.errors
    assert told == {"right": count, "wrong": 0, "lost": 0, "twice": 0}
    assert open_fds() == before, (before, open_fds())
    assert not has_child()


if __name__ == "__main__":
    main()
