# SPDX-License-Identifier: BSD-3-Clause
"""Processes that the command line chooses by what they are; and --list."""

import errno
import importlib
import json
import os
import signal
import time
import types

import pytest

from . import pidwait
from .command_line import NOTHING, chosen, run
from .processes import (
    PYTHON,
    WINDOWS,
    become_gone,
    become_zombie,
    exiting,
    gone_pid,
    interrupted_by,
    kill,
    not_on_windows,
    sleeping,
)

waited = importlib.import_module(pidwait.__name__ + ".cli._waited")
listing = importlib.import_module(pidwait.__name__ + ".listing")
cli = importlib.import_module(pidwait.__name__ + ".cli")
list_ = importlib.import_module(pidwait.__name__ + ".cli._list")
select = importlib.import_module(pidwait.__name__ + ".cli._select")


def test_full(token, worker):
    first, second = worker(token, "a b"), worker(token + "x")
    both = sorted([first.pid, second.pid])
    assert chosen("-f", "--name", token) == both
    assert chosen("--full", "--name", token + " a b$") == [first.pid]
    assert chosen("-f", "--name", token.upper()) == []
    assert chosen("-fi", "--name", token.upper()) == both
    assert chosen("-fx", "--name", token) == []
    assert chosen("-fx", "--name", ".*" + token + ".") == [second.pid]
    assert chosen("--name", token) == []  # in the name alone


def test_parent(token, worker, keeper):
    child = worker(token)
    theirs = keeper.start(*PYTHON + ("-c", "import time; time.sleep(60)", token))
    ours = ["-f", "--name", token]
    assert chosen(*ours) == sorted([child.pid, theirs])
    assert chosen("-P", os.getpid(), *ours) == [child.pid]
    assert chosen("--parent", keeper.process.pid, *ours) == [theirs]
    both = [os.getpid(), keeper.process.pid]
    assert chosen("-P", "%d,%d" % tuple(both), *ours) == sorted([child.pid, theirs])
    assert chosen("-P", both[0], "-P", both[1], *ours) == sorted([child.pid, theirs])
    assert chosen("-P", keeper.process.pid) == [theirs]
    assert chosen("-P", child.pid) == []


def test_age(token, worker):
    pids = []
    for _ in range(3):
        pids.append(worker(token).pid)
        time.sleep(0.02)  # the start times are in hundredths of a second
    ours = ["-f", "--name", token]
    assert chosen(*ours) == sorted(pids)
    assert chosen("-n", *ours) == chosen("--newest", "-P", os.getpid(), *ours) == pids[2:]
    assert chosen("-o", *ours) == chosen("--oldest", "-P", os.getpid(), *ours) == pids[:1]
    assert len(chosen("-o")) == 1


def own_name():
    return pidwait.ProcessInfo(os.getpid()).username()


def test_user(token, worker):
    child = worker(token)
    ours = ["-f", "--name", token]
    assert chosen("-u", own_name(), *ours) == [child.pid]
    if WINDOWS:
        assert chosen("-u", own_name().upper().rpartition("\\")[2], *ours) == [child.pid]
        return
    assert chosen("--user", os.geteuid(), *ours) == [child.pid]
    assert chosen("-u", os.geteuid() + 1, *ours) == []
    assert chosen("-u", "%d,%d" % (os.geteuid() + 1, os.geteuid()), *ours) == [child.pid]


def test_help_tells_of_names():
    assert " --name PATTERN" in run("--help").stdout.partition("\n\n")[0]


def test_not_itself(token):
    assert chosen("-f", "--name", "nonsense|" + token) == []


@pytest.mark.parametrize("args, status", [((), 124), (("--any",), 124), (("-c", "9"), 124)])
def test_time_out(token, worker, args, status):
    pids = sorted(worker(token).pid for _ in range(2))
    done = run("-t", "0", "--json", "-f", "--name", token, *args)
    assert done.returncode == status
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["pid"] for row in rows] == pids
    assert all(row["found"] and not row["exited"] and row["name"] for row in rows)
    assert "the time was up; still running: %d (" % pids[0] in done.stderr


