# SPDX-License-Identifier: BSD-3-Clause
"""What is imported when: nothing heavy at import, and nothing more after the first use.

By then a program may have changed its root or its user, or have no file descriptor left.
"""

import ast
import glob
import logging
import os
import subprocess
import sys

import pytest

from .. import pidwait
from ..processes import run_python
from .conftest import heavy_modules, put, vendor

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")

NOTHING_MORE = """
class Refusal:
    names = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        cls.names.append(name)
        raise ImportError("no more imports: " + name)

sys.meta_path.insert(0, Refusal)
"""

USES = """
import os, select, signal, sys, warnings
import {package} as pidwait

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside the thread of watch()

def child(code):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    return pid

def wait():
    assert pidwait.wait(child(3), reap=True) == 3
    assert pidwait.wait(child(4), 30) == 4
    pid = os.fork()
    if pid == 0:
        signal.pause()
    assert pidwait.pid_exists(pid)
    with pidwait.Process(pid) as process:
        assert not process.has_exited()
        try:
            process.wait(0.01)
            raise AssertionError
        except pidwait.TimeoutExpired:
            pass
        assert process == pidwait.Process(pid)
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
    return process.backend

def many():
    pids = [child(code) for code in range(5)]
    with pidwait.WaitSet(pids[:2]) as waiting:
        waiting.add(pids[2])
        waiting.discard(pids[2])
        found = []
        while waiting:
            found += waiting.wait(30)
        assert sorted(found) == [(pids[0], 0), (pids[1], 1)]
    assert len(pidwait.wait_procs(pids, 30)[0]) == 5
    assert sorted(pidwait.as_completed(pids, 30)) == list(zip(pids, range(5)))

def watch():
    reader, writer = os.pipe()
    pidwait.watch(child(0), lambda pid, code: os.write(writer, b"x"))
    assert os.read(reader, 1) == b"x"

def spawn():
    for options in (
        dict(), dict(cwd="/"), dict(process_group=0), dict(start_new_session=True),
        dict(stdin=-3, stdout=-3, stderr=-2), dict(close_fds=False),
    ):
        with pidwait.spawn([PROGRAM], **options) as child:
            assert child.wait(30) in (0, None)
    try:
        pidwait.spawn(["/no/such"])
        raise AssertionError
    except FileNotFoundError:
        pass

def look():
    parent = os.getppid()
    found = {{info.pid: info for info in pidwait.process_iter([])}}
    assert found[os.getpid()].info["ppid"] == parent
    me = pidwait.ProcessInfo(os.getpid())
    assert me in found[parent].children(recursive=True)
    with me.oneshot():
        assert me.name() and me.cmdline() and me.username()
    assert me.is_running() and me.as_dict()["pid"] == os.getpid()

def end():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    assert pidwait.end_procs([pid], 30) == ([(pid, -signal.SIGTERM)], [])
    assert pidwait.watch_parent(print, ancestors=True).cancel() and pidwait.has_exited(pid)

PROGRAM = sys.argv[1]
"""


# CPython's -X lazy_imports=all imports a module when one of its names is used.
LAZY = ("-X", "lazy_imports=all")
lazy = pytest.mark.skipif(
    not hasattr(sys, "set_lazy_imports"), reason="before Python 3.15 no import is lazy"
)


def printed(code, *arguments, **options):
    done = run_python((USES + code).format(package=pidwait.__name__), *arguments, **options)
    assert done.stderr == ""
    return done.stdout.split()


def test_import_loads_nothing_heavy():
    assert heavy_modules(pidwait.__name__) == (0, "[]\n", "")


@fork
@pytest.mark.parametrize("use", ["wait", "many", "watch", "spawn", "look", "end"])
def test_nothing_is_imported_after_the_first_use(use):
    code = "{use}()\n{then}{use}()\nprint(*Refusal.names)\n"
    code = code.replace("{use}", use).replace("{then}", NOTHING_MORE)
    assert printed(code, "true") == []


@fork
@lazy
@pytest.mark.parametrize("use", ["wait", "many", "watch", "spawn", "look", "end"])
def test_lazy_imports_change_no_answer(use):
    code = "found = {use}()\nprint(found, pidwait.probe(), pidwait.Process.__module__)\n"
    code = code.replace("{use}", use)
    assert printed(code, "true", options=LAZY) == printed(code, "true")


@fork
@lazy
@pytest.mark.parametrize(
    "first",
    ["[wait(pid)]", "dict(as_completed([pid])).values()", "dict(wait_procs([pid])[0]).values()"],
)
def test_the_first_wait_works_with_lazy_imports_and_no_file_descriptor_left(first):
    code = """
import resource
from {package} import as_completed, wait, wait_procs
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(writer)
    os.read(reader, 1)
    os._exit(7)
wait, resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while os.dup(0):
        pass
except OSError:
    os.close(writer)
    os.dup(0)
before = set(sys.modules)
print(*FIRST, *set(sys.modules) - before)
"""
    code = code.replace("FIRST", first)
    found = printed(code, "true", options=LAZY)
    assert found == printed(code, "true")
    assert found[0] == "7"


