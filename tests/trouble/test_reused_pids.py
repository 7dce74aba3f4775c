# SPDX-License-Identifier: BSD-3-Clause
"""Reused pids, made at will in a PID namespace.

A wait is never for the wrong process, and never tells a wrong code.
"""

import contextlib
import errno
import itertools
import os
import signal
import time

import pytest

from .. import pidwait, seam, trouble
from ..processes import eventually, gone_pid, state
from . import LONG, Child, Stranger, each_line, raises, system, times_out

pytest.importorskip("ctypes")

CLOCK_BOOTTIME = 7  # the module time has it from Python 3.7 on
OLD, NEW = 3, 9  # exit codes


@pytest.fixture
def pidfd():
    if trouble.why_no_pidfd() or system.why_no_policy():
        pytest.skip(trouble.why_no_pidfd() or system.why_no_policy())


def started(pid):
    """The start time of a process, in ticks of ten milliseconds since boot."""
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[19])


class Number:
    """A pid and the process that has it: ``old``, and after pass_on() ``new``, our child."""

    def __init__(self, make=Child):
        self.old, self.new = make(), None
        self.pid = self.old.pid
        self._started = started(self.pid)

    def end(self):
        self.old.become_zombie(OLD)

    def pass_on(self, zombie=False, prepare=None):
        """Have the old process reaped, and start a new one with its pid."""
        self.old.reap()
        # Without a handle, only the ticks of their start times tell the two apart.
        eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > self._started)
        system.next_pid(self.pid)
        self.new = Child(prepare)
        assert self.new.pid == self.pid
        if zombie:
            self.new.become_zombie(NEW)

    def finish(self):
        """Check that nobody touched the last process, and reap it."""
        process, code = (self.old, OLD) if self.new is None else (self.new, NEW)
        if state(self.pid) != "Z":
            process.end(code)
        assert process.reap() == code


def begin(backend):
    """What the codes of an old process may be."""
    pidwait.probe()
    return (OLD,) if backend == "pidfd" and trouble.kernel_tells() else (OLD, None)


def handles(backend):
    right = begin(backend)
    for make, zombie in ((Child, False), (Stranger, True)):
        number = Number(make)
        process, same, third = [pidwait.Process(number.pid) for _ in range(3)]
        with process, same, third:
            assert process == same and len({process, same}) == 1
            number.end()
            number.pass_on(zombie)
            assert third.wait() in right  # not for the new one, even if that is our child
            assert process.has_exited()
            assert process.wait(LONG) in right and same.wait(0, reap=True) in right
            for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
                raises(ProcessLookupError, send)
            with pidwait.Process(number.pid) as other:
                assert process == same and other != process and process != other
                assert len({process, same, other}) == 2 and other.has_exited() is zombie
        number.finish()


def many(backend):
    right = begin(backend)
    for zombie in (False, True):
        number, other = Number(Stranger), Child()
        with pidwait.WaitSet([number.pid, other.pid]) as waiting:
            assert waiting.wait(0) == []
            number.end()
            number.pass_on(zombie)
            ((pid, code),) = waiting.wait(LONG)
            assert pid == number.pid and code in right
            waiting.add(number.pid)  # the new one
            assert waiting.wait(0) == ([(number.pid, NEW)] if zombie else [])
            other.end(5)
            assert waiting.wait(LONG) == [(other.pid, 5)]
        other.reap()
        number.finish()


def added_again(backend):
    """The pid is added before the exit of the old process has been reported."""
    right = begin(backend)
    for make, discards in itertools.product((Child, Stranger), (False, True)):
        number = Number(make)
        pid = number.pid
        with pidwait.WaitSet([os.getpid(), pid]) as waiting:
            assert waiting.wait(0) == []
            number.end()
            number.pass_on()
            waiting.add(pid)
            assert len(waiting) == 3
            if discards:
                waiting.discard(pid)
                assert waiting.wait(0) == [] and len(waiting) == 1
                waiting.add(pid)
            else:
                ((found, code),) = waiting.wait(LONG)
                assert found == pid and code in right
            assert waiting.wait(0) == [] and pid in waiting
            number.new.become_zombie(NEW)
            assert waiting.wait(LONG) == [(pid, NEW)]
            assert list(waiting) == [os.getpid()]
        number.finish()


