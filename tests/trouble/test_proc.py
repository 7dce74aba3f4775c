# SPDX-License-Identifier: BSD-3-Clause
"""/proc that is not there, hides processes, or belongs to another PID namespace; other users."""

import contextlib
import errno
import os
import signal
import sys
import threading
import time

import pytest

from .. import pidwait, trouble
from ..needs import needs
from ..processes import eventually
from . import LONG, Child, Stranger, every_wait_works, forked, raises, system, times_out

pytest.importorskip("ctypes")

pytestmark = needs("/proc")
CLONE_NEWPID, CLONE_NEWTIME = 0x20000000, 0x80
US, THEM = 65432, 65433


def hidden(backend, how):
    """In two forks each: /proc is hidden before the probe is asked, or after it."""
    has_handle = backend == "pidfd"
    told = has_handle and trouble.kernel_tells()

    def under(asked, prepare):
        child = Child()
        fd = system.pidfd_open(child.pid) if has_handle else os.dup(0)
        if asked:
            pidwait.probe()
        system.mount("tmpfs", "/proc") if how == "tmpfs" else system.mount("proc", "/proc", how)
        system.drop_capabilities()  # /proc hides nothing from a process that has them
        noticed = has_handle or (how != "tmpfs" and prepare is None)
        every_wait_works(7 * asked, told=told, noticed=noticed, prepare=prepare)
        received(child, fd) if has_handle else os.close(fd) or child.end(5)
        child.reap()

    for asked in (False, True):
        forked(under, asked, None)
        forked(under, asked, system.not_dumpable)


def received(child, fd):
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid in (child.pid, None)
        times_out(process.wait, 0)
        child.end(5)
        assert process.wait(LONG) == 5


@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2", "tmpfs"])
def test_a_proc_that_hides_processes(namespaces, how):
    trouble.run_on_each_backend(hidden, how, within=namespaces)


@contextlib.contextmanager
def another_thread():
    """Its ID, and what pidfd_open makes of that: an error number."""
    over, ids = threading.Event(), []
    thread = threading.Thread(target=lambda: ids.append(trouble.thread_id()) or over.wait())
    thread.start()
    try:
        eventually(lambda: ids)
        yield ids[0], raises(OSError, system.pidfd_open, ids[0]).errno
    finally:
        over.set()
        thread.join()


def a_thread():
    with another_thread() as (tid, _):
        system.mount("tmpfs", "/proc")
        assert pidwait.wait(tid, LONG) is None
        assert not pidwait.pid_exists(tid)


def test_a_thread_is_not_a_process_if_the_kernel_alone_says_so(namespaces):
    with another_thread() as (_, code):
        if code != errno.ENOENT:
            pytest.skip("before Linux 6.15 the error may also mean a process that is exiting")
    trouble.run(a_thread, within=namespaces)


def mounted_later(backend):
    """It is asked for again after a no."""
    system.mount("tmpfs", "/proc")
    pidwait.probe()
    raises(OSError, next, pidwait.process_iter())
    system.mount("proc", "/proc")
    assert os.getpid() in [info.pid for info in pidwait.process_iter()]


def test_a_proc_that_is_mounted_later(namespaces):
    trouble.run_on_each_backend(mounted_later, within=namespaces)


def foreign(backend):
    """In two forks: a new PID namespace is entered before the probe is asked, or after it."""
    has_handle = backend == "pidfd"
    told = has_handle and trouble.kernel_tells()

    def under_the_old_proc():
        assert os.getpid() == 1
        every_wait_works(told=told, noticed=has_handle)
        if has_handle:
            child = Child()
            received(child, system.pidfd_open(child.pid))
            child.reap()

    def enter(asked):
        if asked:
            pidwait.probe()
        system.call("unshare", CLONE_NEWPID)
        forked(under_the_old_proc)

    forked(enter, False)
    forked(enter, True)


