# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.bench.many_hard STARTER: 5,000 processes where no more than 256 fds can be had.

Prints the CPU time while none exits, in percent of a core, and the number of exits that were lost
or had a wrong code. The parent keeps the zombies: the code of a process that is reaped between two
looks would be lost.
"""

import resource
import sys
import time

from .. import pidwait
from . import herd, many

SECONDS = 10


def main():
    with herd.Herd(sys.argv[1], 5000, keep=True) as processes:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        with pidwait.WaitSet(processes.pids) as waiting:
            waiting.wait(2)  # the polling interval grows
            cpu = time.process_time()
            waiting.wait(SECONDS)
            idle = (time.process_time() - cpu) / SECONDS * 100
            processes.end(0, 5000, 200)
            exits = []
            while len(waiting):
                exits += waiting.wait()
        print(idle, many.wrong(processes.pids, exits))


if __name__ == "__main__":
    main()