def added_while_gone(backend):
    """The pid is added while no process has it, and again for the next one."""
    pid = gone_pid()
    with pidwait.WaitSet([os.getpid(), pid]) as waiting:
        system.next_pid(pid)
        new = Child()
        assert new.pid == pid
        waiting.add(pid)
        assert len(waiting) == 3
        assert waiting.wait(LONG) == [(pid, None)]
        assert waiting.wait(0) == [] and pid in waiting
        new.become_zombie(NEW)
        assert waiting.wait(LONG) == [(pid, NEW)]
        assert list(waiting) == [os.getpid()]
    assert new.reap() == NEW


class Known:
    """Like psutil.Process, it remembers when its process started."""

    def __init__(self, pid):
        self.pid = pid
        self._started = started(pid)

    def create_time(self):
        return self._started / 100

    def is_running(self):
        return os.path.exists("/proc/%d" % self.pid) and started(self.pid) == self._started


def objects(backend):
    begin(backend)
    makes = [Known]
    with contextlib.suppress(ImportError):
        import psutil

        makes.append(psutil.Process)
    for make in makes:
        number = Number()
        known = make(number.pid)
        times_out(lambda timeout: pidwait.wait(known, timeout), 0.005)
        number.end()
        assert pidwait.wait(known, LONG) == OLD
        number.pass_on()
        assert pidwait.wait(known, LONG) is None
        assert pidwait.wait_procs([known]) == ([(known, None)], [])
        number.finish()
    popen = trouble.Popen(OLD)
    popen.end()
    popen.wait()
    system.next_pid(popen.pid)
    new = Child()
    assert new.pid == popen.pid
    assert pidwait.wait(popen, 0) == OLD
    new.end(NEW)
    assert new.reap() == NEW


def endings(backend):
    """The pid goes to another process in the grace, or while the callback runs."""
    right = begin(backend)
    for make, zombie in ((Child, False), (Stranger, True)):
        number, early = Number(make), Child()
        early.end(5)

        def pass_on(proc, code):
            if proc == early.pid:
                number.end()
                number.pass_on(zombie)

        # This signal is ignored by default.
        pids = [number.pid, early.pid]
        exited, alive = pidwait.end_procs(pids, LONG, signal.SIGWINCH, callback=pass_on)
        codes = dict(exited)
        assert alive == [] and codes[early.pid] == 5 and codes[number.pid] in right
        early.reap()
        number.finish()


def endings_of_what_has_exited_before(backend):
    """Neither the new process nor its children are touched."""

    def fork():
        if os.fork() == 0:
            time.sleep(600)

    begin(backend)
    number = Number()
    info = pidwait.ProcessInfo(number.pid)
    number.end()
    number.pass_on(prepare=fork)
    (of_stranger,) = pidwait.ProcessInfo(number.pid).children()
    assert pidwait.end_procs([info], tree=True) == ([(info, None)], [])
    assert not pidwait.has_exited(of_stranger)
    number.finish()
    number = Number()
    info = pidwait.ProcessInfo(number.pid)
    number.end()
    number.pass_on(zombie=True)
    assert pidwait.end_procs([info], reap=True) == ([(info, None)], [])
    number.finish()


def closed(backend):
    """A closed Child, which the next spawn() has reaped."""
    begin(backend)
    child = pidwait.spawn(["sleep", "600"])
    child.close()
    raises(ValueError, pidwait.wait_procs, [child], 0)
    os.kill(child.pid, signal.SIGKILL)
    pidwait.wait(child.pid, LONG)
    pidwait.spawn(["true"]).wait()
    system.next_pid(child.pid)
    new = Child()
    assert new.pid == child.pid
    raises(ValueError, pidwait.wait, child)
    raises(ValueError, pidwait.wait_procs, [child])
    raises(ValueError, pidwait.end_procs, [child])
    new.end(NEW)
    assert new.reap() == NEW


