# SPDX-License-Identifier: BSD-3-Clause
"""Listing by ps, on the stand-in for each system."""

import errno
import importlib
import logging
import os
import pwd
import subprocess
import sys
import time

import pytest

from .. import pidwait
from ..processes import (
    MAIN_THREAD_ENDS,
    PYTHON,
    become_gone,
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    sleeping,
    state,
)
from .systems import SYSTEMS

ps = importlib.import_module(pidwait.__name__ + "._sources.ps")
listed_ps = importlib.import_module(pidwait.__name__ + "._sources.listed_ps")
listed_procfs = importlib.import_module(pidwait.__name__ + "._sources.listed_procfs")
# One of each kind: the versions' ps are the same.
PLATFORMS = ["darwin", "dragonfly", "freebsd12", "netbsd11", "openbsd"]
every = pytest.mark.parametrize("platform", PLATFORMS)


def facts_of(pid):
    """What the list of all processes has of one."""
    (found,) = [one for one in listed_ps.read_all(True) if one.pid == pid]
    return found


@every
def test_same_as_proc(on, start, platform):
    on(platform)
    child = start("sh", "-c", "read line", "a", stdin=subprocess.PIPE, start_new_session=True)
    eventually(lambda: b"sh\0" in listed_procfs.read(child.pid, False)._read("cmdline"))
    other = listed_procfs.read(child.pid, False)
    for one in (facts_of(child.pid), listed_ps.read(child.pid, False)):
        for fact in "name ppid pgid sid uids username terminal".split():
            assert getattr(one, fact)() == getattr(other, fact)(), fact
        assert one.cmdline() == ["sh", "-c", "read", "line", "a"]
        assert one.status() in ("sleeping", "running")
        assert abs(one.create_time() - other.create_time()) < 2
        assert one.started() == int(one.create_time()) <= listed_ps.now()
        assert [type(seconds) for seconds in one.cpu_times()] == [float] * 4
        one.close()


@every
def test_processor_time(on, start, platform):
    on(platform)
    code = "import time, sys\nwhile time.process_time() < 0.3: pass\nsys.stdin.read()"
    child = start(*PYTHON, "-c", code, stdin=subprocess.PIPE)
    eventually(lambda: sum(listed_procfs.read(child.pid, False).cpu_times()) > 0.2)
    user, system, *of_children = facts_of(child.pid).cpu_times()
    assert 0.1 < user + system < 60 and of_children == [0.0, 0.0]
    if platform in ("openbsd", "dragonfly"):
        assert system == 0


