# SPDX-License-Identifier: BSD-3-Clause
"""Listing while processes come and go, and their pids are reused; and under a hidden /proc."""

import errno
import gc
import importlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from .. import faults, pidwait
from ..faults import Child, Stranger, at_line, interrupt, raises
from ..processes import eventually
from . import system
from .test_reuse import CLOCK_BOOTTIME
from .test_users import THEM, US, become_them, needs_root

pytest.importorskip("ctypes")

_facts = importlib.import_module(pidwait.__name__ + "._facts")

FILES = "listing.py", "_facts.py", "listed_procfs.py"
BETWEEN_LOOKS = ("_family.py",)


def next_tick():
    """Start times are told in hundredths of a second."""
    now = time.clock_gettime(CLOCK_BOOTTIME)
    eventually(lambda: int(time.clock_gettime(CLOCK_BOOTTIME) * 100) > int(now * 100))


def load():
    """List once, and see that there are names of users, so that nothing is imported later."""
    assert pidwait.ProcessInfo(os.getpid()).as_dict()["pid"] == os.getpid()


def list_all():
    return list(pidwait.process_iter(["cmdline"]))


def at_each_line(play):
    """play(number) until there is no such line any more; it returns the at_line that it used."""
    number = 1
    while play(number).reached:
        number += 1
    assert number > 30


def value(info, name):
    return info.pid if name == "pid" else getattr(info, name)()


# Processes that vanish


def vanishing():
    load()

    def play(number):
        child = Child()
        info = pidwait.ProcessInfo(child.pid)
        step = at_line(number, lambda: (child.end(0), child.reap()), FILES)
        with step:
            found = look(info)
        if not step.reached:
            child.end(0)
            child.reap()
        if found is not None:
            assert sorted(found) == sorted(_facts.ATTRIBUTES)
            assert found["ppid"] == os.getpid() and found["uids"] == os.getresuid()
        return step

    def in_the_list(info):
        found = [one.info for one in pidwait.process_iter([]) if one.pid == info.pid]
        return found[0] if found else None

    def by_itself(info):
        try:
            return info.as_dict()
        except ProcessLookupError:
            return None

    def in_a_oneshot(info):
        try:
            with info.oneshot():
                return {name: value(info, name) for name in _facts.ATTRIBUTES}
        except ProcessLookupError:
            return None

    for look in (in_the_list, by_itself, in_a_oneshot):
        at_each_line(play)


def test_process_that_vanishes_at_each_line(namespaces):
    faults.run(vanishing, within=namespaces)


# Reused pids


def start(command):
    popen = subprocess.Popen(command)
    # exec(2) closes Popen's pipe before it sets the name and the arguments.
    path = "/proc/%d/cmdline" % popen.pid
    eventually(lambda: read(path).split(b"\0")[:-1] == list(map(os.fsencode, command)))
    return popen


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Twice:
    """A pid that one program has, and after pass_on() another one."""

    OLD, NEW = ["sleep", "1000"], ["tail", "-f", os.devnull]

    def __init__(self, old=OLD, new=NEW):
        self.popen = start(old)
        self.pid = self.popen.pid
        self._new = new

    def pass_on(self):
        self.end()
        next_tick()
        system.next_pid(self.pid)
        self.popen = start(self._new)
        assert self.popen.pid == self.pid

    def end(self):
        self.popen.kill()
        self.popen.wait()


def reused():
    load()
    seen = set()

    def play(number):
        twice = Twice()
        info = pidwait.ProcessInfo(twice.pid)
        with at_line(number, twice.pass_on, FILES) as step:
            found = look(info)
        twice.end()
        if found is not None:
            known = ("sleep", Twice.OLD), ("tail", Twice.NEW)
            assert found in known, (step.where, found)
            seen.add(found[0])
        return step

    def in_the_list(info):
        found = [
            (one.info["name"], one.info["cmdline"])
            for one in pidwait.process_iter(["name", "cmdline"])
            if one.pid == info.pid
        ]
        return found[0] if found else None

    def old(function):
        """Of a ProcessInfo of the old one: never anything of the new one."""
        try:
            found = function()
        except ProcessLookupError:
            return None
        assert found[0] == "sleep"
        return found

    def by_itself(info):
        return old(lambda: tuple(info.as_dict(["name", "cmdline"]).values()))

    def in_a_oneshot(info):
        def both():
            with info.oneshot():
                return info.name(), info.cmdline()

        return old(both)

    def alone(info):
        return old(lambda: ("sleep", info.cmdline()))

    for look, names in (
        (in_the_list, {"sleep", "tail"}),
        (by_itself, {"sleep"}),
        (in_a_oneshot, {"sleep"}),
        (alone, {"sleep"}),
    ):
        seen.clear()
        at_each_line(play)
        assert seen == names


def test_pid_that_is_reused_at_each_line(namespaces):
    faults.run(reused, within=namespaces)