def copied(backend):
    """A Child's copy in a forked child asks its handle; the parent has reaped the process."""
    begin(backend)
    child, (reader, writer) = pidwait.spawn(["sleep", "600"]), os.pipe()
    ticks = started(child.pid)

    def end():
        os.read(reader, 1)
        for function in pidwait.wait_procs, pidwait.end_procs:
            ((found, _),), alive = function([child])
            assert found is child and alive == []

    copy = trouble.fork(end)
    child.kill()
    child.wait()
    eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > ticks)
    system.next_pid(child.pid)
    new = Child()
    assert new.pid == child.pid
    os.write(writer, b".")
    assert os.waitpid(copy, 0)[1] == 0
    os.close(reader)
    os.close(writer)
    new.end(NEW)
    assert new.reap() == NEW


SCENARIOS = [handles, many, added_again, added_while_gone, objects, endings]
SCENARIOS += [endings_of_what_has_exited_before, closed, copied]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_another_process_has_the_pid(namespaces, scenario):
    trouble.run_on_each_backend(scenario, within=namespaces)


# At any line


def at_any_line(make, use, step, action=lambda number: number.pass_on()):
    """Call use(number, line): before some line of it, action(number) is called."""
    made = []  # in advance, so that the ticks differ without a wait for the clock
    for line in each_line(lambda: action(number), step):
        made = made or [Number(make) for _ in range(20)]
        number = made.pop()
        use(number, line)
        number.finish()
    for number in made:
        number.finish()


def during_a_wait(backend, forbidden=()):
    """The process exits, and a zombie with another code gets its pid."""
    right = begin(backend)
    if forbidden:
        right = (OLD, None)
        system.forbid(dict.fromkeys(forbidden, errno.EPERM))

    def use(number, line):
        number.end()
        with pidwait.Process(number.pid) as process:
            with line:
                code = process.wait(LONG)
            assert code in right and process.wait(LONG) in (OLD, None), line.where

    step = 15 if forbidden else 5
    at_any_line(Stranger, use, step, lambda number: number.pass_on(zombie=True))


def during_a_look(backend):
    """The process runs, and then another running process gets its pid."""
    begin(backend)

    def use(number, line):
        with pidwait.Process(number.pid) as process:
            with line, contextlib.suppress(pidwait.TimeoutExpired):
                assert process.wait(0) in (OLD, None), line.where
            if line.reached:
                assert process.wait(LONG) in (OLD, None), line.where

    at_any_line(Child, use, 4, lambda number: number.end() or number.pass_on())


def while_it_is_opened(backend):
    """A handle is for the old process or for the new one, and knows which."""
    begin(backend)

    def use(number, line):
        number.end()
        with line:
            process = pidwait.Process(number.pid)
        with process:
            if line.reached and not process.has_exited():
                number.new.become_zombie(NEW)
                assert process.wait(LONG) == NEW, line.where
            else:
                assert process.wait(LONG) in (OLD, None), line.where

    at_any_line(Child, use, 5)


SCENARIOS = [during_a_wait, during_a_look, while_it_is_opened]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_another_process_gets_the_pid_at_any_line(namespaces, scenario):
    trouble.run_on_each_backend(scenario, within=namespaces)


# With a pidfd


def received(backend):
    """A pidfd from elsewhere, of a process whose pid another one has by now."""
    right = begin(backend)
    for asked in (False, True):
        number = Number()
        fds = [system.pidfd_open(number.pid) for _ in range(2)]
        number.end()
        if not asked:
            number.pass_on()
        with pidwait.Process.from_fd(fds[0]) as process:
            if asked:
                number.pass_on()
            assert process.pid in (number.pid, None) and process.wait(LONG) in right
            raises(ProcessLookupError, process.kill)
            with pidwait.Process(number.pid) as other, pidwait.Process.from_fd(fds[1]) as same:
                assert process != other
                assert process == same or None in right
        number.finish()


