# SPDX-License-Identifier: BSD-3-Clause
"""A thousand processes at a low price, forks of the test itself, and what the kernel tells."""

import os
import signal
import subprocess
import sys
import traceback

from ..processes import PYTHON

# Each forked process ends when it is told to, or when the last writer of the pipe has ended.
SCRIPT = """if True:
    import os, select, signal, sys

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    reader, writer = os.pipe()
    pids = []
    for number in range(int(sys.argv[1])):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(writer)
                told, teller = os.pipe()
                os.set_blocking(teller, False)
                signal.set_wakeup_fd(teller)
                signal.signal(signal.SIGUSR1, lambda *args: None)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
                select.select([reader, told], [], [])
            finally:
                os._exit(number % 256)
        pids.append(pid)
    print(*pids, flush=True)
    sys.stdin.readline()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


def room(count):
    """So many processes, or as many as our limit leaves to each of several tests at once."""
    import resource  # not on Windows

    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return count if os.getuid() == 0 or limit < 0 else min(count, limit // 4)


class Crowd:
    """Processes that are not our children, forked by a small one, which reaps them at the end.

    ``codes`` has their pids, and the exit codes with which they exit after end().
    """

    def __init__(self, count):
        self._parent = subprocess.Popen(
            PYTHON + ("-c", SCRIPT, str(count)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        pids = map(int, self._parent.stdout.readline().split())
        self.codes = {pid: number % 256 for number, pid in enumerate(pids)}

    def end(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._parent.stdin.write(b"\n")  # forks of ours may have copies of the pipe
        self._parent.stdin.close()
        self._parent.stdout.close()
        self._parent.wait()


def in_a_fork(function, *args):
    """Call the function in a forked child; return whether it ended without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(150)  # ends what would hang
            function(*args)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def those_that_may_be_told(code, backend):
    """The answers for a process that somebody else reaps before we look: (code, None), perhaps."""
    if backend == "pidfd":
        from .. import trouble

        if trouble.kernel_tells():
            return (code,)
    return code, None
