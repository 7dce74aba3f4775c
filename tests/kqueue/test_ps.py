# SPDX-License-Identifier: BSD-3-Clause
"""Polling by waitid, kill and ps, on the stand-in."""

import importlib
import logging
import os
import subprocess
import time

import pytest

from .. import pidwait
from ..processes import become_gone, become_zombie, exiting, sleeping
from .test_kqueue import SYSTEMS

ps = importlib.import_module(pidwait.__name__ + "._sources.ps")


@pytest.mark.parametrize("waitid", [True, False])
def test_kill_that_does_not_find_a_zombie(on, start, waitid):
    """On older OpenBSDs waitid(2) finds our own zombies; without waitid(2), ps does."""
    kernel = on("openbsd", "ctypes")
    kernel.kill_finds_zombies = False
    if not waitid:
        on.patch.delattr(os, "waitid", raising=False)
        on.patch.setitem(kernel.symbols, "waitid", None)
    child = start(*exiting(3))
    become_zombie(child.pid)
    with pidwait.Process(child.pid) as process:
        assert process.backend == "polling"
        assert process.wait(0) == 3
    assert pidwait.wait(child.pid, 0, reap=True) == 3
    child.returncode = 3
    with pytest.raises(ProcessLookupError):
        pidwait.Process(child.pid)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("code", [0, 7, -9])
def test_polled_child(on, start, system, code):
    on(system)
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    child = start(*exiting(code, after=0.05))
    assert pidwait.wait(child.pid, 30) == code
    assert pidwait.wait(child.pid, 0, reap=True) == code
    child.returncode = code


@pytest.mark.parametrize("code", [0, 7, -9])
def test_polled_zombie_of_somebody_else(on, keeper, code):
    on("netbsd11")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    pid = keeper.start(*exiting(code))
    become_zombie(pid)
    # ps also prints 0 if it does not know.
    assert pidwait.wait(pid, 0) == (code or None)
    keeper.reap(pid)
    become_gone(pid)
    assert pidwait.wait(pid, 0) is None


def test_start_times():
    for line in ("S 0 Sat Nov 21 03:11:52 2026", "Ss+  0 Thu Jan  1 00:00:00 1970    "):
        assert ps.Stat(line).started is not None
    assert ps.Stat("S 0 Thu Jan  1 00:00:01 1970").started == 1
    assert ps.Stat("S 0 Thu Feb 29 23:59:59 2024").started == 1709251199
    assert ps.Stat("Z 900 -").started is None and ps.Stat("Z 900 -").status == 9 << 8
    assert ps.Stat("Z 8b -").exited


def test_reused_pid(monkeypatch):
    first = ps.Stat("S 0 Sat Nov 21 03:11:52 2026")
    assert not first.is_other(first)
    assert not ps.Stat("S 0 Sat Nov 21 03:11:53 2026").is_other(first)
    assert ps.Stat("S 0 Sat Nov 21 03:12:52 2026").is_other(first)
    assert not ps.Stat("Z 0 -").is_other(first)
    # The clock is set forward by an hour, and with it start times that count from boot.
    now = time.time()
    monkeypatch.setattr(ps, "time", lambda: now + 3600)
    assert not ps.Stat("S 0 Sat Nov 21 04:11:52 2026").is_other(first)
    assert not ps.Stat("S 0 Sat Nov 21 03:11:52 2026").is_other(first)
    assert ps.Stat("S 0 Sat Nov 21 05:11:52 2026").is_other(first)


def test_polled_reused_pid(on, sleeper):
    """ps shows another start time, so the process that we meant has exited."""
    on("openbsd")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    with pidwait.Process(sleeper.pid) as process:
        assert not process.has_exited()
        on.patch.setattr(ps, "read_stat", lambda pid: ps.Stat("S 0 Thu Jan  1 00:00:01 1970"))
        assert process.wait(30) is None
        with pytest.raises(ProcessLookupError):
            process.kill()


def test_ps_has_a_share_of_the_time(on, keeper):
    on("openbsd")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    runs, real = [], ps.read_stat

    def slow(pid):
        runs.append(pid)
        time.sleep(0.05)
        return real(pid)

    on.patch.setattr(ps, "read_stat", slow)
    pid = keeper.start(*sleeping(60))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0.8)
    assert len(runs) <= 2  # one after a moment, the next a second later; and the last look


def test_ps_that_can_not_be_run(on, keeper, start):
    """waitid and kill tell what they can."""
    on("freebsd12")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    on.patch.setattr(ps, "PS", "/nonexistent/ps")
    assert "ps" in pidwait.probe()["calls"]["ps"]["reason"]
    assert pidwait.wait(start(*exiting(3, after=0.05)).pid, 30) == 3
    pid = keeper.start(*sleeping(0.1))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0)
    keeper.reap_soon(pid)
    assert pidwait.wait(pid, 30) is None
    keeper.reaped()


def test_one_pipe_for_polling(on, sleeper, tmp_path):
    """Only a listing reports what ps complains about."""
    on("freebsd12")
    path, errors_go_to = tmp_path / "ps", tmp_path / "errors"
    path.write_text("#!/bin/sh\nreadlink /proc/$$/fd/2 > %s\n" % errors_go_to)
    path.chmod(0o755)
    on.patch.setattr(ps, "PS", str(path))
    on.patch.setattr(ps, "ENVIRONMENT", {"PATH": os.defpath})
    assert ps.read_stat(sleeper.pid) is None
    assert errors_go_to.read_text() == os.devnull + "\n"


def test_ps_that_prints_something_else(on, sleeper, caplog):
    on("freebsd12")
    caplog.set_level(logging.INFO)
    for line in (
        "ps: unknown keyword",
        "S ? Sat Nov 21 03:11:52 2026",
        "S 0 Sat Nov 21 03:11 2026",
    ):
        on.patch.setattr(ps, "_first_line", lambda pid, line=line: line)
        assert ps.read_stat(sleeper.pid) is None
        assert "of pid %d: " % sleeper.pid in caplog.text
        caplog.clear()


def test_ps_of_a_patched_subprocess(on, keeper):
    """If the wait for ps polled, too, it would run ps again."""
    on("openbsd")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    pid = keeper.start(*sleeping(60))
    asked, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        asked.append(args)
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(pid, 0)
        return real(*args, **kwargs)

    on.patch.setattr(subprocess, "Popen", popen)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0)
    assert len(asked) == 1
