# SPDX-License-Identifier: BSD-3-Clause
"""Long runs, each in a process of its own: nothing is left over, and no code is mixed up."""

import os
import shutil
import subprocess
import sys

import pytest

from .. import pidwait
from ..systems.kqueue.systems import SYSTEMS

pytestmark = pytest.mark.timeout(600)


def run(name, *args):
    """Run a script of this folder; each checks by itself for wrong codes and for leaks."""
    command = [sys.executable, "-m", "%s.%s" % (__package__, name), *map(str, args)]
    return subprocess.check_output(command, universal_newlines=True)


def test_ten_thousand_waits(variant):
    run("waits", 10000)


def test_twenty_thousand_starts():
    run("starts", 20000)


def test_a_hundred_thousand_through_one_set():
    run("many", 100000)


def test_ten_thousand_through_one_set(variant):
    run("many", 10000)


def tells_every_exit():
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    return pidwait.probe()["calls"]["PIDFD_GET_INFO"]["available"] and release >= (6, 15)


def test_exit_codes_of_twenty_thousand_strangers():
    output = run("strangers", 20000)
    if tells_every_exit():
        assert output == "20000 right, 0 unknown, 0 wrong\n"


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_five_threads_by_a_kqueue(system):
    """A sleep that nothing ends takes a minute."""
    assert max(map(float, run("kqueues", system, 500).split())) < 30


TREES = {"runs": 10000, "moments": 400, "death": 20, "polled": 20}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what", [*TREES, "kill", "end", "cancel"])
def test_trees(what):
    run("trees", what, TREES.get(what, 200))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("backend", ["pidfd", "polling"])
def test_threads_that_become_the_main_one(backend, monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", backend)
    assert run("execs", 40) == "0 early\n"
