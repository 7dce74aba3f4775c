# SPDX-License-Identifier: BSD-3-Clause
"""inotify on executables, and the one that is kept for the next wait."""

import errno
import gc
import importlib
import os
import resource
import subprocess
import threading
from types import SimpleNamespace

import pytest

from .. import pidwait, seam
from ..conftest import targets_of
from ..processes import FACTORS, PYTHON, eventually, exiting, gone_pid, sleeping
from ..trouble import at_line
from .events import all_fds, executed, in_a_fork, inotify, linux, listening, module, read

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")


@pytest.fixture
def watching(use_variant, monkeypatch):
    use_variant("polling")
    monkeypatch.setattr(inotify.ExecutableWatches, "longest", 3600.0)


def test_forked_without_execve(watching, herd):
    """It shares its executable with its parent: polled as without events."""
    pid = herd.fork(3)
    with pidwait.WaitSet([pid]) as waiting:
        polled = waiting._engine.sets.polled
        for _ in range(20):
            assert waiting.wait(0.02) == []
        assert pid in [member.pid for member in polled._plain.members()]
        os.kill(pid, 9)
        assert waiting.wait() == [(pid, -9)]


def test_execve_after_the_fork(watching, start):
    """Events are asked for again."""
    command = "import os; input(); os.execvp('sh', ['sh', '-c', 'read line; exit 7'])"
    child = start(*PYTHON, "-u", "-c", command, stdin=subprocess.PIPE, bufsize=0)
    with pidwait.WaitSet([child.pid]) as waiting:
        first = dict(listening(waiting, "polling")._watches)
        child.stdin.write(b"\n")
        eventually(lambda: b"read line" in read("/proc/%d/cmdline" % child.pid))
        while waiting._engine.sets.polled._events._watches == first or delay(waiting) < 1000:
            assert waiting.wait(0.02) == []
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 7)]


def delay(waiting):
    return waiting._engine.delay()


def test_where_flags_are_not_told(watching, start, herd, monkeypatch):
    """As on gVisor: then it must not share its executable with its parent."""
    procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")
    read_stat, child = procfs.read_stat, executed(start(*sleeping(60)))

    def without_flags(pid):
        stat = read_stat(pid)
        if stat is not None:
            stat.flags = 0
        return stat

    monkeypatch.setattr(procfs, "read_stat", without_flags)
    watches = inotify.ExecutableWatches()
    try:
        assert watches.add(herd.fork(3)) is None
        assert watches.add(child.pid) is not None
    finally:
        watches.close()


def links(fds):
    return list(targets_of(fds).values())


INOTIFY = "anon_inode:inotify"


@pytest.fixture
def wait_for_one(watching, start, monkeypatch):
    """Wait for long enough to use a watch to the end; return the new file descriptors."""
    used, clear = [], inotify.ExecutableWatches._clear
    monkeypatch.setattr(
        inotify.ExecutableWatches, "_clear", lambda self: used.extend(self._watches) or clear(self)
    )

    def wait_for_one():
        before = set(all_fds())
        del used[:]
        for factor in FACTORS:
            if not used:
                assert pidwait.wait(start(*exiting(3, 0.1 * factor)).pid) == 3
        assert used
        return set(all_fds()) - before

    return wait_for_one


def test_spare(wait_for_one):
    """The next wait uses the same inotify, and no number that the program would get."""
    (fd,) = wait_for_one()
    assert links([fd]) == [INOTIFY]
    assert fd >= min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2
    with open("/proc/self/fdinfo/%d" % fd) as file:
        assert "wd:" not in file.read()
    assert wait_for_one() == set() and links([fd]) == [INOTIFY]


def test_no_spare_if_something_may_be_left_in_it(watching, caplog):
    def fail(fd, size):
        raise OSError(errno.EIO, "on purpose")

    watches = inotify.ExecutableWatches()
    watches._read = fail
    with caplog.at_level("DEBUG"):
        watches.close()
    assert not inotify._spare
    assert "inotify: [Errno %d] on purpose" % errno.EIO in caplog.text
    with pytest.raises(ValueError, match="closed"):
        watches.fileno()


def test_spare_that_somebody_has_closed(wait_for_one):
    """As daemons close all there is: another file with its number is left alone."""
    (fd,) = wait_for_one()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))  # dup2(2) heeds it
    try:
        with open(os.devnull) as file:
            os.dup2(file.fileno(), fd)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        (other,) = wait_for_one()
        assert links([fd, other]) == [os.devnull, INOTIFY]
    finally:
        gc.collect()
        os.close(fd)


def test_spare_of_the_parent(wait_for_one):
    """Both would read the same events."""
    (fd,) = wait_for_one()

    def use():
        assert inotify._take_spare() is None
        assert fd not in all_fds()

    assert in_a_fork(use)
    assert wait_for_one() == set()


