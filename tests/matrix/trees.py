# SPDX-License-Identifier: BSD-3-Clause
"""Copies of the tree to change, and runs of their tests, which can't harm other processes.

A mutant of code that sends signals may signal each process that it sees, so a run has a PID
namespace of its own. No process survives the end of that, not even the forked child of a test.
"""

import concurrent.futures
import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
IGNORED = shutil.ignore_patterns(".*", "__pycache__")
# By the hash of the source: a mutant may have the original's length, and the same second as time.
COMPILE = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash", "pidwait"]
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
# Without it pytest would be process 1, which inherits orphans.
INIT = ["sh", "-c", '"$@"; exit $?', "init"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.skips"]
# A missing guard may well mean a hang, which counts as a failure, too. A thread ends the run: the
# exception of a signal handler may be swallowed, and a thread of the test's may not come back.
HANGS = ["--timeout=20", "--timeout-method=thread"]
HANG = "+ Timeout +"  # what it then writes

_running = set()


def run(tree, tests, environment="", limit=None, more=()):
    """The exit status of pytest, None if it was not over after ``limit`` seconds; its output.

    If ``environment`` names a tox environment, its skips are counted. ``more`` are environment
    variables.
    """
    env = {**os.environ, "PYTHONPATH": str(tree), "TOX_ENV_NAME": environment, **dict(more)}
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            NAMESPACE + user + INIT + PYTEST + list(tests),
            cwd=str(tree),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(process)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
            process.wait()
            _running.remove(process)
        output.seek(0)
        return code, output.read()


@contextlib.contextmanager
def changed(path, content):
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)


class Trees:
    """``count`` copies of the tree ``root``."""

    def __init__(self, count=WORKERS, root=ROOT):
        self._folder = tempfile.TemporaryDirectory()
        self._free = queue.Queue()
        self._pool = concurrent.futures.ThreadPoolExecutor(count)
        for number in range(count):
            tree = Path(self._folder.name, str(number))
            shutil.copytree(str(root), str(tree), ignore=IGNORED)
            subprocess.check_call(COMPILE, cwd=str(tree))
            self._free.put(tree)

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        self._pool.shutdown(wait=False, cancel_futures=True)
        if kind is not None:  # Ctrl-C does not reach them, and their results are not needed
            for process in list(_running):
                process.kill()
        self._pool.shutdown()
        self._folder.cleanup()

    @contextlib.contextmanager
    def one(self):
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def map(self, function, values):
        """The results of ``function(value, tree)``, in the values' order; several run at a time."""

        def call(value):
            with self.one() as tree:
                return function(value, tree)

        return self._pool.map(call, values)
