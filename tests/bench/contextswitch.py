# SPDX-License-Identifier: BSD-3-Clause
"""A long wait: voluntary context switches in 10 s, in which a process waits for itself

Each way to wait has a process of its own, all at the same time, after a short wait as a warm-up.
"""

import os
import subprocess
import sys
import time

from .. import pidwait
from . import core


def ours(seconds):
    try:
        pidwait.wait(os.getpid(), seconds)
    except pidwait.TimeoutExpired:
        pass


def psutil(seconds):
    try:
        core.psutil.Process().wait(seconds)
    except core.psutil.TimeoutExpired:
        pass


def busy_loop(seconds):
    """The loop of subprocess before Python 3.15."""
    end = time.monotonic() + seconds
    delay = 0.0005
    while True:
        os.kill(os.getpid(), 0)
        remaining = end - time.monotonic()
        if remaining <= 0:
            return
        delay = min(delay * 2, remaining, 0.05)
        time.sleep(delay)


def count(name, seconds):
    import resource

    wait = {"ours": ours, "polling": ours, "psutil": psutil}.get(name)
    wait = wait or {"sleep": time.sleep, "busy loop": busy_loop}[name]
    wait(0.001)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    wait(seconds)
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before


def start(name, seconds):
    env = dict(os.environ)
    if name == "polling":
        env["PIDWAIT_BACKEND"] = "polling"
    command = core.script(__name__, name, seconds)
    return subprocess.Popen(command, cwd=str(core.ROOT), env=env, stdout=subprocess.PIPE)


def run(options):
    if os.name != "posix":
        raise core.Unavailable("getrusage is POSIX's")
    names = ["ours", "polling", "sleep", "busy loop"] + ["psutil"] * (core.psutil is not None)
    started = {name: start(name, options.seconds or 10) for name in names}
    counts = {name: int(process.communicate()[0]) for name, process in started.items()}
    mine = counts["ours"]
    return [
        core.Row("wait : time.sleep", mine, counts["sleep"], "more", 1),
        core.Row("wait : psutil", mine, counts.get("psutil"), "more", lacks=core.NO_PSUTIL),
        core.Row("wait : busy loop", mine, counts["busy loop"], "more"),
        core.Row("polling forced : busy loop", counts["polling"], counts["busy loop"], "more"),
    ]


if __name__ == "__main__":
    print(count(sys.argv[1], float(sys.argv[2])))
