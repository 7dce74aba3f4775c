# SPDX-License-Identifier: BSD-3-Clause
"""The suite for the interpreter that runs this: see tests/__main__.py."""

import os
import shutil
import sys
import time

from . import venvs

PACKAGES = ["pytest", "pytest-timeout", "pytest-xdist"]
# Without them, tests are skipped. PyPy has its own cffi, and psutil has no wheels for it.
EXTRAS = ["psutil", "cffi"] if sys.implementation.name == "cpython" else []
# The tests wait for half of their time. More workers than 8 save nothing.
WORKERS_PER_CORE = 3
MOST_WORKERS = 8
BYTECODE = venvs.FOLDER / "bytecode"


def cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def say(text, *args):
    print(text.format(*args), flush=True)


def forget_bytecode():
    """Delete the bytecode of folders that tests have made, and deleted."""
    for folder in sorted(BYTECODE.rglob("*")):
        source = venvs.ROOT.anchor / folder.relative_to(BYTECODE)
        if folder.is_dir() and not source.is_dir():
            shutil.rmtree(str(folder), ignore_errors=True)


def main(args):
    started = time.time()
    chosen = [one for one in args if one != "--whole"]
    if chosen == args:
        chosen = ["--sample"] + args
    name = "{}{}.{}.{}".format(sys.implementation.name, *sys.version_info)
    venv = venvs.Venv("tests-" + name, PACKAGES, EXTRAS)
    workers = min(cores() * WORKERS_PER_CORE, MOST_WORKERS)
    say("{} ({})", venvs.interpreter(), sys.executable)
    say("  venv    .tox/{}, with {}", venv.folder.name, ", ".join(PACKAGES + EXTRAS))
    if not venv.is_made():
        say("          made now, and only once: a few MB from the package registry")
    say("  runs    {}, in {} processes", " ".join(["pytest"] + chosen), workers)
    if chosen[:1] == ["--sample"]:
        say("  a sample of the suite: --whole runs all of it")
    venv.make()
    made = time.time() - started
    for extra in venv.lacks():
        say(
            "  without {}, of which pip found no wheel: tests that need it are skipped",
            extra,
        )
    env = dict(os.environ, PYTHONPATH=str(venvs.ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    env.pop("CI", None)  # what this machine lacks is skipped there, too
    if hasattr(sys, "pycache_prefix"):
        # Else, where Python may write no bytecode, each worker and each child compiles all again.
        env["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
        env.pop("PYTHONDONTWRITEBYTECODE", None)
    pytest = [venv.python, "-m", "pytest", "-p", "no:cacheprovider"]
    code = venvs.call(pytest + ["-p", "xdist", "-n", str(workers)] + chosen, env)
    forget_bytecode()
    say("{:.0f} s in all, {:.0f} s of them to set up", time.time() - started, made)
    return code
