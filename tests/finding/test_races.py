# SPDX-License-Identifier: BSD-3-Clause
"""Looks at processes that exit, start children, or hand on their pids meanwhile, at each step."""

import os
import shutil
import signal
import subprocess
import time

from .. import pidwait, trouble
from ..processes import eventually, needs_ctypes
from ..trouble import Child, raises, system
from ..trouble.conftest import namespaces  # noqa: F401
from .steps import at_each_call, before_call

ALL = "pid name ppid cmdline status create_time username uids terminal cpu_times".split()
CLOCK_BOOTTIME = 7  # the module time has it from Python 3.7 on

pytestmark = needs_ctypes


def next_tick():
    """Start times are told in hundredths of a second."""
    now = time.clock_gettime(CLOCK_BOOTTIME)
    eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > int(now * 100))


def or_none(function, *args):
    """What the function returns; None for a process that is gone."""
    try:
        return function(*args)
    except ProcessLookupError:
        return None


# Each looks at one process, and returns a dict.


def in_the_list(info, attrs):
    found = [one for one in pidwait.process_iter(attrs) if one.pid == info.pid]
    return found[0].info if found else None


def by_as_dict(info, attrs):
    return info.as_dict(attrs)


def in_a_oneshot(info, attrs):
    with info.oneshot():
        return {name: info.pid if name == "pid" else getattr(info, name)() for name in attrs}


def by_a_method(info, attrs):
    return {attrs[0]: getattr(info, attrs[0])()}


def vanishing():
    for look in in_the_list, by_as_dict, in_a_oneshot:
        seen = set()

        def play(number, look=look, seen=seen):
            child = Child()
            info = pidwait.ProcessInfo(child.pid)
            step = before_call(number, lambda: (child.end(0), child.reap()))
            with step:
                found = or_none(look, info, ALL)
            if not step.reached:
                child.end(0)
                child.reap()
            if found is not None:
                assert sorted(found) == sorted(ALL)
                assert found["ppid"] == os.getpid() and found["uids"] == os.getresuid()
            assert not info.is_running()
            seen.add(found is None)
            return step

        pidwait.ProcessInfo(os.getpid()).as_dict()  # what a first look loads
        at_each_call(play, 5)
        assert seen == {True, False}


def test_a_process_that_vanishes_is_told_whole_or_not_at_all(namespaces):  # noqa: F811
    trouble.run(vanishing, within=namespaces)


# Reused pids

NAMES = ["a-quite-long-name-old", "a-quite-long-name-new"]  # the kernel keeps the same of both


class Twice:
    """A pid that one program has, and after pass_on() another one."""

    def __init__(self, folder):
        self._folder = folder
        self._start(NAMES[0])
        self.pid = self._popen.pid

    def _start(self, name):
        command = [os.path.join(self._folder, name), "1000"]
        if not os.path.exists(command[0]):
            os.symlink(shutil.which("sleep"), command[0])
        self._popen = subprocess.Popen(command)
        # exec(2) closes Popen's pipe before it sets the name and the arguments.
        info = pidwait.ProcessInfo(self._popen.pid)
        eventually(lambda: info.cmdline() == command)

    def pass_on(self):
        self.end()
        next_tick()
        system.next_pid(self.pid)
        self._start(NAMES[1])
        assert self._popen.pid == self.pid

    def end(self):
        self._popen.kill()
        self._popen.wait()


def reused(folder):
    for look, attrs, names in (
        (in_the_list, ["name", "cmdline", "create_time"], set(NAMES)),
        (in_the_list, ["name"], set(NAMES)),
        (by_as_dict, ["name", "cmdline", "create_time"], {NAMES[0]}),
        (in_a_oneshot, ["name", "cmdline", "create_time"], {NAMES[0]}),
        (by_a_method, ["cmdline"], {NAMES[0]}),
        (by_a_method, ["name"], {NAMES[0]}),
    ):
        seen = set()

        def play(number, look=look, attrs=attrs, seen=seen):
            twice = Twice(folder)
            info = pidwait.ProcessInfo(twice.pid)
            created = info.create_time()
            with before_call(number, twice.pass_on) as step:
                found = or_none(look, info, attrs)
            assert info.is_running() is not step.reached
            twice.end()
            if found is None:
                return step
            name = os.path.basename(found["cmdline"][0]) if "cmdline" in found else found["name"]
            # It may be cut off, where the arguments are another's already; but never another's.
            assert found.get("name", name) in (name, name[:15])
            if "create_time" in found:
                assert (found["create_time"] < created + 0.005) is (name == NAMES[0])
            seen.add(name)
            return step

        at_each_call(play, 4)
        assert seen - {NAMES[0][:15]} == names


