# SPDX-License-Identifier: BSD-3-Clause
import errno
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import uuid

import pytest

try:
    # Some builds of libffi keep a file open from the first import on. That is
    # not our leak.
    import ctypes  # noqa: F401
except ImportError:
    pass

# With -O, too, what they assert counts.
for name in "events", "loops", "ways":
    pytest.register_assert_rewrite("%s.%s" % (__package__, name))

from . import pidwait
from .loops import loop, run  # noqa: F401
from .processes import (
    PYTHON,
    WINDOWS,
    Herd,
    Keeper,
    drop_spare,
    eventually,
    exiting_when_told,
    is_open,
    sleeping,
    with_own_program,
)

if os.environ.get("KQUEUE_STANDIN"):
    from . import kqueue

_probe = importlib.import_module(pidwait.__name__ + "._probe")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
ffi = importlib.import_module(pidwait.__name__ + "._ffi")

# A shell has its background jobs ignore SIGINT and SIGQUIT, nohup SIGHUP; children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if not WINDOWS:
    for number in signal.SIGQUIT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # PyPy would not say that it is ignored
if WINDOWS:
    kernel32 = ctypes.WinDLL("kernel32")
NOT_ON_WINDOWS = (
    "posix_spawn spawn_failures popen_differences engine later_policies targets raising_owners "
    "forks highfds handlers green interpreter_end watching_interrupted hooks hubs tracers "
    "bytes_warnings polling_set pidfd kinds recipes recipes_shell cli_streams cli_terminal "
    "cli_family cli_names run_as_gnu run_signals run_tree aio_watcher aio aio_cancel "
    "aio_completed aio_fds aio_forks aio_interrupted aio_loops aio_owners aio_spawn "
    "listing_linux listing_peers subinterpreters events connector inotify listening_set "
    "epoll_set netlink connector_messages listening_members paced_sets "
    "events_wait polled_procfs exitcodes settling pidfd_set listed"
).split()
collect_ignore = (
    ["test_%s.py" % name for name in NOT_ON_WINDOWS]
    if WINDOWS
    else [
        "test_windows.py",
        "test_win32_set.py",
        "test_win32_pool_set.py",
        "test_aio_windows.py",
        "test_listing_windows.py",
    ]
)

if not any(map(importlib.util.find_spec, ("_interpreters", "_xxsubinterpreters"))):
    collect_ignore.append("test_subinterpreters.py")

# This system's event backend, the call it needs, and the module in which Python may have it.
EVENT, CALL, OWN = (
    ("win32", "WaitForMultipleObjects", "winapi") if WINDOWS else ("pidfd", "pidfd_open", "os")
)

# id: (PIDWAIT_BACKEND, PIDWAIT_FFI)
VARIANTS = {
    EVENT + "-own": (EVENT, "auto"),
    EVENT + "-ctypes": (EVENT, "ctypes"),
    EVENT + "-cffi": (EVENT, "cffi"),
    "polling": ("polling", "auto"),
}


CLOSEFROM = "posix_spawn_file_actions_addclosefrom_np"
CHDIR = "posix_spawn_file_actions_addchdir_np"
# It has no closefrom.
MUSL = getattr(sys.implementation, "_multiarch", "").endswith("-musl")
# C libraries: id: (functions that the library lacks, flags of posix_spawn that it refuses)
LIBRARIES = {
    "new": ((), 0),
    "before closefrom": ((CLOSEFROM,), 0),
    "before chdir": ((CLOSEFROM, CHDIR), 0),
    "before setsid": ((CLOSEFROM, CHDIR), 0x80),
    "without posix_spawn": (("posix_spawn",), 0),
    "as on macOS": ((CLOSEFROM,), 0),
}

# How to wait where pidfd_open(2) is refused: see tests/matrix/without_pidfd.py.
if "WITHOUT_PIDFD" in os.environ:
    VARIANTS = {os.environ["WITHOUT_PIDFD"]: ("auto", "auto")}

# Names of systems: the suite then runs on the stand-in for their kqueue, see tests/kqueue.
STANDIN = os.environ.get("KQUEUE_STANDIN", "").split()
not_on_kqueue = pytest.mark.skipif(bool(STANDIN), reason="kqueue has no fd for each process")
if STANDIN:
    EVENT, CALL, OWN = "kqueue", "kqueue", "select"
    VARIANTS = {
        "-".join((backend, system, ffi)): (backend, "auto" if ffi == "own" else ffi)
        for system in STANDIN
        for backend, ffis in (("kqueue", ("own", "ctypes", "cffi")), ("polling", ("own",)))
        for ffi in ffis
    }


# Bindings are tried on a few interpreters each: see tox.ini.
CHOSEN = os.environ.get("TEST_VARIANTS", "").split() or list(VARIANTS)


