# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait --name PATTERN, --user, --parent …: it finds what to wait for; and --list."""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from .. import pidwait
from ..needs import needs
from ..processes import (
    MAIN_THREAD_ENDS,
    PYTHON,
    WINDOWS,
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    interrupted_by,
    needs_pthread_exit,
    not_on_windows,
)
from .command_line import COMMAND, PROG, acting_first, once_we_sleep, run, until_it_sleeps

NOTHING = PROG + ": no process matches (use -e to ignore)\n"
NOBODY = 65534
SHELL = " ".join(map(shlex.quote, COMMAND))

posix = not_on_windows("such names, groups and sessions")


def pids_in(text):
    return [json.loads(line)["pid"] for line in text.splitlines()]


@pytest.fixture
def chosen(main):
    """chosen(args...) are the pids of the processes that they choose."""

    def chosen(*args):
        done = main("--list", "--json", *args)
        assert (done.returncode, done.stderr) in ((0, ""), (1, NOTHING)), done
        return pids_in(done.stdout)

    return chosen


# By name


@pytest.mark.windows
def test_by_the_whole_command_line(token, worker, chosen):
    first, second = worker(token, "a b"), worker(token + "x")
    both = sorted([first.pid, second.pid])
    assert chosen("-f", "--name", token) == both
    assert chosen("--full", "--name", token + " a b$") == [first.pid]
    assert chosen("-f", "--name", token.upper()) == []
    assert chosen("-fi", "--name", token.upper()) == both
    assert chosen("-fx", "--name", token) == []
    assert chosen("-fx", "--name", ".*" + token + ".") == [second.pid]
    assert chosen("--name", token) == []  # in the name alone


@posix
@pytest.mark.parametrize(
    "rest, pattern",
    [
        (" b c", " b"),
        (") Z 1 (", r"\) Z"),
        ("\nx", ".x"),
        ("\nx", r"\sx$"),
        (b"\xff\xc3", "\udcff"),
        ("\u00e9\u20ac", ".{2,}$"),
        ("+.*[", r"\+\.\*\["),
    ],
)
def test_by_an_odd_name(token, named, chosen, rest, pattern):
    child = named(os.fsencode(token) + os.fsencode(rest))
    named(token[::-1])
    assert chosen("--name", token + pattern) == [child.pid]
    assert chosen("--name", token + pattern + "nonsense") == []


@posix
def test_how_the_name_is_meant(token, named, chosen):
    first, second = named(token), named(token + "X")
    both = sorted([first.pid, second.pid])
    assert chosen("--name", token) == both
    assert chosen("--name", "^%s$" % token) == chosen("-x", "--name", token) == [first.pid]
    assert chosen("--exact", "--name", token + "|" + token + "X") == both
    assert chosen("--name", token.upper()) == []
    assert chosen("-i", "--name", token.upper()) == both
    assert chosen("--ignore-case", "-x", "--name", token.upper() + "x") == [second.pid]
    assert chosen("--name", token + " 60") == []


@needs("/proc")
def test_by_a_name_that_is_longer_than_the_kernel_keeps(token, named, chosen, main):
    """And the list does not talk to the terminal."""
    name = os.fsdecode(token.encode() + b"\x1b[m\n\xff" + b"-" * 20)
    child = named(name)
    assert chosen("-x", "--name", re.escape(name)) == [child.pid]
    shown = "%d (%s?[m??%s)" % (child.pid, token, "-" * 20)
    for which in ["--name", token], [child.pid]:  # it has one name, however it is asked for
        assert main("-l", *which).stdout == shown + "\n"
        assert main("-v", "-t", "0", *which).stdout == shown + ": still running\n"
        for how in ["-l"], ["-t", "0"]:
            assert json.loads(main("--json", *how + which).stdout)["name"] == name


