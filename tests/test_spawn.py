# SPDX-License-Identifier: BSD-3-Clause
"""spawn and Child: what reaps the child, and when; bad input. POSIX alone: test_posix_spawn.py."""

import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from . import pidwait
from .processes import (
    WINDOWS,
    become_zombie,
    codes,
    eventually,
    exiting,
    not_on_windows,
    run_python,
    sleeping,
    state,
)

child_module = importlib.import_module(pidwait.__name__ + "._child")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
ffi = importlib.import_module(pidwait.__name__ + "._ffi")
_probe = importlib.import_module(pidwait.__name__ + "._probe")


@pytest.mark.parametrize(
    "args, options, error, message",
    [
        ([], {}, ValueError, "args"),
        (3, {}, TypeError, "args"),
        (None, {}, TypeError, "args"),
        (["x"], {"env": ["A=B"]}, TypeError, "env"),
        (["x"], {"process_group": "0"}, TypeError, "process_group"),
        (["x"], {"process_group": True}, TypeError, "process_group"),
        (["x"], {"process_group": False}, TypeError, "process_group"),
        (["x"], {"process_group": -1}, ValueError, "process_group"),
        (["x"], {"process_group": 2**31}, ValueError, "process_group"),
        (["x"], {"process_group": 0, "start_new_session": True}, ValueError, "process_group"),
        (["x"], {"stdin": subprocess.PIPE}, ValueError, "stdin"),
        (["x"], {"stdout": subprocess.STDOUT}, ValueError, "stdout"),
        (["x"], {"stdout": "file"}, TypeError, "stdout"),
        (["x"], {"stderr": True}, TypeError, "stderr"),
        (["x"], {"stderr": -7}, ValueError, "stderr"),
        (["x"], {"pass_fds": [-1]}, ValueError, "pass_fds"),
        (["x"], {"pass_fds": ["1"]}, TypeError, "pass_fds"),
        (["x"], {"pass_fds": [2**31]}, ValueError, "pass_fds"),
        (["x"], {"pass_fds": [5], "close_fds": False}, ValueError, "pass_fds"),
    ],
)
def test_bad_input(args, options, error, message):
    with pytest.raises(error, match=message):
        pidwait.spawn(args, **options)


@pytest.mark.parametrize("code", codes(0, 3, -signal.SIGTERM))
def test_wait_reaps(variant, code):
    with pidwait.spawn(exiting(code)) as child:
        assert isinstance(child, pidwait.Process)
        assert child.exitcode is None
        assert child.wait(30) == child.exitcode == code
        if not WINDOWS:
            assert state(child.pid) is None
        assert child.wait() == code and child.has_exited()


def test_functions_reap(variant):
    with pidwait.spawn(exiting(4)) as child:
        assert pidwait.wait(child, 30) == 4
        if not WINDOWS:
            assert state(child.pid) is None


def test_a_program_alone():
    command = sys.executable if WINDOWS else "true"
    with pidwait.spawn(command, stdin=subprocess.DEVNULL) as child:
        pass
    assert child.exitcode == 0
    assert child.args == command


def test_time_out(variant):
    with pidwait.spawn(sleeping(60)) as child:
        with pytest.raises(pidwait.TimeoutExpired):
            child.wait(0.01)
        assert not child.has_exited()
        child.terminate()
    assert child.exitcode == (1 if WINDOWS else -signal.SIGTERM)


@not_on_windows("zombies, nor signals")
def test_looking_leaves_a_zombie_and_wait_has_its_code(variant):
    with pidwait.spawn(exiting(5)) as child:
        become_zombie(child.pid)
        assert child.has_exited() and child.exitcode == 5
        assert state(child.pid) == "Z"
        with pytest.raises(ProcessLookupError):
            child.kill()
        assert child.wait() == 5


def test_another_copy_knows_a_child(variant):
    targets = importlib.import_module(pidwait.__name__ + "._kinds")
    with pidwait.spawn(exiting(6)) as child:
        target = targets.find(child)
        assert target.known() is targets.RUNNING
        eventually(child.has_exited)
        assert target.settle(None) == 6 == target.known()
        assert child.reaped


