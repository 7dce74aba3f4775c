# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.zoo.bombs PROGRAM TRIES [KIND...]: fork bombs under limits.

Each is ended by a time-out. It runs in a nest, as a user of its own: limits count its processes.
"""

import importlib
import os
import resource
import sys
import time

from .. import pidwait

subprocess = importlib.import_module(pidwait.__name__ + ".subprocess")

USER = 54321
TIMEOUT = 1
LATEST = 3  # seconds after the time-out
LIMITS = 20, 60, 100, 300
KINDS = "plain", "python", "setsid", "group", "deaf", "shell", "double"
FORKS = "import os\nwhile 1:\n try: os.fork()\n except OSError: pass"


def command(program, kind):
    return {
        "python": [sys.executable, "-S", "-c", FORKS],
        "shell": ["sh", "-c", "b() { b | b & }; b; sleep 60"],
        "double": ["sh", "-c", '"$0" double & sleep 60', program],
    }.get(kind, [program, kind])


def running():
    """How many processes of the user run, other than this one."""
    count = 0
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/status" % int(name)) as file:
                text = file.read()
        except (ValueError, OSError):
            continue
        is_ours = "\nUid:\t%d\t" % os.getuid() in text and int(name) not in (
            os.getpid(),
            os.getppid(),
        )
        count += is_ours and "State:\tZ" not in text and "State:\tX" not in text
    return count


def attempt(words, limit):
    """Seconds from the time-out to the return, and how many processes are left."""
    for kind, number in (resource.RLIMIT_NPROC, limit), (resource.RLIMIT_CORE, 0):
        resource.setrlimit(kind, (number, number))
    began = time.monotonic()
    try:
        subprocess.run(words, timeout=TIMEOUT, tree=True, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pass
    return time.monotonic() - began - TIMEOUT, running()


def check_bomb(program, kind, limit, latest):
    late, left = attempt(command(program, kind), limit)
    assert late <= latest and not left, (late, left)
    assert late > 0 or kind in ("shell", "double"), late  # these may fail to start their sleep


def main(program, tries, *kinds):
    failed = False
    for kind in kinds or KINDS:
        for limit in LIMITS:
            if kind == "setsid" and limit > 100:
                continue
            results = []
            for _ in range(int(tries)):
                pid = os.fork()
                if pid == 0:
                    late, left = attempt(command(program, kind), limit)
                    print(
                        "%-8s %4d: %.2f s after its time-out, %d left" % (kind, limit, late, left)
                    )
                    sys.stdout.flush()
                    os._exit(late > LATEST or left > 0)
                results.append(os.waitpid(pid, 0)[1])
            failed = failed or any(results)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
