# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.faults WAITS: 16 threads wait for 64 children, through random faults.

The children are replaced as they exit. Meanwhile signals come in, the file
descriptors run out, and PIDFD_GET_INFO meets its race. A code may be unknown (the
child was reaped between two looks), but never wrong.
"""

import os
import random
import resource
import signal
import sys
import threading
import time

from .. import pidwait, seam
from .waits import fork_that_exits, has_child, open_fds

THREADS = 16
CHILDREN = 64


class Child:
    def __init__(self):
        self.code = random.randrange(256)
        self.pid = fork_that_exits(self.code, random.random() / 50)
        self.handle = pidwait.Process(self.pid)


class Soak:
    def __init__(self, waits):
        self.left = waits
        self.wrong = []
        self.unknown = 0
        self.lock = threading.Lock()
        self.children = [Child() for _ in range(CHILDREN)]

    def replace(self):
        """Reap each child that has exited, and start another in its place."""
        for number, child in enumerate(self.children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                assert status == child.code << 8
                self.children[number] = Child()
                child.handle.close()

    def wait(self):
        while self.left > 0:
            child = random.choice(self.children)
            code = expired = object()
            how = random.randrange(3)
            timeout = random.choice((None, 0, 0, 0.0001, 0.01))
            try:
                if how == 0:
                    code = child.handle.wait(timeout)
                elif how == 1:
                    # By its pid, which may be another process's once it has been reaped.
                    pidwait.wait(child.pid, timeout)
                else:
                    with pidwait.Process(child.pid) as process:
                        if process == child.handle:
                            code = process.wait(timeout)
            except (pidwait.TimeoutExpired, ProcessLookupError):
                pass
            except ValueError:
                assert child not in self.children  # its handle is closed
            with self.lock:
                self.left -= 1
                if code is None:
                    self.unknown += 1
                elif code is not expired and code != child.code:
                    self.wrong.append((code, child.code))

    def run(self):
        threads = [threading.Thread(target=self.wait) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.replace()
            random.choice((starve, time.sleep, time.sleep))(0.002)
        for thread in threads:
            thread.join()
        for child in self.children:
            assert os.waitpid(child.pid, 0)[1] == child.code << 8
            assert child.handle.wait(0) in (child.code, None)
            child.handle.close()


def starve(seconds):
    """Leave no file descriptors, or few, for a moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (random.choice((0, 3, 40)), hard))
    try:
        time.sleep(seconds)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def meet_the_race():
    """Make one PIDFD_GET_INFO of ten fail as it does just while a process is being reaped."""
    real = seam.get("ioctl")

    def ioctl(*args):
        if random.randrange(10) == 0:
            raise ProcessLookupError(3, "the race")
        return real(*args)

    seam.Seam().put("ioctl", ioctl)


def main():
    random.seed()
    before = open_fds()
    meet_the_race()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.003)
    soak = Soak(int(sys.argv[1]))
    soak.run()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert soak.wrong == [], soak.wrong
    assert open_fds() == before, (before, open_fds())
    assert not has_child()
    print("%d unknown" % soak.unknown)


if __name__ == "__main__":
    main()
