# SPDX-License-Identifier: BSD-3-Clause
"""On Linux: what we tell about a process, compared with what psutil and ps tell about it.

Each known difference stands in as_psutil_tells() and as_ps_tells(), with its reason.
"""

import calendar
import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from . import pidwait
from .processes import PYTHON, become_zombie, eventually, exiting, state, stop

if importlib.util.find_spec("psutil"):
    import psutil
else:
    psutil = None  # on PyPy

listed_procfs = importlib.import_module(pidwait.__name__ + "._sources.listed_procfs")


def run(command):
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, LC_ALL="C", TZ="UTC0"),
    )
    return done.stdout


TICKS = os.sysconf("SC_CLK_TCK")
SHELL = shutil.which("sh")
WAITING = ("-c", "read line")
COMM = 15  # bytes of a name that the kernel keeps
DENIED = "denied"
ATTRIBUTES = "name ppid cmdline status create_time username uids terminal cpu_times".split()
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "I": "idle",
}
# That of busybox, say, has no such columns.
HAS_PS = shutil.which("ps") and b"procps" in run(["ps", "--version"])


def psutil_tells(pids):
    """{pid: {attribute: value}}, without those that are gone."""
    psutil._psposix.get_terminal_map.cache_clear()  # else it knows no terminal that is new
    found = {}
    for pid in pids:
        try:
            found[pid] = psutil.Process(pid).as_dict(ATTRIBUTES, DENIED)
        except psutil.NoSuchProcess:
            pass
    return found


def as_psutil_tells(ours):
    """Our values, changed into those of psutil 7.2, but for the create_time."""
    expected = dict(ours)
    del expected["create_time"]
    # It wants 15 characters to look for more of the name, and compares characters: so a name
    # that is not ASCII stays cut off.
    cut = os.fsdecode(os.fsencode(ours["name"])[:COMM])
    if len(cut) < COMM or not ours["name"].startswith(cut):
        expected["name"] = cut
    # It opens the file as a text, with universal newlines.
    words = [re.sub("\r\n?", "\n", word) for word in ours["cmdline"]]
    # A lone argument with spaces is a title to it. But a program may have such a name.
    if len(words) == 1 and " " in words[0]:
        words = words[0].split(" ")
    # It raises ZombieProcess, an error of its own.
    expected["cmdline"] = DENIED if ours["status"] == "zombie" else words
    # It knows the terminals that it finds by these two patterns.
    if not re.match("/dev/(tty|pts/)", ours["terminal"] or "") or not os.path.exists(
        ours["terminal"]
    ):
        expected["terminal"] = None
    expected["uids"], expected["cpu_times"] = tuple(ours["uids"]), tuple(ours["cpu_times"])
    return expected


def differs_from_psutil(ours, theirs):
    theirs = dict(theirs, uids=tuple(theirs["uids"]), cpu_times=tuple(theirs["cpu_times"][:4]))
    # Its time of the boot is in whole seconds, rounded down. Ours may be 0.02 off.
    later = ours["create_time"] - theirs.pop("create_time")
    differences = [] if -0.1 < later < 1.1 else [("create_time", later)]
    expected = as_psutil_tells(ours)
    return differences + [
        (name, expected[name], value) for name, value in theirs.items() if value != expected[name]
    ]


def ps(pids, *columns):
    """{pid: line}"""
    command = ["ps", "-ww", "-o", "pid="]
    for column in columns:
        command += ["-o", column + "="]
    command += ["-p", ",".join(map(str, pids))]
    lines = run(command).decode("ascii").splitlines()
    numbered = (line.lstrip().partition(" ") for line in lines)
    # One that ends while ps reads it may be a row of question marks.
    return {int(pid): line for pid, _, line in numbered if pid != "?"}


def ps_tells(pids):
    columns = "ppid s ruid euid suid ruser:64 tty times lstart".split()
    facts, names, commands = ps(pids, *columns), ps(pids, "comm"), ps(pids, "args")
    found = {}
    for pid in set(facts) & set(names) & set(commands):
        ppid, letter, real, effective, saved, user, tty, seconds, start = facts[pid].split(None, 8)
        found[pid] = {
            "name": printed(names[pid].replace(" <defunct>", "")),
            "ppid": int(ppid),
            "cmdline": printed(commands[pid]),
            "status": STATES[letter],
            "create_time": calendar.timegm(time.strptime(start, "%a %b %d %H:%M:%S %Y")),
            "username": user,
            "uids": (int(real), int(effective), int(saved)),
            "terminal": None if tty == "?" else "/dev/" + tty,
            "cpu_times": int(seconds),
        }
    return found


