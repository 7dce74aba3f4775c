# SPDX-License-Identifier: BSD-3-Clause
"""What is peculiar to the kqueues of each system, on the stand-in."""

import errno
import gc
import importlib
import os
import select
import signal
import threading

import pytest

from .. import pidwait
from ..faults.test_fds import fds_left
from ..processes import (
    become_zombie,
    exiting,
    gone_pid,
    run_python,
    sleeping,
    state,
)
from . import systems

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
bsd = importlib.import_module(pidwait.__name__ + "._ffi.bsd")
kqueue = importlib.import_module(pidwait.__name__ + "._backends.kqueue")
queue = importlib.import_module(pidwait.__name__ + "._backends.queue")
_deadline = importlib.import_module(pidwait.__name__ + "._deadline")
ps = importlib.import_module(pidwait.__name__ + "._sources.ps")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")

SYSTEMS = sorted(systems.SYSTEMS)
BINDINGS = ["own", "ctypes", "cffi"]


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_probe(on, system, binding):
    on(system, binding)
    answer = pidwait.probe()
    assert answer["backend"] == "kqueue"
    assert set(answer["backends"]) == {"kqueue", "polling"}
    assert answer["backends"]["kqueue"] == {"available": True, "reason": None}
    assert answer["calls"]["kqueue"]["via"] == ("select" if binding == "own" else binding)
    assert answer["calls"]["waitid"]["available"] and answer["calls"]["ps"]["available"]


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("code", [0, 7, -9])
def test_somebody_elses_code(on, keeper, tmp_path, system, binding, code):
    """The event carries it, except on macOS for a process that is not our child."""
    on(system, binding)
    pid = keeper.start_told(code, tmp_path / "fifo")
    with pidwait.Process(pid) as process:
        assert process.backend == "kqueue"
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        assert process.wait(30) == (None if system == "darwin" else code)
    keeper.reaped()


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_zombie_at_registration(on, start, system, binding):
    kernel = on(system, binding)
    for code in (0, 3, -9):
        child = start(*exiting(code))
        become_zombie(child.pid)
        with pidwait.Process(child.pid) as process:
            assert process.backend == ("kqueue" if kernel.system.zombies else "polling")
            assert process.wait(0) == code


@pytest.mark.parametrize("system", SYSTEMS)
def test_readable_for_good(on, start_told, system):
    """Also once the event has been taken: for other waiting threads and for an event loop."""
    on(system)
    child = start_told(4)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        assert select.select([process], [], [], 30)[0]
        for _ in range(2):
            assert process.wait() == 4
            assert select.select([process], [], [], 30)[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_readable_at_once(on, start_told, system):
    """Right after the event was taken, and without a timer, of which there are few."""
    kernel = on(system)
    child = start_told(4)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        assert process.wait() == 4
        assert select.select([process], [], [], 0)[0] and kernel.timers == 0


def test_no_file_descriptor_left_for_the_event(on, keeper, tmp_path):
    """Then a timer keeps the kqueue readable, after a while."""
    kernel = on("netbsd10")
    pid = keeper.start_told(4, tmp_path / "fifo")
    with pidwait.Process(pid) as process:
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        with fds_left(0):
            assert process.wait(30) == 4
        assert kernel.timers == 1
        assert select.select([process], [], [], 30)[0]
    assert kernel.timers == 0
    keeper.reaped()


def test_nothing_keeps_the_kqueue_readable(on, start_told):
    """Then the event is left in the kqueue, and waitid(2) tells the code."""
    kernel = on("freebsd12")
    child = start_told(4)
    kernel.denied["read"], kernel.max_timers = errno.EINVAL, 0
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        assert process.wait() == 4
        assert select.select([process], [], [], 0)[0]
        assert pidwait.wait(process, 0, reap=True) == 4


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_change_that_fails(on, system, binding):
    """Without room for an error event, the call itself fails, on DragonFly, too."""
    on(system, binding)
    with pytest.raises(ProcessLookupError):
        kqueue.KqueueHandle(gone_pid())


def test_thread_that_looked_before_the_exit(on, start_told):
    """Another thread has seen the exit meanwhile: the first thread's look does not undo that."""
    on("openbsd")
    child = start_told(4)
    handle = kqueue.KqueueHandle(child.pid)
    real = queue.Queue.is_readable

    def slow(self, deadline):
        found = real(self, deadline)
        on.patch.setattr(queue.Queue, "is_readable", real)
        child.stdin.close()
        assert handle.wait(_deadline.FOREVER, False) == 4
        return found

    on.patch.setattr(queue.Queue, "is_readable", slow)
    try:
        assert handle.wait(_deadline.NOW, False) == 4
        on.patch.setattr(queue.Queue, "is_readable", lambda self, deadline: False)
        with pytest.raises(ProcessLookupError):
            handle.send_signal(signal.SIGKILL)
    finally:
        handle.close()


class late:
    """For some looks our child can't be reaped yet, though the event is there."""

    def __init__(self, patch, looks):
        self._left = looks
        self._real = os.waitpid, exitcodes.look_at_child
        patch(os, "waitpid", self._waitpid)
        patch(exitcodes, "look_at_child", self._look)

    def _is_late(self):
        self._left -= 1
        return self._left >= 0

    def _waitpid(self, pid, options):
        return (0, 0) if self._is_late() else self._real[0](pid, options)

    def _look(self, pid):
        return exitcodes.RUNNING if self._is_late() else self._real[1](pid)


@pytest.mark.parametrize("looks", [1, 20])
def test_event_before_the_child_can_be_reaped(on, start, looks):
    on("darwin")
    child = start(*exiting(5, after=0.05))
    late(on.patch.setattr, looks)
    assert pidwait.wait(child.pid, 30, reap=True) == 5
    assert state(child.pid) is None
    child.returncode = 5


def test_event_before_the_child_can_be_looked_at(on, start):
    kernel = on("netbsd10")
    child = start(*exiting(5, after=0.05))
    kernel.denied["read"], kernel.max_timers = errno.EINVAL, 0
    on.patch.setattr(kqueue, "GRACE", 30)
    late(on.patch.setattr, 3)
    assert pidwait.wait(child.pid, 30) == 5


def test_pid_that_another_child_has(on, start_told, sleeper):
    """That child is not waited for, though it could be reaped one day."""
    kernel = on("freebsd12")
    child = start_told(5)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        assert process.wait() == 5
        child.wait()
        kernel.passed_on[child.pid] = sleeper.pid
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "waitpid", lambda pid, options: (0, 0))
            assert process.wait(30, reap=True) == 5
        with pidwait.Process(child.pid) as other:
            assert other != process and not other.has_exited()