@posix
@pytest.mark.parametrize(
    "words, names",
    [
        (["{}"], "sh"),
        (["/bin/sh", "-eo", "nolog", "{}"], "sh"),
        ([sys.executable, "-W", "ignore", "-u", "{}"], "python"),
        (["/bin/sh", "-c", ": $0; while :; do sleep 0.01; done", "{}"], None),
        (["tail", "-f", "{}"], None),
    ],
)
def test_by_the_name_of_a_script(token, start, chosen, tmp_path, words, names):
    """Not of any other file."""
    name = token + "-database-backup"
    path = tmp_path / name
    path.write_text(
        "import time; time.sleep(60)" if names == "python" else "#!/bin/sh -e\nread x\n"
    )
    path.chmod(0o755)
    child = start(*[one.format(path) for one in words], stdin=subprocess.PIPE)
    eventually(lambda: chosen("-f", "--name", name) == [child.pid])
    for pattern in [token], [name], ["-x", name]:
        assert chosen(*pattern[:-1] + ["--name", pattern[-1]]) == [child.pid] * bool(names)


# It changes its name and writes its title over its arguments, as chromium, nginx and postgres do.
TITLED = """if True:
    import sys
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, end = int(fields[45]), int(fields[46])
    with open("/proc/self/comm", "wb", 0) as file:
        file.write(sys.argv[1].encode())
    with open("/proc/self/mem", "r+b", 0) as memory:
        memory.seek(first)
        memory.write(sys.argv[2].encode().ljust(end - first, b"\\0"))
    print("ready", flush=True)
    sys.stdin.read()
"""


def ask_pgrep(*args):
    done = subprocess.run(("pgrep",) + args, stdout=subprocess.PIPE, check=False)
    return list(map(int, done.stdout.split()))


@needs("/proc")
@pytest.mark.parametrize(
    "rest, title",
    [
        (": writer process", "{name}: writer process"),
        ("-eight-8", "{name}: worker 3"),  # just as much as the kernel keeps
        ("-browser-of-mine", "{name}: zygote"),
        ("-browser-of-mine", "{name} --type=zygote --no-sandbox"),
        ("-browser-of-mine", "/usr/lib/{name} --type=renderer"),
        (" browser of mine", "/usr/lib/{name}: /a/b: c"),
    ],
)
def test_by_the_name_and_the_title_that_pgrep_finds(token, start, chosen, rest, title):
    name = token + rest.partition(":")[0]
    title = title.format(name=name)
    child = start(*PYTHON + ("-c", TITLED, name, title), stdin=-1, stdout=-1)
    assert child.stdout.readline() == b"ready\n"
    assert pidwait.ProcessInfo(child.pid).name() == name
    kept = name[:15]
    for options in ["-x", kept], ["-x", name], [kept + "$"], ["-fx", title], ["-f", title + "$"]:
        assert chosen(*options[:-1] + ["--name", options[-1]]) == [child.pid], options
        if options[-1] != name and shutil.which("pgrep"):
            assert ask_pgrep(*options) == [child.pid], options


# By what else a process is


@pytest.mark.windows
def test_by_parent(token, worker, keeper, chosen):
    child = worker(token)
    theirs = keeper.start(*PYTHON + ("-c", "import time; time.sleep(60)", token))
    ours, both = ["-f", "--name", token], [os.getpid(), keeper.process.pid]
    eventually(lambda: chosen(*ours) == sorted([child.pid, theirs]))  # a fork calls exec later
    assert chosen("-P", os.getpid(), *ours) == [child.pid]
    assert chosen("--parent", keeper.process.pid) == [theirs]
    assert chosen("-P", "%d,%d" % tuple(both), *ours) == sorted([child.pid, theirs])
    assert chosen("-P", both[0], "-P", both[1], *ours) == sorted([child.pid, theirs])
    assert chosen("-P", child.pid) == []


@pytest.mark.windows
def test_by_age(token, worker, chosen):
    pids = []
    for _ in range(3):
        pids.append(worker(token).pid)
        time.sleep(0.02)  # the start times are in hundredths of a second
    ours = ["-f", "--name", token]
    assert chosen(*ours) == sorted(pids)
    assert chosen("-n", *ours) == chosen("--newest", "-P", os.getpid(), *ours) == pids[2:]
    assert chosen("-o", *ours) == chosen("--oldest", "-P", os.getpid(), *ours) == pids[:1]
    assert len(chosen("-o")) == 1


