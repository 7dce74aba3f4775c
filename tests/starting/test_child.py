# SPDX-License-Identifier: BSD-3-Clause
"""A Child is reaped once, all its waiters get its code, and no child stays unreaped."""

import gc
import io
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from .. import pidwait
from ..conftest import KQUEUES, open_fds
from ..needs import THERE
from ..processes import (
    WINDOWS,
    become_zombie,
    codes,
    eventually,
    exiting,
    gone_pid,
    interrupted_by,
    run_python,
    sleeping,
    state,
)
from ..waiting.ways import every_way
from .conftest import signalled

TRUE = exiting(0)
WNOWAIT = 0x01000000  # which PyPy lacks


def is_reaped_later(pid):
    """A later start reaps those that were left."""
    with pidwait.spawn(TRUE):
        pass
    return state(pid) is None


@pytest.mark.windows
@pytest.mark.parametrize("code", codes(0, 3, -signal.SIGTERM))
def test_wait_reaps_and_returns_the_code(variant, code):
    with pidwait.spawn(exiting(code)) as child:
        assert isinstance(child, pidwait.Process) and isinstance(child, pidwait.Child)
        assert (child.exitcode, child.reaped) == (None, False)
        assert child.wait(30) == child.exitcode == code
        assert child.reaped
        assert WINDOWS or state(child.pid) is None
    assert child.wait() == code and child.has_exited()


@every_way
def test_functions_reap_it(variant, way):
    with pidwait.spawn(exiting(4)) as child:
        assert way(child) == 4
        assert child.reaped and state(child.pid) is None


@pytest.mark.windows
def test_time_out_leaves_it_running(variant):
    with pidwait.spawn(sleeping(60), process_group=0) as child:
        for timeout in 0, 0.01:
            with pytest.raises(pidwait.TimeoutExpired):
                child.wait(timeout)
        assert not child.has_exited() and child.exitcode is None
        child.terminate()
    assert child.exitcode == (1 if WINDOWS else -signal.SIGTERM)


def test_looking_leaves_a_zombie_whose_code_is_known(variant):
    with pidwait.spawn(exiting(5)) as child:
        become_zombie(child.pid)
        assert child.has_exited() and child.exitcode == 5
        assert state(child.pid) == "Z" and not child.reaped
        with pytest.raises(ProcessLookupError):
            child.kill()
        assert child.wait() == 5
    with pytest.raises(ValueError, match="closed"):
        child.fileno()


def test_child_may_have_been_started_by_other_means(start):
    popen = start(*exiting(3))
    with pidwait.Child(popen.pid) as child:
        assert child.args is None
        assert child.wait() == 3 and child.reaped
    popen.returncode = 3
    with pytest.raises(ProcessLookupError):
        pidwait.Child(gone_pid())


@pytest.mark.threads
def test_threads_all_get_the_code(variant):
    for _ in range(10):
        reader, writer = os.pipe()
        script = ["sh", "-c", "read line; exit 7"]
        with pidwait.spawn(script, stdin=reader) as child, ThreadPoolExecutor(8) as pool:
            os.close(reader)
            codes = pool.map(child.wait, [None, 30] * 4)
            os.close(writer)
        assert list(codes) == [7] * 8
        assert state(child.pid) is None


@pytest.mark.parametrize("timeout", [None, 30])
def test_one_that_other_code_reaps_has_its_code_where_the_kernel_tells(variant, timeout):
    pytest.importorskip("ctypes", reason="what asks the kernel needs it")
    from ..trouble import kernel_tells

    with pidwait.spawn(exiting(3)) as child:
        is_told = child.backend == "pidfd" and kernel_tells()
        os.waitpid(child.pid, 0)
        right = {"kqueue": (3, None)}.get(child.backend, (3 if is_told else None,))
        assert child.wait(timeout) in right and child.exitcode in right
        assert child.reaped and child.has_exited()


@pytest.mark.parametrize("timeout", [None, 30])
def test_signal_handler_may_wait_for_it_too(variant, timeout):
    """The wait that the handler interrupts can't reap before the handler returns."""
    codes = []

    def handle():
        if not codes:
            codes.append(None)
            child.kill()
            codes[0] = child.wait(timeout)

    with pidwait.spawn(sleeping(60)) as child, signalled(handle):
        codes.append(child.wait(timeout))
    assert codes == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("timeout", [None, 60])
def test_forked_process_waits_for_it_as_for_a_stranger(backend, timeout):
    """To the fork it is a sibling: that it is no child is no exit, and no reason to poll."""
    with pidwait.spawn(sleeping(60)) as child:
        reader, writer = os.pipe()
        fork = os.fork()
        if not fork:
            failed = 1
            try:
                os.write(writer, b"x")
                child.wait(timeout)
                failed = int(child.backend != ("polling" if KQUEUES else backend))
                child.close()
            finally:
                os._exit(failed)
        assert os.read(reader, 1) == b"x"
        os.close(reader)
        os.close(writer)
        assert os.waitpid(fork, os.WNOHANG) == (0, 0)
        child.kill()
        assert os.waitpid(fork, 0)[1] == 0
        assert child.wait() == -signal.SIGKILL


