# SPDX-License-Identifier: BSD-3-Clause
"""One process by a kqueue: what is peculiar to each system, on the stand-in."""

import asyncio
import errno
import gc
import logging
import os
import select
import subprocess

import pytest

from .. import pidwait
from ..asyncio.loops import aio
from ..processes import (
    OnPurpose,
    become_zombie,
    eventually,
    exiting,
    run_python,
    sleeping,
    state,
)
from ..trouble import Stranger
from ..trouble.system import become
from ..waiting.crowd import in_a_fork
from ..waiting.threads import Thread
from ..waiting.ways import WAYS, by_as_completed
from .kqueue.systems import EV_ADD, EV_DELETE, EV_ONESHOT, NAMED, SYSTEMS, named

pytestmark = pytest.mark.kqueue

BINDINGS = ["own", "ctypes", "cffi"]
each = pytest.mark.parametrize("system", NAMED)
any_ = pytest.mark.parametrize("system", NAMED[:1])
by_each_binding = pytest.mark.parametrize("binding", BINDINGS)
OLD_ONES = named(lambda system: system.platform in ("openbsd", "netbsd"))


@by_each_binding
@each
def test_the_probe_finds_the_kqueue_of_this_system(on, system, binding):
    on(system, binding)
    answer = pidwait.probe()
    assert answer["backend"] == "kqueue"
    assert answer["backends"]["kqueue"] == {"available": True, "reason": None}
    assert "polling" in answer["backends"] and "pidfd" not in answer["backends"]
    assert answer["calls"]["kqueue"]["via"] == ("select" if binding == "own" else binding)
    assert answer["calls"]["waitid"]["available"] and answer["calls"]["ps"]["available"]


@each
@pytest.mark.parametrize("timers", [0, 1])
def test_the_code_is_found_though_there_is_no_bell(on, keeper, tmp_path, system, timers):
    """A timer keeps the kqueue readable then; without one it has no fileno()."""
    kernel = on(system)
    assert pidwait.probe()["backend"] == "kqueue"
    pid = keeper.start_told(4, tmp_path / "fifo")
    kernel.denied["read"], kernel.max_timers = errno.EINVAL, timers
    with pidwait.Process(pid) as process:
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        assert process.wait() == 4
        if timers:
            for _ in range(2):
                assert select.select([process], [], [], 60)[0]
                assert process.has_exited()
        else:
            with pytest.raises(OSError):
                process.fileno()
    keeper.reaped()


def by_handle(pid):
    with pidwait.Process(pid) as process:
        return process.wait()


def by_aio(proc):
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(aio.wait(proc))
    finally:
        loop.close()


@pytest.mark.parametrize("way", [by_handle, *WAYS])
@each
def test_a_sleep_that_ends_without_an_event_is_no_time_out(on, start_told, system, way):
    """None lasts longer than a minute: some kernels miss what ends it."""
    kernel = on(system, "ctypes")
    child, sleeps, real = start_told(3), [], kernel.kevent

    def kevent(fd, changes, room, timeout):
        if room and timeout and len(sleeps) < 3:
            sleeps.append(timeout)
            if len(sleeps) == 3:
                child.stdin.close()
            return []
        return real(fd, changes, room, timeout)

    on.patch.setattr(kernel, "kevent", kevent)
    assert way(child.pid) == 3
    assert len(sleeps) == 3 and max(sleeps) <= 60


def swallow_events(kernel):
    """A signal handler's exception comes when the next events have been taken."""
    kevent = kernel.kevent

    def interrupted_kevent(*args):
        if kevent(*args):
            kernel.kevent = kevent
            raise OnPurpose
        return []

    kernel.kevent = interrupted_kevent


@pytest.mark.parametrize("place", ["event", "bell"])
@pytest.mark.parametrize("binding", ["ctypes", "cffi"])
@each
def test_an_event_that_a_signal_handler_has_swallowed_keeps_nobody_asleep(
    on, start_told, system, binding, place
):
    """Another thread finds out, and a program that polls."""
    kernel = on(system, binding)
    child, pipe = start_told(3), os.pipe

    def interrupted_pipe():
        on.patch.setattr(os, "pipe", pipe)
        raise OnPurpose

    with pidwait.Process(child.pid) as process:
        if place == "event":
            swallow_events(kernel)
        else:
            on.patch.setattr(os, "pipe", interrupted_pipe)
        child.stdin.close()
        with pytest.raises(OnPurpose):
            process.wait()
        assert select.select([process], [], [], 60)[0]
        assert Thread(process.wait).result() == process.wait() == 3


