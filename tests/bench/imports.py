# SPDX-License-Identifier: BSD-3-Clause
"""Import and a first wait, pidwait against subprocess, CPU time in microseconds, and what is loaded

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
import os, site, sys, time
pid = os.fork() or os._exit(0)
before = set(sys.modules)
start = time.process_time()
import {name}
end = time.process_time()
child = {child}
again = time.process_time()
{wait}
print(time.process_time() - again + end - start, *sorted(set(sys.modules) - before))
"""
# The expression for a child, and the statement that waits for it.
USES = {
    NAME: ("pid", NAME + ".wait(child)"),
    "subprocess": ("subprocess.Popen(['true'])", "child.wait()"),
}


def fresh(python, flags, folder, name):
    """The CPU time of an import and a wait in a new interpreter, and the modules they load."""
    child, wait = USES[name]
    command = [python, flags, "-c", CODE.format(name=name, child=child, wait=wait)]
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
    bound = 1.4 if version == "3.6" else 1.2  # that loads ctypes, too
    titles = [
        "{}: pidwait : subprocess, p50".format(version),
        "{}: the same, ours compiled".format(version),
    ]
    python = core.find(version)
    if python is None:
        lacks = "no python" + version
        return [
            core.Row(titles[0], None, bound=bound, lacks=lacks),
            core.Row(titles[1], None, lacks=lacks),
        ]
    variants = {
        "ours": partial(fresh, python, "-ES", cached, NAME),
        "compiled": partial(fresh, python, "-ESB", bare, NAME),
        "subprocess": partial(fresh, python, "-ES", cached, "subprocess"),
    }
    results = core.in_turns(variants, rounds)
    times = {name: [time for time, _ in result] for name, result in results.items()}
    modules = results["ours"][0][1]
    # Before Python 3.9 a wait needs a binding.
    heavy = [name for name in modules if name in HEAVY and (name, version) != ("ctypes", "3.6")]
    own = [name for name in modules if name.startswith(NAME)]
    return [
        core.paired_row(titles[0], times["ours"], times["subprocess"], bound),
        core.paired_row(titles[1], times["compiled"], times["subprocess"]),
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
