# SPDX-License-Identifier: BSD-3-Clause
"""Faults, made for real: what these tests have in common.

Most run in a fresh interpreter, see run(): a policy stays for good, a namespace is
entered by a new process. So nothing of pytest is in here.
"""

import ast
import gc
import importlib
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
import types

from .. import pidwait
from ..processes import eventually, state

try:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
except ImportError:  # who needs it skips
    ctypes = libc = None

probe = importlib.import_module(pidwait.__name__ + "._probe")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
procfs = importlib.import_module(pidwait.__name__ + "._procfs")

LONG = 30  # seconds for what comes at once
BACKENDS = ("pidfd", "polling")


# A function of a test, in an interpreter of its own


def run(function, *args, within=()):
    """Run a function of a test module in a fresh interpreter; what it raises is shown."""
    _run_there("_run", function, args, within)


def run_on_each_backend(function, *args, within=()):
    """As run(); function(backend, ...) for each backend that works here, in a fork each."""
    _run_there("_run_on_each_backend", function, args, within)


def _run_there(runner, function, args, within):
    code = "import sys, {0}; {0}.{1}(*sys.argv[1:])".format(__name__, runner)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    done = subprocess.run(
        tuple(within)
        + (sys.executable, "-S", "-W", "always::ResourceWarning", "-c", code)
        + (function.__module__, function.__name__, repr(args)),
        env=dict(os.environ, PYTHONPATH=path, PIDWAIT_BACKEND=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if (done.returncode, done.stdout, done.stderr) != (0, "", ""):
        raise AssertionError("exit code %d\n%s%s" % (done.returncode, done.stdout, done.stderr))


def _find(module, name):
    sys.modules["pytest"] = _NoPytest("pytest")
    return getattr(importlib.import_module(module), name)


def _run(module, name, args):
    with nothing_left():
        _find(module, name)(*ast.literal_eval(args))


def _run_on_each_backend(module, name, args):
    for backend in BACKENDS:
        if probe.works(probe._backends()[backend].check):
            forked(_on_backend, backend, _find(module, name), *ast.literal_eval(args))


def _on_backend(backend, function, *args):
    os.environ["PIDWAIT_BACKEND"] = backend
    probe.forget()
    try:
        function(backend, *args)
    except AssertionError:
        sys.stderr.write("With the backend %s:\n" % backend)
        raise


class _NoPytest(types.ModuleType):
    """In its place, since it takes ten times as long to import as all the rest."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else self


class nothing_left:
    """No open file descriptor and no child is left by the block. It does not need /proc."""

    def __enter__(self):
        self._before = open_fds()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            return
        if open_fds() != self._before:
            gc.collect()
        assert open_fds() == self._before, (self._before, open_fds())
        raises(ChildProcessError, os.waitpid, -1, os.WNOHANG)


def open_fds():
    return [fd for fd in range(200) if is_open(fd)]


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def raises(kind, function, *args, **kwargs):
    try:
        answer = function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError("no %s, but %r" % (kind.__name__, answer))


def times_out(function, timeout):
    """It raises TimeoutExpired, and not too early."""
    start = time.monotonic()
    error = raises(pidwait.TimeoutExpired, function, timeout)
    assert time.monotonic() - start >= timeout
    assert error.timeout == timeout


# Processes


def fork(function, *args):
    """Run a function in a forked child, which dies with us; return its pid.

    What it returns is the exit code, -n to die of signal n.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() in (parent, 0):  # 0 is of another PID namespace
            _end(function(*args) or 0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(99)


def forked(function, *args):
    """Run a function in a forked child: what it asserts holds there, and it leaves nothing."""

    def run():
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
    """A fork that lives until it is told how to end."""

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
        """It exits with a code, or dies of signal -code."""
        os.write(self._orders, struct.pack("=h", code))

    def become_zombie(self, code):
        self.end(code)
        self.stand()

    def stand(self):
        """Wait until it is a zombie."""
        try:
            info = ctypes.create_string_buffer(linux.SIGINFO_SIZE)
            call("waitid", linux.P_PID, self.pid, info, linux.WEXITED | linux.WNOWAIT)
        except OSError:  # a policy
            eventually(lambda: state(self.pid) == "Z")

    def reap(self):
        """Wait until it exits, and reap it; return the exit code."""
        code = exit_code(os.waitpid(self.pid, 0)[1])
        self.forget()
        return code

    def forget(self):
        """It has been reaped by somebody else."""
        os.close(self._orders)


class Stranger:
    """A process like Child, but not our child. Its parent is."""

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
        """As leave(), and the parent exits, too."""
        code = self._tell(b"r")
        self.forget()
        return code

    def forget(self):
        """It has been reaped; its parent exits, too."""
        os.write(self._orders, struct.pack("=ch", b"q", 0))
        os.close(self._orders)
        os.close(self._answers)
        assert os.waitpid(self._parent, 0)[1] == 0


# System calls that Python has no function for, or not everywhere

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
PR_SET_PTRACER = 0x59616D61


def call(name, *args):
    """A function of the C library, which sets errno."""
    result = getattr(libc, name)(*args)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (name, os.strerror(code)))
    return result


def prctl(option, *args):
    return call("prctl", option, *map(ctypes.c_ulong, (args + (0, 0, 0, 0))[:4]))


def pidfd_open(pid, flags=0):
    return call("syscall", *map(ctypes.c_long, (linux.number("pidfd_open"), pid, flags)))


def pidfd_info(fd):
    """The mask and the wait status of PIDFD_GET_INFO, without pidwait."""
    import fcntl

    info = bytearray(64)
    struct.pack_into("=Q", info, 0, 8)
    fcntl.ioctl(fd, linux.PIDFD_GET_INFO, info, True)
    return struct.unpack_from("=Q", info, 0)[0], struct.unpack_from("=i", info, 60)[0]


def kernel_tells():
    """Whether it tells the exit code of whoever has been reaped: Linux 6.15."""
    child = Child()
    fd = pidfd_open(child.pid)
    try:
        child.end(3)
        child.reap()
        mask, status = pidfd_info(fd)
        return bool(mask & linux.PIDFD_INFO_EXIT) and status == 3 << 8
    except OSError:
        return False
    finally:
        os.close(fd)


# A policy

# machine: (AUDIT_ARCH, numbers of the system calls that are not the same everywhere)
_ARCHITECTURES = {
    "x86_64": (0xC000003E, {"waitid": 247, "ioctl": 16}),
    "aarch64": (0xC00000B7, {"waitid": 95, "ioctl": 29}),
}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCH, _SECOND_ARGUMENT = 0, 4, 24  # in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def why_no_pidfd():
    return pidwait.probe()["backends"]["pidfd"]["reason"]


def why_no_policy():
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or sys.maxsize < 2**32:
        return "the test has no system call numbers for %s" % machine
    if libc is None:
        return "this interpreter has no ctypes"
    return None


def forbid(rules):
    """From now on, system calls answer with an error: {"pidfd_open": errno.EPERM}.

    Of ioctl only PIDFD_GET_INFO. For good, and for all children, too: seccomp(2).
    """
    arch, numbers = _ARCHITECTURES[os.uname().machine]
    program = [(_LOAD, 0, 0, _ARCH), (_JUMP_IF_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ALLOW)]
    program.append((_LOAD, 0, 0, _NUMBER))
    for name, code in rules.items():
        number = numbers.get(name) or linux.number(name)
        answer = (_RETURN, 0, 0, _ERRNO | code)
        if name == "ioctl":
            program.append((_JUMP_IF_EQUAL, 0, 4, number))
            program.append((_LOAD, 0, 0, _SECOND_ARGUMENT))
            program.append((_JUMP_IF_EQUAL, 0, 1, linux.PIDFD_GET_INFO))
            program.append(answer)
            program.append((_LOAD, 0, 0, _NUMBER))
        else:
            program.append((_JUMP_IF_EQUAL, 0, 1, number))
            program.append(answer)
    program.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    header = ctypes.create_string_buffer(header)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(header))


# No file descriptors


class limit_is_zero:
    """In the block, none can be opened, and poll(2) answers EINVAL."""

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.start()

    def start(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, self._limits[1]))

    def __exit__(self, *exc_info):
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


