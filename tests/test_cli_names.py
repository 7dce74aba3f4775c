# SPDX-License-Identifier: BSD-3-Clause
"""Processes that the command line chooses: by odd names, group, session and user; the wait."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from . import pidwait
from .command_line import COMMAND, NOTHING, chosen, run
from .processes import (
    MAIN_THREAD_ENDS,
    become_zombie,
    eventually,
    needs_ctypes,
    run_python,
    state,
)

ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def named(start):
    """named(name, ...) starts a process of that name, which sleeps for a minute."""
    folders = []

    def named(name, seconds=60, **options):
        folder = tempfile.mkdtemp()
        folders.append(folder)
        os.chmod(folder, 0o755)  # for other users, too
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.symlink("/bin/sleep", path)
        child = start(path, str(seconds), **options)
        with open("/proc/%d/comm" % child.pid, "rb") as comm:
            shown = os.fsencode(name)[:15]
            eventually(lambda: comm.seek(0) == 0 and comm.read()[:-1] == shown)
        return child

    yield named
    for folder in folders:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "rest, pattern",
    [
        ("", ""),
        (" b c", " b"),
        (") Z 1 (", r"\) Z"),
        ("\nx", "\n"),
        ("\nx", ".x"),
        ("\nx", r"\sx$"),
        (b"\xff\xc3", os.fsdecode(b"\xff")),
        ("\u00e9\u20ac", ".{2,}$"),
        ("+.*[", r"\+\.\*\["),
    ],
)
def test_name(token, named, rest, pattern):
    child = named(os.fsencode(token) + os.fsencode(rest))
    named(token[::-1])
    assert chosen("--name", token + pattern) == [child.pid]
    assert chosen("--name", token + pattern + "nonsense") == []


def test_how_the_name_is_meant(token, named):
    first, second = named(token), named(token + "X")
    both = sorted([first.pid, second.pid])
    assert chosen("--name", token) == both
    assert chosen("--name", "^%s$" % token) == [first.pid]
    assert chosen("-x", "--name", token) == [first.pid]
    assert chosen("--exact", "--name", token + "|" + token + "X") == both
    assert chosen("--name", token.upper()) == []
    assert chosen("-i", "--name", token.upper()) == both
    assert chosen("--ignore-case", "-x", "--name", token.upper() + "x") == [second.pid]
    assert chosen("--name", token + " 60") == []


def test_long_name(token, named):
    """The kernel keeps 15 bytes of it."""
    name = token + "-" * 20
    child = named(name)
    assert chosen("-x", "--name", name) == [child.pid]
    assert run("-l", "--name", token).stdout == "%d (%s)\n" % (child.pid, name)


def test_name_that_talks_to_the_terminal(token, named):
    child = named(token.encode() + b"\x1b[m\n\xff")
    done = run("-l", "--name", token)
    assert done.stdout == "%d (%s?[m??)\n" % (child.pid, token)
    (row,) = run("-l", "--json", "--name", token).stdout.splitlines()
    assert os.fsencode(json.loads(row)["name"]) == token.encode() + b"\x1b[m\n\xff"


@pytest.mark.parametrize("option, own", [("-g", "getpgrp"), ("-s", "getsid")])
def test_group_and_session(token, named, option, own):
    here, other = named(token), named(token, start_new_session=True)
    ours = ["--name", token]
    assert chosen(option, other.pid) == [other.pid]
    assert chosen(option, 0, *ours) == [here.pid]
    assert chosen(option, "0,%d" % other.pid, *ours) == sorted([here.pid, other.pid])
    number = os.getpgrp() if own == "getpgrp" else os.getsid(0)
    assert chosen(option, number, *ours) == [here.pid]


def test_group_of_its_own_in_our_session(token, named):
    child = named(token, preexec_fn=os.setpgrp)
    ours = ["--name", token]
    assert chosen("-g", 0, *ours) == []
    assert chosen("-g", child.pid, *ours) == chosen("-s", 0, *ours) == [child.pid]


def test_command_in_a_group_of_its_own(token, named):
    child = named(token)
    for option, shown in ("-g", ""), ("-s", "%d (%s)\n" % (child.pid, token)):
        done = run("-e", "-l", option, 0, "--name", token, preexec_fn=os.setpgrp)
        assert (done.returncode, done.stdout) == (0, shown)


if ROOT:

    def test_other_users(token, named):
        root = named(token + "1")
        theirs = named(token + "2", preexec_fn=lambda: os.setuid(NOBODY))
        effective = named(token + "3", preexec_fn=lambda: os.setresuid(0, NOBODY, 0))
        ours = ["--name", token]
        assert chosen("-u", "nobody", *ours) == sorted([theirs.pid, effective.pid])
        assert chosen("-u", NOBODY, *ours) == sorted([theirs.pid, effective.pid])
        assert chosen("-u", "root", *ours) == [root.pid]
        assert len(chosen("-u", "nobody,0", *ours)) == 3

    def test_chosen_by_another_user(token, named):
        """Processes that it may neither signal nor look into."""
        child = named(token)
        # The other user may not be able to read the package: root has loaded it.
        code = """if True:
            import os
            from {}.cli import main
            args = ["-t", "0", "--name", {!r}, "-u", "root"]
            main(args)
            os.setuid({})
            raise SystemExit(main(args))
        """
        done = run_python(code.format(pidwait.__name__, token, NOBODY))
        assert done.returncode == 124
        assert done.stderr.count("still running: %d (%s)" % (child.pid, token)) == 2


def test_all_of_them(token, named):
    child = named(token + "1")
    named(token + "2", start_new_session=True)
    args = ["--name", token, "-P", os.getpid(), "-g", 0, "-s", 0, "-u", os.geteuid(), "-n"]
    assert chosen(*args) == [child.pid]
    for option, wrong in ("-P", child.pid), ("-g", child.pid), ("-s", child.pid):
        assert chosen(*args, option, wrong) in ([], [child.pid])
        at = args.index(option)
        assert chosen(*args[:at], option, wrong, *args[at + 2 :]) == []


PGREP = shutil.which("pgrep")
if PGREP:

    @pytest.mark.parametrize(
        "ours, theirs",
        [
            ("--name {0}", "{0}"),
            ("-x --name {0}b", "-x {0}b"),
            ("-i --name {1}", "-i {1}"),
            ("-f --name {0}..60", "-f {0}..60"),
            ("-n --name {0}", "-n {0}"),
            ("-o --name {0}", "-o {0}"),
            ("-g 0 --name {0}", "-g 0 {0}"),
            ("-s 0 --name {0}", "-s 0 {0}"),
            ("-u {2} --name {0}", "-u {2} {0}"),
            ("-P {3},1 --name {0}", "-P {3},1 {0}"),
        ],
    )
    def test_as_pgrep(token, named, ours, theirs):
        for rest in "a", "b":
            named(token + rest)
            time.sleep(0.02)
        named(token + "c", start_new_session=True)
        words = token, token.upper(), os.geteuid(), os.getpid()
        expected = subprocess.check_output([PGREP] + theirs.format(*words).split())
        assert sorted(chosen(*ours.format(*words).split())) == sorted(map(int, expected.split()))


SHELL = " ".join(map(shlex.quote, COMMAND))


@pytest.mark.parametrize("inner", ["%s", "sh -c '%s; exit $?'", "exec %s"])
def test_neither_itself_nor_its_ancestors(token, named, tmp_path, inner):
    path = tmp_path / token
    path.symlink_to(shutil.which("sh"))
    by_name = inner % (SHELL + " -t 50 --name " + token)
    done = subprocess.run([str(path), "-c", by_name + "; exit $?"], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr.decode()) == (1, NOTHING)
    other = named(token)
    by_line = inner % (SHELL + " -l -f --name " + token)
    lines = subprocess.check_output([str(path), "-c", by_line + "; exit $?"])
    assert lines.decode() == "%d (%s)\n" % (other.pid, token)


CLIMBER = """if True:
    import os, sys, time
    from {package}.cli import _select
    first, ppid = [], _select.ProcessInfo.ppid
    def slow(self):
        # The parent is gone before it is looked at.
        pid = ppid(self)
        if not first:
            first.append(pid)
            print("ready", flush=True)
            while os.path.exists("/proc/%d" % pid):
                time.sleep(0.001)
        return pid
    _select.ProcessInfo.ppid = slow
    family = _select._family()
    print(os.getppid() in family, flush=True)
