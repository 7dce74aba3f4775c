# SPDX-License-Identifier: BSD-3-Clause
"""Real processes for the tests."""

import contextlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from . import LINUX, hangs
from .needs import THERE

WINDOWS = os.name == "nt"
# In a virtual environment on Windows sys.executable is a launcher, whose child is the interpreter:
# another pid, and a process more. Started by this name, a child lacks what is installed there.
INTERPRETER = getattr(sys, "_base_executable", sys.executable) if WINDOWS else sys.executable
PYTHON = (INTERPRETER, "-S", "-E")


class OnPurpose(Exception):
    """What a callback or a signal handler raises."""


def everywhere(test):
    """Run it on Windows and with the stand-in for kqueue, too."""
    return pytest.mark.windows(pytest.mark.kqueue(test))


def not_on_windows(reason):
    return pytest.mark.skipif(WINDOWS, reason="Windows has no " + reason)


def lacking(what):
    """Skip the test, or the module that calls this; in CI, where nobody would see it, fail."""
    if os.environ.get("CI"):
        pytest.fail("CI needs " + what)
    pytest.skip("there is no " + what, allow_module_level=True)


def need_packages(*names):
    """Look for the packages without importing them: once imported, eventlet warns of forks."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            lacking("package " + name)


def need_program(name):
    """The path of a program."""
    return shutil.which(name) or lacking("program " + name)


def sleeping(seconds):
    if WINDOWS:
        return PYTHON + ("-c", "import time; time.sleep(%s)" % seconds)
    return "sleep", str(seconds)


def signed(code):
    """The exit code as an int of C, which os._exit() takes."""
    return code - 2**32 if code >= 2**31 else code


def exiting(code, after=0.0):
    """A command that exits with a code, or is killed by signal -code."""
    if WINDOWS:
        code = "import os, time; time.sleep(%s); os._exit(%d)" % (after, signed(code))
        return PYTHON + ("-c", code)
    end = "exit %d" % code if code >= 0 else "kill -%d $$" % -code
    return "sh", "-c", "sleep %s; %s" % (after, end) if after else end


def exiting_when_told(code):
    """A command that exits like that of exiting(), once its stdin is closed."""
    if WINDOWS:
        return PYTHON + ("-c", "import os; os.read(0, 1); os._exit(%d)" % signed(code))
    return "sh", "-c", "read line; " + exiting(code)[2]


def with_own_program(command, folder):
    """The command with a copy of its program, which nobody else runs, of the same name."""
    copy = os.path.join(str(folder), command[0])
    if not os.path.exists(copy):
        shutil.copy(shutil.which(command[0]), copy)
    return (copy,) + command[1:]


needs_pthread_exit = pytest.mark.skipif(
    not LINUX or importlib.util.find_spec("_ctypes") is None,
    reason="only Linux shows that a main thread has ended, by a pthread_exit() through ctypes",
)
# Its main thread becomes a zombie, while the process runs on until its stdin is closed.
MAIN_THREAD_ENDS = """if True:
    import ctypes, os, threading
    def rest():
        os.read(0, 1)
        os._exit(9)
    threading.Thread(target=rest).start()
    ctypes.CDLL(None).pthread_exit(None)
"""


def ending_after_the_main_thread(code, seconds=0):
    """A command whose main thread ends first, with 0; the process exits later, with a code."""
    text = """
import ctypes, os, threading, time
def rest():
    while b") Z" not in open("/proc/self/stat", "rb").read():
        pass
    time.sleep(%s)
    os._exit(%d)
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    return PYTHON + ("-c", "exec(%r)" % (text % (seconds, code)))  # one line, for Keeper


def codes(*codes):
    """Those of the exit codes that are possible here: Windows has none for signals."""
    return [code for code in codes if code >= 0 or not WINDOWS]


def state(pid):
    """The state letter in /proc, or None if there is no such process.

    Without a /proc, ps tells it. On Windows: Z for a process that has exited, but to which somebody
    still has a handle.
    """
    if WINDOWS:
        return windows_state(pid)
    if not THERE["/proc"]:
        return ps(pid, "state").decode()[:1] or None
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return None


def command_line(pid):
    """What the system shows of it, as bytes."""
    if THERE["/proc"]:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    return ps(pid, "command")


def ps(pid, keyword):
    command = "ps", "-ww", "-o", keyword + "=", "-p", str(pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        return process.stdout.read().strip()


def windows_state(pid):
    import _winapi

    try:
        handle = _winapi.OpenProcess(0x00100000, False, pid)  # SYNCHRONIZE
    except OSError:
        return None
    try:
        return "S" if _winapi.WaitForSingleObject(handle, 0) else "Z"
    finally:
        _winapi.CloseHandle(handle)


def eventually(condition):
    """Wait until the condition holds; if it never does, pytest's time limit ends the test."""
    while not condition():
        time.sleep(0.001)


def become_zombie(pid):
    eventually(lambda: state(pid) == "Z")


def stop(pid):
    """Stop a process that leads a group of its own.

    In the group of the tests it could end them all: where a group has a stopped process, and its
    last member with a parent in another group of the session exits, as in test_run_tree, the
    kernel sends SIGHUP to the whole group: _exit(2).
    """
    assert os.getpgid(pid) == pid
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state(pid) in ("T", "Z"))


