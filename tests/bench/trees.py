# SPDX-License-Identifier: BSD-3-Clause
"""What a tree costs beyond a plain run, how long its end takes, and what its keeper needs

CPU time is that of the caller and all that it has started.
"""

import importlib
import json
import resource
import subprocess
import sys
import time

from .. import pidwait
from . import core

VERSIONS = ("3.11", "3.13")
OTHERS = 30  # beside the command
SCRIPT = "i=%d; while [ $i -gt 0 ]; do sleep 600 & i=$((i-1)); done; echo ready; wait" % OTHERS
SETTLED = 0.3  # seconds until all of them sleep
IDLE = 3  # seconds


def cpu(function, count):
    """Milliseconds of CPU time for each call."""

    def used():
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)

    before = used()
    for _ in range(count):
        function()
    return (used() - before) / count * 1000


def fields(pid, name):
    with open("/proc/%d/%s" % (pid, name)) as file:
        pairs = (line.split(":", 1) for line in file if ":" in line)
        return {key: value.split()[0] for key, value in pairs if value.split()}


def measure(rounds):
    ours = importlib.import_module(pidwait.__name__ + ".subprocess")
    variants = {
        name: lambda tree=tree: cpu(lambda: ours.run(["true"], tree=tree), 10)
        for name, tree in (("plain", False), ("tree", True))
    }
    found = core.in_turns(variants, rounds)
    found["kill"] = []
    for _ in range(rounds):
        with ours.Popen(["sh", "-c", SCRIPT], tree=True, stdout=subprocess.PIPE) as popen:
            popen.stdout.readline()
            time.sleep(SETTLED)
            began = time.perf_counter()
            popen.kill()
            popen.wait()
            found["kill"].append((time.perf_counter() - began) * 1000)
    with ours.Popen(["sleep", "600"], tree=True) as popen:
        keeper = int(fields(popen.pid, "status")["PPid"])
        time.sleep(1)
        before = fields(keeper, "status")
        time.sleep(IDLE)
        after = fields(keeper, "status")
        found["wake-ups"] = sum(
            int(after[name]) - int(before[name]) for name in after if "ctxt" in name
        )
        found["pss"] = int(fields(keeper, "smaps_rollup")["Pss"]) / 1024
        popen.kill()
    return found


def run(options):
    if sys.platform != "linux":
        raise core.Unavailable("a keeper is Linux's")
    rows = []
    for version in VERSIONS:
        python = core.find(version)
        if python is None:
            rows.append(
                core.Row(version + ": CPU, ms", None, bound=18, lacks="no python" + version)
            )
            continue
        command = [python, "-m", __name__, str(options.rounds or 25)]
        found = json.loads(core.output(command, cwd=str(core.ROOT)))
        tree, plain = core.median(found["tree"]), core.median(found["plain"])
        kill = core.median(found["kill"])
        rows += [
            core.Row(version + ": CPU of run(['true']), ms", tree, plain, "more", 18),
            core.Row(
                "kill() of %d processes to the end, ms" % (OTHERS + 1), kill, None, "count", 12
            ),
            core.Row("PSS of an idle keeper, MB", found["pss"], None, "count", 6),
            core.Row("its wake-ups in %d s" % IDLE, found["wake-ups"], None, "count", 0),
        ]
    return rows


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
