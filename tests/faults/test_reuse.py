# SPDX-License-Identifier: BSD-3-Clause
"""Reused pids, made at will in a PID namespace.

A wait is never for the wrong process, and never tells a wrong code.
"""

import errno
import os
import signal
import subprocess
import threading
import time

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, at_line, raises, times_out
from ..processes import eventually, state
from . import system

pytest.importorskip("ctypes")

CLOCK_BOOTTIME = 7  # the module time has it from Python 3.7 on
OLD, NEW = 3, 9  # exit codes


@pytest.fixture
def pidfd():
    reason = faults.why_no_pidfd()
    if reason:
        pytest.skip(reason)


def started(pid):
    """The start time of a process, in ticks of ten milliseconds since boot."""
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[19])


class Number:
    """A pid and the process that has it: ``old``, and after pass_on() ``new``, our child."""

    def __init__(self, make=Child):
        self.old = make()
        self.pid = self.old.pid
        self.new = None
        self._started = started(self.pid)

    def end(self):
        self.old.become_zombie(OLD)

    def pass_on(self, zombie=False):
        """Have the old process reaped, and start a new one with its pid."""
        self.old.reap()
        self.give(zombie)

    def give(self, zombie=False):
        self.old = None
        # Without a handle, only the ticks of their start times tell the two apart.
        eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > self._started)
        system.next_pid(self.pid)
        self.new = Child()
        assert self.new.pid == self.pid
        if zombie:
            self.new.become_zombie(NEW)

    def finish(self):
        """Check that nobody touched the new process, and reap it."""
        if state(self.pid) != "Z":
            self.new.end(NEW)
        assert self.new.reap() == NEW

    def drop(self):
        """Reap the old process, if the pid was not passed on."""
        if self.old is not None:
            if state(self.pid) != "Z":
                self.old.end(OLD)
            self.old.reap()


def use(backend):
    pidwait.probe()
    return backend == "pidfd" and faults.kernel_tells()


def handle(backend):
    certain = use(backend)
    for make in (Child, Stranger):
        for zombie in (False, True):
            number = Number(make)
            with pidwait.Process(number.pid) as process, pidwait.Process(number.pid) as same:
                assert process == same and len({process, same}) == 1
                number.end()
                number.pass_on(zombie)
                assert process.has_exited()
                assert process.wait(LONG) in ((OLD,) if certain else (OLD, None))
                assert same.wait(0, reap=True) in ((OLD,) if certain else (OLD, None))
                for send in (process.terminate, process.kill, lambda p=process: p.send_signal(0)):
                    raises(ProcessLookupError, send)
                with pidwait.Process(number.pid) as other:
                    assert other != process and process != other
                    assert len({process, same, other}) == 2
                    assert process == same
                    assert other.has_exited() is zombie
            number.finish()


def received(backend):
    """A pidfd from elsewhere, of a process whose pid another one has by now."""
    certain = use(backend)
    for asked in (False, True):
        number = Number()
        fds = [system.pidfd_open(number.pid) for _ in range(2)]
        number.end()
        if not asked:
            number.pass_on()
        with pidwait.Process.from_fd(fds[0]) as process:
            if asked:
                number.pass_on()
            assert process.pid in (number.pid, None)
            assert process.wait(LONG) in ((OLD,) if certain else (OLD, None))
            raises(ProcessLookupError, process.kill)
            with pidwait.Process(number.pid) as other, pidwait.Process.from_fd(fds[1]) as same:
                assert process != other
                assert process == same or not certain
        number.finish()


def at_every_line(make, action, check, files=faults.LOOKING):
    """Call check(number, line) for each line of a use, before which action(number) is called.

    The Numbers are made in advance, so that the ticks differ without a wait for the clock.
    """
    step, reached, made = 0, True, []
    while reached:
        step += 1
        if not made:
            made = [Number(make) for _ in range(20)]
        number = made.pop()
        line = at_line(step, lambda number=number: action(number), files)
        check(number, line)
        reached = line.reached
        if reached:
            number.finish()
        else:
            number.drop()
    for number in made:
        number.drop()
    assert step > 5


BEFORE = faults.LOOKING + ("process.py", "_targets.py", "_kinds.py")


def during_a_wait(backend, rules=()):
    """The process exits, and a zombie with another code gets its pid."""
    certain = use(backend)
    if rules:
        certain = False
        system.forbid(dict.fromkeys(rules, errno.EPERM))

    def check(number, line):
        number.end()
        with pidwait.Process(number.pid) as process:
            with line:
                code = process.wait(LONG)
            assert code in ((OLD,) if certain else (OLD, None)), line.where
            assert process.wait(LONG) in (OLD, None)

    for make in (Child, Stranger) if backend == "pidfd" and not rules else (Stranger,):
        at_every_line(make, lambda number: number.pass_on(zombie=True), check)