class limit_becomes_zero(limit_is_zero):
    """It is zero from a call of start() on, to the end of the block."""

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self


# Between two of our steps


# The files that make system calls: what others do in between counts there.
LOOKING = ("pidfd.py", "polling.py", "_exitcodes.py", "_procfs.py")


class at_line:
    """In the block, do something right before the n-th line that pidwait's code runs.

    ``reached`` tells whether there was such a line, ``where`` which it was.
    """

    _FOLDER = os.path.dirname(pidwait.__file__) + os.sep

    def __init__(self, number, action, files=LOOKING):
        self._left = number
        self._action = action
        self._files = files
        self.reached = False
        self.where = None

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info):
        sys.settrace(None)

    def _trace(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and in_del(frame):  # what is raised there is only printed
            return None
        if not code.co_filename.startswith(self._FOLDER):
            return None
        if self._files and os.path.basename(code.co_filename) not in self._files:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.reached = True
                self.where = "%s:%d %s" % (code.co_filename, frame.f_lineno, code.co_name)
                sys.settrace(None)
                self._action()
        return self._trace


def in_del(frame):
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupt():
    raise KeyboardInterrupt


# Namespaces


def namespaces():
    """What starts a command in user, PID and mount namespaces of its own, as their root.

    OSError with the reason where that is not allowed.
    """
    if not _namespaces:
        _namespaces.append(_find_namespaces())
    if isinstance(_namespaces[0], str):
        raise OSError(_namespaces[0])
    return _namespaces[0]


_namespaces = []


def _find_namespaces():
    reasons = []
    for user in (("--user", "--map-root-user"), ()):
        command = ("unshare",) + user + ("--pid", "--fork", "--kill-child", "--mount-proc")
        try:
            done = subprocess.run(
                command + ("true",),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
        except OSError as error:
            return str(error)
        if done.returncode == 0:
            return command
        reasons.append(done.stderr.strip())
    return "no namespaces of our own: " + "; ".join(reasons)


def command_fails(within):
    return subprocess.call(within + ("true",), stderr=subprocess.DEVNULL) != 0


def mount(kind, target, options=""):
    call("mount", b"none", target.encode(), kind.encode(), ctypes.c_ulong(0), options.encode())


def become(uid):
    """Root gives up everything, to be that user; others stay who they are."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it was cleared by that


def not_dumpable():
    """Nobody may look into this process from now on, not even the same user."""
    prctl(PR_SET_DUMPABLE, 0)


def drop_capabilities():
    """What root may do by them is over; it still owns its files and processes."""
    version_3 = 0x20080522
    call("capset", struct.pack("=Ii", version_3, 0), bytes(24))


def next_pid(pid):
    """The next process that is made in this PID namespace gets that number."""
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
