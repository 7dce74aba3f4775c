# SPDX-License-Identifier: BSD-3-Clause
"""Programs in which names of the select module are missing, as with gevent and eventlet."""

import pytest

from . import pidwait
from .processes import run_python

ALL = """
import os, sys, threading
import {package} as pidwait

def used():
    child = pidwait.spawn(["sh", "-c", "exit 3"])
    with pidwait.WaitSet([child]) as waiting:
        assert waiting.fileno() >= 0
        assert waiting.wait(0) in ([], [(child, 3)])
        while len(waiting):
            assert waiting.wait(30) == [(child, 3)]
    child.close()
    with pidwait.spawn(["sh", "-c", "exit 4"]) as child:
        assert pidwait.wait_procs([child.pid], 30) == ([(child.pid, 4)], [])
        assert list(pidwait.as_completed([child.pid], 30)) == [(child.pid, 4)]
        with pidwait.Process(child.pid) as process:
            assert process.wait(30) == 4 and process.has_exited()
        assert pidwait.wait(child) == 4
    popen = Popen(["sh", "-c", "exit 5"])
    assert pidwait.wait(popen, 30) == 5, popen.returncode
    assert popen.returncode == 5
    told = threading.Event()
    popen = Popen(["sh", "-c", "exit 6"])
    pidwait.watch(popen, lambda proc, code: told.set())
    assert told.wait(30) and popen.returncode == 6
    popen = Popen(["sh", "-c", "exit 7"])
    assert pidwait.wait_procs([popen], 30) == ([(popen, 7)], [])
    try:
        pidwait.wait(os.getppid(), 0.01)
        raise AssertionError
    except TimeoutError:
        pass
    print(pidwait.probe()["backend"])
"""
CUT = """import select, subprocess
for name in {names!r}:
    del select.__dict__[name]
Popen = subprocess.Popen
"""
LATER = """import select, subprocess
Popen = subprocess.Popen
used()
for name in {names!r}:
    del select.__dict__[name]
"""
NAMES = [("epoll",), ("poll",), ("epoll", "poll")]


def run(code, names=()):
    done = run_python(code.format(package=pidwait.__name__, names=names))
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.split()


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_names_that_are_missing(names):
    (backend,) = run(CUT + ALL + "used()\n", names)
    assert backend in ("pidfd", "connector", "polling")


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_names_that_vanish_after_the_first_use(names):
    assert len(run(ALL + LATER + "used()\n", names)) == 2
