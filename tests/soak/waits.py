# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.waits COUNT: waits in every way, and what they leave behind."""

import os
import random
import signal
import subprocess
import sys
import time

from .. import pidwait


def fork_that_exits(code, after=0.0):
    pid = os.fork()
    if pid == 0:
        try:
            time.sleep(after)
        finally:
            os._exit(code)
    return pid


def open_fds():
    return sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]


def has_child():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def waits(count):
    choose = random.Random(1)
    for number in range(count):
        code = choose.randrange(256)
        pid = fork_that_exits(code, after=choose.choice((0, 0, 0.0005)))
        if number % 4 == 0:
            assert pidwait.wait(pid, 60, reap=True) == code
        elif number % 4 == 1:
            assert pidwait.wait(pid) == code
            assert os.waitpid(pid, 0) == (pid, code << 8)
        elif number % 4 == 2:
            with subprocess.Popen(["sh", "-c", "kill $$"]) as popen:
                assert pidwait.wait(popen, 60) == popen.returncode == -signal.SIGTERM
            assert pidwait.wait(pid, 60, reap=True) == code
        else:
            with pidwait.Process(pid) as process:
                assert process.wait(60) == code
                assert process.wait(0, reap=True) == code


def main():
    waits(10)  # opens what is opened once and kept
    before = open_fds()
    waits(int(sys.argv[1]))
    assert open_fds() == before, (before, open_fds())
    assert not has_child()


if __name__ == "__main__":
    main()
