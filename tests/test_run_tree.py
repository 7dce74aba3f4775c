# SPDX-License-Identifier: BSD-3-Clause
"""The command run --tree."""

import importlib
import os
import signal
import subprocess
import sys
import types
from functools import partial

import pytest

from . import command_line, pidwait
from .processes import FACTORS, eventually, run_python, state

family = importlib.import_module(pidwait.__name__ + ".cli._family")
tree = importlib.import_module(pidwait.__name__ + ".cli._tree")
Options = importlib.import_module(pidwait.__name__ + ".cli.run").Options
COMMAND = command_line.COMMAND + ["run", "--tree"]
run = partial(command_line.run, "run", "--tree")


@pytest.mark.parametrize("timeout", [[], ["-t", "50"]])
def test_tree_waits_for_all(timeout, tmp_path):
    mark = tmp_path / "mark"
    script = "(setsid sh -c 'sleep 0.3; exec 1>&-; : > %s' & ); exit 4" % mark
    assert run(*timeout, "sh", "-c", script).returncode == 4
    assert mark.exists()
    mark.unlink()
    alone = script.replace("setsid", "exec >&- 2>&-; setsid").replace("0.3", "3")
    without = [word for word in COMMAND if word != "--tree"]
    assert subprocess.call(without + timeout + ["sh", "-c", alone]) == 4
    assert not mark.exists()
    eventually(mark.exists)


@pytest.mark.parametrize("stubborn, status", [(False, 124), (True, 137)])
def test_tree_ends_all(tmp_path, stubborn, status):
    path = tmp_path / "pids"
    trap = "trap '' TERM; " if stubborn else ""
    nested = trap + "echo $$ >> $FILE; sleep 60 & echo $! >> $FILE; wait; wait; sleep 60"
    script = trap + '(setsid sh -c "$NESTED" &); ' + nested
    env = dict(os.environ, FILE=str(path), NESTED=nested)
    for factor in FACTORS:
        path.write_text("")
        options = ["-t", 0.5 * factor, "-k", "0.2"]
        found = run(*options, "sh", "-c", script, env=env).returncode
        pids = list(map(int, path.read_text().split()))
        if found == status and len(pids) == 4:
            break
    assert found == status
    assert len(pids) == 4
    assert [state(pid) for pid in pids] == [None] * 4


# A shell with a job of its own that becomes the command.
BECOMES = "sleep 60 >&- 2>&- & echo $!; exec %s %%s" % " ".join(COMMAND)


def start_becoming(start, args, **kwargs):
    """The command, and the pid of the job."""
    child = start("sh", "-c", BECOMES % args, stdout=subprocess.PIPE, **kwargs)
    return child, int(child.stdout.readline())