def as_ps_tells(ours):
    """Our values, changed into those of procps, but for the create_time."""
    expected = dict(ours)
    del expected["create_time"]
    # It never looks for the rest of a name, but for those of the kernel's threads, which are
    # longer in /proc.
    name = os.fsencode(ours["name"])
    name = os.fsdecode(name[:COMM] if ours["cmdline"] else name)
    expected["name"] = printed(name)
    # Arguments are joined. Where there are none, the name stands in brackets.
    dead = " <defunct>" if ours["status"] == "zombie" else ""
    words = " ".join(ours["cmdline"]) if ours["cmdline"] else "[%s]%s" % (name, dead)
    expected["cmdline"] = printed(words)
    expected["uids"] = tuple(ours["uids"])
    # Whole seconds of both together.
    user, system = (round(seconds * TICKS) for seconds in ours["cpu_times"][:2])
    expected["cpu_times"] = (user + system) // TICKS
    return expected


def printed(text):
    """The text without what ps, from version to version, prints as a space, "?" or "."."""
    return re.sub(rb"[^!-~]|[?.]", b"_", os.fsencode(text)).decode().rstrip("_")


def differs_from_ps(ours, theirs):
    theirs = dict(theirs)
    # In whole seconds, from a boot in whole seconds, each rounded down.
    later = ours["create_time"] - theirs.pop("create_time")
    differences = [] if -0.1 < later < 2.1 else [("create_time", later)]
    expected = as_ps_tells(ours)
    return differences + [
        (name, expected[name], value) for name, value in theirs.items() if value != expected[name]
    ]


PEERS = {"psutil": (psutil_tells, differs_from_psutil), "ps": (ps_tells, differs_from_ps)}
if psutil is None:
    del PEERS["psutil"]
if not HAS_PS:
    del PEERS["ps"]


@pytest.fixture(params=list(PEERS))
def peer(request):
    return PEERS[request.param]


def ours(pid):
    return pidwait.ProcessInfo(pid).as_dict(ATTRIBUTES)


def compare(pid, peer):
    """Check that a process that does nothing is told alike; return what we tell."""
    ask, differs = peer
    while True:
        before = ours(pid)
        theirs = ask([pid])[pid]
        if ours(pid) == before:
            assert differs(before, theirs) == []
            return before


# Programs by their names

NAMES = {
    "spaces": (b"a b", "a b"),
    "parentheses": (b"a) R 1 (b", "a) R 1 (b"),
    "newline": (b"a\nb\tc\\", "a\nb\tc\\"),
    "not UTF-8": (b"a\xff\xc3b", "a\udcff\udcc3b"),
    "15 bytes": (b"fifteen-bytes-x", "fifteen-bytes-x"),
    "16 bytes": (b"sixteen-bytes-xy", "sixteen-bytes-xy"),
    "long, spaces": (b"a name (that) is long", "a name (that) is long"),
    # The cut is in the middle of a character.
    "long, not ASCII": (b"a" + "\u00e9".encode() * 10, "a" + "\u00e9" * 10),
    "long, not UTF-8": (b"\xff" * 20, "\udcff" * 20),
}


def program(folder, name):
    path = os.path.join(os.fsencode(str(folder)), name)
    os.symlink(SHELL, path)
    return path


def asleep(child):
    eventually(lambda: state(child.pid) == "S")
    return child.pid


@pytest.mark.parametrize("kind", list(NAMES))
def test_names(start, tmp_path, peer, kind):
    name, expected = NAMES[kind]
    path = program(tmp_path, name)
    told = compare(asleep(start(path, *WAITING, stdin=subprocess.PIPE)), peer)
    assert told["name"] == expected
    assert told["cmdline"] == [os.fsdecode(path)] + list(WAITING)


@pytest.mark.parametrize(
    "name, told", [("short", "short"), ("a-very-long-name", "a-very-long-nam")]
)
def test_other_first_argument(start, tmp_path, peer, name, told):
    """As with exec -a: there is nothing to tell the rest of the name."""
    path = program(tmp_path, name.encode())
    child = start("another", *WAITING, executable=path, stdin=subprocess.PIPE)
    found = compare(asleep(child), peer)
    assert (found["name"], found["cmdline"]) == (told, ["another"] + list(WAITING))


