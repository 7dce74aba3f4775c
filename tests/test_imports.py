# SPDX-License-Identifier: BSD-3-Clause
"""What is imported when: names at their first use, and nothing after the first use of each.

By then a program may have changed its root or its user, or have no file descriptor left.
"""

import os

import pytest

from . import pidwait
from .conftest import MUSL
from .processes import not_on_windows, run_python

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
        dict(stdin=-3, stdout=-3, stderr=-2), dict(env={{"PATH": os.environ["PATH"]}}),
        dict(close_fds=False),
    ):
        with pidwait.spawn([PROGRAM], **options) as child:
            assert child.wait(30) in (0, None)
    for args, options in ((["/no/such"], dict()), ([PROGRAM], dict(cwd="/no/such"))):
        try:
            pidwait.spawn(args, **options)
            raise AssertionError
        except FileNotFoundError:
            pass
    with pidwait.spawn([PROGRAM]) as child:
        child.wait()

def look():
    pid, parent = os.getpid(), os.getppid()
    found = {{info.pid: info for info in pidwait.process_iter([])}}
    assert found[pid].info["ppid"] == parent
    above, me = found[parent], pidwait.ProcessInfo(pid)
    assert me in above.children() and me in above.children(recursive=True)
    with me.oneshot():
        assert me.name() and me.cmdline() and me.username()
    assert me.is_running() and me.as_dict()["pid"] == pid
    try:
        pidwait.wait(above, 0.01)
        raise AssertionError
    except pidwait.TimeoutExpired:
        pass

PROGRAM = sys.argv[1]
"""


def names_loaded(code, *arguments):
    done = run_python((USES + code).format(package=pidwait.__name__), *arguments)
    assert done.stderr == ""
    return done.stdout.split()


@not_on_windows("fork")
@pytest.mark.parametrize("use", ["wait", "many", "watch", "spawn"])
def test_nothing_is_imported_after_the_first_use(use):
    code = "{use}()\n{then}{use}()\nprint(*Refusal.names)\n"
    code = code.replace("{use}", use).replace("{then}", NOTHING_MORE)
    assert names_loaded(code, "true") == []


def test_nothing_is_imported_after_the_first_look():
    assert names_loaded("look()\n" + NOTHING_MORE + "look()\nprint(*Refusal.names)", "") == []


@not_on_windows("posix_spawn")
@pytest.mark.parametrize("hidden", ["", "posix_spawn_file_actions_addchdir_np"])
def test_what_posix_spawn_can_not_do_after_the_first_use(hidden):
    """If the library lacks a function, the first use has loaded the standard subprocess."""
    code = (
        """
import importlib
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
hidden = sys.argv[2]
if hidden:
    def missing(binding, name):
        raise ImportError("hidden by the test")
    calls._CALLS[hidden] = (None, missing)
with pidwait.spawn([PROGRAM]):
    pass
"""
        + NOTHING_MORE
        + """
del Refusal.names[:]
try:
    with pidwait.spawn([PROGRAM], stdout=2, stderr=1, close_fds=False) as child:
        pass
    print("started")
except OSError as error:
    assert error.errno == 38 and "no file descriptor is known" in str(error), error
    print(*Refusal.names)
"""
    )
    lacks = hidden or MUSL or not pidwait.probe()["calls"]["posix_spawn"]["available"]
    expected = "started" if lacks else "subprocess"
    assert expected in names_loaded(code, "true", hidden)[0]


@not_on_windows("posix_spawn")
def test_nothing_is_imported_after_patch(tmp_path):
    code = (
        """
import {package}.subprocess as ours, subprocess, threading
if sys.argv[2]:
    ours._would_fork = lambda: True
ours.patch()
"""
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
    for forced in ("", "forced"):
        assert names_loaded(code, "true", forced) == []


@not_on_windows("chroot")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to be root")
def test_another_root_and_another_user_after_the_first_use(tmp_path):
    code = """
wait(), many(), watch(), spawn()
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
wait(), many(), watch()
try:
    pidwait.spawn([PROGRAM])
except FileNotFoundError as error:
    print(error.filename)
"""
    tmp_path.chmod(0o755)
    binding = pidwait.probe()["calls"]["posix_spawn"]["via"] or ""
    if not binding:  # and no /proc: two polled handles can't tell that they are for one process
        code = code.replace("from ctypes import CDLL as load", "load = str")
        code = code.replace("wait(), many(), watch()\n", "many(), watch()\n")
    assert names_loaded(code, "true", str(tmp_path), binding) == ["true"]


def test_import_loads_the_names_alone():
    code = """
import sys
before = set(sys.modules)
import {package} as pidwait
assert set(pidwait.__all__) <= set(dir(pidwait)), dir(pidwait)
print(*sorted(name for name in set(sys.modules) - before if "pidwait" in name))
assert not hasattr(pidwait, "no_such_name")
try:
    pidwait.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error) and pidwait.__name__ in str(error)
from {package} import *
print(wait.__name__, Child.__name__)
"""
    done = run_python(code.format(package=pidwait.__name__))
    assert done.stderr == ""
    loaded, names = done.stdout.splitlines()
    package = pidwait.__name__
    parents = {package.rsplit(".", count)[0] for count in range(package.count(".") + 1)}
    assert set(loaded.split()) <= parents | {package + "._errors", package + "._parts"}
    assert names == "wait Child"