def twins(backend):
    """Our process has the same pid in both namespaces, so that /proc/self looks right."""
    system.next_pid(5000)
    other = Child()
    assert other.pid == 5000
    other.become_zombie(3)

    def enter():
        system.call("unshare", CLONE_NEWPID)
        system.next_pid(1000)
        forked(lambda: system.next_pid(1001) or forked(is_its_own_twin))

    def is_its_own_twin():
        assert os.getpid() == 1001 and os.readlink("/proc/self") == "1001"
        system.next_pid(5000)
        child = Child()
        assert child.pid == 5000
        # In this /proc the pid is another process's, a zombie's.
        times_out(lambda timeout: pidwait.wait(child.pid, timeout), 0.005)
        with pidwait.Process(child.pid) as process:
            assert not process.has_exited()
            child.end(7)
            assert process.wait(LONG) == child.reap() == 7

    forked(enter)
    other.reap()


def forked_by_c(backend):
    """No Python code learns of a fork by C code: what the parent has asked is asked again."""
    system.next_pid(5000)
    other = Child()
    assert other.pid == 5000
    pidwait.probe()
    times_out(lambda timeout: pidwait.wait(other.pid, timeout), 0.005)

    def enter():
        system.call("unshare", CLONE_NEWPID)
        fork, os.fork = os.fork, system.ctypes.PyDLL(None).fork
        forked(in_the_new_namespace, fork)

    def in_the_new_namespace(fork):
        os.fork = fork
        assert os.getpid() == 1
        system.next_pid(5000)
        child = Child()
        assert child.pid == 5000
        child.become_zombie(7)
        # In this /proc the pid is another process's, which runs.
        assert pidwait.wait(child.pid, LONG) == trouble.by_set(child.pid, LONG) == 7
        assert child.reap() == 7

    forked(enter)
    other.end(0)
    other.reap()


needs_pydll = pytest.mark.skipif(
    not hasattr(system.ctypes, "PyDLL"), reason="this ctypes can't fork() under the GIL"
)


@pytest.mark.parametrize("scenario", [foreign, twins, pytest.param(forked_by_c, marks=needs_pydll)])
def test_a_proc_of_another_namespace(namespaces, scenario):
    trouble.run_on_each_backend(scenario, within=namespaces)


def in_another_time(backend):
    """There start times are told by another clock, also those of what was opened before."""
    child, member, stranger = Child(), Child(), Stranger()
    codes = [(child.pid, 7), (member.pid, 8)]

    def there():
        assert time.monotonic() - before > 864000 - LONG
        for target in process, other, child.pid, stranger.pid:
            times_out(lambda timeout, target=target: pidwait.wait(target, timeout), 0.005)
        assert waiting.wait(0.02) == []
        process.send_signal(0)
        child.end(7)
        member.end(8)
        seen = waiting.wait(LONG) + waiting.wait(LONG)
        assert sorted(pid for pid, _ in seen) == sorted(pid for pid, _ in codes)
        assert pidwait.wait(process, LONG) in (7, None)
        assert not other.has_exited()

    with contextlib.ExitStack() as stack:
        process, other = map(stack.enter_context, map(pidwait.Process, (child.pid, stranger.pid)))
        waiting = stack.enter_context(pidwait.WaitSet([child.pid, member.pid]))
        # Twice: from the second wait on it has all its file descriptors.
        assert waiting.wait(0) == waiting.wait(0) == []
        assert not process.has_exited() and not other.has_exited()
        system.call("unshare", CLONE_NEWTIME)
        with open("/proc/self/timens_offsets", "w") as file:
            file.write("boottime 864000 0\nmonotonic 864000 0\n")
        before = time.monotonic()
        forked(there)
        assert sorted(waiting.wait(LONG) + waiting.wait(LONG)) == sorted(codes)
        assert process.wait(LONG) == 7
    stranger.end(0)
    for each in child, member, stranger:
        each.reap()


@pytest.mark.root
@pytest.mark.usefixtures("real_root")
def test_a_process_of_another_time_namespace(variant, backend):
    if not os.path.exists("/proc/self/timens_offsets"):
        pytest.skip("this kernel has no time namespaces")
    forked(in_another_time, backend)