def reused_with_a_long_name(folder):
    """The kernel keeps 15 bytes of both names, and these are the same."""
    load()
    old, new = (os.path.join(folder, "a-quite-long-name-" + end) for end in ("old", "new"))
    for link in (old, new):
        os.symlink(shutil.which("sleep"), link)
    names = {False: os.path.basename(old), True: os.path.basename(new)}
    seen = set()

    def play(number):
        twice = Twice([old, "1000"], [new, "1000"])
        before = pidwait.ProcessInfo(twice.pid)
        with at_line(number, twice.pass_on, FILES) as step:
            found = [one for one in pidwait.process_iter(["name"]) if one.pid == twice.pid]
        twice.end()
        for info in found:
            is_new = info != before
            assert info.info["name"] in (names[is_new], names[is_new][:15]), (step.where, is_new)
            seen.add(is_new)
        return step

    at_each_line(play)
    assert seen == {False, True}


def test_long_name_of_a_pid_that_is_reused_at_each_line(namespaces, tmp_path):
    faults.run(reused_with_a_long_name, str(tmp_path), within=namespaces)


def waited_for():
    """Whoever has the pid by now: the wait is for the process that was listed."""
    load()
    twice = Twice()
    (info,) = [one for one in pidwait.process_iter() if one.pid == twice.pid]
    twice.pass_on()
    assert not info.is_running()
    assert info != pidwait.ProcessInfo(twice.pid)
    assert pidwait.wait(info) is None
    assert pidwait.wait_procs([info]) == ([(info, None)], [])
    with pidwait.WaitSet([info]) as waiting:
        assert waiting.wait() == [(info, None)]
    assert pidwait.ProcessInfo(twice.pid).name() == "tail"
    twice.end()


def test_waiting_for_a_process_whose_pid_is_reused(namespaces):
    faults.run(waited_for, within=namespaces)


def with_a_child(make_child):
    """A process whose child make_child() makes; it exits, without waiting, once it is told to."""
    reader, writer = os.pipe()
    orders, ours = os.pipe()

    def live():
        os.close(reader)
        os.close(ours)
        os.write(writer, b"%d" % make_child())
        os.read(orders, 1)

    pid = faults.fork(live)
    os.close(writer)
    os.close(orders)
    child = int(os.read(reader, 20))
    os.close(reader)
    return pid, child, ours


def leave(pid, orders):
    """Have a process of with_a_child() exit, and reap it: its child is ours from then on."""
    os.write(orders, b".")
    os.close(orders)
    os.waitpid(pid, 0)