@fork
def test_nothing_is_imported_after_patch():
    code = (
        "import {package}.subprocess as ours, subprocess, threading\nours.patch()\n"
        + NOTHING_MORE
        + """
assert subprocess.call([PROGRAM]) == 0
assert subprocess.call([PROGRAM], timeout=30, start_new_session=True) == 0
popen = subprocess.Popen(["sleep", "60"])
try:
    popen.wait(0.01)
except subprocess.TimeoutExpired:
    popen.kill()
assert popen.wait(30) == -9
print(*Refusal.names)
"""
    )
    assert printed(code, "true") == []


@fork
@pytest.mark.root
def test_the_root_and_the_user_may_change_after_the_first_use(tmp_path):
    code = """
backend = wait()
many(), watch(), spawn()
if sys.argv[3] == "cffi":
    from _cffi_backend import load_library as load
else:
    from ctypes import CDLL as load
try:
    libgcc = load("libgcc_s.so.1")  # glibc loads it when a thread ends
except OSError:
    pass  # musl does not
os.chroot(sys.argv[2])
os.chdir("/")
os.setgid(65534)
os.setuid(65534)
assert wait() == backend
many(), watch()
try:
    pidwait.spawn([PROGRAM])
except FileNotFoundError as error:
    print(error.filename)
"""
    tmp_path.chmod(0o755)
    binding = pidwait.probe()["calls"]["posix_spawn"]["via"] or ""
    if not binding:  # and no /proc: two polled handles can't tell that they are for one process
        code = code.replace("from ctypes import CDLL as load", "load = str")
        code = code.replace("assert wait() == backend\n", "")
    assert printed(code, "true", str(tmp_path), binding) == ["true"]


def test_all_names_can_be_had_from_the_package():
    code = """
import {package} as pidwait
assert set(pidwait.__all__) <= set(dir(pidwait))
assert not hasattr(pidwait, "no_such_name")
from {package} import *
print(wait.__name__, Child.__name__, pidwait.__version__)
"""
    done = run_python(code.format(package=pidwait.__name__))
    assert (done.stdout, done.stderr) == ("wait Child %s\n" % pidwait.__version__, "")
    assert all(part.isdigit() for part in pidwait.__version__.split("."))


def test_classes_and_messages_are_the_packages(caplog, seam, herd):
    """What a traceback, a pickle and the logging configuration name."""
    classes = [one for one in map(pidwait.__dict__.get, pidwait.__all__) if isinstance(one, type)]
    assert {one.__module__ for one in classes} == {pidwait.__name__}
    code = "from {0} import TimeoutExpired as E; raise E(7, 1)".format(pidwait.__name__)
    last = "{}.TimeoutExpired: process 7 was still running after 1 seconds\n"
    assert run_python(code).stderr.endswith(last.format(pidwait.__name__))
    if pidwait.probe()["backend"] == "pidfd":
        with caplog.at_level(logging.INFO):
            seam.refuse("pidfd_open")
            assert pidwait.wait(herd.fork(3, 0)) == 3
        assert {record.name for record in caplog.records} == {pidwait.__name__}


def old_python():
    """A Python 2.7: pyenv's, or Debian's."""
    home = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = [*glob.glob(home + "/versions/2.7*/bin/python"), "/usr/bin/python2.7"]
    return next((one for one in found if os.access(one, os.X_OK)), None)


@pytest.fixture
def too_old(tmp_path, contents):
    """A folder with a copy of the package, and the single file."""
    put(contents, tmp_path / "copied")
    assert vendor("--single-file", tmp_path / "waits.py")[0] == 0
    return tmp_path


@pytest.mark.skipif(not old_python(), reason="there is no Python 2.7")
@pytest.mark.parametrize(
    "args",
    [
        ["-c", "import copied"],
        ["-c", "import copied.aio"],
        ["-m", "copied"],
        ["-m", "copied.cli"],
        ["-c", "import waits"],
        ["-m", "waits"],
        ["waits.py", "1"],
    ],
    ids=" ".join,
)
def test_python_2_is_told_what_it_needs(too_old, args):
    done = subprocess.run([old_python(), "-B", *args], cwd=str(too_old), stderr=subprocess.PIPE)
    lines = [line for line in done.stderr.decode().splitlines() if "3.6" in line]
    assert done.returncode == 1
    if "waits" in "".join(args):
        assert lines[0].strip() == 'REQUIRES = f"Python {3.6} or newer"  # an older one stops here'
    else:
        assert [line for line in lines if line.endswith("copied needs Python 3.6 or newer")]


OLDER = """
import sys
sys.version_info = (3, 5, 10, "final", 0)
import copied
"""


def test_python_3_5_is_told_what_it_needs(too_old):
    done = run_python(OLDER, cwd=str(too_old))
    assert done.stderr.endswith("\nImportError: copied needs Python 3.6 or newer\n")
    if sys.version_info >= (3, 8):  # which can parse as an older one
        text = too_old.joinpath("copied", "__init__.py").read_text()
        ast.parse(text, feature_version=(3, 5))
        assert "->" not in text.replace("# type: () ->", "")  # Python 2
    # The single file stops at its first statement, which has what is new in 3.6.
    # With -OO, ast has no docstring before it.
    tree = ast.parse(too_old.joinpath("waits.py").read_text())
    assert "JoinedStr" in "".join(map(ast.dump, tree.body[:2]))