def during_a_signal(backend, end=pidwait.Process.terminate, step=2):
    """A pidfd never signals the new process. Without one there is a window, as documented."""
    begin(backend)
    killed = []

    def use(number, line):
        process = pidwait.Process(number.pid)
        with process, line, contextlib.suppress(ProcessLookupError):
            end(process)
        if number.new is None:
            assert number.old.reap() == -signal.SIGTERM
            number.old = Child()
            number.pid = number.old.pid
            killed.append(number)

    def leave(number):
        with contextlib.suppress(BrokenPipeError):  # the signal was first
            number.old.end(OLD)
        number.pass_on()

    at_any_line(Child, use, step, leave)
    assert len(killed) == 1


def during_an_end(backend):
    def end(process):
        exited, alive = pidwait.end_procs([process], LONG)
        assert (exited[0][0], alive) == (process, [])

    during_a_signal(backend, end, 7)


def without_descriptors(backend, *forbidden):
    """The fall-back to the pid notices that another process has it."""
    right = (OLD, None) if forbidden else begin(backend)
    system.forbid(dict.fromkeys(forbidden, errno.EPERM))
    for make in (Child, Stranger):
        number = Number(make)
        with pidwait.Process(number.pid) as process:
            number.end()
            number.pass_on()
            with system.limit_is_zero():
                assert process.has_exited() and process.wait(LONG) in right
                raises(ProcessLookupError, process.kill)
        number.finish()


PIDFD = [
    (received,),
    (during_a_signal,),
    (during_an_end,),
    (without_descriptors,),
    (without_descriptors, "pidfd_send_signal"),
    (during_a_wait, ["ioctl"]),
    (during_a_wait, ["ioctl", "pidfd_send_signal", "waitid"]),
]


@pytest.mark.parametrize("scenario", PIDFD)
def test_a_pidfd_is_never_for_the_new_process(namespaces, pidfd, scenario):
    trouble.run(scenario[0], "pidfd", *scenario[1:], within=namespaces)


# In a tree

HIT = 8


def in_a_tree(exits_when_listed):
    """While a keeper lists its descendants, one exits, and another process gets its pid."""
    keeper, sig = seam.keeper(), signal.SIGWINCH  # ignored by default
    top, number = Child(), Number()
    child = Child(lambda: signal.signal(sig, lambda *args: os._exit(HIT)))
    lists = {0: [top.pid], top.pid: [number.pid], number.pid: [child.pid]}
    moment = {"itself": top.pid, "its children": number.pid}.get(exits_when_listed)

    def children_of(pid):
        listed = lists.get(pid, [])
        if pid == moment and number.new is None:
            number.end()
            number.pass_on()
            lists[top.pid] = []
        return listed

    keeper.children_of = children_of
    tree = keeper.Keeper.__new__(keeper.Keeper)
    tree.me, tree.plan, tree.owed = 0, {"mark": b"of a keeper"}, {}
    tree.send(sig)
    with contextlib.suppress(BrokenPipeError):  # the signal was first
        child.end(NEW)
    assert child.reap() == (NEW if moment else HIT)
    # Those get it once they are children of the keeper.
    unsure = {"itself": [number.pid, child.pid], "its children": [child.pid]}
    assert tree.owed == dict.fromkeys(unsure.get(exits_when_listed, ()), sig)
    top.end(OLD)
    assert top.reap() == OLD
    number.finish()


@pytest.mark.parametrize("exits_when_listed", ["never", "itself", "its children"])
def test_a_keeper_signals_no_process_that_has_a_descendants_pid(
    namespaces, pidfd, exits_when_listed
):
    trouble.run(in_a_tree, exits_when_listed, within=namespaces)
