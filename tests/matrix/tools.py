# SPDX-License-Identifier: BSD-3-Clause
"""What runs the tests on other systems shares: tools, folders in the cache, a run on each."""

import contextlib
import fcntl
import os
import shutil
import signal
import sys


def check_tools(*names):
    """Skip without these programs or files, and say so; fail in CI, where nobody would see it."""
    missing = [
        name
        for name in names
        if not (os.path.exists(name) if os.path.isabs(name) else shutil.which(name))
    ]
    if missing:
        reason = "this can't be run here, there is no {}".format(" and no ".join(missing))
        sys.exit(reason if os.environ.get("CI") else print("SKIPPED:", reason))


@contextlib.contextmanager
def locked(folder):
    """In the block no other run fetches anything into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(folder):
    """An empty folder that replaces another one if the block succeeds."""
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(str(new), ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    shutil.rmtree(str(folder), ignore_errors=True)
    new.rename(folder)


def run_each(system, names, run):
    """``run(name)`` on each; it returns what has failed: a text, an exit code or 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # cleaning up
    failed = []
    for name in names:
        print(system, name, flush=True)
        fault = run(name)
        if fault:
            failed.append("{} ({})".format(name, fault))
    if failed:
        sys.exit("failed on {} {}".format(system, ", ".join(failed)))
