# SPDX-License-Identifier: BSD-3-Clause
"""`import pidwait` against `import subprocess`, in microseconds, and what it loads

In fresh interpreters with the bytecode cached. They have loaded what site loads, os above all, but
no .pth files, which may load half the standard library beforehand (-S); nor do they heed PYTHON*
variables (-E).
"""

import os
import sys

from .. import pidwait
from . import core

NAME = pidwait.__name__
HEAVY = ("_cffi_backend", "asyncio", "cffi", "ctypes", "logging", "subprocess", "typing")
CODE = """
import site, sys, time
before = set(sys.modules)
start = time.perf_counter()
import {}
end = time.perf_counter()
print(end - start, *sorted(set(sys.modules) - before))
"""


def fresh(name):
    """The time of an import in a new interpreter, and the modules that it loads."""
    top = os.path.dirname(os.path.abspath(pidwait.__file__))
    for _ in NAME.split("."):
        top = os.path.dirname(top)
    command = [sys.executable, "-ES", "-c", CODE.format(name)]
    seconds, *modules = core.output(command, cwd=top).split()
    return float(seconds) * 1e6, modules


def run(options):
    variants = {name: lambda name=name: fresh(name) for name in (NAME, "subprocess")}
    results = core.in_turns(variants, options.rounds or 40)
    ours, peer = ([time for time, _ in results[name]] for name in (NAME, "subprocess"))
    modules = results[NAME][0][1]
    heavy = [name for name in modules if name in HEAVY]
    return [
        core.Row("p50 pidwait : subprocess", core.median(ours), core.median(peer), bound=0.5),
        core.Row("p90 pidwait : subprocess", core.percentile(ours, 90), core.percentile(peer, 90)),
        core.Row(
            "heavy modules loaded",
            len(heavy),
            kind="count",
            bound=0,
            notes=heavy or ["none of " + ", ".join(HEAVY)],
        ),
        core.Row(
            "modules loaded, pidwait : subprocess",
            len(modules),
            len(results["subprocess"][0][1]),
            "count",
            notes=["not of its own: " + " ".join(m for m in modules if not m.startswith(NAME))],
        ),
    ]