@each
def test_what_may_be_taken_is_not_deleted_and_what_rings_is_silenced_first(
    on, start_told, sleeper, system
):
    """NetBSD before 10 hangs where one thread deletes the one-shot event that another one takes.

    There, and on DragonFly, EV_ADD over a bell that rings wakes nobody.
    """
    kernel = on(system)
    registered, seen, wrong, real = {}, set(), [], kernel.kevent

    def kevent(fd, changes, room, timeout):
        for change in changes:
            key, flags = (fd, change.filter, change.ident), change.flags
            if flags & EV_DELETE:
                if registered.pop(key, 0) & EV_ONESHOT:
                    wrong.append(("deleted", key))
            elif flags & EV_ADD:
                if key in registered and change.filter != kernel.system.filter_proc:
                    wrong.append(("added twice", key))
                registered[key] = flags
                seen.add(change.filter)
        return real(fd, changes, room, timeout)

    on.patch.setattr(kernel, "kevent", kevent)
    child = start_told(3)
    kernel.denied[child.pid] = errno.EPERM  # it is polled, by a timer
    done = [subprocess.Popen(exiting(0)) for _ in range(3)]
    for one in done:
        one.wait()
    with pidwait.WaitSet([child.pid]) as waiting, pidwait.Process(sleeper.pid) as process:
        fd = waiting.fileno()
        for _ in range(5):
            assert select.select([fd], [], [], 60)[0] and waiting.wait(0) == []
        for one in done:
            waiting.add(one)
        assert waiting.wait() == [(one, 0) for one in done]
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 3)]
        sleeper.kill()
        assert process.wait() == process.wait() == -9
    assert seen == set(kernel.system.filters) and wrong == []


@any_
def test_a_closed_handle_is_left_alone(on, sleeper, caplog, system):
    """By the next one for the same process, too."""
    on(system)
    caplog.set_level(logging.INFO)
    first = pidwait.Process(sleeper.pid)
    first.close()
    with pidwait.Process(sleeper.pid) as second:
        assert first.backend == second.backend == "kqueue"
    assert "polled" not in caplog.text


@each
@pytest.mark.parametrize("looks", [1, 8])
def test_the_event_comes_before_the_child_can_be_reaped(on, start_told, system, looks):
    """macOS, older OpenBSDs, FreeBSD for a process that was exiting when it was registered."""
    kernel = on(system)
    child = start_told(5)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        eventually(process.has_exited)
        kernel.late = looks
        assert process.wait(reap=True) == 5
    assert kernel.late <= 0 and state(child.pid) is None
    child.returncode = 5


@any_
def test_a_pid_that_another_child_has_got_is_not_waited_for(on, start_told, sleeper, system):
    """The two are not equal, and the new one is neither reaped nor signalled."""
    kernel = on(system)
    child = start_told(5)
    with pidwait.Process(child.pid) as process:
        with pidwait.Process(child.pid) as same:
            assert process == same
        child.stdin.close()
        assert process.wait() == child.wait() == 5
        kernel.passed_on[child.pid] = sleeper.pid
        assert process.wait(reap=True) == 5
        with pytest.raises(ProcessLookupError):
            process.kill()
        with pidwait.Process(child.pid) as other:
            assert other != process and not other.has_exited()
    assert sleeper.poll() is None


@pytest.mark.parametrize("system", OLD_ONES)
def test_a_code_that_an_old_system_does_not_tell_is_none(on, keeper, start_told, tmp_path, system):
    """Before OpenBSD 7.3 and NetBSD 8, which lack waitid(2), too: a 0 may mean nothing."""
    kernel = on(system, "ctypes")
    kernel.tells_status = kernel.has_waitid = False
    pid = keeper.start_told(3, tmp_path / "fifo")
    child = start_told(3)
    with pidwait.Process(pid) as process, pidwait.Process(child.pid) as ours:
        assert process.backend == ours.backend == "kqueue"
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        child.stdin.close()
        assert process.wait() is None
        assert ours.wait(reap=True) == 3
    for way in (*WAYS, by_as_completed, by_aio):  # an owner can tell
        with subprocess.Popen(exiting(3)) as popen:
            assert way(popen) == popen.returncode == 3
    keeper.reaped()
    child.returncode = 3