@pytest.mark.parametrize(
    "args, status, message",
    [
        ([], 1, NOTHING),
        (["-v", "--json"], 1, NOTHING),
        (["--list"], 1, NOTHING),
        (["--exit-code"], 127, NOTHING),
        (["-e"], 0, ""),
        (["-n"], 1, NOTHING),
        (["-o", "-e"], 0, ""),
        (["-e", "--any", "-v"], 0, ""),
        (["-e", "-l"], 0, ""),
        (["-e", "--exit-code"], 0, ""),
    ],
)
def test_nothing_fits(token, args, status, message):
    done = run("--name", token, *args)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", message)


def choose(pid):
    (info,) = [info for info in listing._iterate(["name"], None) if info.pid == pid]
    return waited.Waited(pid, info)


def test_one_that_exits_after_it_was_chosen(keeper):
    one = choose(keeper.start(*sleeping(60)))
    kill(one.pid, signal.SIGTERM)
    keeper.reap(one.pid)
    become_gone(one.pid)
    assert not one.open()
    assert one.found and one.exitcode is None
    one.seconds = 0.5
    assert one.as_text() == "%s: exited; waited 0.500 s" % one
    assert json.loads(one.as_json()) == {
        "pid": one.pid,
        "name": one.name,
        "found": True,
        "exited": True,
        "exitcode": None,
        "seconds": 0.5,
    }


def test_one_whose_pid_another_process_has(token, worker):
    """The race that tests/faults makes for real."""
    one = choose(worker(token).pid)
    assert one.chosen._started is not None
    one.chosen._started -= 1
    assert not one.open() and one.process is None
    one.chosen._started += 1
    assert one.open()
    one.process.close()


def test_one_that_can_not_be_looked_at_again(monkeypatch):
    """It is taken for the one that was chosen."""
    one = choose(os.getpid())

    def is_running():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(one.chosen, "is_running", is_running)
    assert one.open()
    one.process.close()


def test_one_that_looks_like_a_zombie_and_goes():
    info = types.SimpleNamespace(pid=gone_pid(), info={"status": "zombie"})
    assert select._has_exited(info) is True


@pytest.mark.parametrize("options", ["name", "name full", "user", "parent"])
def test_what_we_may_not_see_fits_nothing(monkeypatch, options):
    info = pidwait.ProcessInfo(os.getpid())

    def iterate(names, ad_value):
        info.info = dict.fromkeys(names, ad_value)
        return [info]

    monkeypatch.setattr(select, "_iterate", iterate)
    monkeypatch.setattr(select, "_family", dict)
    assert select.Choice(dict.fromkeys(options.split(), "0")).processes() == []


def test_family_is_more_than_its_pids():
    """A process may have got the pid of an ancestor that has exited."""
    one, other = (pidwait.ProcessInfo(os.getpid()) for _ in range(2))
    family = {one.pid: one}
    assert select._is_among(other, family) and not select._is_among(other, {})
    other._started = 1
    assert not select._is_among(other, family)
    other._started = None  # Windows does not tell it of the system's processes
    assert select._is_among(other, family)


# Each ancestor's parent, or the error of the look at it, and when it was started: this process
# is 30. And whether these are all, and which they are.
ANCESTORS = {
    "in order": ({30: (20, 5), 20: (1, 3), 1: (0, 0)}, True, [1, 20, 30]),
    "at the same time": ({30: (20, 5), 20: (1, 5), 1: (0, 5)}, True, [1, 20, 30]),
    "the parent's pid is another's": ({30: (20, 5), 20: (1, 6), 1: (0, 0)}, True, [30]),
    "one that tells no time": ({30: (20, 5), 20: (1, None), 1: (0, 0)}, True, [1, 20, 30]),
    "none tells a time": ({30: (20, None), 20: (30, None)}, True, [20, 30]),
    "the parent has exited": ({30: (20, 5)}, True, [30]),
    "one may not be looked at": ({30: (20, 5), 20: (PermissionError, 3)}, True, [20, 30]),
    "one exits meanwhile": ({30: (20, 5), 20: (ProcessLookupError, 3)}, False, [20, 30]),
}


