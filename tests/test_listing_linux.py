# SPDX-License-Identifier: BSD-3-Clause
"""What process_iter() and ProcessInfo make of /proc."""

import importlib
import logging
import os
import pty
import pwd
import subprocess
import sys
import threading
import time

import pytest

from . import pidwait
from .conftest import open_fds
from .processes import (
    MAIN_THREAD_ENDS,
    become_zombie,
    eventually,
    exiting,
    needs_ctypes,
    state,
)

_facts = importlib.import_module(pidwait.__name__ + "._facts")
_family = importlib.import_module(pidwait.__name__ + "._family")
listed = importlib.import_module(pidwait.__name__ + "._sources.listed_procfs")
procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

FROM_STAT = ["name", "ppid", "status", "create_time", "terminal", "cpu_times"]


class Opened(list):
    """Their names; ``info`` and ``pid`` are of the child."""


@pytest.fixture
def files(monkeypatch, sleeper):
    """The files and folders of /proc that are opened: here those of a sleeping child."""
    opened = Opened()
    real = os.open

    def noting(path, *args, **kwargs):
        opened.append(os.path.basename(path))
        return real(path, *args, **kwargs)

    info = pidwait.ProcessInfo(sleeper.pid)
    info.as_dict()  # the first one reads more
    monkeypatch.setattr(os, "open", noting)
    opened.info, opened.pid = info, str(info.pid)
    return opened


def test_one_file(files):
    assert list(files.info.as_dict(FROM_STAT)) == FROM_STAT
    assert files == ["stat"]


def test_each_file_once(files):
    files.info.as_dict()
    assert sorted(files) == sorted([files.pid, "stat", "cmdline", "status"])


def test_each_user_is_looked_up_once(sleeper, monkeypatch):
    asked, real = [], pwd.getpwuid
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: asked.append(uid) or real(uid))
    found = {info.pid: info.info["username"] for info in pidwait.process_iter(["username"])}
    assert found[sleeper.pid] == found[os.getpid()]
    assert sorted(asked) == sorted(set(asked))


def test_oneshot(files):
    info = files.info
    with info.oneshot():
        for _ in range(2):
            for name in _facts.ATTRIBUTES[1:]:
                getattr(info, name)()
            info.as_dict()
            with info.oneshot():
                info.cmdline()
        assert sorted(files) == sorted([files.pid, "stat", "cmdline", "status"])
        del files[:]
        from_another_thread = []
        thread = threading.Thread(target=lambda: from_another_thread.append(info.ppid()))
        thread.start()
        thread.join()
        assert from_another_thread == [os.getpid()] and files == ["stat"]
        del files[:]
    info.ppid()
    assert files == ["stat"]
    del files[:]


def test_listing_reads_one_file_of_each(files):
    found = [info.pid for info in pidwait.process_iter(FROM_STAT[1:])]
    assert files.count("stat") >= len(found)
    assert set(files) == {"stat"}


def test_nothing_is_open_between_two_processes():
    list(pidwait.process_iter([]))  # what it loads
    before = open_fds()
    for _ in pidwait.process_iter([]):
        assert open_fds() == before


@needs_ctypes
def test_main_thread_that_has_ended(start):
    child = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    eventually(lambda: state(child.pid) == "Z")
    info = pidwait.ProcessInfo(child.pid)
    assert (info.status(), info.cmdline(), info.ppid()) == ("zombie", [], os.getpid())
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(info, 0)
    child.stdin.close()
    assert pidwait.wait(info, 60) == 9


def test_zombie(start):
    child = start(*exiting(7))
    become_zombie(child.pid)
    info = pidwait.ProcessInfo(child.pid)
    assert info.is_running()
    found = info.as_dict()
    assert (found["status"], found["cmdline"], found["ppid"]) == ("zombie", [], os.getpid())
    assert found["uids"] == os.getresuid()
    assert pidwait.wait(info, 60) == 7
    assert child.wait() == 7


def test_zombie_with_a_long_name(start, tmp_path):
    """The first 15 bytes of it are all that is left."""
    path = tmp_path / "a-very-long-name"
    path.symlink_to("/bin/true")
    child = start(str(path))
    become_zombie(child.pid)
    assert pidwait.ProcessInfo(child.pid).name() == "a-very-long-nam"


def test_threads_id(start):
    child = start(
        sys.executable,
        "-c",
        "import threading, sys\n"
        "threading.Thread(target=sys.stdin.read).start()\nprint('on', flush=True)",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    threads = sorted(map(int, os.listdir("/proc/%d/task" % child.pid)))
    assert threads[0] == child.pid and len(threads) == 2
    with pytest.raises(ProcessLookupError):
        pidwait.ProcessInfo(threads[1])


def test_terminal():
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "tty; exec sleep 60"])
    try:
        tty = os.read(fd, 100).decode().rstrip()
        assert pidwait.ProcessInfo(pid).terminal() == tty
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)