def test_equal_while_it_lives(on, start):
    on("openbsd")
    child = start(*sleeping(60))
    with pidwait.Process(child.pid) as one, pidwait.Process(child.pid) as other:
        assert one == other
        child.kill()
        assert one.wait() == other.wait() == -9
        assert one == other


def test_handle_of_the_process_that_had_the_pid_before(on, start_told, sleeper):
    kernel = on("openbsd")
    child = start_told(5)
    first = kqueue.KqueueHandle(child.pid)
    child.stdin.close()
    child.wait()
    kernel.passed_on[child.pid] = sleeper.pid
    other = kqueue.KqueueHandle(child.pid)
    try:
        assert other.identify() != first.identify()
    finally:
        first.close()
        other.close()


@pytest.mark.parametrize("system", ["openbsd", "netbsd10"])
def test_system_that_does_not_tell_the_status(on, keeper, start, tmp_path, system):
    """As before OpenBSD 6.9 and NetBSD 8, which also lack waitid(2): a 0 may mean nothing."""
    kernel = on(system, "ctypes")
    kernel.tells_status = False
    on.patch.setitem(kernel.symbols, "waitid", None)
    pid = keeper.start_told(3, tmp_path / "fifo")
    with pidwait.Process(pid) as process:
        assert process.backend == "kqueue"
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        assert process.wait(30) is None
    keeper.reaped()
    child = start(*exiting(3, after=0.05))
    assert pidwait.wait(child.pid, 30, reap=True) == 3
    child.returncode = 3


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("system", ["netbsd11", "darwin"])
def test_forbidden(on, keeper, system, code):
    kernel = on(system)
    pid = keeper.start(*sleeping(60))
    kernel.denied[pid] = code
    with pidwait.Process(pid) as process:
        assert process.backend == "polling"
        process.kill()
        assert process.wait(30) == -9
    keeper.reap(pid)


def test_gone_goes_without_polling(on):
    on("darwin", "ctypes")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        kqueue.KqueueHandle(pid)
    with pytest.raises(ProcessLookupError):
        pidwait.Process(pid)
    assert pidwait.wait(pid, 0) is None


@pytest.mark.parametrize("binding", BINDINGS)
def test_not_for_others(on, sleeper, binding):
    """Closed on exec; a forked child, which has no such kqueue, leaves the fd number alone."""
    on("freebsd12", binding)
    process = pidwait.Process(sleeper.pid)
    number = process.fileno()
    assert not os.get_inheritable(number)
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            fd = os.open(os.devnull, os.O_RDONLY)
            os.dup2(fd, number)
            alive = not process.has_exited() and process.backend == "polling"
            process.close()
            del process
            gc.collect()
            os.fstat(number)
            status = 0 if alive else 8
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    process.close()