def why_not(variant):
    """The probe's reason why a variant can't run here, or None."""
    if variant not in VARIANTS:
        return "there is no pidfd"
    backend, ffi = VARIANTS[variant]
    answer = pidwait.probe()
    if backend == "auto":
        return None
    if not answer["backends"][backend]["available"]:
        return answer["backends"][backend]["reason"]
    if ffi != "auto":
        return answer["bindings"][ffi]["reason"]
    via = answer["calls"][CALL]["via"]
    if backend == EVENT and via != OWN:
        return "this interpreter's %s has no %s: it goes through %s" % (OWN, CALL, via)
    return None


@pytest.fixture
def use_variant(monkeypatch):
    """Force a backend and a binding, here and in child processes."""

    kernels = []

    def use(variant):
        if STANDIN:
            kernels.append(kqueue.use(variant.split("-")[1], monkeypatch))
        reason = why_not(variant)
        if reason:
            pytest.skip(reason)
        backend, ffi = VARIANTS[variant]
        monkeypatch.setenv("PIDWAIT_BACKEND", backend)
        monkeypatch.setenv("PIDWAIT_FFI", ffi)
        _probe.forget()

    yield use
    monkeypatch.undo()
    _probe.forget()
    for kernel in kernels:
        kernel.close()


@pytest.fixture(params=CHOSEN)
def variant(request, use_variant):
    """Every way to wait that this machine offers; the test runs once for each."""
    use_variant(request.param)
    return request.param


@pytest.fixture(params=["pidfd-ctypes", "polling"])
def either(request, use_variant):
    """On Linux: the test runs once with pidfds and once with polling."""
    use_variant(request.param)
    return request.param.partition("-")[0]


@pytest.fixture
def no_events(monkeypatch):
    """Neither the proc connector nor inotify: polling as on other systems."""
    events = importlib.import_module(pidwait.__name__ + "._backends.events")

    def refused():
        raise OSError(errno.ENOSYS, "refused")

    for name in "check_connector", "check_inotify":
        monkeypatch.setattr(events, name, refused)


@pytest.fixture
def executing(monkeypatch):
    """Another thread calls execve() as we look: at first /proc shows the old main thread."""
    procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")
    read, readlink, seen = procfs.read, os.readlink, []

    def read_removed(path, *arguments):
        text = read(path, *arguments)
        seen.append(path)
        if not path.endswith("stat") or seen.count(path) > 2:
            return text
        head, _, tail = text.rpartition(b")")
        fields = tail.split()
        fields[0], fields[1], fields[17] = b"X", b"0", b"0"
        return b"%s) %s\n" % (head, b" ".join(fields))

    def readlink_removed(path, **where):
        seen.append(path)
        if path.endswith("/cwd") and seen.count(path) == 1:
            raise FileNotFoundError(errno.ENOENT, "on purpose")
        return readlink(path, **where)

    monkeypatch.setattr(procfs, "read", read_removed)
    monkeypatch.setattr(os, "readlink", readlink_removed)


@pytest.fixture
def no_garbage():
    """No __del__ of garbage is called: what a signal handler raised in one would be lost."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def backend(variant):
    return variant.partition("-")[0]


def all_fds():
    # The file descriptor of the listing itself is closed by now.
    return sorted(filter(is_open, map(int, os.listdir("/proc/self/fd"))))


def open_fds():
    """The open file descriptors, without the inotify that one wait leaves to the next."""
    drop_spare()
    return all_fds()


def targets_of(fds):
    """What each of these file descriptors was opened for, for the message of a failure."""
    targets = {}
    for fd in fds:
        try:
            targets[fd] = os.readlink("/proc/self/fd/%d" % fd)
        except OSError as error:  # closed meanwhile
            targets[fd] = str(error)
    return targets


def open_handles():
    """The open handles of processes, tokens and events; Python's locks are handles, too.

    Every number is tried, as Wine's GetProcessHandleCount says 0.
    """
    found, last, handle = [], 0, 0
    while handle - last < 4 * 256:
        handle += 4
        if kernel32.GetHandleInformation(ctypes.c_void_p(handle), ctypes.byref(ctypes.c_uint())):
            last = handle
            if kind_of(handle) in ("Process", "Token", "Event"):
                found.append(handle)
    return found


def kind_of(handle):
    buffer = (ctypes.c_size_t * 64)()  # a UNICODE_STRING, and more
    ctypes.WinDLL("ntdll").NtQueryObject(
        ctypes.c_void_p(handle), 2, buffer, ctypes.sizeof(buffer), None
    )
    return ctypes.wstring_at(buffer[1], (buffer[0] & 0xFFFF) // 2)


@pytest.fixture(autouse=True, scope="session")
def nothing_left_by_imports():
    """Close what only caches and garbage refer to: in a test it would look like a wrong close()."""
    importlib.invalidate_caches()  # importlib.metadata keeps zips open
    gc.collect()


@pytest.fixture(autouse=True)
def nothing_left():
    """Fail each test that leaves an open file descriptor, a thread or a child."""
    if WINDOWS:
        # A Popen keeps its handle until it is collected. Tests of handles check by themselves.
        yield
        return
    before = open_fds()
    targets = targets_of(before)
    threads = set(threading.enumerate())
    yield
    # The thread of watch() closes its set after it has reported the last exit.
    eventually(lambda: threads.issuperset(threading.enumerate()))
    for _ in range(10):  # PyPy collects some of them only in a later round
        if open_fds() != before:
            gc.collect()
    now = open_fds()
    closed, left = set(before) - set(now), set(now) - set(before)
    assert now == before, ({fd: targets[fd] for fd in closed}, targets_of(left))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def start():
    """start(args...) runs a child, which is killed and reaped after the test."""
    children = []

    def start(*args, **kwargs):
        child = subprocess.Popen(args, **kwargs)
        children.append(child)
        return child

    yield start
    for child in children:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        if child.returncode is None:
            try:
                child.kill()
            except ProcessLookupError:
                assert child.poll() is not None
            child.wait()


@pytest.fixture
def start_told(start):
    """start_told(code) runs a child that exits with a code once its stdin is closed."""
    return lambda code: start(*exiting_when_told(code), stdin=subprocess.PIPE)


@pytest.fixture
def start_own(start, tmp_path):
    """start_own(code) is start_told(code), with a program that nobody else runs."""
    return lambda code: start(
        *with_own_program(exiting_when_told(code), tmp_path), stdin=subprocess.PIPE
    )


@pytest.fixture
def sleeper(start):
    """A child that sleeps for a minute."""
    return start(*sleeping(60))


@pytest.fixture
def own_sleeper(start, tmp_path):
    """A sleeper with a program that nobody else runs."""
    return start(*with_own_program(sleeping(60), tmp_path))


@pytest.fixture
def token():
    """A word that is in the names of this test's processes alone."""
    return "t" + uuid.uuid4().hex[:6]