def test_threads_wait_for_one_child(variant):
    for _ in range(10):
        with pidwait.spawn(exiting(7, after=0.01)) as child:
            found = []
            wait = functools.partial(lambda to, child: to.append(child.wait(30)), found, child)
            threads = [threading.Thread(target=wait) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found == [7] * 8


@not_on_windows("zombies, nor signals")
def test_reaped_by_another_thread(variant):
    """That thread reaps it between this one's look and reaping: the pid may be reused by then."""
    with pidwait.spawn(exiting(8)) as child:
        become_zombie(child.pid)
        resource = child._guard.resource
        wait, waits = resource.wait, []

        def wait_and_be_overtaken(deadline, reap):
            waits.append(reap)
            if len(waits) == 1:
                assert child.wait(30) == 8
            return wait(deadline, reap)

        proxy = Proxy(resource)
        proxy.wait = wait_and_be_overtaken
        child._guard.resource = proxy
        try:
            assert child.wait(30) == 8
        finally:
            child._guard.resource = resource
        assert waits == [False, False, True]  # the last two are the other thread's


@not_on_windows("fork")
def test_waited_for_in_a_fork(variant):
    """To the fork the child is a sibling: waitid's ECHILD is no exit, and no reason to poll."""
    with pidwait.spawn(sleeping(60)) as child:
        backend = child.backend
        reader, writer = os.pipe()
        fork = os.fork()
        if not fork:
            failed = 1
            try:
                os.write(writer, b"x")
                child.wait()
                failed = 0 if child.backend == backend else 2
            finally:
                os._exit(failed)
        assert os.read(reader, 1) == b"x"
        os.close(reader)
        os.close(writer)
        assert os.waitpid(fork, os.WNOHANG) == (0, 0)
        child.kill()
        assert os.waitpid(fork, 0)[1] == 0
        assert child.wait() == -signal.SIGKILL


@not_on_windows("waitid")
def test_wait_of_the_parent_needs_no_poll(monkeypatch):
    waitid, seen = calls.get("waitid"), []

    def counted(idtype, id_, options):
        seen.append(options)
        return waitid(idtype, id_, options)

    with pidwait.spawn(sleeping(0.05)) as child:
        if child.backend != "pidfd":
            pytest.skip("needs pidfds")
        monkeypatch.setitem(calls._resolved, "waitid", counted)
        monkeypatch.setattr(sys.modules[type(child._guard.resource).__module__], "poll", None)
        assert child.wait() == 0
    assert len(seen) == 2


class Proxy:
    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        return getattr(self.target, name)


@not_on_windows("zombies, nor signals")
def test_closed_while_running_is_reaped_later(variant):
    child = pidwait.spawn(sleeping(60))
    other = pidwait.Process(child.pid)
    child.close()
    with pytest.raises(ValueError, match="closed"):
        child.wait()
    with pidwait.spawn(["true"]):
        pass
    assert state(child.pid) not in ("Z", None)
    other.kill()
    other.wait()
    other.close()
    assert state(child.pid) == "Z"
    with pidwait.spawn(["true"]):
        pass
    assert state(child.pid) is None
    assert child_module.left == []


@not_on_windows("zombies, nor signals")
def test_closed_after_the_exit_is_reaped(variant):
    child = pidwait.spawn(exiting(0))
    become_zombie(child.pid)
    child.close()
    assert state(child.pid) is None


def test_forgotten(variant):
    child = pidwait.spawn(exiting(0))
    pid = child.pid
    if not WINDOWS:
        become_zombie(pid)
    with pytest.warns(ResourceWarning, match="unclosed <Child pid=%d" % pid):
        del child
        gc.collect()
    if WINDOWS:
        eventually(lambda: child_module.reap_left() or child_module.left == [])
    else:
        assert state(pid) is None


@not_on_windows("zombies, nor signals")
def test_ctrl_c_ends_a_block_soon(variant):
    with pytest.raises(KeyboardInterrupt), pidwait.spawn(sleeping(60)) as child:
        raise KeyboardInterrupt
    assert state(child.pid) in ("R", "S", "D")
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: child_module.reap_left() or child_module.left == [])


@not_on_windows("zombies, nor signals")
def test_sigchld_ignored():
    """The system reaps the child at its exit, which may be before it has a handle."""
    code = """if True:
        import os, signal, time
        import {package} as pidwait
        from {package} import _backends
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with pidwait.spawn(["true"]) as child:
            pass
        print(child.exitcode in (0, None))
        open_handle = _backends.open_handle
        def later(pid):
            while os.path.exists("/proc/%d" % pid):
                time.sleep(0.001)
            return open_handle(pid)
        _backends.open_handle = later
        with pidwait.spawn(["true"]) as child:
            assert child.has_exited()
            for call in child.kill, child.fileno:
                try:
                    call()
                except OSError as error:
                    print(type(error).__name__)
        print(child.exitcode, child.pid > 0)
    """
    done = run_python(code.format(package=pidwait.__name__))
    expected = "True ProcessLookupError UnsupportedOperation None True"
    assert done.stdout.split() == expected.split(), done
