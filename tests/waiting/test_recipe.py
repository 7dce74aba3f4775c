# SPDX-License-Identifier: BSD-3-Clause
"""wait_pid() of RECIPES.md, on the cases of the package's own wait for one process.

Each variant has the recipe find what the package would find there: os.pidfd_open, the system call
by ctypes, a kqueue, or nothing, so that it polls.
"""

import errno
import os
import resource
import select
import signal
import sys
import threading
import time
import types

import pytest

from ..conftest import IMITATED, KQUEUES, another_thread
from ..package.recipes import RECIPES
from ..processes import (
    MAIN_THREAD_ENDS,
    Pid,
    become_zombie,
    eventually,
    gone_pid,
    kill,
    needs_pthread_exit,
    sleeping,
    state,
)
from ..seam import errors
from .test_timeouts import LONG, NONE, TIMEOUTS
from .threads import Thread

pytestmark = pytest.mark.kqueue
(TEXT,) = RECIPES["One wait in one script"]


def load(**names):
    """What the recipe defines; ``names`` take the place of what it defines or imports."""
    recipe = types.ModuleType("recipe")
    exec(compile(TEXT, "recipe", "exec"), recipe.__dict__)
    if IMITATED:
        recipe.select = types.SimpleNamespace(**dict(vars(select), kqueue=Kqueue))
    recipe.__dict__.update(names)
    return recipe


class Kqueue:
    """The stand-in's, whose errors are OSErrors, as select's are."""

    def __init__(self):
        self._queue = as_select_does(select.kqueue)
        self.close = self._queue.close

    def control(self, *args):
        return as_select_does(self._queue.control, *args)


def as_select_does(function, *args):
    try:
        return function(*args)
    except errors.Failed as why:
        raise why.error from None


def refusing(code):
    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.fixture
def recipe(variant, monkeypatch):
    """As a script has it where that variant works."""
    if variant.startswith("polling"):
        call = (select, "kqueue") if KQUEUES else (os, "pidfd_open")
        monkeypatch.setattr(*call, refusing(errno.EPERM), raising=False)
    elif not variant.endswith("-own"):
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        if variant == "pidfd-cffi":  # where ctypes is missing, it can't call the system
            monkeypatch.setitem(sys.modules, "ctypes", None)
    # A stand-in's Python does not know what it runs on.
    named = types.SimpleNamespace(platform=variant.split("-")[1] if KQUEUES else sys.platform)
    found = load(sys=named)
    polled = []
    look = found.has_exited
    found.has_exited = lambda pid: polled.append(pid) or look(pid)
    yield found.wait_pid
    if variant.startswith("kqueue") or variant in ("pidfd-own", "pidfd-ctypes"):
        assert polled == []


def test_it_is_short_and_all_lines_fit():
    lines = TEXT.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("code", [0, 1, 7, 255, -signal.SIGTERM, -9, -signal.SIGSEGV])
def test_a_child_has_exited_and_is_left_to_its_popen(recipe, start_told, code):
    child = start_told(code)
    assert recipe(child.pid, 0) is recipe(child.pid, 0.001) is False
    threading.Timer(0.02, child.stdin.close).start()
    assert recipe(child.pid, 30) is True
    eventually(lambda: state(child.pid) == "Z")
    assert child.wait() == code


def test_a_zombie_child_has_exited_again_and_again(recipe, zombie):
    child = zombie(3)
    for timeout in None, 0, -1, 5:
        assert recipe(child.pid, timeout) is True
    assert recipe(pid=child.pid) is True
    assert child.wait() == 3
    assert recipe(child.pid) is True


def test_a_strangers_process(recipe, keeper):
    pid = keeper.start(*sleeping(60))
    assert recipe(pid, 0.01) is False
    waiter = Thread(recipe, pid).asleep()
    kill(pid)
    assert waiter.result() is True
    become_zombie(pid)
    assert recipe(pid, 0) is recipe(pid) is True  # nobody has reaped it
    assert keeper.reap(pid) == 9
    assert recipe(pid, 0) is recipe(pid) is True