@pytest.mark.windows
def test_by_user(token, worker, chosen):
    child, ours = worker(token), ["-f", "--name", token]
    name = pidwait.ProcessInfo(os.getpid()).username()
    assert chosen("-u", name, *ours) == [child.pid]
    if WINDOWS:
        assert chosen("-u", name.upper().rpartition("\\")[2], *ours) == [child.pid]
        return
    uid = os.geteuid()
    assert chosen("--user", uid, *ours) == [child.pid]
    assert chosen("-u", uid + 1, *ours) == []
    assert chosen("-u", "%d,%d" % (uid + 1, uid), *ours) == [child.pid]
    assert chosen("-u", uid + 1, "-u", uid, *ours) == [child.pid]


@pytest.mark.windows
@pytest.mark.skipif(not WINDOWS, reason="elsewhere everybody may see who runs a process")
def test_a_user_who_is_not_known_has_no_name(token, worker, chosen, seam):
    worker(token)
    seam.refuse("OpenProcessToken")
    assert chosen("-u", "none", "-f", "--name", token) == []


@pytest.mark.root
@needs("os.setresuid()")
def test_by_effective_user(token, named, chosen):
    root = named(token + "1")
    theirs = named(token + "2", preexec_fn=lambda: os.setuid(NOBODY))
    effective = named(token + "3", preexec_fn=lambda: os.setresuid(0, NOBODY, 0))
    ours, both = ["--name", token], sorted([theirs.pid, effective.pid])
    assert chosen("-u", "nobody", *ours) == chosen("-u", NOBODY, *ours) == both
    assert chosen("-u", "root", *ours) == [root.pid]
    assert len(chosen("-u", "nobody,0", *ours)) == 3


@posix
@pytest.mark.parametrize(
    "option, own", [("-g", lambda: os.getpgrp()), ("-s", lambda: os.getsid(0))]
)
def test_by_group_and_session(token, named, chosen, option, own):
    here, other = named(token), named(token, start_new_session=True)
    apart = named(token + "apart", preexec_fn=os.setpgrp)  # a group of its own in our session
    ours, both = ["-x", "--name", token], sorted([here.pid, other.pid])
    assert chosen(option, other.pid) == [other.pid]
    assert chosen(option, 0, *ours) == chosen(option, own(), *ours) == [here.pid]
    assert chosen(option, "0,%d" % other.pid, *ours) == both
    assert chosen("-g", apart.pid) == [apart.pid]
    assert (apart.pid in chosen(option, 0)) is (option == "-s")


@posix
def test_all_that_is_asked_for_must_hold(token, named, chosen):
    child = named(token + "1")
    named(token + "2", start_new_session=True)
    args = ["--name", token, "-P", os.getpid(), "-g", 0, "-s", 0, "-u", os.geteuid(), "-n"]
    assert chosen(*args) == [child.pid]
    for option in "-P", "-g", "-s":
        at = args.index(option)
        assert chosen(*args[:at] + [option, child.pid] + args[at + 2 :]) == []


def test_a_pid_of_a_file_must_match_what_else_is_asked_for(token, worker, chosen, tmp_path):
    """It may be an old file, and the PID another process's by now."""
    child, other = worker(token), worker(token + "x")
    path = tmp_path / "file"
    path.write_text("%d\n" % child.pid)
    assert chosen("-F", path, "-f", "--name", token) == [child.pid]
    assert chosen("-F", path, "-f", "--name", token + "x") == []
    assert chosen("-F", path, "-P", os.getpid(), "-n") == chosen("-F", path) == [child.pid]
    assert chosen("-f", "--name", token) == sorted([child.pid, other.pid])


# What is never chosen


@pytest.mark.windows
def test_it_does_not_choose_itself(token):
    done = run("-l", "-f", "--name", token + "|" + token)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", NOTHING)


@posix
@pytest.mark.parametrize("inner", ["%s", "sh -c '%s; exit $?'", "exec %s"])
def test_it_chooses_none_of_its_ancestors(token, named, tmp_path, inner):
    path = tmp_path / token
    path.symlink_to(shutil.which("sh"))
    other = named(token)
    line = inner % (SHELL + " -l -f --name " + token)
    lines = subprocess.check_output([str(path), "-c", line + "; exit $?"])
    assert lines.decode() == "%d (%s)\n" % (other.pid, token)