def test_two_waits_leave_one_spare(watching, start_own):
    child, before = start_own(3), all_fds()
    threads = [threading.Thread(target=pidwait.wait, args=(child.pid,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: links(all_fds()).count(INOTIFY) == 2)
    child.stdin.close()
    for thread in threads:
        thread.join()
    child.wait()
    assert len(all_fds()) == len(before)
    assert links(all_fds()).count(INOTIFY) == 1


@pytest.mark.parametrize("in_between", ["leaves one", "takes one"])
@pytest.mark.parametrize("step", ["close", "take"])
def test_another_thread_at_any_line_of_the_use_of_a_spare(watching, step, in_between):
    """There is one spare at most, and each inotify is used by one wait."""
    number, reached = 0, True
    while reached:
        number += 1
        seam.drop_spare()
        one, other = inotify.ExecutableWatches(), inotify.ExecutableWatches()
        taken = []
        if step == "take":
            one.close()

        def meanwhile(other=other, taken=taken):
            if in_between == "leaves one":
                other.close()
            else:
                taken.append(inotify._take_spare())

        with at_line(number, meanwhile) as line:
            if step == "close":
                one.close()
            else:
                taken.append(inotify._take_spare())
        reached = line.reached
        taken = [file for file in taken if file is not None]
        assert len(set(taken)) == len(taken), line.where
        assert len(inotify._spare) <= 1, line.where
        for file in taken:
            file.close()
        if in_between == "takes one" or not reached:
            other.close()
        left = [fd for fd, link in targets_of(all_fds()).items() if link == INOTIFY]
        assert left == [file.fileno() for _, file in inotify._spare.values()], line.where
    assert number > 2


def read_executable(child):
    with open("/proc/%d/exe" % child.pid, "rb"):
        """Closing it is an event, too."""


def looked_at(polled):
    return [member.pid for member in polled._eager.members()]


@pytest.mark.parametrize("knows", [True, False], ids=["Linux", "gVisor"])
def test_others_with_the_same_executable(watching, start_own, own_sleeper, knows):
    """Only one of which the executable is gone is looked at; gVisor may take it away later."""
    children = [start_own(code) for code in (3, 4, 5)]
    with pidwait.WaitSet([*children, own_sleeper]) as waiting:
        source, polled = listening(waiting, "polling"), waiting._engine.sets.polled
        source._is_linux = knows
        polled._due_at = 0.0
        read_executable(children[0])
        polled.hear()
        assert looked_at(polled) == ([] if knows else [child.pid for child in children])
        for child in children:
            child.stdin.close()
            assert waiting.wait() == [(child, child.returncode)]
    assert [child.returncode for child in children] == [3, 4, 5]


def test_events_all_the_time(watching, start_own, monkeypatch):
    """Asking who has exited takes no more than a share of a core."""
    child = start_own(3)
    with pidwait.WaitSet([child]) as waiting:
        source, polled = listening(waiting, "polling"), waiting._engine.sets.polled
        asked, ask = [], source.may_have_exited
        monkeypatch.setattr(
            source, "may_have_exited", lambda *args: asked.append(args) or ask(*args)
        )
        pauses = [3600.0]
        monkeypatch.setattr(module("listening_set"), "share", lambda cost: pauses[0])
        polled._due_at = 0.0
        for _ in range(3):
            read_executable(child)
            polled.hear()
        assert len(asked) == 1 and 1000 < delay(waiting) <= 3600
        pauses[0] = polled._due_at = 0.0
        assert delay(waiting) == 0
        child.stdin.close()
        assert waiting.wait() == [(child, 3)]


def test_no_time(watching, own_sleeper, monkeypatch):
    """One look is enough, and no event can come."""
    procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")
    looks, read_stat = [], procfs.read_stat
    with pidwait.Process(own_sleeper.pid) as process:
        monkeypatch.setattr(procfs, "read_stat", lambda pid: looks.append(pid) or read_stat(pid))
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0)
    assert looks == [own_sleeper.pid]


def test_watch_ends_with_its_last_member(watching, start):
    one, other = (executed(start(*exiting(3, 60))) for _ in range(2))
    watches = inotify.ExecutableWatches()
    try:
        keys = {watches.add(child.pid)[0] for child in (one, other)}
        (key,) = keys
        watches.discard(key)
        assert watches._watches == {key: 1}
        watches.discard(key)
        assert watches._watches == {}
        watches.discard(key)  # the executable is gone: the system has removed it already
        again, _ = watches.add(one.pid)
        assert again != key
    finally:
        watches.close()


@pytest.fixture
def watches(use_variant):
    use_variant("polling")
    watches = inotify.ExecutableWatches()
    yield watches
    watches.close()


def test_process_that_is_gone_has_no_events(watches):
    assert watches.add(gone_pid()) is None and watches._watches == {}


def test_watch_that_is_made_again(watches, start):
    """The earlier one ends with it."""
    child = executed(start(*exiting(3, 60)))
    key, status = watches.add(child.pid)
    assert status is None and watches.add_again(key, child.pid) == key
    assert watches._watches == {key: 1}
    watches.discard(key)
    assert watches._watches == {}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EPERM])