def test_a_pid_that_is_gone_has_exited(recipe):
    for pid in gone_pid(), 2**31 - 1:
        assert recipe(pid) is recipe(pid, 0) is recipe(pid, 60) is True


def test_a_thread_is_not_a_process(recipe):
    with another_thread() as tid:
        assert recipe(tid) is recipe(tid, 0) is True


@needs_pthread_exit
def test_a_process_whose_main_thread_has_ended_has_not_exited(recipe, start):
    if KQUEUES:
        pytest.skip("its ps is Linux's, which shows a zombie")
    child = start(sys.executable, "-S", "-c", MAIN_THREAD_ENDS, stdin=-1)
    become_zombie(child.pid)
    assert recipe(child.pid, 0.01) is False
    child.stdin.close()
    assert recipe(child.pid, 30) is True and child.wait() == 9


def test_what_is_no_pid_is_refused(recipe):
    for pid in 0, -1, -(2**31), 2**31, 2**32 + 1, 2**63, 2**64 + 5, 10**30:
        with pytest.raises(ValueError, match="not the pid of a process"):
            recipe(pid, 0)
    for pid in 1.5, "1", b"1", None, [1], object(), Pid(1):
        with pytest.raises(TypeError):
            recipe(pid, 0)


def test_windows_is_refused_before_a_signal_is_sent():
    """Windows takes os.kill(pid, 0) for Ctrl-C."""
    with pytest.raises(ValueError, match="POSIX"):
        load(os=types.SimpleNamespace(name="nt")).wait_pid(os.getpid(), 0)


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_time_out_is_never_cut_short(recipe, herd, timeout):
    for pid in os.getpid(), herd.fork(0):
        began = time.monotonic()
        assert recipe(pid, timeout) is False
        assert time.monotonic() - began > float(timeout) - 1e-9  # the rounding of floats


@pytest.mark.parametrize("timeout", NONE, ids=lambda value: str(value)[:8])
def test_no_time_looks_once(recipe, herd, timeout, monkeypatch):
    def never(seconds):
        assert seconds == 0, "it slept"

    zombie = herd.fork(3, 0)
    become_zombie(zombie)
    monkeypatch.setattr(time, "sleep", never)
    assert recipe(os.getpid(), timeout) is False
    assert recipe(zombie, timeout) is True


@pytest.mark.parametrize("timeout", LONG, ids=lambda value: str(value)[:12])
def test_no_time_out_is_too_long(recipe, herd, timeout):
    pid = herd.fork(4, 0.05)
    waiter = Thread(recipe, pid, timeout)
    assert recipe(pid, timeout) is waiter.result() is True


needs_waitid = pytest.mark.skipif(
    not hasattr(os, "waitid"), reason="PyPy has no waitid: the recipe says what it can't tell then"
)


@pytest.fixture
def polling():
    """As a script has it where neither pidfds nor kqueues work; on a kernel like Linux's."""
    return load(by_pidfd=refusing(errno.ENOSYS), by_kqueue=refusing(errno.EMFILE))


def test_an_exit_in_the_last_sleep_is_seen(polling, herd, monkeypatch):
    """There is a look after the deadline, too."""
    pid, sleep = herd.fork(3), time.sleep

    def end(seconds):
        monkeypatch.undo()
        kill(pid)
        become_zombie(pid)
        sleep(0.51)

    monkeypatch.setattr(time, "sleep", end)
    assert polling.wait_pid(pid, 0.5) is True


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_wait_goes_on_after_a_signal_handler(recipe, herd, alarms, timeout):
    """PEP 475. The child ends once the handler has run three times."""
    pid, left = herd.fork(0), iter([2, 1, 0])
    alarms(lambda: next(left, None) == 0 and kill(pid))
    assert recipe(pid, timeout) is True
    assert list(left) == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM])