def during_a_look(backend):
    """The process runs, and then another running process gets its pid."""
    use(backend)

    def check(number, line):
        with pidwait.Process(number.pid) as process:
            with line:
                try:
                    assert process.wait(0) in (OLD, None), line.where
                except pidwait.TimeoutExpired:
                    pass
            if line.reached:
                assert process.wait(LONG) in (OLD, None), line.where

    at_every_line(Child, lambda number: number.end() or number.pass_on(), check)


def during_a_signal(backend):
    """A pidfd never signals the new process. Without one there is a window, as documented."""
    use(backend)

    def check(number, line):
        with pidwait.Process(number.pid) as process:
            with line:
                try:
                    process.terminate()
                except ProcessLookupError:
                    pass
            if not line.reached:
                assert process.wait(LONG) == -signal.SIGTERM

    at_every_line(Child, leave_to_another, check)


def leave_to_another(number):
    try:
        number.old.end(OLD)
    except BrokenPipeError:  # the signal was first
        pass
    assert number.old.reap() in (OLD, -signal.SIGTERM)
    number.give()


def popen_reaps_meanwhile(backend):
    """It reaps before each line of our wait, as another thread could."""
    if backend == "polling":
        return  # the lines that matter are the same
    use(backend)

    def check(number, line):
        number.end()
        popen = Popen(number)
        with line:
            assert pidwait.wait(popen, LONG) == OLD, line.where
        assert popen.returncode == OLD

    at_every_line(Child, lambda number: Popen.latest.leave(), check, BEFORE)


class Popen:
    """Like subprocess.Popen; leave() is what another thread does with it."""

    latest = None

    def __init__(self, number):
        Popen.latest = self
        self._number = number
        self._waitpid_lock = threading.Lock()
        self.pid = number.pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = faults.exit_code(status)
                self._number.old.forget()
                self._number.old = None
        return self.returncode

    def leave(self):
        self.poll()
        self._number.give()


def object_that_remembers_meanwhile(backend):
    """An object that remembers when its process started."""
    if backend == "pidfd":
        return  # polling has more lines
    use(backend)

    def check(number, line):
        number.end()
        known = Known(number.pid)
        with line:
            assert pidwait.wait(known, LONG) in (OLD, None), line.where

    at_every_line(Child, lambda number: number.pass_on(), check, BEFORE)


class Known:
    """Like psutil.Process."""

    def __init__(self, pid):
        self.pid = pid
        self._started = started(pid)

    def create_time(self):
        return self._started / 100

    def is_running(self):
        return os.path.exists("/proc/%d" % self.pid) and started(self.pid) == self._started


def object_that_remembers(backend):
    use(backend)
    objects = [Known]
    try:
        import psutil
    except ImportError:
        pass
    else:
        objects.append(psutil.Process)
    for make in objects:
        number = Number()
        known = make(number.pid)
        times_out(lambda timeout, known=known: pidwait.wait(known, timeout), 0.005)
        number.end()
        assert pidwait.wait(known, LONG) == OLD
        number.pass_on()
        assert pidwait.wait(known, LONG) is None
        number.finish()


def popen_that_has_its_code(backend):
    use(backend)
    popen = subprocess.Popen(["sh", "-c", "exit %d" % OLD])
    popen.wait()
    system.next_pid(popen.pid)
    new = Child()
    assert new.pid == popen.pid
    assert pidwait.wait(popen, 0) == OLD
    new.end(NEW)
    assert new.reap() == NEW


def without_fds(rules):
    """The fall-back to the pid notices that another process has it."""
    certain = use("pidfd") and not rules
    system.forbid(rules)
    for make in (Child, Stranger):
        number = Number(make)
        with pidwait.Process(number.pid) as process:
            number.end()
            number.pass_on()
            with system.limit_is_zero():
                assert process.has_exited()
                assert process.wait(LONG) in ((OLD,) if certain else (OLD, None))
                raises(ProcessLookupError, process.kill)
        number.finish()


@pytest.mark.parametrize(
    "scenario",
    [
        handle,
        object_that_remembers,
        popen_that_has_its_code,
        during_a_wait,
        during_a_look,
        popen_reaps_meanwhile,
        object_that_remembers_meanwhile,
    ],
)
def test_reuse(namespaces, scenario):
    faults.run_on_each_backend(scenario, within=namespaces)


@pytest.mark.parametrize("scenario", [received, during_a_signal])
def test_with_a_pidfd(namespaces, pidfd, scenario):
    faults.run(scenario, "pidfd", within=namespaces)


@pytest.mark.parametrize("calls", ["ioctl", "ioctl pidfd_send_signal waitid"])
def test_under_a_policy(namespaces, pidfd, calls):
    if system.why_no_policy():
        pytest.skip(system.why_no_policy())
    faults.run(during_a_wait, "pidfd", calls.split(), within=namespaces)


@pytest.mark.parametrize("calls", ["", "pidfd_send_signal"])
def test_without_fds(namespaces, pidfd, calls):
    if calls and system.why_no_policy():
        pytest.skip(system.why_no_policy())
    faults.run(without_fds, dict.fromkeys(calls.split(), errno.EPERM), within=namespaces)