@pytest.mark.parametrize(
    "device, path",
    [
        (0, None),
        (0x8800, "/dev/pts/0"),
        (0x10088FF, "/dev/pts/4351"),
        (-0x0FFF7701, "/dev/pts/983295"),
        (0x501, "/dev/console" if os.path.exists("/sys/dev/char/5:1") else None),
        (0xFFF00, None),  # there is no such device
    ],
)
def test_devices(device, path, monkeypatch):
    facts = listed.read(os.getpid(), False)
    line = "1 (x) S 1 1 1 {} ".format(device).encode() + b"0 " * 46
    monkeypatch.setattr(procfs, "read", lambda *args: line)
    assert facts.terminal() == path


@pytest.mark.parametrize("length, is_cut_off", [(14, False), (15, True)])
def test_name_that_is_cut_off(length, is_cut_off):
    """The kernel keeps 15 bytes; the rest may be in the arguments."""
    facts = listed.read(os.getpid(), False)
    facts._stat()
    facts._name, facts._cmdline = b"x" * length, ["/bin/" + "x" * 20]
    assert facts.name() == "x" * (20 if is_cut_off else length)


@pytest.mark.parametrize(
    "device, numbers",
    [(0xFFF00, "4095:0"), (-0xFFE01, "1:1048575"), (0x100501, "5:257")],
)
def test_numbers_of_a_device(device, numbers, monkeypatch):
    """The layout of the kernel's new_encode_dev()."""
    facts, read = listed.read(os.getpid(), False), []
    line = "1 (x) S 1 1 1 {} ".format(device).encode() + b"0 " * 46
    monkeypatch.setattr(procfs, "read", lambda *args: line)
    monkeypatch.setattr(os, "readlink", lambda path: read.append(path) or "../../tty/a name")
    assert facts.terminal() == "/dev/a name"
    assert read == ["/sys/dev/char/" + numbers]


def test_no_device_is_looked_for_where_there_is_no_terminal(monkeypatch, caplog):
    facts = listed.read(os.getpid(), False)
    monkeypatch.setattr(procfs, "read", lambda *args: b"1 (x) S 1 1 1 0 " + b"0 " * 46)
    with caplog.at_level(logging.DEBUG):
        assert facts.terminal() is None
    assert caplog.records == []


def test_clock_that_is_set(monkeypatch, sleeper):
    info = pidwait.ProcessInfo(sleeper.pid)
    first = info.create_time()
    assert abs(first - time.time()) < 60
    assert info.create_time() == first
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert abs(info.create_time() - first - 3600) < 1
    assert info == pidwait.ProcessInfo(sleeper.pid)


def test_family_without_end(monkeypatch, sleeper, caplog):
    looks = []
    monkeypatch.setattr(_family.Family, "look", lambda self: looks.append(0) or True)
    with caplog.at_level(logging.INFO, pidwait.__name__):
        assert pidwait.ProcessInfo(sleeper.pid).children() == []
    assert len(looks) == 100
    assert "still starts processes, after 100 looks" in caplog.text


def test_family_that_has_been_found(sleeper):
    """The look that finds no other process is the last one."""
    me, child = pidwait.ProcessInfo(os.getpid()), pidwait.ProcessInfo(sleeper.pid)
    looks = []

    def parents():
        looks.append(0)
        return [(me, os.getppid()), (child, os.getpid())]

    family = _family.Family(me, True, parents, lambda: child._started + 1)
    assert family.find() == [child] and len(looks) == 2


def test_children(start):
    command = "sh -c 'sleep 60 & echo $!; wait' & echo $!; wait"
    child = start("sh", "-c", command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    inner, innermost = sorted(int(child.stdout.readline()) for _ in range(2))
    info = pidwait.ProcessInfo(child.pid)
    assert [one.pid for one in info.children()] == [inner]
    family = info.children(recursive=True)
    assert [one.pid for one in family] == [inner, innermost]
    assert pidwait.ProcessInfo(os.getpid()).children() == [info]
    exited, alive = pidwait.wait_procs([info] + family, 0)
    assert (exited, alive) == ([], [info] + family)
    os.kill(innermost, 9)
    exited, alive = pidwait.wait_procs([info] + family, 60)
    assert (len(exited), alive) == (3, [])


def test_pid_that_is_given_away_before_its_directory_is_opened(monkeypatch):
    """What is read afterwards would be another process's."""

    def gone(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(listed, "opened", gone)
    with pytest.raises(ProcessLookupError):
        listed.read(os.getpid(), True)


def test_parent_of_a_thread_that_becomes_the_main_one(executing, sleeper):
    assert pidwait.ProcessInfo(sleeper.pid).ppid() == os.getpid()
