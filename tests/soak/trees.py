# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.trees WHAT COUNT: trees, as often as that, and what they leave behind.

runs: of `true`. moments: a signal handler raises during a run, with and without a tree. kill, end,
cancel: in the midst of communicate() or aio.run(), from another thread. death: of the program.
polled: the same where pidfd_open(2) is refused.
"""

import asyncio
import collections
import contextlib
import errno
import gc
import glob
import importlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .. import pidwait
from ..trouble import system
from ..zoo.tries import look, no_thread_is_left, within
from .waits import has_child, open_fds

ours = importlib.import_module(pidwait.__name__ + ".subprocess")
aio = importlib.import_module(pidwait.__name__ + ".aio")
PATIENCE = 60  # seconds
# All hold the witness; the second is in another session, and the third has lost its parent.
ALL = ["sh", "-c", 'exec 9>"$0"; setsid sleep 600 & (sleep 600 &) ; echo ready; sleep 600']
PROGRAM = """if True:
    import os, sys
    from {0} import subprocess
    popen = subprocess.Popen(sys.argv[2:], tree=True)
    if sys.argv[1] == "fork":
        os.fork()
    popen.wait()
""".format(pidwait.__name__)


class Interruption(BaseException):
    pass


class Witness:
    """A FIFO that each process of ALL holds open: no list of processes is trusted."""

    def __init__(self, folder):
        self.path = tempfile.mktemp(dir=folder)
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def is_alone(self):
        return not look(self.fd)[1]

    def end_all(self):
        """End who holds it, by its open files."""
        for link in glob.glob("/proc/[0-9]*/fd/9"):
            with contextlib.suppress(OSError):  # it has exited
                if os.readlink(link) == self.path:
                    os.kill(int(link.split("/")[2]), signal.SIGKILL)

    def close(self):
        os.close(self.fd)
        os.unlink(self.path)


def runs(count, folder):
    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda _: ours.run(["true"], tree=True), range(count)):
            assert done.returncode == 0


def in_the_midst(count, folder):
    what = sys.argv[1]
    for _ in range(count):
        witness = Witness(folder)
        if what == "cancel":
            asyncio.new_event_loop().run_until_complete(cancelled([*ALL, witness.path]))
        else:
            popen = ours.Popen([*ALL, witness.path], tree=True, stdout=subprocess.PIPE)
            assert popen.stdout.readline() == b"ready\n"
            thread = threading.Timer(random.uniform(0, 0.01), getattr(popen, what))
            thread.start()
            assert popen.communicate(timeout=PATIENCE) == (b"", None)
            thread.join()
        assert witness.is_alone()
        witness.close()


async def cancelled(command):
    reader, writer = os.pipe()
    task = asyncio.ensure_future(aio.run(command, tree=True, stdout=writer))
    await asyncio.sleep(random.uniform(0, 0.1))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    os.close(reader)
    os.close(writer)
    asyncio.get_event_loop().stop()


def death(count, folder):
    """SIGKILL to the program, or its group, alone or with a living fork of it."""
    slowest = 0.0
    for way in ("alone", "group", "fork") * count:
        witness = Witness(folder)
        command = [sys.executable, "-c", PROGRAM, way, *ALL, witness.path]
        options = {"stdout": subprocess.PIPE, "start_new_session": True}
        with subprocess.Popen(command, **options) as program:
            assert program.stdout.readline() == b"ready\n"
            (os.killpg if way == "group" else os.kill)(program.pid, signal.SIGKILL)
            began = time.monotonic()
            assert within(PATIENCE, witness.is_alone), way
            slowest = max(slowest, time.monotonic() - began)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
        witness.close()
    print("%.2f s" % slowest)


def moments(count, folder):
    found = [interrupted(count, folder, tree) for tree in (True, False)]
    print(*map(dict, found), sep="\n")
    trees, plain = found
    assert not trees["alive"]
    for what in "fds", "children":
        assert trees[what] <= plain[what] + 0.02 * count


def children():
    found = []
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/children" % task) as file:
            found += map(int, file.read().split())
    return found


def interrupted(count, folder, tree):
    """How many trees, children and file descriptors are left."""
    figures, times = collections.Counter(), []
    for _ in range(9):
        began = time.monotonic()
        ours.run(["true"], tree=tree)
        times.append(time.monotonic() - began)
    for number in range(count):
        witness, before = Witness(folder), len(open_fds())
        moment = 1.5 * statistics.median(times) * (number + 1) / count
        try:
            signal.setitimer(signal.ITIMER_REAL, moment)
            ours.run([*ALL, witness.path], tree=tree, stdout=subprocess.DEVNULL)
        except Interruption:
            figures["interrupted"] += 1
        gc.collect()
        figures["fds"] += len(open_fds()) - before
        figures["alive"] += not within(PATIENCE if tree else 0, witness.is_alone)
        if tree:
            within(0.2, lambda: not children())
        for pid in children():
            figures["children"] += 1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        subprocess._cleanup()
        witness.end_all()
        witness.close()
    return figures


def interrupt(number, frame):
    raise Interruption


WHAT = {"runs": runs, "moments": moments, "death": death, "polled": death}
WHAT.update(dict.fromkeys(("kill", "end", "cancel"), in_the_midst))


def main():
    what, count = sys.argv[1], int(sys.argv[2])
    if what == "polled":
        system.forbid({"pidfd_open": errno.ENOSYS})
    ours.run(["true"], tree=True)  # loads what is loaded once
    with tempfile.TemporaryDirectory() as folder:
        before = open_fds()
        signal.signal(signal.SIGALRM, interrupt)
        WHAT[what](count, folder)
        assert no_thread_is_left()
        if what != "moments":
            gc.collect()
            assert open_fds() == before, (before, open_fds())
            assert not has_child()


if __name__ == "__main__":
    main()