def become_gone(pid):
    # On Windows: a moment after the last handle has been closed.
    eventually(lambda: state(pid) is None)


def gone_pid():
    """A pid that no process has: its process has just been reaped."""
    child = subprocess.Popen(exiting(0))
    child.wait()
    pid = child.pid
    if WINDOWS:
        del child  # which closes the handle
        become_gone(pid)
    return pid


class Pid:
    """A number that is not an int, such as numpy's."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Job:
    """It stands for a process, can't be hashed, and equals all others."""

    __hash__ = None

    def __init__(self, pid):
        self.pid = pid

    def __eq__(self, other):
        return True


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Keeper:
    """A process that starts others, which are not our children, and reaps them when told."""

    _SCRIPT = """if True:
        import os, signal, sys

        children = set()
        for line in iter(sys.stdin.readline, ""):
            verb, _, rest = line.strip().partition(" ")
            if verb == "start":
                pid = os.fork()
                if pid == 0:
                    os.close(0), os.close(1)
                    try:
                        os.execv("/bin/sh", ["sh", "-c", rest])
                    finally:
                        os._exit(127)
                children.add(pid)
                print(pid, flush=True)
            elif verb == "reap":
                print(os.waitpid(int(rest), 0)[1], flush=True)
                children.discard(int(rest))
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    """

    _WINDOWS_SCRIPT = """if True:
        import subprocess, sys

        children = {}
        for line in iter(sys.stdin.readline, ""):
            verb, _, rest = line.strip().partition(" ")
            if verb == "start":
                child = subprocess.Popen(eval(rest), stdin=subprocess.DEVNULL)
                children[child.pid] = child
                print(child.pid, flush=True)
                del child  # to have it gone when it is popped
            elif verb == "reap":
                print(children.pop(int(rest)).wait(), flush=True)
        for child in children.values():
            child.kill()
            child.wait()
    """

    def __init__(self):
        self.process = subprocess.Popen(
            PYTHON + ("-c", self._WINDOWS_SCRIPT if WINDOWS else self._SCRIPT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            bufsize=1,
        )

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _ask(self, line):
        self.tell(line)
        return int(self.process.stdout.readline())

    def start(self, *command):
        """Run a command; return its pid."""
        if WINDOWS:
            return self._ask("start %r" % (command,))
        return self._ask("start exec " + " ".join(map(shlex.quote, command)))

    def start_told(self, code, fifo):
        """Run a process that exits with a code once the FIFO has been opened for writing."""
        os.mkfifo(str(fifo))
        return self.start("sh", "-c", 'read line < "$0"; ' + exiting(code)[2], str(fifo))

    def reap(self, pid):
        """Block until the process has been reaped; return its wait status, or Windows' code."""
        return self._ask("reap %d" % pid)

    def reap_soon(self, pid):
        """Have it reaped as soon as it exits; reaped() returns the answer."""
        self.tell("reap %d" % pid)

    def reaped(self):
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run_python(code, *args, options=(), **kwargs):
    """Run code in a fresh interpreter; return the completed process, with its output."""
    return subprocess.run(
        (sys.executable, *options, "-c", code) + args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )


def run_script(path, code, *args):
    """Put the code into a file and run it: multiprocessing can't start from -c. Return stderr."""
    path.write_text(code)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    returncode, _, stderr = hangs.finished((sys.executable, str(path)) + args, env)
    assert returncode == 0, stderr
    return stderr


def kill(pid, sig=9):
    os.kill(pid, sig)


HERD = 8 if WINDOWS else 30


class Herd:
    """Cheap children, made by fork(): each exits after a time, if nobody kills it before."""

    def __init__(self):
        self.pids = []

    def fork(self, code, after=None):
        if WINDOWS:
            child = subprocess.Popen(exiting(code, 600 if after is None else after))
            self.children = getattr(self, "children", []) + [child]
            self.pids.append(child.pid)
            return child.pid
        pid = os.fork()
        if pid == 0:
            try:
                time.sleep(600 if after is None else after)
            finally:
                os._exit(code)
        self.pids.append(pid)
        return pid

    def close(self):
        if WINDOWS:
            for child in getattr(self, "children", []):
                child.kill()
                child.wait()
            return
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


@contextlib.contextmanager
def interrupted_by(error):
    """In the block, the function that this gives ends by a signal handler that raises the error."""
    kill = os.kill  # a test may put the function in its place

    def handler(number, frame):
        raise error

    def interrupted(*args):
        kill(os.getpid(), signal.SIGUSR1)
        while True:  # a signal may come late
            time.sleep(0.01)

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGUSR1, previous)
