# SPDX-License-Identifier: BSD-3-Clause
"""In a process that has entered a PID namespace from outside, as `docker exec` starts one.

Its parent, its process group and its session are outside: the numbers of all three are 0.
"""

import _thread
import asyncio
import importlib
import os
import subprocess
import sys
import threading

import pytest

from .. import pidwait, trouble
from ..needs import needs
from ..processes import eventually, gone_pid
from . import Child, Stranger, raises

pytest.importorskip("ctypes")
pytestmark = [needs("/proc"), pytest.mark.root]
LEAVING = ["sh", "-c", "setsid sh -c 'echo $$; sleep 60' & wait"]


@pytest.fixture
def within():
    """The command that enters a namespace, whose first process sleeps."""
    from . import system

    first = ("unshare", *system.NAMESPACES, "sh", "-c", "echo ready; exec sleep 600")
    with subprocess.Popen(first, stdout=subprocess.PIPE) as outside:
        if not outside.stdout.readline():
            pytest.skip("this root may not make namespaces")
        folder = "/proc/%d/ns/" % outside.pid
        yield "nsenter", "--pid=" + folder + "pid_for_children", "--mount=" + folder + "mnt"
        outside.kill()


def drop_in():
    return importlib.import_module(pidwait.__name__ + ".subprocess")


def loops():
    return importlib.import_module(pidwait.__name__ + ".aio")


def where_it_is():
    assert (os.getppid(), os.getpgrp(), os.getsid(0)) == (0, 0, 0) and os.getpid() != 1


def waits():
    where_it_is()
    assert trouble.every_wait_works() == pidwait.probe()["backend"]
    child = Child()
    told = threading.Event()
    pidwait.watch(child.pid, lambda pid, code: told.set())
    child.end(0)
    assert told.wait(trouble.LONG)
    child.reap()


def watching_parents():
    past = gone_pid()
    hidden(parent=past)  # the number may be of a process outside
    exited(parent=past, ancestors=True)
    hidden()
    hidden(ancestors=True)
    thread_has_ended()
    trouble.forked(watching_grandparents, os.getpid(), past)


def watching_grandparents(parent, past):
    for ancestors in False, True:
        exited(parent=past, ancestors=ancestors)
        hidden(parent=parent, ancestors=ancestors)
        hidden(ancestors=ancestors)
    thread_has_ended()


def thread_has_ended():
    """That of watch, which closes what it has opened."""
    eventually(lambda: _thread._count() == 0)


def exited(**arguments):
    told = threading.Event()
    pidwait.watch_parent(told.set, **arguments)
    assert told.wait(trouble.LONG), arguments


def hidden(**arguments):
    told = threading.Event()
    watching = pidwait.watch_parent(told.set, **arguments)
    assert not told.wait(0.1) and watching.cancel(), arguments


def finding():
    child, stranger, me = Child(), Stranger(), os.getpid()
    found = {info.pid: info.info["ppid"] for info in pidwait.process_iter(["pid", "ppid"])}
    assert {1, me, child.pid, stranger.pid} <= set(found)
    assert (found[1], found[me], found[child.pid]) == (0, 0, me)
    family = [info.pid for info in pidwait.ProcessInfo(me).children(recursive=True)]
    assert {child.pid, stranger.pid} < set(family) and len(family) == 3
    assert pidwait.ProcessInfo(me).ppid() == 0
    assert child.pid not in [info.pid for info in pidwait.ProcessInfo(1).children(True)]
    stranger.become_zombie(0)
    stranger.reap()
    child.become_zombie(0)
    child.reap()


def starting():
    places = "import os; print(os.getppid(), os.getpgrp() == os.getpid(), os.getsid(0))"
    popen = drop_in().Popen
    group, session = {"process_group": 0}, {"start_new_session": True}
    for options, leads in ({}, False), (group, True), (session, True):
        with popen([sys.executable, "-c", places], stdout=subprocess.PIPE, **options) as child:
            found = child.communicate()[0].decode().split()
        where = child.pid if options is session else 0
        assert found == [str(os.getpid()), str(leads), str(where)] and child.returncode == 0
    for options in {}, group:
        with pidwait.spawn(["sh", "-c", "exit 3"], **options) as child:
            assert child.wait() == 3


def ending():
    for mechanism in "reaper", "group":
        os.environ["PIDWAIT_TREE"] = mechanism
        options = {"tree": True, "grace": 1, "timeout": 0.5, "stdout": subprocess.PIPE}
        late = raises(subprocess.TimeoutExpired, drop_in().run, LEAVING, **options)
        assert pidwait.has_exited(int(late.output))
        with subprocess.Popen(LEAVING, stdout=subprocess.PIPE) as child:
            other = int(child.stdout.readline())
            ended, left = pidwait.end_procs([child], 5, tree=True)
            assert left == [] and {one.pid: code for one, code in ended}[other] == -15


def looping():
    aio, child = loops(), Child()

    async def all_ways():
        child.end(3)
        assert await aio.wait(child.pid) == 3
        done = await aio.run(["sh", "-c", "echo $$; exit 4"], stdout=subprocess.PIPE)
        assert done.returncode == 4
        trees = aio.run(LEAVING, stdout=subprocess.PIPE, tree=True, grace=1, timeout=0.5)
        try:
            await trees
        except subprocess.TimeoutExpired as late:
            assert pidwait.has_exited(int(late.output))
        else:
            raise AssertionError("no time-out")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(all_ways())
    loop.close()
    child.reap()


def commanding():
    command = [sys.executable, "-m", pidwait.__name__]

    def told(*args):
        done = subprocess.run([*command, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout.split(), done.stderr

    status, out, err = told("run", "--tree", "-t", "0.5", "-k", "1", *LEAVING)
    assert status == 124 and pidwait.has_exited(int(out[0])), err
    assert told("run", "sh", "-c", "exit 3")[0] == 3
    sleep = [sys.executable, "-c", "input()", "a word of %d" % os.getpid()]
    with subprocess.Popen(sleep, stdin=subprocess.PIPE) as child:
        for more in (), ("-g", "0"), ("-s", "0"), ("-P", str(os.getpid())):
            listed = told("-l", "-f", "--name", sleep[-1], *more)
            assert (listed[0], listed[1][:1]) == (0, [b"%d" % child.pid]), (more, listed)
        assert told("-t", "0.1", "-f", "--name", sleep[-1])[0] == 124
        child.kill()
        child.stdin.close()
        assert told("-t", "60", str(child.pid))[0] == 0


@pytest.mark.parametrize(
    "function", [waits, watching_parents, finding, starting, ending, looping, commanding]
)
def test_all_is_as_in_any_other_process(within, function):
    trouble.run(function, within=within)