@pytest.mark.parametrize("name", sorted(ANCESTORS))
def test_ancestors(monkeypatch, name):
    table, are_all, expected = ANCESTORS[name]

    class Info:
        def __init__(self, pid):
            if pid not in table:
                raise ProcessLookupError if pid > 0 else ValueError
            self.pid = pid
            self._parent, self._started = table[pid]

        def ppid(self):
            if isinstance(self._parent, int):
                return self._parent
            raise self._parent

    found = {}
    with monkeypatch.context() as patch:
        patch.setattr(select, "ProcessInfo", Info)
        patch.setattr(os, "getpid", lambda: 30)
        assert select._climb(found) is are_all
    assert sorted(found) == expected


def test_list_of_pids(start, worker, token):
    child, exited, gone = worker(token), start(*exiting(0)), gone_pid()
    done = run("-l", child.pid)
    assert (done.returncode, done.stderr) == (0, "")
    name = pidwait.ProcessInfo(child.pid).name()
    assert done.stdout == "%d (%s)\n" % (child.pid, name[:15] if not WINDOWS else name)
    done = run("--list", child.pid, gone)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert "there is no process %d" % gone in done.stderr
    assert run("-l", "--exit-code", gone).returncode == 127
    done = run("-l", "-e", "--json", gone, child.pid)
    assert (done.returncode, done.stderr) == (0, "")
    row = json.loads(done.stdout)
    info = pidwait.ProcessInfo(child.pid)
    assert row.pop("status") and row.pop("create_time") == pytest.approx(info.create_time(), abs=2)
    assert row == {
        "pid": child.pid,
        "name": info.name(),
        "ppid": os.getpid(),
        "username": info.username(),
        "cmdline": info.cmdline(),
    }
    become_zombie(exited.pid)


def test_list_of_this_process():
    """It is only looked at."""
    assert run("-l", os.getpid()).returncode == 0
    assert "give at least one PID, or --name" in run("-l").stderr


