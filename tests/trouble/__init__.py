# SPDX-License-Identifier: BSD-3-Clause
"""Real faults: what the tests of this folder share.

Most of them run in a fresh interpreter, see run(): a policy can't be taken back, and only a
new process enters a namespace. So this module does not use pytest.
"""

import ast
import contextlib
import gc
import importlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import types


class _NoPytest(types.ModuleType):
    """A stand-in for pytest, which takes ten times as long to import as all the rest."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else self


if "pytest" not in sys.modules:
    sys.modules["pytest"] = _NoPytest("pytest")

from .. import pidwait, seam  # noqa: E402
from ..needs import THERE  # noqa: E402
from ..processes import eventually, is_open, state  # noqa: E402
from ..waiting.threads import Thread  # noqa: E402
from . import system  # noqa: E402

# Load the names first, as `from pidwait import ...` does in a program that may run out of fds.
for _name in pidwait.__all__:
    getattr(pidwait, _name)

LONG = 30  # seconds to wait for what should come at once


# Running a test's function in an interpreter of its own


def run(function, *args, within=()):
    """Run a function of a test module in a fresh interpreter; fail with what it prints."""
    _run_there("_run", function, args, within)


def run_on_each_backend(function, *args, within=()):
    """Like run(), but call function(backend, ...) in a fork for each backend that works here."""
    _run_there("_run_on_each_backend", function, args, within)


def _run_there(runner, function, args, within):
    code = "import sys, {0}; {0}.{1}(*sys.argv[1:])".format(__name__, runner)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    # A sitecustomize may have dressed this interpreter up as another system's.
    options = () if "DRESSED" in os.environ else ("-S",)
    done = subprocess.run(
        tuple(within)
        + (sys.executable, *options, "-W", "always::ResourceWarning", "-c", code)
        + (function.__module__, function.__name__, repr(args)),
        env=dict(os.environ, PYTHONPATH=path, PIDWAIT_BACKEND=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if (done.returncode, done.stdout, done.stderr) != (0, "", ""):
        raise AssertionError("exit code %d\n%s%s" % (done.returncode, done.stdout, done.stderr))


def _run(module, name, args):
    with nothing_left():
        getattr(importlib.import_module(module), name)(*ast.literal_eval(args))


def _run_on_each_backend(module, name, args):
    function = getattr(importlib.import_module(module), name)
    for backend, row in pidwait.probe()["backends"].items():
        if row["available"]:
            forked(_on_backend, backend, function, *ast.literal_eval(args))


def _on_backend(backend, function, *args):
    os.environ["PIDWAIT_BACKEND"] = backend
    seam.forget()
    try:
        function(backend, *args)
    except AssertionError:
        sys.stderr.write("With the backend %s:\n" % backend)
        raise


class nothing_left:
    """Check that the block leaves no open file descriptor and no child. It needs no /proc."""

    def __enter__(self):
        self._before, self._threads = open_fds(), threading.enumerate()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            return
        for thread in set(threading.enumerate()).difference(self._threads):
            thread.join(LONG)  # that of watch() ends a moment later
        for _ in range(3):  # PyPy collects some of them only in the second round
            if open_fds() != self._before:
                gc.collect()
        assert open_fds() == self._before, (self._before, open_fds())
        raises(ChildProcessError, os.waitpid, -1, os.WNOHANG)


def open_fds(latest=[None]):  # noqa: B006  # its latest answer
    found = [fd for fd in range(200) if is_open(fd)]
    if found != latest[0] and not hasattr(sys, "getrefcount"):
        gc.collect()  # PyPy closes what nothing refers to at a collection, which takes 50 ms
        found = [fd for fd in range(200) if is_open(fd)]
    latest[0] = found
    return found


def raises(kind, function, *args, **kwargs):
    try:
        answer = function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError("no %s, but %r" % (kind.__name__, answer))


def times_out(function, timeout):
    """Check that the function raises TimeoutExpired, and not too early."""
    start = time.monotonic()
    error = raises(pidwait.TimeoutExpired, function, timeout)
    assert time.monotonic() - start >= timeout
    assert error.timeout == timeout


def every_wait_works(code=7, within=None, told=False, noticed=True, prepare=None):
    """Wait in each way for a child of ours and for another's; return the backend of a handle.

    ``within``: a context for the waits. ``told``: that the code of the other's child is told is
    certain. ``noticed``: its exit is seen before it is reaped.
    """
    child, stranger, killed, popen = Child(prepare), Stranger(prepare), Child(prepare), Popen(4)
    popen.become_zombie()
    right = (code,) if told else (code, None)
    with within or contextlib.ExitStack(), contextlib.ExitStack() as stack:
        process, other = map(stack.enter_context, map(pidwait.Process, (child.pid, stranger.pid)))
        waiting = stack.enter_context(pidwait.WaitSet([child.pid, stranger.pid]))
        for target in process, other, child.pid, stranger.pid:
            times_out(lambda timeout, target=target: pidwait.wait(target, timeout), 0.001)
        assert waiting.wait(0) == [] and not process.has_exited()
        process.send_signal(0)
        child.end(code)
        assert waiting.wait(LONG) == [(child.pid, code)]
        assert pidwait.wait(child.pid, LONG) == process.wait(LONG) == code
        assert pidwait.wait_procs([child.pid, killed.pid], 0.01)[1] == [killed.pid]
        assert next(iter(pidwait.as_completed([child.pid, killed.pid]))) == (child.pid, code)
        assert pidwait.wait(child.pid, LONG, reap=True) == code
        raises(ChildProcessError, os.waitpid, child.pid, 0)
        assert pidwait.wait(child.pid) is None and not pidwait.pid_exists(child.pid)
        raises(ProcessLookupError, process.kill)
        stranger.become_zombie(code)
        if noticed:
            assert pidwait.wait(stranger.pid, LONG) in (code, None)
        assert pidwait.pid_exists(stranger.pid)
        assert stranger.leave() == code
        assert other.wait(LONG) in right
        ((pid, found),) = waiting.wait(LONG)
        assert pid == stranger.pid and found in right and len(waiting) == 0
        raises(ProcessLookupError, other.terminate)
        with pidwait.Process(killed.pid) as handle:
            handle.terminate()
            assert handle.wait(LONG) == -signal.SIGTERM
        assert pidwait.wait(popen, LONG) == popen.returncode == 4
    killed.reap()
    child.forget()
    stranger.forget()
    return process.backend


# Ways to wait for one process


def by_handle(pid, timeout=None):
    with pidwait.Process(pid) as process:
        return process.wait(timeout)


def by_set(pid, timeout=None):
    with pidwait.WaitSet([pid]) as waiting:
        ((found, code),) = waiting.wait(timeout)
        assert found == pid
        return code


# Processes


def fork(function, *args):
    """Run a function in a forked child, which dies with us; return its pid.

    The function returns the child's exit code, or -n to have signal n kill it.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if system.libc is not None:
            system.libc.prctl(system.PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() in (parent, 0):  # 0: the parent is in another PID namespace
            _end(function(*args) or 0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(99)


def forked(function, *args):
    """Run a function in a forked child; check that it raises nothing and leaves nothing open."""

    def run():
        getattr(gc, "freeze", int)()  # what pytest has loaded need not be looked at
        # pytest's would keep what a generator or a __del__ has raised, and so what that refers to.
        sys.unraisablehook = getattr(sys, "__unraisablehook__", None)
        with nothing_left():
            function(*args)

    code = exit_code(os.waitpid(fork(run), 0)[1])
    assert code == 0, "%s%r: exit code %d" % (function.__name__, args, code)


def _end(code):
    if code >= 0:
        os._exit(code)
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


def exit_code(status):
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Child:
    """A forked child that lives until end() says how it has to exit."""

    def __init__(self, prepare=None):
        orders, self._orders = os.pipe()
        is_ready, ready = os.pipe()
        self.pid = fork(self._live, prepare, orders, ready)
        os.close(orders)
        os.close(ready)
        if prepare is not None:
            os.read(is_ready, 1)
        os.close(is_ready)

    def _live(self, prepare, orders, ready):
        os.close(self._orders)
        if prepare is not None:
            prepare()
            os.write(ready, b".")
        return struct.unpack("=h", os.read(orders, 2))[0]

    def end(self, code):
        """Have it exit with a code, or die of signal -code."""
        os.write(self._orders, struct.pack("=h", code))

    def become_zombie(self, code):
        self.end(code)
        self.stand()

    def stand(self):
        """Wait until it is a zombie."""
        try:
            if system.libc is None:
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:  # P_PID, WEXITED | WNOWAIT: PyPy's os has no such names
                info = system.ctypes.create_string_buffer(128)
                system.call("waitid", 1, self.pid, info, 0x1000004)
        except (OSError, AttributeError):  # a policy; macOS' PyPy
            eventually(lambda: state(self.pid) == "Z")

    def reap(self):
        """Wait until it exits, and reap it; return the exit code."""
        code = exit_code(os.waitpid(self.pid, 0)[1])
        self.forget()
        return code

    def forget(self):
        """Call this if somebody else has reaped it."""
        os.close(self._orders)


class Popen(subprocess.Popen):
    """A Popen like Child."""

    def __init__(self, code):
        super().__init__(["sh", "-c", "read end; exit %d" % code], stdin=subprocess.PIPE)

    def end(self):
        self.stdin.write(b"\n")  # forked children may hold it open
        self.stdin.close()

    def become_zombie(self):
        self.end()
        Child.stand(self)


class Stranger:
    """A process like Child, but its parent is another child of ours."""

    def __init__(self, prepare=None, make=Child):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._parent = fork(self._serve, prepare, make, orders, answers)
        os.close(orders)
        os.close(answers)
        self.pid = self._answer()

    def _serve(self, prepare, make, orders, answers):
        os.close(self._orders)
        child = make(prepare)
        os.write(answers, struct.pack("=i", child.pid))
        while True:
            verb, code = struct.unpack("=ch", os.read(orders, 3))
            answer = 0
            if verb == b"e":
                child.end(code)
            elif verb == b"s":
                child.stand()
            elif verb == b"r":
                answer = exit_code(os.waitpid(child.pid, 0)[1])
            else:
                return 0
            os.write(answers, struct.pack("=i", answer))

    def _answer(self):
        return struct.unpack("=i", os.read(self._answers, 4))[0]

    def _tell(self, verb, code=0):
        os.write(self._orders, struct.pack("=ch", verb, code))
        return self._answer()

    def end(self, code):
        self._tell(b"e", code)

    def become_zombie(self, code):
        self._tell(b"e", code)
        self._tell(b"s")

    def leave(self):
        """Have its parent reap it; return the exit code."""
        return self._tell(b"r")

    def reap(self):
        """Like leave(), but its parent exits, too."""
        code = self._tell(b"r")
        self.forget()
        return code

    def forget(self):
        """Call this once it has been reaped: its parent exits, too."""
        os.write(self._orders, struct.pack("=ch", b"q", 0))
        os.close(self._orders)
        os.close(self._answers)
        status = os.waitpid(self._parent, 0)[1]  # not in the assert: -O leaves that out
        assert status == 0


# Threads


_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine)
_sleep = time.sleep  # which some tests replace


def thread_id():
    """This thread's ID in /proc; threading has it from Python 3.8 on."""
    return int(os.path.basename(os.readlink("/proc/thread-self")))


def sleeps(tid):
    """Whether a thread of ours sleeps in a system call, and not for the interpreter's lock."""
    looks = []
    for _ in range(2):  # one may come while it waits in a page fault, or for the map of its memory
        with open("/proc/self/task/%d/syscall" % tid) as file:
            looks.append(file.read())
        if looks[0].split()[0] in ("running", "-1", _FUTEX):
            return False
        _sleep(0.005)
    return looks[0] == looks[1]


def asleep(function):
    """A thread that runs the function, once it sleeps in it: also on a busy machine."""
    if not THERE["/proc"]:
        return Thread(function).asleep()
    tids = []
    thread = Thread(lambda: tids.append(thread_id()) or function())
    eventually(lambda: tids and sleeps(tids[0]))
    return thread


# What this kernel can do


NO_PIDFDS = {"reason": "this system has no pidfds"}


def why_no_pidfd():
    """The probe's reason, whatever backend is chosen."""
    choice = os.environ.get("PIDWAIT_BACKEND", "")
    os.environ["PIDWAIT_BACKEND"] = ""
    try:
        return pidwait.probe()["backends"].get("pidfd", NO_PIDFDS)["reason"]
    finally:
        os.environ["PIDWAIT_BACKEND"] = choice
        if choice:
            seam.forget()


def kernel_tells():
    """Whether the kernel tells the exit code of a process that has been reaped: Linux 6.15."""
    if system.libc is None:
        return False
    child, fds = Child(), []
    try:
        fds.append(system.pidfd_open(child.pid))
        child.end(3)
        os.waitpid(child.pid, 0)
        mask, status = system.pidfd_info(fds[0])
        return bool(mask & system.PIDFD_INFO_EXIT) and status == 3 << 8
    except OSError:
        return False
    finally:
        list(map(os.close, fds))
        if not fds:
            child.end(3)
            os.waitpid(child.pid, 0)
        child.forget()


# Acting between two lines of pidwait


class at_line:
    """In the block, do something right before the n-th line that runs of pidwait's code.

    With ``again`` do it a second time, so many calls and returns of functions later. ``reached``
    tells whether there was such a line, ``where`` which it was.
    """

    _FOLDER = os.path.dirname(pidwait.__file__) + os.sep

    def __init__(self, number, action, again=0):
        self._left = number
        self._action = action
        self._again = again
        self.reached = False
        self.where = None

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info):
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(self._FOLDER):
            return None
        if event == "call" and in_del(frame):  # an exception there is only printed
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.reached = True
                self.where = "%s:%s %s" % (code.co_filename, frame.f_lineno, code.co_name)
                sys.settrace(None)
                if self._again:
                    sys.setprofile(self._profile)
                self._action()
        return self._trace

    def _profile(self, frame, event, argument):
        if frame.f_code.co_filename.startswith(self._FOLDER) and not in_del(frame):
            self._again -= 1
            if self._again == 0:
                sys.setprofile(None)
                self._action()


def each_line(action, step=1, again=0):
    """at_line() for every step-th line that runs in its block, one after the other."""
    number, line = 1, at_line(1, action, again)
    yield line
    while line.reached:
        number += step
        line = at_line(number, action, again)
        yield line
    assert number > 10, number


def in_del(frame):
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupt():
    raise KeyboardInterrupt