def waited_for(folder):
    twice = Twice(folder)
    (info,) = [one for one in pidwait.process_iter() if one.pid == twice.pid]
    twice.pass_on()
    new = pidwait.ProcessInfo(twice.pid)
    assert not info.is_running() and info != new and new.is_running()
    for function in (info.name, info.as_dict, info.children, info.oneshot().__enter__):
        raises(ProcessLookupError, function)
    assert pidwait.wait(info) is None
    assert pidwait.wait_procs([info, new], 0) == ([(info, None)], [new])
    with pidwait.WaitSet([info]) as waiting:
        assert waiting.wait() == [(info, None)]
    twice.end()


def test_what_is_told_of_a_reused_pid_is_of_one_process(namespaces, tmp_path):  # noqa: F811
    trouble.run(reused, str(tmp_path), within=namespaces)


def test_a_wait_is_for_the_process_that_was_listed(namespaces, tmp_path):  # noqa: F811
    trouble.run(waited_for, str(tmp_path), within=namespaces)


# Families


class Parent:
    """A process that forks whenever fork() says so, with the pid given, and reaps nothing."""

    def __init__(self):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = trouble.fork(self._live, orders, answers)
        os.close(orders)
        os.close(answers)

    def _live(self, orders, answers):
        while os.read(orders, 1) == b".":
            os.write(answers, b"%9d" % long_lived())

    def fork(self, pid=None):
        if pid is not None:
            system.next_pid(pid)
        os.write(self._orders, b".")
        child = int(os.read(self._answers, 9))
        assert pid in (None, child)
        return child

    def leave(self):
        """Exit, and be reaped: the first process of the namespace inherits the children."""
        os.write(self._orders, b"q")  # others have inherited the pipe: it has no end
        os.close(self._orders)
        os.close(self._answers)
        os.waitpid(self.pid, 0)


def long_lived():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def stop(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def family(pid):
    return [child.pid for child in pidwait.ProcessInfo(pid).children(recursive=True)]


def parent_is_another(number):
    """The parent exits, and the process that gets its pid has a child, too."""
    parent = Parent()
    own = parent.fork()
    # The other's child has a pid that is in the list already.
    system.next_pid(own + 100)
    placeholder = long_lived()
    parents = [parent]

    def pass_on():
        parent.leave()
        stop(placeholder)
        next_tick()
        system.next_pid(parent.pid)
        parents.append(Parent())
        assert parents[1].pid == parent.pid
        parents[1].fork(placeholder)
        next_tick()  # a look that begins from here on is younger than all of them

    info = pidwait.ProcessInfo(parent.pid)
    with before_call(number, pass_on) as step:
        found = or_none(info.children, True) or []
    pids = [child.pid for child in found]
    assert pids == [own] or (step.reached and pids == []), (number, pids, placeholder)
    parents[-1].leave()
    stop(own, placeholder)
    return step


def orphan(number):
    """The parent exits, and a child of the family gets its pid."""
    system.next_pid(5000)
    parent, top = Parent(), Parent()
    child = parent.fork(4000)
    joined = []

    def pass_on():
        parent.leave()
        next_tick()
        joined.append(top.fork(parent.pid))

    with before_call(number, pass_on) as step:
        found = family(top.pid)
    assert found in ([], joined), (number, found)
    if not joined:
        parent.leave()
    top.leave()
    stop(child, *joined)
    return step


def growing(number):
    """What is started before the last look begins is found: here there are two looks, or three."""
    top = Parent()
    started = [top.fork()]
    with before_call(number, lambda: started.append(top.fork())) as step:
        found = family(top.pid)
    assert found in (started, started[:1]), number
    missed.append(found != started)
    top.leave()
    stop(*started)
    return step


missed = []


def families(play):
    family(os.getpid())  # what a first look loads
    at_each_call(globals()[play], 8)
    assert play != "growing" or 0 < sum(missed) < len(missed) / 2


def test_a_child_of_the_next_process_with_the_pid_is_none_of_ours(namespaces):  # noqa: F811
    trouble.run(families, "parent_is_another", within=namespaces)


def test_an_orphan_is_not_adopted_by_the_next_process_with_the_pid(namespaces):  # noqa: F811
    trouble.run(families, "orphan", within=namespaces)


def test_children_that_are_started_meanwhile_are_found(namespaces):  # noqa: F811
    trouble.run(families, "growing", within=namespaces)


def without_end():
    """A family that grows at every look."""
    top, real, started = Parent(), os.listdir, []
    os.listdir = lambda *args: started.append(top.fork()) or real(*args)
    found = family(top.pid)
    assert found == started[: len(found)] and len(found) > 10
    os.listdir = real
    top.leave()
    stop(*started)


def test_children_returns_though_the_family_never_stops_growing(namespaces):  # noqa: F811
    trouble.run(without_end, within=namespaces)