@pytest.mark.parametrize("binding", ["ctypes", "cffi"])
def test_kqueue_that_a_fork_left(on, binding):
    on("freebsd12", binding)
    queue = calls.get("kqueue")()
    number = queue.fileno()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            os.dup2(2, number)
            queue.close()
            os.fstat(number)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    queue.close()


def test_closed_by_somebody_else(on, sleeper):
    kernel = on("dragonfly", "ctypes")
    with pidwait.Process(sleeper.pid) as process:
        kernel.queues.pop(process.fileno()).close()
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        assert process.backend == "polling"


def test_error_that_poll_tells(on, sleeper):
    """An error is no exit."""
    on("freebsd12")
    with pidwait.Process(sleeper.pid) as process:
        on.patch.setattr(queue, "poll", lambda fd, mask, deadline: select.POLLERR)
        assert not process.has_exited()
        assert process.backend == "polling"


@pytest.mark.parametrize("binding", BINDINGS)
def test_wrong_numbers(on, sleeper, binding):
    """Our table differs from what the interpreter was compiled with: polling takes over."""
    on("netbsd11", binding)
    on.patch.setenv("PIDWAIT_BACKEND", "auto")
    on.patch.setattr(select, "KQ_FILTER_PROC", 5)
    answer = pidwait.probe()
    assert answer["backend"] == "polling"
    assert "KQ_FILTER_PROC" in answer["backends"]["kqueue"]["reason"]
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper.pid, 0.01)


def test_wrong_layout(on):
    kernel = on("openbsd", "ctypes")
    on.patch.setenv("PIDWAIT_BACKEND", "auto")
    on.patch.setattr(kernel.system, "event", systems.SYSTEMS["freebsd12"].event)
    answer = pidwait.probe()
    assert answer["backend"] == "polling"
    assert "64 bytes, not 32" in answer["backends"]["kqueue"]["reason"]


def test_select_that_is_not_whole(on):
    on("openbsd")
    on.patch.delattr(select, "KQ_NOTE_EXIT")
    assert pidwait.probe()["calls"]["kqueue"]["via"] in ("ctypes", "cffi")


@pytest.mark.parametrize("system", [name for name in SYSTEMS if systems.SYSTEMS[name].zombies])
def test_several_events(on, start, system):
    """They are as far apart as the system's struct is long."""
    on(system, "ctypes")
    children = [start(*exiting(code)) for code in (3, 4, 5)]
    make, table = calls.get("kevent"), bsd.system()
    queue = calls.get("kqueue")()
    queue.control(
        [make(child.pid, table.filter_proc, bsd.EV_ADD, bsd.NOTE_EXIT) for child in children], 0, 0
    )
    for child in children:
        become_zombie(child.pid)
    events = queue.control(None, 8, 0)
    queue.close()
    found = sorted((event.ident, event.data >> 8) for event in events)
    assert found == sorted(zip([child.pid for child in children], (3, 4, 5)))


def test_waiters_on_one_handle(on, start):
    """The event is delivered once, to one of them."""
    on("netbsd11", "ctypes")
    child = start(*exiting(8, after=0.2))
    found = []
    with pidwait.Process(child.pid) as process:
        threads = [threading.Thread(target=lambda: found.append(process.wait())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [8] * 8


def test_first_wait_in_another_interpreter(on):
    """With standin/sitecustomize.py, as in the suite's child processes."""
    on("openbsd")
    code = """if True:
        import os, {0} as pidwait
        pid = os.fork() or os._exit(6)
        print(pidwait.wait(pid), pidwait.probe()["backend"])
    """
    done = run_python(code.format(pidwait.__name__))
    assert done.stdout.split() == ["6", "kqueue"], done


def test_signal_while_waiting(on, sleeper):
    on("dragonfly", "ctypes")
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(sleeper.pid, 0.1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("binding", BINDINGS)
def test_no_file_descriptor_left(on, start, binding):
    """EMFILE from kqueue(): that process is polled, the next one is not."""
    on("freebsd12", binding)
    assert pidwait.probe()["backend"] == "kqueue"
    child = start(*exiting(7, after=0.1))
    with fds_left(0):
        with pidwait.Process(child.pid) as process:
            assert process.backend == "polling"
            assert process.wait(30) == 7
        with pytest.raises(OSError, match="Too many open files"):
            kqueue.KqueueHandle(os.getpid())
    with pidwait.Process(os.getpid()) as process:
        assert process.backend == "kqueue"