@pytest.mark.parametrize(
    "args, message",
    [
        (["--name", "["], "--name '[' is not a regular expression: "),
        (["--name", "a{99999999999}"], "--name 'a{99999999999}' is not a regular expression: "),
        (["--name", ""], "--name '' would match every process"),
        (["--name", "x", "1"], "give PIDs or --name, not both"),
        (["-n", "1"], "give PIDs or --newest, not both"),
        (["-P", "1", "make"], "give PIDs or --parent, not both"),
        (["-f", "make"], "--full needs --name"),
        (["-x", "-n"], "--exact needs --name"),
        (["-i"], "--ignore-case needs --name"),
        (["-n", "-o"], "--newest can't be combined with --oldest"),
        (["-P", ""], "--parent: '' is not a number"),
        (["-P", "1,x"], "--parent: 'x' is not a number"),
        (["-P", "-1"], "--parent: '-1' is not a number"),
        (["-P", "\u0661"], "--parent: "),
        (["-P", "99999999999"], "--parent must be at most 2147483647, not 99999999999"),
        (["-P", "9" * 5000], "is not a number"),
        (["-u", "a,"], "--user 'a,' has an empty name"),
        (["-c", "0", "--name", "x"], "'0' is not a count"),
    ],
)
def test_usage(args, message):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    "args, message",
    [
        (["-u", "nonesuch-7"], "--user: there is no user 'nonesuch-7'"),
        (["-g", "x"], "--group: 'x' is not a number"),
        (["-s", "1,"], "--session: '' is not a number"),
    ][WINDOWS * 3 :]
    or [(["-g", "0"], "--group is not for Windows"), (["-s", "0"], "--session is not for Windows")],
)
def test_usage_here(args, message):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_bad_environment(monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", "nonesuch")
    done = run("--name", "x")
    assert done.returncode == 2 and "PIDWAIT_BACKEND must be one of" in done.stderr


@pytest.mark.parametrize(
    "args, where",
    [(["-l", "-n"], "cli._select._iterate"), (["-l", "--json"], "listing.ProcessInfo.as_dict")],
)
def test_look_that_fails(monkeypatch, capsys, args, where):
    def look(*args):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("%s.%s" % (pidwait.__name__, where), look)
    if "-n" not in args:
        args = [*args, str(os.getpid())]
    assert cli.main(args) == 1
    message = "python -m %s: Too many open files\n" % pidwait.__name__
    assert capsys.readouterr() == ("", message)


def list_this_process(*options):
    list_.show([waited.Waited(os.getpid())], options)


def look_again():
    waited._is_running(pidwait.ProcessInfo(os.getpid()))


def look_for_zombie():
    select._has_exited(types.SimpleNamespace(pid=os.getpid(), info={"status": "zombie"}))


LOOKS = [
    ("os.kill", PermissionError, lambda: waited.is_gone(os.getpid())),
    ("process.Process", ProcessLookupError, lambda: waited.Waited(os.getpid()).open()),
    ("listing.ProcessInfo.is_running", OSError, look_again),
    ("cli._list.is_gone", ProcessLookupError, list_this_process),
    ("listing.ProcessInfo.as_dict", PermissionError, lambda: list_this_process("json")),
    ("cli._select._iterate", OSError, lambda: select.Choice({}).processes()),
    ("cli._select.Process", ProcessLookupError, look_for_zombie),
    ("listing.ProcessInfo.ppid", ProcessLookupError, lambda: select._climb({})),
    ("listing.ProcessInfo.ppid", PermissionError, lambda: select._climb({})),
]


@not_on_windows("SIGUSR1")
def test_look_that_a_signal_handler_ends(monkeypatch):
    """Its error does not tell that the process is gone."""
    with interrupted_by(ProcessLookupError("on purpose")) as look:
        monkeypatch.setattr(os, "kill", look)
        with pytest.raises(ProcessLookupError, match="on purpose"):
            waited.is_gone(os.getpid())


if not WINDOWS:

    @pytest.mark.parametrize("where, error, look", LOOKS, ids=[one[0] for one in LOOKS])
    def test_other_looks_that_a_signal_handler_ends(monkeypatch, where, error, look):
        if where != "os.kill":
            where = "%s.%s" % (pidwait.__name__, where)
        with interrupted_by(error("on purpose")) as interrupted, monkeypatch.context() as patch:
            patch.setattr(where, interrupted)
            with pytest.raises(error, match="on purpose"):
                look()

    def test_look_at_the_parent_that_a_signal_handler_ends(monkeypatch):
        infos = [pidwait.ProcessInfo(os.getpid())]
        with interrupted_by(ProcessLookupError("on purpose")) as interrupted:
            monkeypatch.setattr(
                select, "ProcessInfo", lambda pid: infos.pop() if infos else interrupted()
            )
            with pytest.raises(ProcessLookupError, match="on purpose"):
                select._climb({})


@not_on_windows("SIGUSR1")
def test_name_whose_reading_a_signal_handler_ends(monkeypatch):
    """What it raises comes through: it is not the system's answer."""
    procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

    with interrupted_by(TimeoutError("on purpose")) as read_stat:
        monkeypatch.setattr(procfs, "read_stat", read_stat)
        with pytest.raises(TimeoutError, match="on purpose"):
            waited.name_of(os.getpid())