@needs("/proc")  # elsewhere a shell's arguments and the readers of a pipe are not known
def test_it_chooses_nobody_who_waits_for_the_same(token, start, worker, chosen, tmp_path):
    """Under whatever name, as it would wait for us; nor the shell that runs that wait."""
    zipapp = tmp_path / "app.pyz"
    zipapp.write_text(
        "import sys; sys.path[:] = %r; from %s.cli import main; main()"
        % (sys.path, pidwait.__name__)
    )
    pipe = " 2>&1 | cat | tee %s/%s" % (tmp_path, token)
    waits = [
        start(*COMMAND, "-ef", "--name", token),
        start(sys.executable, str(zipapp), "--name=" + token, "-fe", "-t", "60"),
        start("sh", "-c", "%s -t 60 -fe --na '%s'; exit $?" % (SHELL, token)),
        start("sh", "-c", SHELL + " -e -f --name " + token + pipe),
    ]
    others = [worker("--name", token), worker("-f", "x", "--name", token), worker("-x", token)]
    expected = sorted(one.pid for one in others)
    eventually(lambda: len(chosen("-f", "--name", token + "|" + token)) == len(others) + 7)
    done = run("-l", "--json", "-f", "--name", token)
    for child in others:
        child.kill()
    assert pids_in(done.stdout) == expected
    assert [child.wait() for child in waits] == [0] * 4


@needs_pthread_exit
@posix
def test_it_chooses_no_zombies(start, named, token, chosen, main):
    child = named(token, 0)
    become_zombie(child.pid)
    assert chosen("--name", token) == chosen("-P", os.getpid()) == []
    assert json.loads(main("--list", "--json", child.pid).stdout)["status"] == "zombie"
    # Its main thread is one, but others run.
    threads = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(threads.pid)
    assert chosen("-P", os.getpid()) == [threads.pid]


# The wait


@pytest.mark.parametrize("option", [[], ["--any"], ["-c1"]], ids=" ".join)
def test_it_waits_for_as_many_as_it_is_asked_for(token, named, start, option):
    children = [named(token) for _ in range(2)]
    args = COMMAND + ["-v"] + option + ["--exit-code", "--name", token]
    command = start(*args, stdout=subprocess.PIPE, universal_newlines=True)
    until_it_sleeps(command.pid, runs_ps=True)
    for child in children[: 1 if option else 2]:
        child.kill()
        line = command.stdout.readline()
        assert line.startswith("%d (%s): killed by SIGKILL; waited " % (child.pid, token))
    assert (command.stdout.read(), command.wait()) == ("", 137)


@pytest.mark.windows
@pytest.mark.parametrize("args", [(), ("--any",), ("-c", "2")])
def test_the_time_can_be_up(token, worker, main, args):
    pids = sorted(worker(token).pid for _ in range(2))
    done = main("-t", "0", "--json", "-f", "--name", token, *args)
    assert done.returncode == 124
    many = main("-c", "3", "-f", "--name", token)
    assert many.returncode == 2 and "3 is more than the number of processes: 2 (" in many.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["pid"] for row in found] == pids
    assert all(row["found"] and not row["exited"] and row["name"] for row in found)
    assert "timed out; still running: %d (" % pids[0] in done.stderr


@pytest.mark.windows
@pytest.mark.parametrize(
    "args, status, message",
    [
        ([], 1, NOTHING),
        (["-v", "--json", "-n"], 1, NOTHING),
        (["--list"], 1, NOTHING),
        (["--exit-code"], 127, NOTHING),
        (["-e"], 0, ""),
        (["-e", "-o", "--any", "-v"], 0, ""),
        (["-e", "-l"], 0, ""),
        (["-e", "--exit-code"], 0, ""),
    ],
)
def test_no_process_may_fit(token, main, args, status, message):
    assert main("--name", token, *args) == (status, "", message)


@pytest.fixture
def pidfds():
    none = {"reason": "this system has no pidfds"}
    reason = pidwait.probe()["backends"].get("pidfd", none)["reason"]
    if reason:
        pytest.skip(reason)