FOREIGN = """if True:
    import sys
    import {package} as pidwait

    with pidwait.Process.from_fd(int(sys.argv[1])) as process:
        with pidwait.WaitSet([process]) as waiting:
            assert waiting.wait(0) == [] and process.pid is None, process.pid
            print("waiting", flush=True)
            ((found, code),) = waiting.wait()
            assert found is process and code in (3, None), code
"""


def test_a_pidfd_from_another_pid_namespace(variant, namespaces, start, start_told):
    """There is no pid that could be polled."""
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())
    child = start_told(3)
    fd = system.pidfd_open(child.pid)
    command = sys.executable, "-c", FOREIGN.format(package=pidwait.__name__), str(fd)
    other = start(*namespaces, *command, pass_fds=[fd], stdout=-1)
    os.close(fd)
    assert other.stdout.readline() == b"waiting\n"
    child.stdin.close()
    child.wait()
    assert other.wait() == 0


# Processes that we may not look into or signal


def give_up_root():
    pidwait.probe()  # loads modules that another user may not be allowed to read
    trouble.kernel_tells()
    system.become(US)


def not_ours(backend, how, prepare, refused):
    """A process that runs, exits, and is reaped; its code is never the 0 that /proc shows."""
    strangers = [Stranger(prepare) for _ in range(3)]
    give_up_root()
    told = backend == "pidfd" and trouble.kernel_tells()
    for code, stranger in zip((7, 0, -signal.SIGKILL), strangers):
        right = (code,) if told else (code, None)
        with pidwait.Process(stranger.pid) as process, pidwait.Process(stranger.pid) as other:
            # If /proc is hidden, polling only sees the reaping.
            noticed = backend == "pidfd" or how is None
            assert (process == other) is noticed
            times_out(process.wait, 0.002)
            if refused:
                raises(PermissionError, process.kill)
                raises(PermissionError, process.send_signal, 0)
            stranger.become_zombie(code)
            if noticed:  # a short time-out, as each waits that long for the reaping to tell more
                assert pidwait.wait(stranger.pid, 0.01) in (code, None)
                assert pidwait.wait(stranger.pid, 0.01, reap=True) in (code, None)
                assert process.wait(0.01) in (code, None)
                raises(ProcessLookupError, process.kill)
            assert pidwait.pid_exists(stranger.pid)
            assert stranger.reap() == code
            assert process.wait(LONG) in right and other.wait(LONG) in right
            raises(ProcessLookupError, process.kill)
        assert pidwait.wait(stranger.pid) is None


def of_another_user(backend, how=None):
    if how is not None:
        system.mount("proc", "/proc", how)
    not_ours(backend, how, lambda: system.become(THEM), True)


@pytest.mark.root
def test_a_process_of_another_user(variant, backend):
    forked(of_another_user, backend)


@pytest.mark.root
def test_a_process_of_another_user_that_proc_hides(real_root):
    trouble.run_on_each_backend(of_another_user, "hidepid=2", within=real_root)


def test_a_process_that_nobody_may_look_into(variant, backend):
    forked(not_ours, backend, None, system.not_dumpable, False)


def own_children_after_giving_up_root():
    """After a setuid() without an exec, a process and its forks are not dumpable."""
    give_up_root()
    every_wait_works()
    child = Child()
    received(child, system.pidfd_open(child.pid))
    child.reap()


@pytest.mark.root
def test_own_children_after_giving_up_root(variant):
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())
    forked(own_children_after_giving_up_root)


@pytest.mark.parametrize("name", [b"a) Z (b", b") Z 0", b"\n) Z", b"\xff\xfe", b""])
def test_a_name_that_looks_like_the_state_of_a_zombie(variant, name):
    """/proc/PID/stat shows it in the middle of the line."""
    forked(every_wait_works, 7, None, False, True, lambda: system.libc.prctl(15, name, 0, 0, 0))
