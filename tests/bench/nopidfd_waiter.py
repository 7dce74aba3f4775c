# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.bench.nopidfd_waiter MEANS: waits by one means, as it is told in lines of JSON.

By seccomp the kernel refuses what a system without the better means lacks.
"""

import errno
import json
import os
import resource
import subprocess
import sys
import time

from .. import pidwait
from ..trouble import system
from . import core

# means: the system calls that fail, and the backend that is to be found then
MEANS = {
    "pidfd": ((), "pidfd"),
    "polling": (("pidfd_open",), "polling"),
}


class Waiter:
    """A process that waits by one means."""

    def __init__(self, means):
        self.means = means
        environ = {name: value for name, value in os.environ.items() if name != "PIDWAIT_BACKEND"}
        self._process = subprocess.Popen(
            core.script(__name__, means),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            bufsize=1,
            env=environ,
        )
        try:
            backend = self.answer()
            if backend != MEANS[means][1]:
                raise core.Unavailable("{}: the backend is {}".format(means, backend))
        except BaseException:
            self.close()
            raise

    def tell(self, *order):
        self._process.stdin.write(json.dumps(order) + "\n")

    def answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise core.Unavailable("the process that waits by {} has failed".format(self.means))
        return json.loads(line)

    def ask(self, *order):
        self.tell(*order)
        return self.answer()

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()


class Orders:
    """What a waiter can be told."""

    def __init__(self):
        self.waiting = None

    def wait(self, pid, timeout):
        """When it was told of the exit, the exit code, and the CPU time of the wait."""
        cpu = time.process_time()
        exited, _ = pidwait.wait_procs([pid], timeout)
        code = exited[0][1] if exited else None
        woken = time.monotonic()
        return woken, code, time.process_time() - cpu

    def watch(self, pids, fds):
        """Have them in a set, with so many file descriptors at most, if any; the CPU time."""
        if fds is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fds, fds))
        cpu = time.process_time()
        self.waiting = pidwait.WaitSet(pids)
        return time.process_time() - cpu

    def rest(self, seconds):
        """The share of a core, in percent, while there is nothing to tell."""
        deadline = time.monotonic() + seconds
        cpu = time.process_time()
        exits = self.waiting.wait(seconds)
        cpu = time.process_time() - cpu
        if exits or time.monotonic() < deadline:
            raise core.Unavailable("exits while there should be none: {}".format(exits))
        return cpu / seconds * 100

    def collect(self):
        """The exits of all: the pid, the code, when it was told; and the CPU time."""
        exits = []
        cpu = time.process_time()
        with self.waiting:
            while len(self.waiting):
                some = self.waiting.wait()
                now = time.monotonic()
                exits += [(pid, code, now) for pid, code in some]
        return exits, time.process_time() - cpu

    def leave(self):
        """Wait for them no more."""
        self.waiting.close()


def main():
    refused, _ = MEANS[sys.argv[1]]
    if refused:
        system.forbid(dict.fromkeys(refused, errno.ENOSYS))
    orders = Orders()
    result = pidwait.probe()["backend"]
    while True:
        print(json.dumps(result), flush=True)
        line = sys.stdin.readline()
        if not line:
            break
        name, *arguments = json.loads(line)
        result = getattr(orders, name)(*arguments)


if __name__ == "__main__":
    main()
