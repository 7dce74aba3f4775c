# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.interruptions MODE SECONDS: a signal handler raises, anywhere in a wait.

storm: at random moments, while two threads use the same set. double: two in a row. threads: none,
only the threads. nested: the handler raises nothing, it waits for the same set. tests/explore has
one exception at each line, and at each opcode.

Its line of figures ends with what breaks a limit; then, or if a thread hangs, it exits with 1.
"""

import collections
import contextlib
import dis
import faulthandler
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

from .. import pidwait
from .waits import fork_that_exits

MODES = ("storm", "double", "threads", "nested")
PATIENCE = 10  # seconds; who needs more hangs
CODE = 7
HERE = os.path.abspath(pidwait.__file__)
if hasattr(pidwait, "__path__"):
    HERE = os.path.dirname(HERE) + os.sep
PYPY = sys.implementation.name == "pypy"
# Up to 3.9 a handler runs between a return and what keeps its value.
KEEPS_RETURNED = sys.version_info >= (3, 10) and not PYPY
# The share of exits that may be lost.
LOST = {"storm": 0.01 if PYPY else 0, "double": 0 if KEEPS_RETURNED else 0.05}
parent = os.getppid()
figures = collections.Counter()


class Interruption(BaseException):
    pass


def become_zombie(pid):
    """PyPy has no waitid(2)."""
    while True:
        with open("/proc/%d/stat" % pid) as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.0005)


def zombie(code):
    pid = fork_that_exits(code)
    become_zombie(pid)
    return pid


def owner(code):
    popen = subprocess.Popen(["/bin/sh", "-c", "exit %d" % code])
    become_zombie(popen.pid)
    return popen


def open_fds():
    return len(os.listdir("/proc/self/fd"))


def report(mode, broken=()):
    signal.setitimer(signal.ITIMER_REAL, 0)
    version = sys.version.split()[0] + ("t" if "free-threading" in sys.version else "")
    told = ", ".join("%s %d" % item for item in sorted(figures.items()) if item[1])
    name = "pypy " if PYPY else ""
    print("%-12s %-8s %s" % (name + version, mode, told), *broken, sep="; ", flush=True)
    os._exit(bool(broken))  # a thread that hangs would keep it


def hung(mode, where):
    faulthandler.dump_traceback(all_threads=True)
    report(mode, ["HUNG at %s" % (where,)])


def in_thread(mode, where, function, *args):
    """Its result: in a thread, since a lock that stays held would stop the caller for ever."""
    got = []
    thread = threading.Thread(target=lambda: got.append(function(*args)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not got:
        if thread.is_alive():
            hung(mode, where)
        raise AssertionError("%s failed in a thread" % (function,))
    return got[0]


def count_fds(before):
    if open_fds() > before:
        figures["fds until a collection"] += open_fds() - before
        gc.collect()
        gc.collect()  # PyPy runs finalizers after it
        figures["fds left"] += max(0, open_fds() - before)


def returned_by(frame):
    """The exits that a set's wait() is just returning, which an exception loses.

    Before Python 3.10 a handler can run between the end of a try block and the return.
    """
    code, following = frame.f_code, frame.f_lasti + 2
    if code is not pidwait.WaitSet.wait.__code__ or PYPY:
        return ()
    is_return = code.co_code[following : following + 1] == bytes([dis.opmap["RETURN_VALUE"]])
    return frame.f_locals["waiter"].members if is_return else ()


class Signals:
    """SIGALRM at random moments of a call; the handler acts only while the package runs."""

    def __init__(self, mode):
        self._mode = mode
        self._left = 0
        self.nested = None  # what the handler calls, instead of raising
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, number, frame):
        if self._left <= 0:
            return
        interrupted = frame
        while frame and not frame.f_code.co_filename.startswith(HERE):
            frame = frame.f_back
        if frame is None:  # not in the package yet
            signal.setitimer(signal.ITIMER_REAL, 2e-5)
            return
        self._left -= 1
        if self._left:
            next_one = random.choice((1e-6, 1e-6, random.uniform(1e-6, 3e-5)))
            signal.setitimer(signal.ITIMER_REAL, next_one)
        if self._mode == "nested":
            figures["nested"] += 1
            self.nested()
        else:
            figures["just returned"] += len(returned_by(interrupted))
            raise Interruption

    def call(self, function, *args):
        """Whether it was interrupted, and its result."""
        if self._mode == "threads":
            return False, function(*args)
        result, interrupted = None, True
        try:
            try:
                self._left = 2 if self._mode == "double" else 1
                signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 2e-4))
                result = function(*args)
                interrupted = False
            finally:
                left, self._left = self._left, 0
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interruption:
            figures["interruptions"] += 1
            figures["two in a row"] += self._mode == "double" and left == 0
        return interrupted, result


class Round:
    """One set, which two threads use beside this one; some of its members are Popens."""

    def __init__(self, mode, signals, codes):
        self.mode = mode
        self.call = signals.call
        self.codes = dict(codes)
        for code in range(3):
            self.codes[owner(code + 1)] = code + 1
        self.set = pidwait.WaitSet([parent])
        if random.random() < 0.5:
            self.set.fileno()
        self.told = []
        signals.nested = lambda: self.told.extend(self.set.wait(0))
        self.threads = [
            threading.Thread(target=self._guarded, args=(function,), daemon=True)
            for function in (self._wait, self._change)
        ]

    def _guarded(self, function):
        try:
            # Until it is closed.
            with contextlib.suppress(ValueError):
                while True:
                    function()
        except Exception as error:
            figures["thread: %r" % error] += 1

    def _wait(self):
        self.told.extend(self.set.wait(0.02))

    def _change(self):
        self.set.add(os.getpid())
        self.set.discard(os.getpid())

    def run(self):
        for thread in self.threads:
            thread.start()
        sure, gone = set(), set()
        for proc in random.sample(list(self.codes), len(self.codes)):
            if not self.call(self.set.add, proc)[0]:
                sure.add(proc)
            if random.random() < 0.3:
                gone.add(proc)
                while self.call(self.set.discard, proc)[0]:
                    continue
            if random.random() < 0.7:
                told = self.call(self.set.wait, random.choice((0, 0.001)))[1] or ()
                figures["though discarded"] += sum(proc in gone for proc, _ in told)
                self.told.extend(told)
        self._wait_for(sure - gone)
        told, times = list(self.told), collections.Counter(proc for proc, _ in self.told)
        figures["added"] += len(sure)
        figures["lost"] += sum(times[proc] == 0 for proc in sure - gone)
        figures["twice"] += sum(number > 1 for number in times.values())
        figures["wrong"] += sum(code != self.codes[proc] for proc, code in told)
        figures["stuck"] += any(proc in self.codes for proc in self.set)
        figures["rounds"] += 1
        self._close()

    def _wait_for(self, procs):
        end = time.monotonic() + 3  # an owner that can't reap has one second
        while time.monotonic() < end and not self._is_done(procs):
            self.told.extend(in_thread(self.mode, "the end", self.set.wait, 0.02))

    def _is_done(self, procs):
        told = {proc for proc, _ in list(self.told)}
        return procs <= told and not any(proc in self.codes for proc in self.set)

    def _close(self):
        """By another thread, while this one adds and waits."""
        closer = threading.Thread(target=self.set.close, daemon=True)
        closer.start()
        with contextlib.suppress(ValueError):
            while closer.is_alive():
                self.set.add(os.getpid())
                self.set.wait(0)
        for thread in self.threads + [closer]:
            thread.join(PATIENCE)
            if thread.is_alive():
                hung(self.mode, "close")
        for proc in self.codes:
            if isinstance(proc, subprocess.Popen):
                # An exception in its poll() may have left its lock held, so not by its wait().
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(proc.pid, 0)
                proc.returncode = self.codes[proc]


def rounds(mode, seconds):
    sys.setswitchinterval(1e-4)
    signals = Signals(mode)
    codes = {zombie(code): code for code in range(1, 31)}
    pidwait.WaitSet([parent]).close()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = open_fds()
        Round(mode, signals, codes).run()
        signals.nested = None
        count_fds(before)
    share = (figures["lost"] - figures["just returned"]) / max(1, figures["added"])
    return ["lost %.1f %%" % (share * 100)] * (share > LOST.get(mode, 0))


def main():
    mode, seconds = sys.argv[1], float(sys.argv[2])
    faulthandler.dump_traceback_later(seconds + 4 * PATIENCE, exit=True)
    broken = rounds(mode, seconds)
    never = ["twice", "though discarded", "wrong", "thread"]
    # PyPy 3.11 keeps some exceptions, with their frames, that a handler's has replaced.
    never += ["fds left"] * (not PYPY or mode not in LOST)
    broken += sorted(kind for kind in figures if figures[kind] and any(w in kind for w in never))
    report(mode, broken)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in MODES:
        sys.exit(__doc__)
    main()
