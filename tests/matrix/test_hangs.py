# SPDX-License-Identifier: BSD-3-Clause
"""What a script that hangs is said to do."""

import os
import sys
import uuid

import pytest

from ..hangs import finished, read
from ..processes import FACTORS

# It has exited, but what it has started, and what that has started, keeps its output open.
ORPHANS = """if True:
    import os, time

    def where_it_hangs():
        time.sleep(600)

    for _ in range(2):
        if os.fork():
            os._exit(0)
    where_it_hangs()
"""
DEAF = """if True:
    import signal, sys, time
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    print("it was here", file=sys.stderr, flush=True)
    time.sleep(600)
"""


def check(code, *words):
    mark = "TEST_OF_HANGS=" + uuid.uuid4().hex
    env = dict(os.environ, **dict([mark.split("=")]))
    for factor in FACTORS:
        with pytest.raises(AssertionError) as caught:
            finished([sys.executable, "-c", code], env, factor)
        environs = (read(pid, "environ") for pid in filter(str.isdigit, os.listdir("/proc")))
        assert not any(mark in environ for environ in environs)
        if all(word in str(caught.value) for word in words):
            return
    raise AssertionError(str(caught.value))


def test_process_that_is_left():
    exited = " hangs: 0\n"
    check(ORPHANS, exited, "in where_it_hangs", "State:\tS")


def test_process_that_ignores_the_signal(monkeypatch):
    monkeypatch.setattr("tests.hangs.GRACE", 1)
    check(DEAF, " hangs: None\n", "it was here")


def test_process_that_ends():
    code = "import sys; print(3); print(4, file=sys.stderr); sys.exit(5)"
    assert finished([sys.executable, "-c", code], os.environ) == (5, "3\n", "4\n")
