# SPDX-License-Identifier: BSD-3-Clause
"""What /proc tells."""

import errno
import importlib
import os
import signal
import subprocess
import sys

import pytest

from . import pidwait
from .processes import (
    MAIN_THREAD_ENDS,
    become_zombie,
    ending_after_the_main_thread,
    eventually,
    exiting,
    gone_pid,
    needs_ctypes,
    not_on_windows,
)

checks = importlib.import_module(pidwait.__name__ + "._checks")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
family = importlib.import_module(pidwait.__name__ + ".cli._family")
procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

STAT = b"%d (%s) %s 1 2 3 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 %d 0 %d 0 0" + b" 0" * 27 + b" %d\n"


@pytest.mark.parametrize("name", ["a b", "a) Z 1 (b", "))((", "", "x" * 15, "\u00e9"])
def test_names_with_anything(name):
    stat = procfs.Stat(STAT % (12, name.encode(), b"S", 1, 777, 0))
    assert (stat.name, stat.state, stat.threads, stat.started) == (name, b"S", 1, 777)


@pytest.mark.parametrize(
    "state, threads, exited",
    [
        (b"R", 1, False),
        (b"S", 3, False),
        (b"T", 1, False),
        (b"Z", 1, True),
        (b"Z", 0, True),
        (b"Z", 2, False),
        (b"X", 0, True),
    ],
)
def test_exited(state, threads, exited):
    assert procfs.Stat(STAT % (12, b"n", state, threads, 777, 0)).exited is exited


def test_old_kernel_without_status():
    line = STAT % (12, b"n", b"Z", 1, 777, 1792)
    assert procfs.Stat(line).status == 1792
    for fewer in (1, 2, 10):
        assert procfs.Stat(line.rsplit(b" ", fewer)[0]).status == 0


@not_on_windows("/proc")
def test_status_that_is_always_0(monkeypatch):
    """gVisor's: we recognise it by arg_start, which is 0 only there."""
    fields = procfs.self_fields()
    assert len(fields) == 50 and fields[45] != b"0"
    monkeypatch.setattr(procfs, "self_fields", lambda: [b"0"] * 45 + fields[45:46] + [b"0"] * 4)
    assert exitcodes.check_status() is None
    monkeypatch.setattr(procfs, "self_fields", lambda: fields[:45] + [b"0"] + fields[46:])
    with pytest.raises(OSError, match="does not tell the wait status"):
        exitcodes.check_status()


@not_on_windows("/proc")
def test_real_processes(start):
    child = start(*exiting(7))
    become_zombie(child.pid)
    stat = procfs.read_stat(child.pid)
    assert (stat.name, stat.state, stat.status, stat.exited) == ("sh", b"Z", 7 << 8, True)
    me = procfs.read_stat(os.getpid())
    assert not me.exited and me.started <= stat.started
    assert procfs.thread_group(os.getpid()) == os.getpid()
    gone = gone_pid()
    assert procfs.read_stat(gone) is None
    assert procfs.thread_group(gone) is None


@not_on_windows("/proc")
@pytest.mark.parametrize("code", [0, 7, -9])
def test_zombie_that_is_not_our_child(either, keeper, code):
    pid = keeper.start(*exiting(code))
    become_zombie(pid)
    assert procfs.shows_namespace(pid)
    assert pidwait.wait(pid) == code
    keeper.reap(pid)


@not_on_windows("/proc")
@needs_ctypes
def test_status_that_is_the_main_threads(keeper, monkeypatch):
    """Before Linux 5.17: no code is better than the 0 of a thread that ended before the others."""
    threaded = keeper.start(*ending_after_the_main_thread(0))
    plain = keeper.start(*exiting(0))
    for pid in threaded, plain:
        become_zombie(pid)
    eventually(lambda: procfs.read_stat(threaded).exited)
    error = OSError(errno.ENOENT, "an older kernel")
    monkeypatch.setitem(checks._answers, exitcodes.check_status_of_process, error)
    assert exitcodes.from_zombie(threaded) is None
    assert exitcodes.from_zombie(plain) == 0
    assert not procfs.had_one_thread(gone_pid())
    for pid in threaded, plain:
        keeper.reap(pid)


@not_on_windows("/proc")
@pytest.mark.parametrize("field, tells", [("minflt", True), ("majflt", True), ("cminflt", False)])
def test_thread_that_had_page_faults(monkeypatch, field, tells):
    names = ["minflt", "cminflt", "majflt", "cmajflt"]  # 10 to 13 in proc(5)
    process, main = (
        b"1 (x) Z 1 1 1 0 -1 0 %d %d %d %d 0" % tuple(here and name == field for name in names)
        for here in (True, False)
    )
    entries = {"stat": process, "task/1/stat": main}
    monkeypatch.setattr(procfs, "_read_entry", lambda pid, name: entries[name])
    assert procfs.had_one_thread(1) is not tells