@every
def test_terminal(on, start, platform):
    on(platform)
    leader, follower = os.openpty()
    try:
        # A session without a terminal gets the one that its leader opens first.
        code = "import os, sys; os.open(%r, os.O_RDWR); print(flush=True); sys.stdin.read()"
        child = start(
            *PYTHON,
            "-c",
            code % os.ttyname(follower),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        child.stdout.readline()
        minor = os.minor(os.fstat(follower).st_rdev)
        name = {"darwin": "ttys%03d", "openbsd": "ttyp%x"}.get(platform, "pts/%d") % minor
        assert facts_of(child.pid).terminal() == "/dev/" + name
    finally:
        os.close(leader)
        os.close(follower)


# The name, and what DragonFly's ps makes of it.
NAMES = {
    "space": (b"a b", b"a b"),
    "spaces": (b" a  b", b" a  b"),
    "parentheses": (b"(a) b)", b"(a) b)"),
    "numbers": (b"1 2 3 4 5 6 7", b"1 2 3 4 5 6 7"),
    "newline": (b"a\nb", b"a^Jb"),
    "newlines": (b"a\n\n1 1 1", b"a^J^J1 1 1"),
    "backslash": (b"a\\nb", b"a\\nb"),
    "not UTF-8": (b"\xff\xfe", b"M^?M-~"),
    "UTF-8": ("\N{LATIN SMALL LETTER E WITH ACUTE}".encode(), b"M-CM-)"),
    "control characters": (b"\x01\x7f\x81", b"^A^?M^A"),
    "login shell": (b"-ksh", b"-ksh"),
}


def start_named(start, folder, name, *args):
    """Start a shell that has another name."""
    path = os.path.join(os.fsencode(str(folder)), name)
    os.symlink(b"/bin/sh", path)
    child = start(path, "-c", "read line", *args, stdin=subprocess.PIPE)
    eventually(lambda: path in listed_procfs.read(child.pid, False)._read("cmdline"))
    return child, path


@every
@pytest.mark.parametrize("what", sorted(NAMES))
def test_name(on, start, tmp_path, platform, what):
    on(platform)
    name, escaped = NAMES[what]
    child, path = start_named(start, tmp_path, name)
    shown = escaped if platform == "dragonfly" else name
    for one in (facts_of(child.pid), listed_ps.read(child.pid, False)):
        assert os.fsencode(one.name()) == shown
        assert one.ppid() == os.getpid() and one.uids()[0] == os.getuid()
    command = b" ".join(map(os.fsencode, facts_of(child.pid).cmdline()))
    if platform != "darwin":  # which escapes it beyond recognition
        assert command.split() == path.split() + [b"-c", b"read", b"line"]
    elif what == "UTF-8":
        assert path + b" -c" in command
    pids = [info.pid for info in pidwait.process_iter()]
    assert pids == sorted(set(pids)) and min(pids) > 0


@every
def test_long_name(on, start, tmp_path, platform):
    """The end of a name that the system has cut off is in the command line."""
    on(platform)
    child, path = start_named(start, tmp_path, b"a-name-that-is-longer-than-any", b"x")
    assert facts_of(child.pid).name() == "a-name-that-is-longer-than-any"
    assert facts_of(child.pid).cmdline()[0] == os.fsdecode(path)


@every
def test_long_name_that_is_cut_off_in_a_character(platform):
    system = listed_ps._SYSTEMS[SYSTEMS[platform].platform]
    whole = "a" * (system.get("longest", 16) - 1) + "\N{LATIN SMALL LETTER E WITH ACUTE}"
    numbers = b"1 1 1 0 0 0 " + b"1 " * ("session" in system)
    rest = b"?? S " + b"0:00.00 " * len(system["times"]) + b"Sat Nov 21 03:11:52 2026 /bin/"
    row = os.fsencode(whole)[:-1].ljust(110) + numbers + rest + os.fsencode(whole) + b"\n"
    (found,) = listed_ps._parse(listed_ps._System(**system), row)
    assert found.name() == whole


@every
def test_command_line_that_begins_with_another_name(on, start, platform):
    """ps adds the name, in parentheses."""
    on(platform)
    child = start("-x", "-c", "read line", executable="/bin/sh", stdin=subprocess.PIPE)
    pid = child.pid
    eventually(lambda: listed_procfs.read(pid, False)._read("cmdline").startswith(b"-x"))
    assert facts_of(pid).cmdline() == ["-x", "-c", "read", "line"]
    assert facts_of(pid).name() == listed_procfs.read(pid, False).name()


@every
def test_escaped_arguments(on, start, platform):
    on(platform)
    words = ["a\tb", "\\", "c\nd", "\udcff", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x\x1b[0m"]
    child = start("sh", "-c", "read line", *words, stdin=subprocess.PIPE)
    eventually(lambda: b"[0m" in listed_procfs.read(child.pid, False)._read("cmdline"))
    if platform == "darwin":
        # Nobody can tell that from what is not escaped.
        words = ["a^Ib", "\\", "c^Jd", "M^?", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x^[[0m"]
    elif platform in ("freebsd12", "dragonfly"):
        words[0] = "a^Ib"
    assert facts_of(child.pid).cmdline()[4:] == words


@every
def test_zombie(on, start, platform):
    on(platform)
    child = start("sh", "-c", "read line", stdin=subprocess.PIPE)
    info = pidwait.ProcessInfo(child.pid)
    child.stdin.close()
    become_zombie(child.pid)
    assert info.status() == "zombie" and info.cmdline() == [] and info.name() == "sh"
    assert info.is_running() and pidwait.ProcessInfo(child.pid).pid == child.pid
    found = pidwait.ProcessInfo(child.pid).as_dict(ad_value="not told")
    if platform in ("netbsd11", "openbsd"):
        assert found["create_time"] == "not told"
        with pytest.raises(PermissionError, match="start time is not shown"):
            info.create_time()
    else:
        assert info == pidwait.ProcessInfo(child.pid)
    assert (found["cpu_times"] == "not told") == (platform == "netbsd11")
    child.wait()
    become_gone(child.pid)
    assert not info.is_running()


@every
def test_main_thread_that_has_ended(on, start, platform):
    on(platform)
    child = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    eventually(lambda: state(child.pid) == "Z")
    assert pidwait.ProcessInfo(child.pid).status() != "zombie"


@every
def test_kernel(on, platform):
    on(platform)
    found = {info.pid: info.info for info in pidwait.process_iter(["name", "cmdline"])}
    assert min(found) > 0 and os.getpid() in found
    name = {"openbsd": "softclock", "netbsd11": None, "darwin": None}.get(platform, "pagedaemon")
    assert found.get(9999990) == (name and {"name": name, "cmdline": []})


@every
def test_ps_is_not_in_its_own_list(on, platform):
    on(platform)
    for info in pidwait.process_iter(["ppid"]):
        assert info.info["ppid"] != os.getpid()


@every
def test_children(on, start, platform):
    on(platform)
    child = start("sh", "-c", "sleep 60 & sleep 60; true", stdin=subprocess.PIPE)
    info = pidwait.ProcessInfo(child.pid)
    eventually(lambda: [one.name() for one in info.children()] == ["sleep", "sleep"])
    children = info.children()
    assert {one.ppid() for one in children} == {child.pid}
    me = pidwait.ProcessInfo(os.getpid())
    assert me.children() == [info]
    assert set(me.children(recursive=True)) == {info, *children}
    for one in children:
        os.kill(one.pid, 9)
    child.wait()


@every
def test_session_id(on, sleeper, platform):
    on(platform)
    on.patch.setattr(os, "getsid", lambda pid: -pid)
    asks_kernel = platform in ("darwin", "openbsd")
    assert (facts_of(sleeper.pid).sid() == -sleeper.pid) == asks_kernel


@pytest.mark.parametrize("platform", sorted(SYSTEMS))
def test_state_for_polling(on, sleeper, platform):
    """No headline comes before it."""
    on(platform)
    stat = ps.read_stat(sleeper.pid)
    assert stat is not None and not stat.exited and abs(stat.started - time.time()) < 3600


def test_gone(on):
    on("freebsd12")
    with pytest.raises(ProcessLookupError):
        listed_ps.read(gone_pid(), True)


def test_hidden(on, sleeper):
    on("freebsd12")
    on.patch.setattr(listed_ps, "_list", lambda *which: [])
    with pytest.raises(PermissionError, match="is hidden"):
        listed_ps.read(sleeper.pid, True)


def test_process_that_starts_after_ps_has_looked(on, sleeper):
    on("freebsd12")
    real = listed_ps._list

    def too_early(*which):
        on.patch.setattr(listed_ps, "_list", real)
        return []

    on.patch.setattr(listed_ps, "_list", too_early)
    assert listed_ps.read(sleeper.pid, True).name() == "sleep"


BAD = {
    "fails": ("echo 'ps: it does not want to' >&2; exit 2", "it does not want to"),
    "is killed": ("echo {0}; kill -9 $$", "exited with -9"),
    "says nothing": ("exit 0", "exited with 0"),
    "says something else": ("echo nonsense", "exited with 0"),
    "lacks a column": ("echo {0}; echo sleep 1 1 1 1 1 1 1", "prints something else"),
    "hangs": ("sleep 60", "took longer than 0.2 seconds"),
}


@pytest.mark.parametrize("how", sorted(BAD))
def test_ps_that_fails(on, sleeper, tmp_path, how):
    on("freebsd12")
    script, message = BAD[how]
    path = tmp_path / "ps"
    path.write_text("#!/bin/sh\nexec 3>&-\n" + script.format("N" * 100 + " " + "P" * 10) + "\n")
    path.chmod(0o755)
    on.patch.setattr(ps, "PS", str(path))
    on.patch.setattr(ps, "ENVIRONMENT", {"PATH": os.defpath})
    if how == "hangs":
        path.write_text("#!/bin/sh\nexec " + script + "\n")
        on.patch.setattr(listed_ps, "_TIME_LIMIT", 0.2)
    for function in (
        lambda: list(pidwait.process_iter()),
        lambda: pidwait.ProcessInfo(sleeper.pid),
    ):
        with pytest.raises(OSError, match="can't be listed: .*" + message):
            function()


def test_ps_that_is_not_there(on, sleeper):
    on("openbsd")
    info = pidwait.ProcessInfo(sleeper.pid)
    on.patch.setattr(ps, "PS", "/nonexistent/ps")
    for function in (info.name, info.children, lambda: list(pidwait.process_iter())):
        with pytest.raises(OSError, match="can't be listed: No such file") as caught:
            function()
        assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize(
    "strange",
    [
        b"strange\n",
        b"x\n" * 60,
        b"a" * 100 + b"          1 1 1 1 1 1 1 - S 0:00.01 0:00.01 Sat Nov 21 03:1 2026 sh\n",
        b"a" * 100 + b"          1 1 1 1 1 1 1 - S 0:00.01 0:00.01\n",
    ],
    ids="word words date end".split(),
)
def test_strange_line(on, sleeper, caplog, strange):
    """It is logged, and left out."""
    on("freebsd12")
    caplog.set_level(logging.INFO)
    real = ps.run

    def run(*args, **kwargs):
        done = real(*args, **kwargs)
        headline, _, rows = done.printed.partition(b"\n")
        done.printed = headline + b"\n" + strange + rows + strange
        return done

    on.patch.setattr(ps, "run", run)
    assert facts_of(sleeper.pid).name() == "sleep"
    assert pidwait.ProcessInfo(sleeper.pid).name() == "sleep"
    assert repr(strange.partition(b"\n")[0])[:-1] in caplog.text


def one_row(platform, text):
    """What is made of the line of a process."""
    (found,) = listed_ps._parse(
        listed_ps._System(**listed_ps._SYSTEMS[platform]), b"sh".ljust(110) + text + b"\n"
    )
    return found


@pytest.mark.parametrize(
    "platform, text, seconds",
    [
        ("dragonfly", "  0:01.50", 1.5),
        ("dragonfly", "99:59.00", 5999),
        ("dragonfly", " 1:40:01", 6001),
        ("dragonfly", "  3d04:05", 3 * 86400 + 4 * 3600 + 5 * 60),
        ("openbsd", "123456:00.01", 7407360.01),
        ("netbsd", "0.000123 0.000000", 0.000123),
        ("netbsd", " 1:40:01.25 0.000000", 6001.25),
        ("freebsd", "0:00.07 0:00.00", 0.07),
    ],
)
def test_times(platform, text, seconds):
    session = "" if platform == "openbsd" else "1 "
    row = "1 1 1 0 0 0 %s?? Ss %s Sat Nov 21 03:11:52 2026 sh" % (session, text)
    assert one_row(platform, row.encode()).cpu_times() == (seconds, 0, 0, 0)


def test_user_nobody():
    """macOS shows -2."""
    row = b"1 1 1 -2 -2 -2 ?? Ss 0:00.00 0:00.00 Sat Nov 21 03:11:52 2026 sh"
    assert one_row("darwin", row).uids() == (2**32 - 2,) * 3


def test_username(on, sleeper):
    on("darwin")
    assert facts_of(sleeper.pid).username() == pwd.getpwuid(os.getuid()).pw_name
    on.patch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert facts_of(sleeper.pid).username() == str(os.getuid())


def test_each_user_is_looked_up_once(on, keeper):
    on("darwin")
    pids = {keeper.start(*sleeping(60)) for _ in range(3)}
    asked, real = [], pwd.getpwuid
    on.patch.setattr(pwd, "getpwuid", lambda uid: asked.append(uid) or real(uid))
    found = {info.pid: info.info["username"] for info in pidwait.process_iter(["username"])}
    assert len({found[pid] for pid in pids}) == 1
    assert sorted(asked) == sorted(set(asked))


@pytest.mark.parametrize(
    "letters, platform, word",
    [
        ("Ss", "openbsd", "sleeping"),
        ("I", "freebsd", "sleeping"),
        ("R/1", "openbsd", "running"),
        ("O", "netbsd", "running"),
        ("U", "netbsd", "suspended"),
        ("U", "darwin", "disk-sleep"),
        ("B0", "dragonfly", "disk-sleep"),
        ("T+", "darwin", "stopped"),
        ("?", "freebsd", "?"),
    ],
)
def test_status(letters, platform, word):
    session = "" if platform in ("openbsd", "darwin") else "1 "
    times = "0:00.00 " * len(listed_ps._SYSTEMS[platform]["times"])
    row = "1 1 1 0 0 0 %s?? %s %sSat Nov 21 03:11:52 2026" % (session, letters, times)
    found = one_row(platform, row.encode())
    assert found.status() == word and found.cmdline() == []


def test_name_that_passes_for_numbers():
    """A shorter name of a ps that does not keep to the columns: it is not taken for another."""
    row = b"1 1 1 0 0 0 1 ?? Ss 0:00.00 0:00.00 Sat Nov 21 03:11:52 2026 sh\n"
    system = listed_ps._System(**listed_ps._SYSTEMS["freebsd"])
    assert len(listed_ps._parse(system, b"77".ljust(110) + row)) == 1
    for width in (50, 99, 109, 111, 120):
        assert listed_ps._parse(system, b"77".ljust(width) + row) == []


def test_escapes():
    for shown, plain in (
        (rb"\n\r\t\b\a\v\f\s", b"\n\r\t\b\a\v\f "),
        (rb"\000\0\240\\n", b"\0\0\xa0\\n"),
        (rb"\^A\^?\M-C\M-)\M^A\M^?\M--", b"\x01\x7f\xc3\xa9\x81\xff\xad"),
        (b"M-C^A", b"M-C^A"),
        (b"\\", b"\\"),
    ):
        assert listed_ps._plain(shown) == plain


@pytest.mark.parametrize("backend", ["kqueue", "polling"])
def test_patched_subprocess(on, sleeper, backend):
    on("openbsd")
    on.patch.setenv("PIDWAIT_BACKEND", backend)
    popen = importlib.import_module(pidwait.__name__ + ".subprocess")
    popen.patch()
    try:
        assert facts_of(sleeper.pid).name() == "sleep"
        assert pidwait.ProcessInfo(sleeper.pid).name() == "sleep"
    finally:
        popen.unpatch()


def test_list_in_a_patched_subprocess(on, sleeper):
    """If the start of ps listed processes, too, it would start ps again."""
    on("openbsd")
    asked, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        asked.append(args)
        with pytest.raises(OSError, match="is being run by this thread"):
            list(pidwait.process_iter())
        return real(*args, **kwargs)

    on.patch.setattr(subprocess, "Popen", popen)
    assert facts_of(sleeper.pid).name() == "sleep"
    assert len(asked) == 1


def test_one_ps_for_all(on, keeper):
    on("netbsd11")
    pids = [keeper.start(*sleeping(60)) for _ in range(3)]
    asked, real = [], ps.run
    on.patch.setattr(ps, "run", lambda *args, **kw: asked.append(args) or real(*args, **kw))
    found = {info.pid: info.info for info in pidwait.process_iter([])}
    assert len(asked) == 1 and set(pids) <= set(found)
    info = pidwait.ProcessInfo(pids[0])
    del asked[:]
    info.as_dict()
    with info.oneshot():
        info.name(), info.cmdline(), info.uids(), info.cpu_times()
    assert len(asked) == 2


def test_exited_child_of_somebody_else(on, keeper):
    on("dragonfly")
    pid = keeper.start(*exiting(3))
    become_zombie(pid)
    assert pidwait.ProcessInfo(pid).status() == "zombie"
    keeper.reap(pid)
    become_gone(pid)
    with pytest.raises(ProcessLookupError):
        listed_ps.read(pid, False)