@pytest.mark.parametrize(
    "args, status",
    [
        ("true", 0),
        ("sh -c 'exit 3'", 3),
        ("sh -c 'kill -USR1 $$'", -signal.SIGUSR1),
        ("-t 0.3 sleep 60", 124),
        ("-t 0.3 -s KILL sleep 60", 137),
        ("/nonesuch", 127),
    ],
)
def test_tree_is_what_the_command_started(start, args, status):
    """It neither waits for the others, nor signals them."""
    child, job = start_becoming(start, args, stderr=subprocess.DEVNULL)
    try:
        assert child.wait() == status
        assert state(job) == "S"
    finally:
        os.kill(job, signal.SIGKILL)


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 9), (signal.SIGALRM, 124)])
def test_tree_beside_others_gets_signals(start, number, status):
    script = "sh -c 'trap \"exit 9\" TERM; echo ready; while :; do sleep 0.01; done'"
    child, job = start_becoming(start, script, stderr=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        assert child.wait() == status
        assert state(job) == "S" and b"sending signal" not in child.stderr.read()
    finally:
        os.kill(job, signal.SIGKILL)


def test_tree_without_others_is_their_parent(start):
    child = start(*COMMAND + ["sh", "-c", "echo $PPID"], stdout=subprocess.PIPE)
    assert int(child.stdout.read()) == child.pid


def test_signal_before_the_tree_is_made_is_passed_on_once(monkeypatch):
    """By the process that has the others, not by its child as well."""
    one = tree.Tree(Options({}), ["true"])
    one._came.append(signal.SIGUSR1)
    monkeypatch.setattr(tree, "_has_children", lambda: True)
    monkeypatch.setattr(tree.Job, "supervise", lambda self: list(self._came))
    with monkeypatch.context() as patch:
        patch.setattr(tree.calls, "get", lambda name: lambda *args: None)
        patch.setattr(os, "fork", lambda: 0)
        assert one.supervise() == []


def test_end_of_the_time_is_passed_on_once():
    sent, deputy = [], tree._Deputy.__new__(tree._Deputy)
    deputy.send = sent.append
    assert deputy._end().remaining() is None and sent == [signal.SIGALRM]


def in_a_namespace(*args):
    """The command in a PID namespace of its own, with the /proc of the one above."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid():
        unshare.insert(1, "--user")
    if subprocess.call(unshare + ["true"], stderr=subprocess.DEVNULL):
        pytest.skip("no PID namespace can be made here")
    return subprocess.call(unshare + COMMAND + list(args), stderr=subprocess.DEVNULL)


def test_tree_with_the_proc_of_another_namespace():
    script = "setsid sleep 60 & setsid sleep 60 & wait"
    assert in_a_namespace("-t", "0.5", "sh", "-c", script) == 124
    stubborn = ["-k", "0.2", "sh", "-c", "trap '' TERM; " + script]
    assert 137 in (in_a_namespace("-t", str(0.3 * factor), *stubborn) for factor in FACTORS)


def test_tree_stops_and_kills():
    assert run("-s", "STOP", "-t", "0.2", "-k", "0.2", "sleep", "60").returncode == 137


def test_tree_continues_what_it_ends(tmp_path):
    """A process that has been stopped gets a signal once it goes on."""
    mark = tmp_path / "mark"
    stopped = "trap ': > %s; exit' TERM; kill -STOP $$; sleep 60" % mark
    script = 'setsid sh -c "$STOPPED" & wait'
    for factor in FACTORS:
        options = ["-t", 0.5 * factor, "-k", "5"]
        run(*options, "sh", "-c", script, env=dict(os.environ, STOPPED=stopped))
        if mark.exists():
            break
    assert mark.exists()


def test_tree_without_proc(tmp_path):
    """It says so, and starts nothing."""
    code = """if True:
        import os, sys
        from {package} import cli
        readlink = os.readlink
        def hidden(path, **kwargs):
            if path == "/proc/self":
                raise FileNotFoundError(2, "No such file or directory")
            return readlink(path, **kwargs)
        os.readlink = hidden
        sys.argv[1:] = ["run", "--tree", "touch", {path!r}]
        cli.main()
    """.format(package=pidwait.__name__, path=str(tmp_path / "mark"))
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert done.returncode == 125 and b"--tree needs Linux, and its /proc" in done.stderr
    assert not (tmp_path / "mark").exists()


LOOK = """if True:
    import os, signal
    from {package}.cli import _tree
    from {package} import spawn

    def is_there(states):
        try:
            with open("/proc/%d/stat" % tree.child.pid) as file:
                return file.read().rpartition(")")[2].split()[0] in states
        except OSError:
            return False

    tree = _tree.Tree.__new__(_tree.Tree)
    tree.killing = False
    signal.signal(signal.SIGCHLD, {disposition})
    tree.child = spawn(["sh", "-c", "exit 3"])
    while is_there({running}):
        pass
    {before}
    print(tree.reap(), tree.child.reaped)
"""
RUNNING = "RSDTtX"


@pytest.mark.parametrize(
    "disposition, running, before",
    [
        # It exits right after the first look at it.
        ("signal.SIG_DFL", RUNNING, "tree.child.has_exited = lambda: False"),
        ("signal.SIG_IGN", RUNNING + "Z", ""),
    ],
    ids=["late", "reaped by the kernel"],
)
def test_exit_of_the_command_itself(disposition, running, before):
    names = {"package": pidwait.__name__, "disposition": disposition}
    done = run_python(LOOK.format(running=repr(running), before=before, **names))
    assert done.stdout.split() == ["True", "True"], done


def test_proc_of_another_pid_namespace_is_of_no_use(monkeypatch):
    monkeypatch.setattr(family, "_numbers", lambda number: [os.getpid() + 1])
    with pytest.raises(OSError, match="another PID namespace"):
        family.View()


@pytest.mark.parametrize(
    "status, numbers",
    [(b"Name:\tx\nNSpid:\t7\t1\n", [7, 1]), (b"Name:\tx\n", [7]), (b"", [])],
    ids=["NSpid", "before Linux 4.1", "gone"],
)
def test_numbers_in_each_namespace(monkeypatch, status, numbers):
    monkeypatch.setattr(family, "_read", lambda number, name: status)
    assert family._numbers(7) == numbers


def test_numbers_of_a_namespace_above(monkeypatch):
    """Further ones are of namespaces below ours."""
    numbers = {int(os.readlink("/proc/self")): [2**22, os.getpid()], 7: [7, 3], 8: [8, 4, 1]}
    numbers[9] = [9]
    monkeypatch.setattr(family, "_numbers", lambda number: numbers.get(number, []))
    view = family.View()
    assert [view.pid(number) for number in (7, 8, 9, 10)] == [3, 4, None, None]
    view._level = 0
    assert [view.pid(number) for number in (7, 10)] == [7, None]


@pytest.mark.parametrize(
    "names, kills",
    [(["TERM", "CONT"], False), (["KILL"], True), (["STOP"], False), (["CONT"], False)],
)
def test_tree_sends(names, kills):
    numbers, sent = [getattr(signal, "SIG" + name) for name in names], []
    one = tree.Tree(Options({}), ["true"])
    one._send_to_all = sent.append
    one.send(numbers[0])
    assert sent == numbers and one.killing is kills


@pytest.mark.parametrize("killing", [False, True])
def test_tree_kills_what_is_started_meanwhile(killing):
    one, sent = tree.Tree(Options({}), ["sleep"]), []
    one.killing, one._send_to_all = killing, sent.append
    with pidwait.spawn(["sleep", "60"]) as one.child:
        try:
            assert not one.reap()
        finally:
            one.child.kill()
    assert sent == [signal.SIGKILL] * killing


def test_tree_signals_none_but_its_own(monkeypatch):
    """Neither what is gone, nor what has got its number since."""
    sent = []
    parents = {11: 10, 12: 11, 13: 10, 15: 1, 16: 10, 17: 10, 18: 10, 19: 12}
    pids = {number: [number] * 2 for number in (*parents, 14)}
    pids[13], pids[16] = [None] * 2, [16, 20]
    view = types.SimpleNamespace(
        me=10, descendants=lambda: set(pids), pid=lambda number: pids[number].pop(0)
    )

    class Process:
        def __init__(self, pid):
            if pid == 17:
                raise ProcessLookupError
            self.pid = pid

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

        def send_signal(self, number):
            if self.pid == 18:
                raise PermissionError
            sent.append((self.pid, number))

    def read_stat(number):
        return types.SimpleNamespace(parent=parents[number]) if number in parents else None

    one = tree.Tree(Options({}), ["true"])
    one._view = view
    monkeypatch.setattr(tree, "Process", Process)
    monkeypatch.setattr(tree, "read_stat", read_stat)
    one._send_to_all(signal.SIGTERM)
    assert sorted(sent) == [(number, signal.SIGTERM) for number in (11, 12, 19)]