def test_watch_that_can_not_be_removed(watches, monkeypatch, code):
    """It is gone if its file system is; anything else is an error."""

    def remove(fd, watch):
        raise OSError(code, "on purpose")

    with monkeypatch.context() as patched:
        patched.setitem(calls._resolved, "inotify_rm_watch", remove)
        if code == errno.EINVAL:
            watches.discard(7)
        else:
            with pytest.raises(PermissionError):
                watches.discard(7)


def test_events_in_one_read(watches, monkeypatch):
    """Some were lost, and one tells the name of a file."""

    def event(watch, mask, name=b""):
        return linux.INOTIFY_EVENT.pack(watch, mask, 0, len(name)) + name

    parts = [
        event(3, linux.IN_CLOSE_NOWRITE),
        event(4, linux.IN_CLOSE_NOWRITE, b"name" + bytes(12)),
        event(-1, linux.IN_Q_OVERFLOW),
        event(3, linux.IN_CLOSE_NOWRITE),
    ]
    monkeypatch.setattr(watches, "_read", lambda fd, size: b"".join(parts))
    assert list(watches.read()) == [(3, ()), (4, ()), (None, ())]


@pytest.mark.parametrize("found, may_have_exited, discarded", [(5, False, []), (6, True, [])])
def test_executable_is_still_there(watches, monkeypatch, found, may_have_exited, discarded):
    """It runs on, or runs another program by now, for which there is a watch, too."""
    monkeypatch.setattr(watches, "_watch", lambda path: found)
    monkeypatch.setattr(watches, "discard", discarded.append)
    watches._watches = {5: 1, 6: 1}
    assert watches.may_have_exited(5, 4711) is may_have_exited and discarded == []
    del watches._watches[found]  # to ask has made one that nobody needs
    assert watches.may_have_exited(5, 4711) is may_have_exited and discarded == [found]
    watches._watches = {}


def test_next_wait_sees_no_events_of_this_one(watching, own_sleeper):
    first = inotify.ExecutableWatches()
    file = first.file
    first.add(executed(own_sleeper).pid)
    read_executable(own_sleeper)
    first.close()
    second = inotify.ExecutableWatches()
    try:
        assert second.file is file and list(second.read()) == []
    finally:
        second.close()


def test_new_members_are_looked_at(watching, own_sleeper):
    """There may have been no event for an exit before, nor will there be one for each."""
    with pidwait.WaitSet([own_sleeper]) as waiting:
        assert looked_at(waiting._engine.sets.polled) == [own_sleeper.pid]


def test_event_that_does_not_come_costs_a_second(use_variant, own_sleeper, monkeypatch):
    use_variant("polling")
    for name in "listening_set", "paced_sets", "polling_set":
        monkeypatch.setattr(module(name), "monotonic", lambda: 1000.0)
    polled = module("listening_set").ListeningSet(SimpleNamespace(include=lambda fd: None))
    monkeypatch.setattr(module("listening_set"), "open_events", inotify.ExecutableWatches)
    try:
        assert polled.add([executed(own_sleeper)]) == []
        assert polled.delay() == 0
        (one,) = polled._members.values()
        polled._move(one, polled._eager, polled._quiet)
        assert polled.delay() == 1
    finally:
        polled.close()


def test_what_can_not_be_told(monkeypatch):
    """A file that is not there is no inotify; an executable may be the same as any other's."""
    assert not inotify._is_inotify(SimpleNamespace(fileno=lambda: 2**20))
    assert inotify._same_executable(os.getpid(), gone_pid()) is True
    assert inotify._same_executable(os.getpid(), os.getpid()) is True


def test_inotify_that_tells_nothing(use_variant, monkeypatch):
    """As in some sandboxes. The check leaves nothing open."""
    use_variant("polling")
    files, read = [], inotify.ExecutableWatches.read

    def nothing(self):
        files.append(self.file)
        return list(read(self)) if len(files) == 1 else []

    monkeypatch.setattr(inotify.ExecutableWatches, "read", nothing)
    inotify.check()
    with pytest.raises(OSError, match="does not tell") as caught:
        inotify.check()
    assert caught.value.errno == errno.ENOSYS
    assert all(file.closed for file in files) and not inotify._spare