@posix
def test_one_that_is_gone_before_it_is_waited_for_has_exited(pidfds, seam, token, named, main):
    """It was chosen: it is found, but nobody can tell its exit code."""
    child = named(token)

    def end():
        child.kill()
        child.wait()

    seam.put("pidfd_open", acting_first(child.pid, end))
    done = main("--json", "--exit-code", "--name", token)
    row = json.loads(done.stdout)
    assert row.pop("seconds") >= 0 and child.returncode == -signal.SIGKILL
    about = {"pid": child.pid, "name": token, "found": True, "exited": True, "exitcode": None}
    assert row == about and done.returncode == 125


@posix
def test_one_that_no_handle_is_left_for_is_waited_for(pidfds, seam, token, named, main):
    """And it is taken for the one that was chosen."""
    seam.refuse("pidfd_open", errno.EMFILE)
    child = named(token)
    with once_we_sleep(lambda: os.kill(child.pid, signal.SIGKILL)):
        done = main("--json", "--exit-code", "--name", token)
    assert done.returncode == 137 and json.loads(done.stdout)["pid"] == child.pid


# --list


@pytest.mark.windows
def test_list_shows_what_would_be_waited_for(start, worker, token, main):
    child, exited, gone = worker(token), start(*exiting(0)), gone_pid()
    info = pidwait.ProcessInfo(child.pid)
    name = info.name()
    assert main("-l", child.pid) == (0, "%d (%s)\n" % (child.pid, name), "")
    assert main("--list", child.pid, gone) == main("-l", child.pid)
    assert main("-l", gone) == (1, "", NOTHING)
    assert main("-l", "--exit-code", gone).returncode == 127
    assert main("-l", "-e", gone) == main("-l", "-e") == (0, "", "")
    done = main("-l", "--json", gone, child.pid)
    assert (done.returncode, done.stderr) == (0, "")
    row = json.loads(done.stdout)
    assert row.pop("status") and row.pop("create_time") == pytest.approx(info.create_time(), abs=2)
    assert row == {
        "pid": child.pid,
        "name": name,
        "ppid": os.getpid(),
        "username": info.username(),
        "cmdline": info.cmdline(),
    }
    become_zombie(exited.pid)
    assert main("-l", os.getpid()).returncode == 0  # to look at oneself is no wait


@pytest.mark.windows
@pytest.mark.parametrize(
    "args, message",
    [
        (["--name", "["], "--name '[' is not a Python regular expression: "),
        (["--name", "a{99999999999}"], "--name 'a{99999999999}' is not a Python regular "),
        (
            ["--name", "[[:alpha:]]"],
            "--name '[[:alpha:]]': Python has no classes such as [:alpha:]",
        ),
        (["--name", ""], "--name '' would match every process"),
        (["--name", "x", "1"], "give PIDs or --name, not both"),
        (["-n", "1"], "give PIDs or --newest, not both"),
        (["-P", "1", "2"], "give PIDs or --parent, not both"),
        (["-f", "1"], "--full needs --name"),
        (["-x", "-n"], "--exact needs --name"),
        (["-i"], "--ignore-case needs --name"),
        (["-n", "-o"], "--newest can't be combined with --oldest"),
        (["-P", ""], "--parent: '' is not a number"),
        (["-P", "1,x"], "--parent: 'x' is not a number"),
        (["-P", "99999999999"], "--parent must be at most 2147483647, not 99999999999"),
    ]
    + [
        (["-g", "0"], "--group is not for Windows"),
        (["-s", "0"], "--session is not for Windows"),
        (["-u", "nonesuch-7"], "--user: no such user: 'nonesuch-7'"),
        (["-u", "root,"], "--user: no such user: ''"),
        (["-g", "x"], "--group: 'x' is not a number"),
        (["-s", "1,"], "--session: '' is not a number"),
    ][slice(0, 2) if WINDOWS else slice(2, None)],
)
def test_a_choice_that_is_wrong_is_an_error(main, args, message):
    done = main(*args)
    assert done[:2] == (2, "") and message in done.stderr and done.stderr.count("\n") == 1


@posix
def test_an_error_of_a_signal_handler_is_not_the_systems_answer(seam, pidfds, sleeper, main):
    """It does not tell that the process is gone."""
    pidwait.probe()
    with interrupted_by(ProcessLookupError("on purpose")) as look:
        seam.put("pidfd_open", look)
        with pytest.raises(ProcessLookupError, match="on purpose"):
            main(sleeper.pid)