def test_script(start, tmp_path, peer):
    script = tmp_path / "script-with-a-long-name"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    found = compare(asleep(start(str(script), "a b", stdin=subprocess.PIPE)), peer)
    # The program is the shell; the name is the first 15 bytes of the script's.
    assert found["name"] == "script-with-a-l"
    assert found["cmdline"] == ["/bin/sh", str(script), "a b"]


@pytest.mark.parametrize(
    "arguments",
    [
        [""],
        ["", "a b", "", ""],
        ["line\nline\rline\r\n"],
        [b"\xff\xfe", "\u00e9"],
        ["x" * 5000, "y" * 5000, "z" * 100000],
    ],
    ids=["empty", "empty ones", "newlines", "not UTF-8", "long"],
)
def test_arguments(start, peer, arguments):
    child = start("sh", *WAITING + tuple(arguments), stdin=subprocess.PIPE)
    words = ["sh"] + list(WAITING) + [os.fsdecode(argument) for argument in arguments]
    assert compare(asleep(child), peer)["cmdline"] == words


def test_lone_argument_with_spaces(start, tmp_path, peer):
    """psutil takes it for a title."""
    path = program(tmp_path, b"a program")
    found = compare(asleep(start(path, stdin=subprocess.PIPE)), peer)
    assert (found["name"], found["cmdline"]) == ("a program", [os.fsdecode(path)])


# Processes that do something first


def python(start, code, *arguments, **options):
    """An interpreter that runs the code, and then waits for its stdin to be closed."""
    rest = "\nsys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()"
    child = start(
        *PYTHON + ("-c", "import os, sys\n" + code + rest) + arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )
    assert child.stdout.readline() == b"ready\n"
    return asleep(child)


@pytest.mark.parametrize("name", [b"a\nb) S (", b"\xff\xfe", b"", b"x" * 15])
def test_names_given_later(start, peer, name):
    """As by prctl(2)."""
    code = "open('/proc/self/comm', 'wb', 0).write(%r)" % (name or b"\0")
    assert compare(python(start, code), peer)["name"] == os.fsdecode(name)


TITLE = """if True:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, end = int(fields[45]), int(fields[46])
    with open("/proc/self/mem", "r+b", 0) as memory:
        memory.seek(first)
        memory.write((b"title of mine"{})[:end - first])
"""


def test_title(start, peer):
    """Written over the arguments, with NULs up to their end: each is an empty argument."""
    found = compare(python(start, TITLE.format(".ljust(end - first, b'\\0')")), peer)
    assert found["cmdline"][0] == "title of mine"
    assert len(found["cmdline"]) > 1 and not any(found["cmdline"][1:])


def test_title_beyond_the_arguments(start, peer):
    """Then the kernel shows what follows them, which is the environment, up to a NUL.

    It shows that NUL from Linux 5.3 on, or else the title is split at its spaces.
    """
    environment = {"A": "b"}
    environment.update(os.environ)
    child = python(start, TITLE.format(" + b' +' * (end - first)"), env=environment)
    title = " ".join(compare(child, peer)["cmdline"])
    assert re.match(r"title of mine( \+)+ ?A=b$", title)


def test_cpu_times(start, peer):
    child = python(
        start,
        """if True:
        def work():
            while os.times()[0] < 0.1 or os.times()[1] < 0.1:
                os.stat("/")

        if os.fork() == 0:
            work()
            os._exit(0)
        os.wait()
        work()
        """,
    )
    assert all(seconds >= 0.1 for seconds in compare(child, peer)["cpu_times"])


class Clocks:
    """For the module time: other processes run for so long after each look at the first clock."""

    def __init__(self, *pauses):
        self._pauses = list(pauses)
        self._since_boot = 1000.0

    def time(self):
        now = self._since_boot + 5e8
        self._since_boot += self._pauses.pop(0) if self._pauses else 0
        return now

    def clock_gettime(self, clock):
        assert clock == 7  # CLOCK_BOOTTIME
        return self._since_boot


