# SPDX-License-Identifier: BSD-3-Clause
"""`import pidwait` against `import subprocess`, CPU time in microseconds, and what it loads

In fresh interpreters, which have loaded what site loads, os above all, but no .pth files (-S),
since these may load half the standard library; nor do they heed PYTHON* variables (-E). Ours is a
copy. "Compiled" is the case of a script that carries us and may write no bytecode (-B), while the
standard library's is cached. Noise of the machine hits both imports of a round alike, so a figure
is the median of the rounds' ratios.
"""

import importlib
import os
import shutil
import tempfile
from functools import partial

from .. import pidwait
from . import core

NAME = pidwait.__name__
PARTS = ("3.6", "3.11", "3.13")
HEAVY = ("_cffi_backend", "asyncio", "cffi", "ctypes", "logging", "subprocess", "typing")
CODE = """
import site, sys, time
before = set(sys.modules)
start = time.process_time()
import {}
end = time.process_time()
print(end - start, *sorted(set(sys.modules) - before))
"""


def fresh(python, flags, folder, name):
    """The CPU time of an import in a new interpreter, in microseconds, and the modules it loads."""
    command = [python, flags, "-c", CODE.format(name)]
    seconds, *modules = core.output(command, cwd=folder).split()
    return float(seconds) * 1e6, modules


def copy(folder):
    """Copy our package into the folder, without bytecode."""
    top = importlib.import_module(NAME.split(".")[0])
    source = os.path.dirname(os.path.abspath(top.__file__))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, os.path.join(folder, top.__name__), ignore=ignored)


def part(version, rounds, cached, bare):
    """The rows of one interpreter; it may cache bytecode in ``cached``, but not in ``bare``."""
    titles = [
        "{}: pidwait : subprocess, p50".format(version),
        "{}: the same, ours compiled".format(version),
    ]
    python = core.find(version)
    if python is None:
        lacks = "no python" + version
        return [
            core.Row(title, None, bound=bound, lacks=lacks)
            for title, bound in zip(titles, (0.3, 1.0))
        ]
    variants = {
        "ours": partial(fresh, python, "-ES", cached, NAME),
        "compiled": partial(fresh, python, "-ESB", bare, NAME),
        "subprocess": partial(fresh, python, "-ES", cached, "subprocess"),
    }
    results = core.in_turns(variants, rounds)
    times = {name: [time for time, _ in result] for name, result in results.items()}
    modules = results["ours"][0][1]
    heavy = [name for name in modules if name in HEAVY]
    own = [name for name in modules if name.startswith(NAME)]
    return [
        core.paired_row(titles[0], times["ours"], times["subprocess"], 0.3),
        core.paired_row(titles[1], times["compiled"], times["subprocess"], 1.0),
        core.Row(
            "{}: heavy modules loaded".format(version),
            len(heavy),
            kind="count",
            bound=0,
            notes=heavy or ["none of " + ", ".join(HEAVY)],
        ),
        core.Row(
            "{}: modules loaded, pidwait : subprocess".format(version),
            len(modules),
            len(results["subprocess"][0][1]),
            "count",
            notes=["not of its own: " + " ".join(name for name in modules if name not in own)],
        ),
    ]


def run(options):
    with tempfile.TemporaryDirectory() as cached, tempfile.TemporaryDirectory() as bare:
        copy(cached)
        copy(bare)
        rows = []
        for version in options.part or PARTS:
            rows += part(version, options.rounds or 60, cached, bare)
        return rows
