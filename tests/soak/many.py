# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.many COUNT: short processes through one WaitSet; nothing piles up in it."""

import os
import sys

from .. import pidwait
from .waits import fork_that_exits, has_child, open_fds

AT_ONCE = 50


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def through(waiting, count):
    codes = {}
    started = right = 0
    while right < count:
        while started < count and len(codes) < AT_ONCE:
            pid = fork_that_exits(started % 256)
            codes[pid] = started % 256
            started += 1
            waiting.add(pid)
        for pid, code in waiting.wait(60):
            assert code == codes.pop(pid), (pid, code)
            os.waitpid(pid, 0)
            right += 1
    assert len(waiting) == 0 and codes == {}


def main():
    with pidwait.WaitSet() as waiting:
        through(waiting, 1000)  # loads what is loaded once, and fills the allocator's caches
        fds, memory = open_fds(), resident()
        through(waiting, int(sys.argv[1]))
        assert open_fds() == fds, (fds, open_fds())
        grown = resident() - memory
        assert grown < 2**20, grown  # a leak would be some bytes for each process
    assert not has_child()


if __name__ == "__main__":
    main()
