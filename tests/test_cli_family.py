# SPDX-License-Identifier: BSD-3-Clause
"""Waits of the command line that could never end: for itself, and for what waits for it."""

import importlib
import os
import shlex
import signal
import subprocess
import sys

import pytest

from . import pidwait
from .processes import eventually, gone_pid, interrupted_by

family = importlib.import_module(pidwait.__name__ + ".cli._family")
waiting = importlib.import_module(pidwait.__name__ + ".cli._waiting")
deadline = importlib.import_module(pidwait.__name__ + "._deadline")
PYTHON = " ".join(map(shlex.quote, [sys.executable, "-m", pidwait.__name__]))
# Once the shell that it is to wait for waits for it. That has something to do afterwards, else
# it would become the command by exec.
WAIT = "sh -c 'until grep -q do_wait /proc/$PPID/wchan; do :; done; exec %s %%s '$$; echo $?"
WAIT = WAIT % PYTHON


def shell(command):
    return subprocess.run(
        ["sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


@pytest.mark.parametrize("args", ["", "-t 0", "-t 5", "-e", "--any 1"])
def test_it_does_not_wait_for_itself(args):
    done = shell("exec %s %s $$" % (PYTHON, args))
    assert done.returncode == 2
    assert "is this very process, and does not wait for itself" in done.stderr


@pytest.mark.parametrize("args", ["", "-t inf", "-e", "--any", "-c 5", "-v"])
def test_ancestor_that_waits_for_it(args):
    done = shell(WAIT % args)
    assert done.stdout == "2\n"
    assert "(sh) would never end, as that waits for this process" in done.stderr


def test_ancestor_of_the_ancestor(monkeypatch):
    until = (
        "until grep -q do_wait /proc/$PPID/wchan && grep -q do_wait /proc/$TOP/wchan; do :; done"
    )
    monkeypatch.setenv("INNER", "%s; exec %s $TOP" % (until, PYTHON))
    monkeypatch.setenv("MIDDLE", 'sh -c "$INNER"; echo $?')
    done = shell('export TOP=$$; sh -c "$MIDDLE"; exit 5')
    assert (done.stdout, done.returncode) == ("2\n", 5)
    # What is between has exited, and nobody waits for it.
    done = shell("sh -c '%s '$$'; echo $? >&2' & sleep 0.3" % PYTHON)
    assert (done.stderr, done.returncode) == ("0\n", 0)


def test_ancestor_until_the_time_is_up():
    done = shell(WAIT % "-t 0.1")
    assert done.stdout == "124\n" and "would never end" not in done.stderr


def test_ancestor_or_another(start):
    other = start("sleep", "0.2")
    assert shell(WAIT % ("--any %d" % other.pid)).stdout == "0\n"
    other = start("sleep", "60")
    assert shell(WAIT % ("-c 2 %d" % other.pid)).stdout == "2\n"


def test_shell_that_started_it_in_the_background():
    """It cleans up once the shell has exited."""
    done = shell("(%s $$; echo cleaned up $?) & read line < /dev/null; exit 3" % PYTHON)
    assert (done.stdout, done.stderr, done.returncode) == ("cleaned up 0\n", "", 3)


def test_shell_that_waits_for_another():
    done = shell("(%s $$; echo cleaned up $?) & sleep 1; exit 3" % PYTHON)
    assert (done.stdout, done.stderr, done.returncode) == ("cleaned up 0\n", "", 3)


PARENT = """if True:
    import subprocess, sys, threading
    if sys.argv[1] == "threads":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.exit(subprocess.call([sys.executable, "-c", sys.argv[2]]))
"""
CHILD = """if True:
    import os
    from {package}.cli import _family
    parent = os.getppid()
    while b"do_wait" not in _family._read(parent, "wchan"):
        pass
    print(_family.waits_for_us(parent))
"""


@pytest.mark.parametrize("threads, waits", [("none", b"True\n"), ("threads", b"False\n")])
def test_program_with_threads(threads, waits):
    """One of them may end it."""
    child = CHILD.format(package=pidwait.__name__)
    done = subprocess.check_output([sys.executable, "-c", PARENT, threads, child])
    assert done == waits


def test_strangers_do_not_wait_for_it(start):
    sleeper = start("sleep", "60")
    eventually(lambda: family.read_stat(sleeper.pid) is not None)
    assert not family.waits_for_us(sleeper.pid) and not family.waits_for_us(gone_pid())
    assert not family.waits_for_us(1 if os.getppid() != 1 else sleeper.pid)


def test_first_of_several_that_wait_for_it_is_named(monkeypatch, start):
    pids = [start("sleep", "60").pid for _ in range(2)]
    monkeypatch.setattr(family, "waits_for_us", lambda pid: True)
    with pytest.raises(waiting.Usage, match=r"the wait for %d \(sleep\) would never" % pids[0]):
        waiting.refuse_what_never_ends(pids, 2, deadline.Deadline(None))


@pytest.mark.parametrize("stat, waits", [("known", True), (None, False)])
def test_proc_of_another_namespace_tells_of_others(monkeypatch, stat, waits):
    monkeypatch.setattr(family.procfs, "read_stat", lambda pid: stat)
    monkeypatch.setattr(family, "parents", lambda: {os.getpid(): 2**31 - 1})
    monkeypatch.setattr(family, "_waits", lambda pid: True)
    assert family.waits_for_us(2**31 - 1) is waits


def test_process_that_goes_while_all_are_looked_at(monkeypatch):
    gone = gone_pid()
    monkeypatch.setattr(family.procfs, "numbers", lambda: [gone, os.getpid()])
    assert family.parents() == {os.getpid(): os.getppid()}
    assert family._numbers(gone) == []


def test_status_that_is_long(tmp_path):
    """It lists the groups, of which there can be thousands, before what is looked for."""
    path = tmp_path / "status"
    path.write_bytes(b"Groups:\t" + b"4711 " * 10000 + b"\nNSpid:\t1\n")
    assert family._read_file(str(path)) == path.read_bytes()


def test_read_that_a_signal_handler_ends(monkeypatch):
    """What it raises comes through: it is not the system's answer."""
    with interrupted_by(PermissionError("on purpose")) as read:
        monkeypatch.setattr(family.procfs, "read", read)
        with pytest.raises(PermissionError, match="on purpose"):
            family.read_stat(os.getpid())


def test_ignored_signals(monkeypatch):
    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert family.is_ignored(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    status = b"Name:\tx\nSigBlk:\t0000000000000012\nSigIgn:\t0000000000000fa5\n"
    monkeypatch.setattr(family, "_read_file", lambda path: status)
    found = [number for number in range(1, 65) if family.is_ignored(number)]
    assert found == [1, 3, 6, 8, 9, 10, 11, 12]
    monkeypatch.setattr(family, "_read_file", lambda path: b"")
    assert not family.is_ignored(1)