@pytest.mark.parametrize("pauses", [(), (0.5,), (0.5, 0.5, 0, 0.5), (0, 0, 0, 0, 0.5)])
def test_create_time_on_a_busy_machine(sleeper, monkeypatch, pauses):
    info = pidwait.ProcessInfo(sleeper.pid)
    since_boot = info._started / TICKS
    monkeypatch.setattr(listed_procfs, "_boot", [0.0])
    monkeypatch.setattr(listed_procfs, "time", Clocks(*pauses))
    assert [info.create_time() for _ in range(3)] == [since_boot + 5e8] * 3


def test_zombie(start, peer):
    child = start(*exiting(3))
    become_zombie(child.pid)
    found = compare(child.pid, peer)
    assert (found["status"], found["cmdline"], found["ppid"]) == ("zombie", [], os.getpid())


def test_stopped(start, peer):
    child = start("sleep", "60", start_new_session=True)
    stop(child.pid)
    assert compare(child.pid, peer)["status"] == "stopped"


@pytest.fixture
def on_a_terminal():
    import pty

    pid, fd = pty.fork()
    if pid == 0:
        try:
            os.execvp("sleep", ["sleep", "60"])
        finally:
            os._exit(127)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)


def test_terminal(on_a_terminal, peer):
    pid = on_a_terminal
    eventually(lambda: state(pid) == "S" and ours(pid)["name"] == "sleep")
    found = compare(pid, peer)
    assert found["terminal"] == os.readlink("/proc/%d/fd/0" % pid)
    assert found["cmdline"] == ["sleep", "60"]


def test_no_terminal(start, peer):
    child = start("sleep", "60", start_new_session=True)
    assert compare(asleep(child), peer)["terminal"] is None


USERS = [os.getresuid()]
if os.geteuid() == 0:
    USERS += [(1, 2, 3), (54321, 54322, 54323)]


@pytest.mark.parametrize("uids", USERS)
def test_users(start, peer, uids):
    import pwd

    found = compare(python(start, "os.setresuid%r" % (uids,)), peer)
    assert found["uids"] == uids
    names = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
    assert found["username"] == names.get(uids[0], str(uids[0]))


def has_kernel_threads():
    """In a PID namespace there are none."""
    try:
        with open("/proc/2/stat") as file:
            return file.read().startswith("2 (kthreadd)")
    except OSError:
        return False


if has_kernel_threads():

    def test_kernel_thread(peer):
        found = compare(2, peer)
        assert (found["name"], found["cmdline"], found["ppid"]) == ("kthreadd", [], 0)
        assert (found["terminal"], found["username"]) == (None, "root")


def test_every_process(sleeper, peer):
    ask, differs = peer
    asleep(sleeper)
    before = {info: info.info for info in pidwait.process_iter(ATTRIBUTES)}
    theirs = ask([info.pid for info in before])
    after = {info: info.info for info in pidwait.process_iter(ATTRIBUTES)}
    both = {info for info in before if info in after}
    assert {info.pid for info in both} <= set(theirs)
    # Those that run meanwhile change. In between, others may have run for less than a tick.
    # The name of a kernel's worker is that of its work at the moment.
    still = {
        info
        for info in both
        if before[info] == after[info] and not before[info]["name"].startswith("kworker/")
    }
    differences = {info: differs(before[info], theirs[info.pid]) for info in still}
    assert sleeper.pid in {info.pid for info in still}
    assert [
        (info, found) for info in still for found in differences[info] if found[0] != "status"
    ] == []


@pytest.mark.parametrize("recursive", [False, True])
def test_children(start, recursive):
    line = "sleep 60 & sleep 60 & sh -c 'sleep 60 & echo ready; wait'; wait"
    child = start("sh", "-c", line, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout.readline() == b"ready\n"
        found = pidwait.ProcessInfo(child.pid).children(recursive)
        pids = {info.pid for info in found}
        assert len(pids) == len(found) == (4 if recursive else 3)
        if psutil is not None:
            assert pids == {one.pid for one in psutil.Process(child.pid).children(recursive)}
        if HAS_PS:
            lines = run(["ps", "-e", "-o", "pid=,ppid=,sid="]).splitlines()
            rows = [tuple(map(int, row.split())) for row in lines]
            assert pids == {
                pid
                for pid, ppid, sid in rows
                if ppid == child.pid or (recursive and sid == child.pid != pid)
            }
    finally:
        os.killpg(child.pid, signal.SIGKILL)