def test_a_refusal_has_it_poll(herd, monkeypatch, code):
    call = (select, "kqueue") if KQUEUES else (os, "pidfd_open")
    monkeypatch.setattr(*call, refusing(code), raising=False)
    wait_pid, pid = load().wait_pid, herd.fork(3)
    assert wait_pid(pid, 0.03) is False
    waiter = Thread(wait_pid, pid)
    kill(pid)
    assert waiter.result() is wait_pid(pid, 0) is wait_pid(gone_pid()) is True


@pytest.mark.skipif(IMITATED, reason="the stand-in needs file descriptors")
@needs_waitid
def test_no_file_descriptor_is_left(herd):
    wait_pid = load().wait_pid
    running, zombie, gone = herd.fork(0), herd.fork(3, 0), gone_pid()
    become_zombie(zombie)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        results = [wait_pid(pid, 0.01) for pid in (running, zombie, gone)]
        waiter = Thread(wait_pid, running)
        kill(running)
        results.append(waiter.result())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert results == [False, True, True, True]


@pytest.mark.skipif(bool(KQUEUES), reason="only Linux has pidfd_open")
@pytest.mark.parametrize("machine", ["alpha", "mips", "mips64", "ia64"])
def test_where_the_number_is_another_one_it_is_not_called(monkeypatch, zombie, machine):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine=machine))
    monkeypatch.setitem(sys.modules, "ctypes", types.SimpleNamespace())  # it has no CDLL
    recipe = load()
    assert recipe.wait_pid(os.getpid(), 0.01) is False
    assert recipe.wait_pid(zombie(3).pid) is True


def test_it_polls_by_ps_where_there_is_no_proc(polling, keeper):
    polling.sys = types.SimpleNamespace(platform="sunos5")
    pid = keeper.start(*sleeping(60))
    assert polling.wait_pid(pid, 0.01) is False
    waiter = Thread(polling.wait_pid, pid)
    kill(pid)
    become_zombie(pid)
    assert waiter.result() is polling.wait_pid(pid, 0) is True
    keeper.reap(pid)
    assert polling.wait_pid(pid) is True


@needs_waitid
def test_it_polls_where_proc_is_hidden(polling, start):
    """As with hidepid=2: kill(2) and waitid(2) tell the rest."""
    polling.open = refusing(errno.ENOENT)
    child = start(*sleeping(60))
    assert polling.wait_pid(child.pid, 0.01) is polling.wait_pid(os.getppid(), 0) is False
    child.kill()
    assert polling.wait_pid(child.pid) is True and child.wait() == -9
    assert polling.wait_pid(child.pid) is True


@pytest.mark.skipif(bool(KQUEUES), reason="only Linux lets a process choose its name in /proc")
def test_a_name_is_not_taken_for_lines(polling, start):
    script = r"printf 'a\rState: Z\rb' > /proc/$$/comm; echo; read line"
    child = start("sh", "-c", script, stdin=-1, stdout=-1)
    child.stdout.readline()
    assert polling.wait_pid(child.pid, 0.01) is False
    child.communicate()
    assert polling.wait_pid(child.pid) is True


@pytest.mark.skipif(bool(KQUEUES), reason="its /proc is Linux's")
def test_the_proc_of_another_pid_namespace_is_not_read(polling, monkeypatch):
    with another_thread() as tid:
        assert polling.wait_pid(tid, 0) is True
        monkeypatch.setattr(os, "readlink", lambda path: "1")
        assert polling.wait_pid(tid, 0) is False


def test_the_exception_of_a_handler_in_a_look_comes_out(polling):
    """An OSError that is raised there is not taken for the system's answer."""

    def interrupted(*args, **kwargs):
        raise TimeoutError

    polling.open = interrupted
    polling.subprocess = types.SimpleNamespace(getoutput=interrupted)
    with pytest.raises(TimeoutError):
        polling.wait_pid(os.getppid(), 0.01)