def long_lived():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def stop(pid):
    """Its parent has exited, so it is ours: we are the first process of the namespace."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def family_of_another():
    """The parent exits, and the process that gets its pid has a child, too."""
    load()
    found_own = set()

    def play(number):
        parent, own, orders = with_a_child(long_lived)
        # The new child has a pid that is in the list already.
        placeholder = with_pid(own + 100)
        strangers = []

        def pass_on():
            leave(parent, orders)
            stop(placeholder)
            next_tick()
            system.next_pid(parent)
            strangers.extend(with_a_child(lambda: with_pid(placeholder)))
            assert strangers[:2] == [parent, placeholder]
            next_tick()  # a look that begins from here on is younger than all of them

        info = pidwait.ProcessInfo(parent)
        with at_line(number, pass_on, BETWEEN_LOOKS) as step:
            try:
                found = [child.pid for child in info.children(recursive=True)]
            except ProcessLookupError:
                found = []
        found_own.update(child == own for child in found)
        assert found in ([], [own]), step.where
        if strangers:
            leave(parent, strangers[2])
            stop(strangers[1])
        else:
            leave(parent, orders)
            stop(placeholder)
        stop(own)
        return step

    at_each_line(play)
    assert found_own == {True}


def test_child_of_another_process_with_the_pid_of_the_parent(namespaces):
    faults.run(family_of_another, within=namespaces)


def orphan():
    """The pid of its parent, which has exited, is given to a member of the family."""
    load()

    def play(number):
        system.next_pid(5000)
        parent, child, orders = with_a_child(lambda: with_pid(4000))
        assert (parent, child) == (5000, 4000)
        top = Forking()
        joined = []

        def pass_on():
            leave(parent, orders)
            next_tick()
            system.next_pid(parent)
            joined.append(top.fork())
            assert joined == [parent]

        with at_line(number, pass_on, BETWEEN_LOOKS) as step:
            found = [one.pid for one in pidwait.ProcessInfo(top.pid).children(recursive=True)]
        assert found in ([], joined), step.where
        if not joined:
            leave(parent, orders)
        stop(child)
        top.close(joined)
        return step

    at_each_line(play)


def with_pid(pid):
    system.next_pid(pid)
    return long_lived()


class Forking:
    """A process that has a child whenever it is told to."""

    def __init__(self):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()

        def live():
            os.close(self._orders)
            while os.read(orders, 1):
                os.write(answers, b"%9d" % long_lived())

        self.pid = faults.fork(live)
        os.close(orders)
        os.close(answers)

    def fork(self):
        os.write(self._orders, b".")
        return int(os.read(self._answers, 9))

    def close(self, children):
        os.close(self._orders)
        os.close(self._answers)
        os.waitpid(self.pid, 0)
        for pid in children:
            stop(pid)


def test_orphan_whose_parent_has_the_pid_of_a_member_now(namespaces):
    faults.run(orphan, within=namespaces)


def growing():
    """What is started before the last look begins is found: here there are two looks, or three."""
    load()

    def play(number):
        top = Forking()
        started = [top.fork()]
        info = pidwait.ProcessInfo(top.pid)
        with at_line(number, lambda: started.append(top.fork()), BETWEEN_LOOKS) as step:
            found = [child.pid for child in info.children(True)]
        assert found in (started, started[:1]), step.where
        missed.append(found != started)
        top.close(started)
        return step

    missed = []
    at_each_line(play)
    assert 0 < sum(missed) < len(missed) / 2


def test_children_that_are_started_meanwhile(namespaces):
    faults.run(growing, within=namespaces)


# A signal handler that raises


def interrupted():
    load()
    child = Child()
    info = pidwait.ProcessInfo(child.pid)

    def in_a_oneshot():
        with info.oneshot():
            info.cmdline()

    def play(number):
        before = faults.open_fds()
        with at_line(number, interrupt, FILES) as step:
            try:
                function()
            except KeyboardInterrupt:
                assert step.reached
        if faults.open_fds() != before:
            gc.collect()  # PyPy
        assert faults.open_fds() == before, step.where
        assert info.pid == child.pid and info.ppid() == os.getpid()
        return step

    for function in (list_all, info.as_dict, info.cmdline, in_a_oneshot):
        at_each_line(play)
    child.end(0)
    child.reap()


def test_handler_that_raises_at_each_line(namespaces):
    faults.run(interrupted, within=namespaces)


# What we may not see


def hidden(how):
    strangers = [Stranger(become_them) for _ in range(2)]
    system.mount("proc", "/proc", how)
    known = pidwait.ProcessInfo(strangers[0].pid)
    load()
    faults.system.become(US)
    for pid in (strangers[0].pid, strangers[1].pid):
        info = pidwait.ProcessInfo(pid)
        for name in _facts.ATTRIBUTES[1:]:
            raises(PermissionError, getattr(info, name))
        with info.oneshot():
            raises(PermissionError, info.cmdline)
        assert info.as_dict(ad_value="hidden") == dict(
            dict.fromkeys(_facts.ATTRIBUTES, "hidden"), pid=pid
        )
        assert info.is_running() and info.children() == []
        assert info != pidwait.ProcessInfo(pid)  # nobody can tell
        assert info == info
        faults.times_out(lambda timeout, info=info: pidwait.wait(info, timeout), 0)
    listed = {info.pid: info.info for info in pidwait.process_iter(["name", "uids"], "hidden")}
    shown = [listed[one.pid] for one in strangers if one.pid in listed]
    assert shown == ([{"name": "hidden", "uids": "hidden"}] * 2 if how == "hidepid=1" else [])
    assert listed[os.getpid()]["uids"].real == US
    raises(PermissionError, known.name)
    for stranger in strangers:
        stranger.end(0)
        stranger.reap()
    assert not known.is_running()
    raises(ProcessLookupError, known.cmdline)


@needs_root
@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2"])
def test_hidden_processes_of_another_user(real_root, how):
    faults.run(hidden, how, within=real_root)


def of_another_user():
    stranger = Stranger(become_them)
    load()
    system.become(US)
    info = pidwait.ProcessInfo(stranger.pid)
    assert info.uids() == (THEM, THEM, THEM)
    assert info.username() == str(THEM)
    assert None not in [info.as_dict()[name] for name in ("name", "cmdline", "status", "cpu_times")]
    stranger.become_zombie(7)
    assert (info.status(), info.cmdline()) == ("zombie", [])
    assert info.uids() == (THEM, THEM, THEM)
    assert pidwait.wait(info, faults.LONG) in (7, None)
    stranger.reap()
    raises(ProcessLookupError, info.uids)


@needs_root
def test_process_of_another_user():
    faults.run(of_another_user)


# /proc


def inside():
    """In a PID namespace with a /proc of its own."""
    pids = [info.pid for info in pidwait.process_iter()]
    assert pids[0] == 1 and os.getpid() in pids and len(pids) < 10
    assert pidwait.ProcessInfo(1).ppid() == 0


def under_the_old_proc():
    """In another PID namespace, where /proc shows processes by other pids."""
    system.call("unshare", 0x20000000)  # CLONE_NEWPID

    def refused():
        assert os.getpid() == 1
        for function in (list_all, load):
            error = raises(OSError, function)
            assert error.errno == errno.ENOENT
            assert "can't be listed: /proc shows another PID namespace" in str(error)

    faults.forked(refused)


def without_proc():
    system.mount("tmpfs", "/proc")
    error = raises(OSError, list_all)
    assert error.errno == errno.ENOENT and "can't be listed" in str(error)


@pytest.mark.parametrize("play", [inside, under_the_old_proc, without_proc])
def test_namespaces(namespaces, play):
    faults.run(play, within=namespaces)


def without_fds():
    load()
    with system.limit_is_zero():
        for function in (list_all, load):
            assert raises(OSError, function).errno == errno.EMFILE


def test_no_file_descriptors():
    faults.run(without_fds)
