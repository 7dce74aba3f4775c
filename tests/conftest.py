# SPDX-License-Identifier: BSD-3-Clause
import binascii
import contextlib
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid

import pytest

try:
    # Some builds of libffi keep a file open from the first import on. That is not our leak.
    import ctypes  # noqa: F401
except ImportError:
    pass

# With -O, too, what they assert counts.
for name in "asyncio.loops", "waiting.ways":
    pytest.register_assert_rewrite("%s.%s" % (__package__, name))

from . import pidwait, seam
from .needs import BACKEND, THERE
from .processes import (
    PYTHON,
    WINDOWS,
    Herd,
    Keeper,
    become_zombie,
    eventually,
    exiting,
    exiting_when_told,
    is_open,
    sleeping,
    with_own_program,
)

# Names of systems: the tests marked kqueue run on the stand-in for their kqueues, see
# systems/kqueue.
STANDIN = os.environ.get("KQUEUE_STANDIN", "").split()
KQUEUES = STANDIN  # or this system, with its own
IMITATED = bool(STANDIN) or "DRESSED" in os.environ  # see matrix/dressed.py
if STANDIN or BACKEND == "kqueue":
    from .systems import kqueue
    from .systems.kqueue.systems import NAMED, SYSTEMS

    if not STANDIN:
        platform = sys.platform.rstrip("0123456789.")
        KQUEUES = [next(name for name in SYSTEMS if SYSTEMS[name].platform == platform)]
        NAMED[:] = KQUEUES

PACKAGE = os.path.dirname(pidwait.__file__) + os.sep

# A shell has its background jobs ignore SIGINT and SIGQUIT, nohup SIGHUP; children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if not WINDOWS:
    for number in signal.SIGQUIT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # PyPy would not say that it is ignored

# The event backend, the call it needs, and the module in which Python may have it.
EVENT = "kqueue" if KQUEUES else BACKEND
CALL, OWN = {
    "pidfd": ("pidfd_open", "os"),
    "kqueue": ("kqueue", "select"),
    "win32": ("WaitForMultipleObjects", "winapi"),
}[EVENT]

# Files named for a system hold what is peculiar to it.
collect_ignore_glob = ["trouble"] if WINDOWS else ["*/test_windows*"]
if not KQUEUES:
    collect_ignore_glob.append("systems/test_kqueue*")
if EVENT != "pidfd":
    collect_ignore_glob.append("*/test_linux*")