@pytest.fixture
def worker(start):
    """worker(words...) starts a process with these at the end of its command line."""

    def worker(*words):
        command = PYTHON + ("-c", "import sys; sys.stdin.read()") + words
        return start(*command, stdin=subprocess.PIPE)

    return worker


@pytest.fixture
def keeper():
    """A parent of processes that are not our children."""
    keeper = Keeper()
    yield keeper
    keeper.close()


@pytest.fixture
def asked(monkeypatch):
    """What each try to use posix_spawn gave: a pid, None if it can't do it, or an error's class."""
    answers = []
    core = importlib.import_module(pidwait.__name__ + "._posix_spawn")
    start = core.start

    def noted(request):
        try:
            answers.append(start(request))
        except Exception as error:
            answers.append(type(error))
            raise
        return answers[-1]

    monkeypatch.setattr(core, "start", noted)
    return answers


@pytest.fixture
def starts(asked):
    """starts() is the number of processes that posix_spawn has started."""
    return lambda: sum(isinstance(answer, int) for answer in asked)


@pytest.fixture
def herd():
    herd = Herd()
    yield herd
    herd.close()


@pytest.fixture(params=["ctypes", "cffi"])
def binding(request, monkeypatch):
    reason = ffi.missing(request.param)
    if reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("PIDWAIT_FFI", request.param)
    _probe.forget()
    yield request.param
    monkeypatch.undo()
    _probe.forget()


@pytest.fixture
def hide(monkeypatch):
    """hide(names, flags) makes the C library look as if it lacked functions and flags.

    The limit of file descriptors becomes the usual one of systems with such a library.
    """
    import resource

    importlib.import_module(pidwait.__name__ + "._spawn_actions")  # its calls are known then
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def hide(names, flags=0):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, limits[0]), limits[1]))

        def missing(binding, name):
            raise ImportError("the system's library has no " + name)

        for name in names:
            monkeypatch.setitem(calls._CALLS, name, (None, missing))
        _probe.forget()
        name = "posix_spawnattr_setflags"
        if flags:
            own = calls.get(name)

            def setflags(attributes, wanted):
                return errno.EINVAL if wanted & flags else own(attributes, wanted)

            calls._resolved[name] = setflags

    yield hide
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    monkeypatch.undo()
    _probe.forget()


@pytest.fixture(params=sorted(LIBRARIES))
def library(request, binding, hide):
    hide(*LIBRARIES[request.param])
    if request.param == "as on macOS":  # hides the same
        request.getfixturevalue("cloexec_default")
    return request.param


@pytest.fixture
def cloexec_default(hide, monkeypatch):
    from .cloexec_default import FLAG, StandIn

    libc_spawn = importlib.import_module(pidwait.__name__ + "._ffi.libc_spawn")
    hide([CLOSEFROM])
    monkeypatch.setattr(libc_spawn, "CLOEXEC_DEFAULT", FLAG)
    functions = StandIn(calls.get).functions()
    calls._resolved.update(functions)
    calls._origins.update(dict.fromkeys(functions, "a stand-in"))