@pytest.mark.root
@pytest.mark.parametrize("system", named(lambda system: system.platform == "darwin"))
def test_the_code_of_a_process_that_we_may_not_kill_is_none(on, system):
    def use():
        stranger = Stranger()
        become(65534)
        with pidwait.Process(stranger.pid) as process:
            stranger.end(7)
            assert process.backend == "kqueue" and process.wait() is None
        assert stranger.reap() == 7

    on(system)
    assert in_a_fork(use)


@pytest.mark.parametrize("system", named(lambda system: system.platform in ("netbsd", "darwin")))
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_process_that_may_not_be_watched_is_polled(on, keeper, system, code):
    kernel = on(system)
    pid = keeper.start(*sleeping(60))
    kernel.denied[pid] = code
    with pidwait.Process(pid) as process:
        assert process.backend == "polling"
        process.kill()
        assert process.wait() == -9
    keeper.reap(pid)


@by_each_binding
@any_
def test_a_forked_child_polls_and_leaves_the_fd_alone(on, sleeper, system, binding):
    """It has no such kqueue: the number may be another file's."""
    on(system, binding)
    process = pidwait.Process(sleeper.pid)
    dropped = pidwait.Process(sleeper.pid)
    numbers = process.fileno(), dropped.fileno()
    assert not any(map(os.get_inheritable, numbers))

    def use():
        nonlocal process, dropped
        for number in numbers:
            os.dup2(2, number)
        assert not process.has_exited() and process.backend == "polling"
        with pytest.raises(OSError):
            process.fileno()
        process.close()
        del process, dropped
        gc.collect()
        for number in numbers:
            os.fstat(number)

    assert in_a_fork(use)
    process.close()
    dropped.close()


@pytest.mark.parametrize("binding", ["own", "ctypes"])
@any_
def test_a_kqueue_that_somebody_else_closed_gives_way_to_polling(on, sleeper, system, binding):
    kernel = on(system, binding)
    with pidwait.Process(sleeper.pid) as process:
        kernel.queues.pop(process.fileno()).close()
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        assert process.backend == "polling"
        sleeper.kill()
        assert process.wait() == -9


@pytest.mark.parametrize("binding", ["ctypes", "cffi"])
@pytest.mark.parametrize("system", named(lambda system: system.platform == "openbsd"))
def test_a_struct_of_another_size_is_not_used(on, system, binding):
    kernel = on(system, binding)
    on.patch.setenv("PIDWAIT_BACKEND", "auto")
    on.patch.setattr(kernel.system, "event", SYSTEMS["freebsd12"].event)
    answer = pidwait.probe()
    assert answer["backend"] == "polling"
    assert "64 bytes, not 32" in answer["backends"]["kqueue"]["reason"]


@any_
def test_a_select_that_lacks_a_constant_is_not_used(on, system):
    """PyPy's has kqueues, but not KQ_NOTE_EXIT."""
    on(system)
    on.patch.delattr(select, "KQ_NOTE_EXIT")
    assert pidwait.probe()["calls"]["kqueue"]["via"] in ("ctypes", "cffi")


@each
def test_another_interpreter_waits_on_it_too(on, system):
    """A check of the stand-in, which also has to be there in the children of tests."""
    on(system)
    code = """if True:
        import os, {0} as pidwait
        pid = os.fork() or os._exit(6)
        print(pidwait.wait(pid), pidwait.probe()["backend"])
    """
    done = run_python(code.format(pidwait.__name__))
    assert done.stdout.split() == ["6", "kqueue"], done


@by_each_binding
@any_
def test_without_a_file_descriptor_the_process_is_polled(on, start_told, fds_left, system, binding):
    """That one; the next one is not."""
    on(system, binding)
    assert pidwait.probe()["backend"] == "kqueue"
    child = start_told(7)
    with fds_left(0), pidwait.Process(child.pid) as process:
        assert process.backend == "polling"
        child.stdin.close()
        assert process.wait() == 7
    with pidwait.Process(os.getpid()) as process:
        assert process.backend == "kqueue"