"""


def test_parent_that_exits_meanwhile(start):
    """There is another parent then."""
    command = [sys.executable, "-c", CLIMBER.replace("{package}", pidwait.__name__)]
    parent = start(
        "sh",
        "-c",
        " ".join(map(shlex.quote, command)) + " & read line",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout.readline() == b"ready\n"
    parent.stdin.close()
    parent.wait()
    assert parent.stdout.read() == b"True\n"


@needs_ctypes
def test_zombies(token, start, named):
    child = named(token, 0)
    become_zombie(child.pid)
    assert chosen("--name", token) == []
    assert chosen("-P", os.getpid()) == []
    (row,) = run("--list", "--json", child.pid).stdout.splitlines()
    assert json.loads(row)["status"] == "zombie"
    # Its main thread is one, but others run.
    threads = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(threads.pid)
    assert chosen("-P", os.getpid()) == [threads.pid]


def holding(command, count):
    """Wait until the command has opened its handles, as far as that shows."""
    eventually(lambda: state(command.pid) == "S" and handles(command.pid) >= count)


def handles(pid):
    if pidwait.probe()["backend"] != "pidfd":
        return 99
    folder = "/proc/%d/fd" % pid
    try:
        links = [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]
    except FileNotFoundError:  # closed meanwhile
        return 0
    return links.count("anon_inode:[pidfd]")


def test_waits(token, worker, start):
    child = worker(token)
    command = start(
        *COMMAND + ["-v", "-f", "--name", token], stdout=subprocess.PIPE, universal_newlines=True
    )
    holding(command, 1)
    child.stdin.close()
    name = pidwait.ProcessInfo(child.pid).name()
    line = command.stdout.readline()
    assert line.startswith("%d (%s): exited with 0; waited " % (child.pid, name))
    assert command.wait() == 0


@pytest.mark.parametrize("option", ["--any", "-c1"])
def test_any(token, worker, start, option):
    children = [worker(token) for _ in range(2)]
    command = start(*COMMAND + [option, "-f", "--name", token])
    holding(command, 2)
    children[1].stdin.close()
    assert command.wait() == 0