@not_on_windows("/proc")
def test_links(start, sleeper):
    child = start(*exiting(7))
    become_zombie(child.pid)
    assert procfs.links_tell_exit(child.pid)
    assert not procfs.links_tell_exit(sleeper.pid)
    assert not procfs.links_tell_exit(os.getpid())
    assert not procfs.links_tell_exit(gone_pid())
    if os.getuid() == 0 and procfs.read_stat(2) and procfs.read_stat(2).name == "kthreadd":
        assert not procfs.links_tell_exit(2)


@not_on_windows("/proc")
@needs_ctypes
def test_links_of_a_process_with_other_threads(start):
    child = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(child.pid)
    assert not procfs.links_tell_exit(child.pid)


@not_on_windows("/proc")
def test_process_with_an_evil_name(start, tmp_path):
    path = tmp_path / "x) Z 1 (y"
    path.symlink_to("/bin/sleep")
    child = start(str(path), "60")
    stat = procfs.read_stat(child.pid)
    while stat.name != path.name:  # between fork and exec
        stat = procfs.read_stat(child.pid)
    assert not stat.exited


@not_on_windows("/proc")
def test_proc_of_another_pid_namespace_in_which_we_have_the_same_pid(monkeypatch):
    lines = []
    monkeypatch.setattr(procfs, "read", lambda path: b"".join(lines))
    for pids, is_foreign in ((b"7", False), (b"7\t7", True), (b"9\t8\t7", True)):
        lines[:] = [b"Name:\ta b c\n", b"NSpid:\t" + pids + b"\n", b"NSpgid:\t1\t1\n"]
        if is_foreign:
            with pytest.raises(OSError, match="another PID namespace"):
                procfs.check()
        else:
            procfs.check()


FOREIGN = """if True:
    import importlib, os, sys
    import {package} as pidwait
    procfs = importlib.import_module({package!r} + "._sources.procfs")
    # The child lives in a new PID namespace, under the old /proc.
    child = os.fork()
    if child == 0:
        try:
            procfs.check()
        except OSError as error:
            print(error.strerror, flush=True)
        print(procfs.read_stat(1), flush=True)
        inner = os.fork()
        if inner == 0:
            os._exit(5)
        print(pidwait.wait(inner), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@not_on_windows("/proc")
def test_proc_of_another_pid_namespace(variant):
    unshare = ["unshare", "--user", "--pid"]
    if subprocess.call(unshare + ["--fork", "true"], stderr=subprocess.DEVNULL):
        pytest.skip("user namespaces are not allowed here")
    code = FOREIGN.format(package=pidwait.__name__)
    output = subprocess.check_output(unshare + [sys.executable, "-c", code])
    assert output.decode().splitlines() == ["/proc shows another PID namespace", "None", "5"]


@not_on_windows("/proc")
@pytest.mark.parametrize("name", ["has_executable", "links_tell_exit"])
def test_error_that_a_signal_handler_raises(monkeypatch, name):
    """It is not taken for an answer of the system."""
    assert getattr(procfs, name)(os.getpid()) is (name == "has_executable")

    def handler(*arguments):
        raise FileNotFoundError(errno.ENOENT, "on purpose")

    def readlink(path):
        os.kill(os.getpid(), signal.SIGALRM)
        return ""

    monkeypatch.setattr(os, "readlink", readlink)
    old = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(FileNotFoundError, match="on purpose"):
            getattr(procfs, name)(os.getpid())
    finally:
        signal.signal(signal.SIGALRM, old)


@not_on_windows("/proc")
def test_thread_that_becomes_the_main_one(use_variant, executing, sleeper):
    use_variant("polling")
    with pidwait.Process(sleeper.pid) as process:
        assert not process.has_exited()
    assert not procfs.links_tell_exit(sleeper.pid)


@not_on_windows("/proc")
def test_tree_with_a_thread_that_becomes_the_main_one(executing, sleeper):
    assert family.parents()[sleeper.pid] == os.getpid()


@not_on_windows("/proc")
def test_thread_group_of_a_thread_that_is_being_removed(use_variant, monkeypatch, sleeper):
    use_variant("polling")
    read = procfs.read

    def read_removed(path, *arguments):
        text = read(path, *arguments)
        return text.replace(b"Tgid:\t%d" % sleeper.pid, b"Tgid:\t0")

    monkeypatch.setattr(procfs, "read", read_removed)
    assert procfs.thread_group(sleeper.pid) is None
    with pidwait.Process(sleeper.pid) as process:
        assert not process.has_exited()