# Polling by waitid(2), kill(2) and ps(1)


@pytest.fixture
def polled(on, system):
    kernel = on(system)
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    return kernel


@pytest.mark.parametrize("has_waitid", [True, False])
@pytest.mark.parametrize("system", named(lambda system: system.platform == "openbsd"))
def test_a_zombie_that_kill_does_not_find_is_still_there(on, start, system, has_waitid):
    """On older OpenBSDs waitid(2) finds our own zombies; without waitid(2), ps does."""
    kernel = on(system, "ctypes")
    kernel.kill_finds_zombies, kernel.has_waitid = False, has_waitid
    if not has_waitid:
        on.patch.delattr(os, "waitid", raising=False)
    child = start(*exiting(3))
    become_zombie(child.pid)
    with pidwait.Process(child.pid) as process:
        assert process.wait(0) == 3
    assert pidwait.wait(child.pid, 0, reap=True) == 3
    child.returncode = 3
    with pytest.raises(ProcessLookupError):
        pidwait.Process(child.pid)


@pytest.mark.parametrize("code", [0, 7, -9])
@each
def test_ps_tells_the_code_of_somebody_elses_zombie(polled, keeper, code):
    pid = keeper.start(*exiting(code))
    become_zombie(pid)
    # ps also prints 0 if it does not know.
    assert pidwait.wait(pid, 0) == (code or None)
    keeper.reap(pid)
    assert pidwait.wait(pid, 0) is None


def printing(date):
    return "echo; echo 'S 0 %s'" % date


@any_
def test_a_polled_pid_with_another_start_time_has_exited(polled, on, sleeper):
    on.ps(printing("Thu Feb 29 23:59:58 2024"))
    with pidwait.Process(sleeper.pid) as process:
        with pidwait.Process(sleeper.pid) as same:
            assert process == same and not process.has_exited()
        on.ps(printing("Thu Feb 29 23:59:59 2024"))  # a date is computed, and rounded
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0)
        on.ps(printing("Fri Mar  1 00:01:59 2024"))
        assert process.wait(60) is None
        with pytest.raises(ProcessLookupError):
            process.kill()
    assert sleeper.poll() is None


@any_
def test_ps_gets_a_small_share_of_the_time(polled, on, keeper, tmp_path):
    on.ps("echo x >> '%s'; sleep 0.05; exec {ps} \"$@\"" % (tmp_path / "runs"))
    pid = keeper.start(*sleeping(60))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0.6)
    # One after a moment, the next a second later; and the last look.
    assert 1 <= len((tmp_path / "runs").read_text().split()) <= 2


BAD_PS = {
    "not there": None,
    "complains": "echo 'ps: unknown keyword' >&2; exit 1",
    "prints words": "echo; echo 'ps: unknown keyword'",
    "prints no status": "echo; echo 'S ? Sat Nov 21 03:11:52 2026'",
    "prints no date": "echo; echo 'S 0 Sat Nov 21 03:11 2026'",
    "hangs": "exec sleep 60",
}


@pytest.mark.parametrize("how", sorted(BAD_PS))
@any_
def test_a_ps_that_fails_leaves_waitid_and_kill(polled, on, keeper, start_told, how):
    if how == "not there":
        on.no_ps()
    else:
        on.ps(BAD_PS[how], time_limit=0.1 if how == "hangs" else 100)
    assert "ps" in pidwait.probe()["calls"]["ps"]["reason"]
    child = start_told(3)
    pid = keeper.start(*sleeping(60))
    for one in child.pid, pid:
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(one, 0.06)
    child.stdin.close()
    os.kill(pid, 9)
    keeper.reap(pid)
    assert pidwait.wait(child.pid) == 3
    assert pidwait.wait(pid) is None


@any_
def test_ps_is_not_waited_for_by_another_ps(polled, on, keeper):
    """As a patched subprocess would do."""
    pid = keeper.start(*sleeping(60))
    asked, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        asked.append(args)
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(pid, 0)
        return real(*args, **kwargs)

    on.patch.setattr(subprocess, "Popen", popen)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0)
    assert len(asked) == 1
