# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.strangers COUNT: the exit codes of processes that are not our children.

Their parent, a child of ours, starts them in batches, prints their pids, lets them
end at random, by exit or by a signal, and reaps each at once.
"""

import random
import subprocess
import sys

from .. import pidwait

BATCH = 100

PARENT = """if True:
    import os, random, signal, sys
    choose = random.Random(int(sys.argv[1]))
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM]
    for line in iter(sys.stdin.readline, ""):
        reader, writer = os.pipe()
        ends = {}
        for _ in range(int(line)):
            code, sig = choose.randrange(256), choose.choice(signals)
            pid = os.fork()
            if pid == 0:
                os.close(writer)
                os.read(reader, 1)
                os.kill(os.getpid(), sig) if code < 64 else os._exit(code)
            ends[pid] = -sig if code < 64 else code
        print(*ends, flush=True)
        sys.stdin.readline()
        os.close(writer)
        for pid in ends:
            os.waitpid(-1, 0)
        os.close(reader)
        print(*ends.values(), flush=True)
"""


def main():
    count = int(sys.argv[1])
    parent = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", PARENT, str(random.randrange(2**32))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        universal_newlines=True,
        bufsize=1,
    )
    wrong = unknown = 0
    for _ in range(count // BATCH):
        parent.stdin.write("%d\n" % BATCH)
        handles = [pidwait.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.stdin.write("\n")
        codes = [handle.wait(60) for handle in handles]
        for code, right in zip(codes, parent.stdout.readline().split()):
            unknown += code is None
            wrong += code is not None and code != int(right)
        for handle in handles:
            handle.close()
    parent.stdin.close()
    parent.stdout.close()
    assert parent.wait() == 0
    print("%d right, %d unknown, %d wrong" % (count - unknown - wrong, unknown, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