def pytest_ignore_collect(collection_path):
    """On Windows: what has no test marked for it may import what is not there."""
    if WINDOWS and collection_path.name.startswith("test_"):
        text = collection_path.read_text(encoding="utf-8")
        return None if "mark.windows" in text or "@everywhere" in text else True
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that looks into /proc, where there is none, is left out; the package may not look."""
    report, info = (yield).get_result(), call.excinfo
    if info and not THERE["/proc"] and isinstance(info.value, FileNotFoundError):
        is_ours = any(str(entry.path).startswith(PACKAGE) for entry in info.traceback)
        if str(info.value.filename).startswith("/proc/") and not is_ours:
            place = str(item.path), item.location[1], "Skipped: there is no /proc"
            report.outcome, report.longrepr = "skipped", place


def pytest_addoption(parser):
    parser.addoption("--sample", action="store_true", help="leave out what README.md says")


def sample(items):
    """Each behaviour once, by what this interpreter would choose; two cases of each test."""
    chosen = {}
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("variant", CHOSEN[0]) == CHOSEN[0] and not item.get_closest_marker("peers"):
            chosen.setdefault(item.nodeid.partition("[")[0], []).append(item)
    # The checksum takes some of each parameter's values, and always the same ones.
    return [
        item
        for cases in chosen.values()
        for item in sorted(cases, key=lambda item: binascii.crc32(item.nodeid.encode()))[:CASES]
    ]


def pytest_collection_modifyitems(config, items):
    kept = set(sample(items) if config.getoption("sample") else items)
    if WINDOWS:
        kept = {item for item in kept if item.get_closest_marker("windows")}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_runtest_setup(item):
    if item.get_closest_marker("root") and os.getuid() != 0:
        pytest.skip("it needs root's rights")


# id: (PIDWAIT_BACKEND, PIDWAIT_FFI)
VARIANTS = {
    EVENT + "-own": (EVENT, "auto"),
    EVENT + "-ctypes": (EVENT, "ctypes"),
    EVENT + "-cffi": (EVENT, "cffi"),
    "polling": ("polling", "auto"),
}
if "WITHOUT_PIDFD" in os.environ:  # pidfd_open(2) is refused: see matrix/without_pidfd.py
    EVENT, VARIANTS = "polling", {os.environ["WITHOUT_PIDFD"]: ("auto", "auto")}
if KQUEUES:
    VARIANTS = {
        "-".join((backend, system, ffi)): (backend, "auto" if ffi == "own" else ffi)
        for system in KQUEUES
        for backend, ffis in (("kqueue", ("own", "ctypes", "cffi")), ("polling", ("own",)))
        for ffi in ffis
    }


def why_not(variant):
    """The probe's reason why a variant can't run here, or None."""
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


def chosen_variants():
    """By default the first binding that works, and polling; tox.ini names others."""
    named = os.environ.get("TEST_VARIANTS", "").split()
    if named or STANDIN or len(VARIANTS) == 1:
        return [one for one in VARIANTS if not named or one in named]
    working = [one for one in VARIANTS if not one.startswith("polling") and why_not(one) is None]
    return working[:1] + list(VARIANTS)[-1:]


CHOSEN = chosen_variants()
CASES = 2  # of each test in a sample
seam.forget()


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
        seam.forget()

    yield use
    for kernel in kernels:
        kernel.close()
    monkeypatch.undo()
    seam.forget()


@pytest.fixture(params=CHOSEN)
def variant(request, use_variant):
    """The ways to wait that this run tries; the test runs once for each."""
    use_variant(request.param)
    return request.param


@pytest.fixture
def backend(variant):
    return variant.partition("-")[0]


@pytest.fixture(name="seam")
def the_seam():
    """The table of system calls: put(), refuse(), hide(), until the test ends."""
    it = seam.Seam()
    yield it
    it.undo()


@pytest.fixture(params=["ctypes", "cffi"])
def binding(request, monkeypatch):
    """Each binding: the calls that the interpreter has, too, go through it."""
    reason = pidwait.probe()["bindings"][request.param]["reason"]
    if reason:
        pytest.skip(reason)
    monkeypatch.setenv("PIDWAIT_FFI", request.param)
    seam.forget()
    yield request.param
    monkeypatch.undo()
    seam.forget()


@pytest.fixture
def no_garbage():
    """No __del__ of garbage is called: what a signal handler raised in one would be lost."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_fds():
    """The open file descriptors; without a /proc, those that a process usually has."""
    names = os.listdir("/proc/self/fd") if THERE["/proc"] else range(1024)
    # The file descriptor of the listing itself is closed by now.
    return sorted(filter(is_open, map(int, names)))


@contextlib.contextmanager
def another_thread():
    """The kernel's ID of a thread that runs during the block."""
    if KQUEUES:
        pytest.skip("there threads have no IDs of their own")
    before = set() if WINDOWS else set(os.listdir("/proc/self/task"))
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        yield thread.ident if WINDOWS else int(*set(os.listdir("/proc/self/task")) - before)
    finally:
        over.set()
        thread.join()


def targets_of(fds):
    """What each of these file descriptors was opened for, for the message of a failure."""
    targets = {}
    for fd in fds:
        try:
            targets[fd] = os.readlink("/proc/self/fd/%d" % fd)
        except OSError as error:  # closed meanwhile, or no /proc
            targets[fd] = str(error)
    return targets


@pytest.fixture(autouse=True, scope="session")
def nothing_left_by_imports():
    """Close what only caches and garbage refer to: in a test it would look like a wrong close()."""
    importlib.invalidate_caches()  # importlib.metadata keeps zips open
    gc.collect()


SETSID = """#!%s -S
import os, sys

options = [one for one in sys.argv[1:2] if one == "-w"]
if os.getpgrp() == os.getpid():
    pid = os.fork()
    if pid:
        os._exit(options and os.waitpid(pid, 0)[1] >> 8)
os.setsid()
os.execvp(sys.argv[1 + len(options)], sys.argv[1 + len(options) :])
"""


@pytest.fixture(autouse=True, scope="session")
def a_setsid(tmp_path_factory):
    """Only Linux has a setsid(1)."""
    if not WINDOWS and shutil.which("setsid") is None:
        path = tmp_path_factory.mktemp("bin") / "setsid"
        path.write_text(SETSID % sys.executable)
        path.chmod(0o755)
        os.environ["PATH"] += os.pathsep + str(path.parent)


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
def zombie(start):
    """zombie(code) is a child that has exited, and that nobody has reaped."""

    def zombie(code):
        child = start(*exiting(code))
        become_zombie(child.pid)
        return child

    return zombie


@pytest.fixture
def sleeper(start):
    """A child that sleeps for a minute."""
    return start(*sleeping(60))


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
def herd():
    herd = Herd()
    yield herd
    herd.close()