def test_children_of_one_that_ignores_sigchld_are_gone_at_their_exit(variant, seam):
    """The system reaps them, which may be before there is a handle."""
    own = seam.get("posix_spawn")

    def and_wait(cell, *arguments):
        answer = own(cell, *arguments)
        eventually(lambda: state(cell[0]) is None)
        return answer

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pidwait.spawn(TRUE) as child:
            pass
        assert child.exitcode in (0, None)
        seam.put("posix_spawn", and_wait)
        with pidwait.spawn(TRUE) as child:
            assert child.has_exited() and child.pid > 0
            with pytest.raises(ProcessLookupError):
                child.kill()
            with pytest.raises(io.UnsupportedOperation):
                child.fileno()
            assert child.wait(30) is None
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_ctrl_c_ends_a_block_soon(variant):
    with pytest.raises(KeyboardInterrupt), pidwait.spawn(exiting(3)) as child:
        become_zombie(child.pid)
        raise KeyboardInterrupt
    assert (child.exitcode, state(child.pid)) == (3, None)
    with pytest.raises(KeyboardInterrupt), pidwait.spawn(sleeping(60)) as child:
        raise KeyboardInterrupt
    assert state(child.pid) in ("R", "S", "D")
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: is_reaped_later(child.pid))


@pytest.mark.skipif(bool(KQUEUES), reason="a kqueue tells the exit: waitid(2) is not called")
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_time_out_of_a_signal_handler_comes_through_at_the_end_of_a_block(seam, error):
    """It is not that of our own wait after Ctrl-C."""
    waitid = seam.get("waitid")
    with interrupted_by(TimeoutError("on purpose")) as interrupted:

        def once(*arguments):
            seam.put("waitid", waitid)
            interrupted()

        with pytest.raises(TimeoutError, match="on purpose"), pidwait.spawn(TRUE) as child:
            seam.put("waitid", once)
            if error:
                raise error
    eventually(lambda: is_reaped_later(child.pid))


def test_one_that_is_closed_while_it_runs_is_reaped_by_a_later_start(variant):
    children = [pidwait.spawn(sleeping(60)) for _ in range(2)]
    for child in children + children:  # twice
        child.close()
        with pytest.raises(ValueError, match="closed"):
            child.wait()
    first, second = [child.pid for child in children]
    # One that runs on keeps no other unreaped.
    os.kill(second, signal.SIGKILL)
    become_zombie(second)
    assert is_reaped_later(second)
    assert state(first) not in ("Z", None)
    os.kill(first, signal.SIGKILL)
    become_zombie(first)
    assert is_reaped_later(first)


def test_one_that_is_closed_after_its_exit_is_reaped_at_once(variant):
    child = pidwait.spawn(exiting(3))
    become_zombie(child.pid)
    child.close()
    assert state(child.pid) is None
    assert child.wait() == 3


def test_one_that_is_reaped_gives_its_handle_back(variant):
    """While a child is used, others may wait for it; then its file descriptor is free."""
    with pidwait.spawn(TRUE) as child:
        child.wait()
    before = open_fds()
    children = [pidwait.spawn(exiting(3)) for _ in range(5)]
    backends = [child.backend for child in children]
    assert [child.wait(30) for child in children] == [3] * 5
    assert len(open_fds()) == len(before)
    for child in children:
        assert child.has_exited() and child.wait(0) == pidwait.wait(child) == 3
        with pytest.raises(ProcessLookupError):
            child.terminate()
        with pytest.raises(io.UnsupportedOperation):
            child.fileno()
    assert [child.backend for child in children] == backends


@pytest.mark.windows
def test_one_that_has_been_waited_for_need_not_be_closed():
    code = "import sys, %s as pidwait; print(pidwait.spawn(sys.argv[1:]).wait())"
    done = run_python(code % pidwait.__name__, *exiting(3), options=["-X", "dev", "-W", "error"])
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.windows
def test_one_that_is_forgotten_is_told_and_reaped(variant):
    child = pidwait.spawn(TRUE)
    pid = child.pid
    if not WINDOWS:
        become_zombie(pid)
    with pytest.warns(ResourceWarning, match="unclosed <Child pid=%d" % pid):
        del child
        gc.collect()
    if not WINDOWS:
        assert state(pid) is None


def test_equals_what_stands_for_the_same_process(variant):
    with pidwait.spawn(sleeping(60)) as child, pidwait.spawn(sleeping(60)) as another:
        with pidwait.Process(child.pid) as process:
            assert child == process and hash(child) == hash(process)
            assert child != another and process != another
            assert len({child, process, another}) == 2
            child.kill()
            child.wait()
        assert child == process
        another.kill()
    assert child == child != another
    # On a kqueue, handles on what has exited may be unequal.
    for command in [sleeping(60), TRUE][: 1 + (THERE["/proc"] and not KQUEUES)]:
        child = pidwait.spawn(command)
        with pidwait.Process(child.pid) as process:
            if command is not TRUE:
                child.kill()
            child.wait()
            child.close()
            assert child == process != another and child in {process, another}
    assert str(child.pid) in repr(child) and "closed" in repr(child)
