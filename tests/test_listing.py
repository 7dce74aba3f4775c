# SPDX-License-Identifier: BSD-3-Clause
"""process_iter() and ProcessInfo, on every system."""

import asyncio
import errno
import importlib
import os
import subprocess
import sys
import threading

import pytest

from . import pidwait
from .processes import WINDOWS, become_gone, eventually, gone_pid

ALL = ("pid name ppid cmdline status create_time username uids terminal cpu_times").split()


@pytest.fixture
def sleeper():
    popen = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "a b", ""], stdin=subprocess.PIPE
    )
    yield popen
    popen.stdin.close()
    popen.wait()


def find(pid, *args, **kwargs):
    (found,) = [info for info in pidwait.process_iter(*args, **kwargs) if info.pid == pid]
    return found


def test_without_attributes(sleeper):
    info = find(sleeper.pid)
    assert info.info == {}
    assert info == pidwait.ProcessInfo(sleeper.pid)
    assert hash(info) == hash(pidwait.ProcessInfo(sleeper.pid))
    assert info != pidwait.ProcessInfo(os.getpid())
    assert repr(info) == "<ProcessInfo pid=%d>" % sleeper.pid


def test_attributes(sleeper):
    info = find(sleeper.pid, ["pid", "ppid"])
    assert info.info == {"pid": sleeper.pid, "ppid": os.getpid()}


@pytest.mark.parametrize("attrs", [[], (), set()])
def test_all_attributes(sleeper, attrs):
    assert sorted(find(sleeper.pid, attrs).info) == sorted(ALL)


def test_order():
    pids = [info.pid for info in pidwait.process_iter()]
    assert pids == sorted(set(pids))


def test_command_line(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    eventually(info.cmdline)  # on Linux it is empty for a moment after a start by vfork
    assert info.cmdline()[1:] == [
        "-c",
        "import sys; sys.stdin.read()",
        "a b",
        "",
    ]


@pytest.mark.parametrize(
    "attrs, error",
    [
        (["nonsense"], ValueError("attrs has 'nonsense'; there is pid, name")),
        ("name", TypeError("attrs must be a list of names, not str")),
        (["is_running"], ValueError("attrs has 'is_running'; there is pid, name")),
    ],
)
def test_bad_attributes(attrs, error):
    for function in (pidwait.process_iter, pidwait.ProcessInfo(os.getpid()).as_dict):
        with pytest.raises(type(error), match=str(error)):
            function(attrs)


def test_oneshot(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    with info.oneshot():
        first = info.as_dict(ad_value="not told")
        with info.oneshot():
            assert info.ppid() == first["ppid"] == os.getpid()
        assert info.cpu_times() == first["cpu_times"]
        assert pidwait.ProcessInfo(os.getpid()).create_time() < info.create_time()  # its own
        assert info.as_dict(ad_value="not told") == first
    assert info.ppid() == os.getpid()


def test_oneshot_that_is_used_again(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    block = info.oneshot()
    for _ in range(2):
        with block:
            assert info.ppid() == os.getpid()
    with info.oneshot():
        with block:
            held = info.as_dict(["cpu_times"])
        assert info.as_dict(["cpu_times"]) == held


@pytest.mark.parametrize("pid", [0, -1, 2**40, True, "1", 1.0, None])
def test_bad_pid(pid):
    with pytest.raises((TypeError, ValueError), match="pid must be"):
        pidwait.ProcessInfo(pid)


def test_gone_pid():
    with pytest.raises(ProcessLookupError):
        pidwait.ProcessInfo(gone_pid())


def end(popen):
    popen.stdin.close()
    assert popen.wait() == 0
    if WINDOWS:
        popen._handle.Close()  # which keeps the pid


def test_process_that_is_gone(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    assert info.is_running()
    end(sleeper)
    become_gone(info.pid)
    assert not info.is_running()
    for name in ALL[1:]:
        with pytest.raises(ProcessLookupError):
            getattr(info, name)()
    for function in (info.as_dict, info.children):
        with pytest.raises(ProcessLookupError):
            function()
    with pytest.raises(ProcessLookupError), info.oneshot():
        pytest.fail("nothing can be read here")


def test_waiting(sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(info, 0)
    assert pidwait.wait_procs([info], 0) == ([], [info])
    sleeper.stdin.close()
    assert pidwait.wait(info, 60) == 0
    assert pidwait.wait_procs([info], 60) == ([(info, 0)], [])
    assert list(pidwait.as_completed([info], 60)) == [(info, 0)]
    with pidwait.WaitSet([info]) as waiting:
        assert waiting.wait(60) == [(info, 0)]
    called = threading.Event()
    told = []
    pidwait.watch(info, lambda *exit_: told.append(exit_) or called.set())
    called.wait()
    assert told == [(info, 0)]


def test_waiting_in_an_event_loop(sleeper):
    aio = importlib.import_module(pidwait.__name__ + ".aio")
    info = pidwait.ProcessInfo(sleeper.pid)
    loop = asyncio.new_event_loop()
    try:
        loop.call_later(0.01, sleeper.stdin.close)
        assert loop.run_until_complete(aio.wait(info)) == 0
        assert loop.run_until_complete(aio.wait_procs([info])) == ([(info, 0)], [])
    finally:
        loop.close()


def test_source_is_chosen_once():
    facts = importlib.import_module(pidwait.__name__ + "._facts")
    source = facts.source()
    entries = len(facts._sources)
    assert facts.source() is source and len(facts._sources) == entries


def test_what_is_not_told_is_none(monkeypatch):
    facts = importlib.import_module(pidwait.__name__ + "._facts")
    found = []
    monkeypatch.setattr(facts, "gather", lambda *args: found.append(args[2]))
    for info in pidwait.process_iter():
        info.as_dict()
        break
    assert found == [None]


@pytest.mark.parametrize(
    "code, is_told",
    [(errno.EACCES, True), (errno.EPERM, True), (errno.ENOSYS, True), (errno.EIO, False)],
)
def test_what_we_may_not_see_is_told_by_ad_value(code, is_told):
    facts = importlib.import_module(pidwait.__name__ + "._facts")

    class Hidden:
        pid = 5

        def name(self):
            raise OSError(code, os.strerror(code))

    if is_told:
        found = facts.gather(Hidden(), ["pid", "name"], "not told")
        assert found == {"pid": 5, "name": "not told"}
    else:
        with pytest.raises(OSError):
            facts.gather(Hidden(), ["name"], "not told")
