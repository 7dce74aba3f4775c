# SPDX-License-Identifier: BSD-3-Clause
"""Looks at processes that exit, start children, or hand on their pids meanwhile, at each step."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from .. import pidwait, trouble
from ..processes import eventually, needs_pthread_exit
from ..trouble import Child, raises, system
from ..trouble.conftest import namespaces  # noqa: F401
from .steps import at_each_call, before_call

ALL = "pid name ppid cmdline status create_time username uids".split()
CLOCK_BOOTTIME = 7  # the module time has it from Python 3.7 on


def next_tick():
    """Start times are told in hundredths of a second."""
    now = time.clock_gettime(CLOCK_BOOTTIME)
    eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > int(now * 100))


# Looks at one process: a dict, or None if it is gone


def in_the_list(info, attrs):
    found = [one for one in pidwait.process_iter(attrs) if one.pid == info.pid]
    return found[0].info if found else None


def unless_gone(look):
    def look_or_none(info, attrs):
        try:
            return look(info, attrs)
        except ProcessLookupError:
            return None

    return look_or_none


@unless_gone
def by_as_dict(info, attrs):
    return info.as_dict(attrs)


@unless_gone
def in_a_oneshot(info, attrs):
    with info.oneshot():
        return {name: info.pid if name == "pid" else getattr(info, name)() for name in attrs}


@unless_gone
def by_a_method(info, attrs):
    return {attrs[0]: getattr(info, attrs[0])()}


def a_process_that_vanishes_is_told_whole_or_not_at_all(folder):
    def play(number, look, seen):
        child = Child()
        info = pidwait.ProcessInfo(child.pid)
        step = before_call(number, lambda: (child.end(0), child.reap()))
        with step:
            found = look(info, ALL)
        if not step.reached:
            child.end(0)
            child.reap()
        if found is not None:
            assert sorted(found) == sorted(ALL)
            assert found["ppid"] == os.getpid() and found["uids"] == os.getresuid()
        assert not info.is_running()
        seen.add(found is None)
        return step

    for look in in_the_list, by_as_dict, in_a_oneshot:
        seen = set()
        at_each_call(play, 5, look, seen)
        assert seen == {True, False}


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


def what_is_told_of_a_reused_pid_is_of_one_process(folder):
    def play(number, look, attrs, seen):
        twice = Twice(folder)
        info = pidwait.ProcessInfo(twice.pid)
        created = info.create_time()
        with before_call(number, twice.pass_on) as step:
            found = look(info, attrs)
        assert info.is_running() is not step.reached
        twice.end()
        if found is not None:
            name = os.path.basename(found["cmdline"][0]) if "cmdline" in found else found["name"]
            # It may be cut off, where the arguments are another's already; but never another's.
            assert found.get("name", name) in (name, name[:15])
            if "create_time" in found:
                assert (found["create_time"] < created + 0.005) is (name == NAMES[0])
            seen.add(name)
        return step

    several = ["name", "cmdline", "create_time"]
    for look, attrs, names in (
        (in_the_list, several, NAMES),
        (in_the_list, ["name"], NAMES),
        (by_as_dict, several, NAMES[:1]),
        (in_a_oneshot, several, NAMES[:1]),
        (by_a_method, ["cmdline"], NAMES[:1]),
        (by_a_method, ["name"], NAMES[:1]),
    ):
        seen = set()
        at_each_call(play, 4, look, attrs, seen)
        assert seen - {NAMES[0][:15]} == set(names)


def waits_and_signals_are_for_the_process_that_was_listed(folder):
    twice = Twice(folder)
    info, *others = [
        one for _ in range(5) for one in pidwait.process_iter() if one.pid == twice.pid
    ]
    twice.pass_on()
    # Nobody has looked at these yet.
    for function in others[0].kill, others[1].name, lambda: pidwait.Process(others[2]):
        raises(ProcessLookupError, function)
    new = pidwait.ProcessInfo(twice.pid)
    assert new not in others and others[3] not in list(pidwait.process_iter())
    assert not info.is_running() and info != new and new.is_running()
    for function in (info.name, info.as_dict, info.children, info.oneshot().__enter__):
        raises(ProcessLookupError, function)
    for function in info.terminate, info.kill, lambda: info.send_signal(0):
        raises(ProcessLookupError, function)
    assert new.is_running()
    assert pidwait.wait(info) is None
    assert pidwait.wait_procs([info, new], 0) == ([(info, None)], [new])
    with pidwait.WaitSet([info]) as waiting:
        assert waiting.wait() == [(info, None)]
    twice.end()


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


@unless_gone
def family(info, recursive=True):
    return [child.pid for child in info.children(recursive)]


def a_child_of_the_next_process_with_the_pid_is_none_of_ours(folder):
    def play(number):
        parent = Parent()
        own = parent.fork()
        # The other's child has a pid that is in the list already.
        system.next_pid(own + 100)
        placeholder = long_lived()
        next_tick()
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
            found = family(info, True)
        assert found == [own] or (step.reached and not found), (number, found, placeholder)
        parents[-1].leave()
        stop(own, placeholder)
        return step

    at_each_call(play, 8)


def an_orphan_is_not_adopted_by_the_next_process_with_the_pid_of_its_parent(folder):
    def play(number):
        system.next_pid(5000)
        parent, top = Parent(), Parent()
        child = parent.fork(4000)
        joined = []

        def pass_on():
            parent.leave()
            next_tick()
            joined.append(top.fork(parent.pid))

        info = pidwait.ProcessInfo(top.pid)
        with before_call(number, pass_on) as step:
            assert family(info, True) in ([], joined), number
        if not joined:
            parent.leave()
        top.leave()
        stop(child, *joined)
        return step

    at_each_call(play, 8)


def what_is_started_before_the_last_look_is_found(folder):
    missed = []

    def play(number):
        inner = Parent()
        started = [inner.pid, inner.fork()]
        me = pidwait.ProcessInfo(os.getpid())
        with before_call(number, lambda: started.append(inner.fork())) as step:
            found = family(me, True)
        assert found in (started, started[:2]), number
        missed.append(found != started)
        inner.leave()
        stop(*started[1:])
        return step

    at_each_call(play, 8)
    assert 0 < sum(missed) < len(missed) / 2  # there are two looks, or three


def children_returns_though_the_family_never_stops_growing(folder):
    top, real, started = Parent(), os.listdir, []
    info = pidwait.ProcessInfo(top.pid)
    os.listdir = lambda *args: started.append(top.fork()) or real(*args)
    found = family(info, True)
    assert found == started[: len(found)] and len(found) > 10
    os.listdir = real
    top.leave()
    stop(*started)


PLAYS = [
    a_process_that_vanishes_is_told_whole_or_not_at_all,
    what_is_told_of_a_reused_pid_is_of_one_process,
    waits_and_signals_are_for_the_process_that_was_listed,
    a_child_of_the_next_process_with_the_pid_is_none_of_ours,
    an_orphan_is_not_adopted_by_the_next_process_with_the_pid_of_its_parent,
    what_is_started_before_the_last_look_is_found,
    children_returns_though_the_family_never_stops_growing,
]


def loaded(name, folder):
    pidwait.ProcessInfo(os.getpid()).as_dict()  # what a first look loads
    globals()[name](folder)


@needs_pthread_exit
@pytest.mark.parametrize("play", PLAYS)
def test(namespaces, tmp_path, play):  # noqa: F811
    trouble.run(loaded, play.__name__, str(tmp_path), within=namespaces)
