# SPDX-License-Identifier: BSD-3-Clause
"""Listing by ps(1), on the stand-in: what is peculiar to the ps of each system.

What holds on all systems is in finding/test_process_iter.py, which runs here, too: -m kqueue.
"""

import errno
import logging
import os
import pwd
import subprocess
import sys
import time

import pytest

from .. import pidwait
from ..conftest import KQUEUES, STANDIN
from ..processes import MAIN_THREAD_ENDS, become_zombie, eventually, needs_pthread_exit

pytestmark = pytest.mark.kqueue

# One of each kind: the versions' ps are the same.
SYSTEMS = ["darwin", "dragonfly", "freebsd12", "netbsd11", "openbsd"] if STANDIN else KQUEUES
every = pytest.mark.parametrize("system", SYSTEMS)
FACTS = ["name", "cmdline", "status", "ppid", "uids", "username"]


@pytest.fixture
def shell(start, tmp_path):
    """shell(name, words...) starts a shell of that name that waits; returns its pid and path."""

    def shell(name, *words, **options):
        path = os.path.join(os.fsencode(str(tmp_path)), name)
        os.symlink("/bin/sh", path)
        command = (options.pop("first", path), "-c", "read line") + words
        child = start(*command, executable=path, stdin=subprocess.PIPE, **options)
        line = b"\0".join(map(os.fsencode, command)) + b"\0"
        eventually(lambda: read("/proc/%d/cmdline" % child.pid) == line)
        # It reads from 0: what it did before, the loading of a page, say, has other states.
        eventually(lambda: read("/proc/%d/syscall" % child.pid).split()[1:2] == [b"0x0"])
        return child.pid, path

    return shell


def read(path):
    with open(path, "rb") as file:
        return file.read()


def listed():
    return {info.pid: info.info for info in pidwait.process_iter(FACTS, ad_value="not told")}


def told(pid):
    """An idle process, asked for by its pid and in the list of all."""
    found = pidwait.ProcessInfo(pid).as_dict(FACTS)
    assert listed()[pid] == found
    return found


@every
def test_ps_tells_what_proc_tells(on, shell, system):
    pid, _ = shell(b"short", "a", first="-x", start_new_session=True)
    on(system)
    found, expected = told(pid), [os.getpid(), os.getresuid(), pwd.getpwuid(os.getuid()).pw_name]
    assert [found["ppid"], found["uids"], found["username"]] == expected
    assert (found["name"], found["status"]) == ("short", "sleeping")
    assert found["cmdline"] == ["-x", "-c", "read", "line", "a"]  # without the (short) of ps
    assert abs(pidwait.ProcessInfo(pid).create_time() - time.time()) < 60


# The name, and what DragonFly's ps makes of it.
NAMES = {name: name for name in (b"a b", b" a  b", b"(a) b)", b"1 2 3 4 5 6 7", b"a\\nb", b"-ksh")}
NAMES.update({b"a\nb": b"a^Jb", b"a\n\n1 1 1": b"a^J^J1 1 1", b"\x01\x7f\x81": b"^A^?M^A"})
NAMES.update({b"\xff\xfe": b"M^?M-~", "\xe9".encode(): b"M-CM-)"})


@every
def test_names_may_have_any_bytes(on, shell, system):
    pids = {name: shell(name) for name in NAMES}
    on(system)
    found = listed()
    for name, (pid, path) in pids.items():
        shown = NAMES[name] if system == "dragonfly" else name
        assert os.fsencode(found[pid]["name"]) == shown
        assert (found[pid]["ppid"], found[pid]["uids"].real) == (os.getpid(), os.getuid())
        if system != "darwin":  # which escapes it beyond recognition
            command = b" ".join(map(os.fsencode, found[pid]["cmdline"]))
            assert command.split() == path.split() + [b"-c", b"read", b"line"]
    assert min(found) > 0 and list(found) == sorted(found)


@every
def test_the_rest_of_a_long_name_is_in_the_arguments(on, shell, system):
    on(system)
    cut_in_a_character = "a" * ({"freebsd12": 19, "openbsd": 23}.get(system, 16) - 1) + "\xe9"
    for name in "a-name-that-is-longer-than-any", cut_in_a_character:
        pid, path = shell(name.encode())
        found = told(pid)
        if name is not cut_in_a_character or system != "dragonfly":  # which has escaped it
            assert (found["name"], found["cmdline"][0]) == (name, os.fsdecode(path))


@every
def test_a_title_is_no_part_of_the_name(on, shell, system):
    name = "a-name-that-is-longer-than-any"
    pid, _ = shell(name.encode(), first=name + ": worker 3")
    on(system)
    assert told(pid)["name"] == name


@every
def test_arguments_are_told_as_they_were_where_the_escapes_can_be_undone(on, shell, system):
    words = ["a\tb", "\\", "c\nd", "\udcff", "\xe9", "x\x1b[0m"]
    pid, _ = shell(b"sh", *words)
    on(system)
    if system == "darwin":
        words = ["a^Ib", "\\", "c^Jd", "M^?", "\xe9", "x^[[0m"]
    elif system in ("freebsd12", "dragonfly"):
        words[0] = "a^Ib"
    assert told(pid)["cmdline"][3:] == ["line"] + words


@every
def test_of_a_zombie_some_show_no_start_and_no_times(on, herd, system):
    pid = herd.fork(3, 0)
    become_zombie(pid)
    on(system)
    info = pidwait.ProcessInfo(pid)
    assert (info.status(), info.cmdline()) == ("zombie", []) and info.is_running()
    found = info.as_dict(ad_value="not told")
    hides_start = system in ("netbsd11", "openbsd")
    assert (found["create_time"] == "not told") is hides_start
    assert (info != pidwait.ProcessInfo(pid)) is hides_start
    children = pidwait.ProcessInfo(os.getpid()).children()
    assert children == ([] if hides_start else [info])  # nobody can tell whose it is


@needs_pthread_exit
@every
def test_threads_of_the_kernel_are_listed_if_they_have_a_pid(on, start, system):
    child = start(sys.executable, "-S", "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(child.pid)
    on(system)
    found = listed()
    assert min(found) > 0 and os.getpid() in found
    assert found[child.pid]["status"] != "zombie"  # only its main thread has ended
    name = {"openbsd": "softclock", "netbsd11": None, "darwin": None}.get(system, "pagedaemon")
    kernel = found.get(9999990, {"name": None, "cmdline": []})
    assert (kernel["name"], kernel["cmdline"]) == (name, [])
    # ps itself is left out.
    assert [pid for pid in found if found[pid]["ppid"] == os.getpid()] == [child.pid]


# A ps that fails, or shows something else

BAD = {
    "fails": ("echo 'ps: it does not want to' >&2; exit 2", "it does not want to"),
    "is killed": ('{ps} "$@"; kill -9 $$', "exited with -9"),
    "says nothing": ("exit 0", "exited with 0"),
    "says something else": ("echo nonsense", "exited with 0"),
    "has wide columns": ("{ps} \"$@\" | sed '2,$ s/./&%400s/'" % "", "prints an unknown format"),
    "hangs": ("exec sleep 60", "took longer than 0.2 seconds"),
    "is not there": (None, "No such file"),
}


@pytest.mark.parametrize("how", BAD)
def test_a_ps_that_fails_is_an_error_that_says_why(on, sleeper, how):
    on("freebsd12")
    info = pidwait.ProcessInfo(sleeper.pid)
    script, message = BAD[how]
    if script is None:
        on.no_ps()
    else:
        on.ps(script, time_limit=0.2 if how == "hangs" else 100)
    for function in (listed, lambda: pidwait.ProcessInfo(sleeper.pid), info.name, info.children):
        with pytest.raises(OSError, match="can't be listed: .*" + message) as caught:
            function()
    assert caught.value.errno == {"hangs": errno.ETIMEDOUT, "is not there": errno.ENOENT}.get(
        how, errno.ENOSYS
    )


STRANGE = ["strange", "a" * 100 + "%11d 1 1 1 1 - S" % 1]
STRANGE += [STRANGE[1] + " Sat Nov 21 03:1 2026 0:00.01 0:00.01 sh"]


@pytest.mark.parametrize("line", STRANGE, ids=["word", "cut off", "date"])
def test_a_strange_line_is_logged_and_left_out(on, sleeper, caplog, line):
    on("freebsd12")
    caplog.set_level(logging.INFO)
    on.ps('{ps} "$@" | sed "1 a %s\n$ a %s"' % (line, line))
    assert told(sleeper.pid)["name"] == "sleep"
    assert line in caplog.text


# Words in a row of ps: the system, an attribute, and its value
ROWS = {
    "I": ("freebsd12", "status", "sleeping"),
    "R/1": ("openbsd", "status", "running"),
    "O": ("netbsd11", "status", "running"),
    "U": ("darwin", "status", "disk-sleep"),
    "UN": ("netbsd11", "status", "suspended"),
    "B0": ("dragonfly", "status", "disk-sleep"),
    "T+": ("freebsd12", "status", "stopped"),
    "?": ("freebsd12", "status", "?"),
    "-2 -2 -2": ("darwin", "uids", (2**32 - 2,) * 3),  # the user nobody
}
# The first of its kind in a row: sed's extended regular expressions.
PLACES = {
    "status": "S[s+0]*",
    "uids": "{0} +{0} +{0}".format(os.getuid()),
}


@pytest.mark.parametrize("words", ROWS)
def test_each_word_of_a_row_is_understood(on, shell, words):
    system, fact, value = ROWS[words]
    pid, _ = shell(b"sh", start_new_session=True)
    on(system)
    on.ps("{ps} \"$@\" | sed -E '/^sh .* %d / s@ (%s) @ %s @'" % (pid, PLACES[fact], words))
    assert told(pid)[fact] == value


def test_what_ps_does_not_show_but_kill_finds_is_hidden(on, sleeper):
    on("freebsd12")
    on.ps("{ps} \"$@\" | sed '/ %d /d'" % sleeper.pid)
    assert sleeper.pid not in listed()
    with pytest.raises(PermissionError, match="is hidden"):
        pidwait.ProcessInfo(sleeper.pid)


def test_a_process_that_starts_after_ps_has_looked_is_found(on, sleeper, tmp_path):
    on("freebsd12")
    on.ps('{ps} "$@" | if mkdir "%s"; then head -n 1; else cat; fi 2>&-' % (tmp_path / "once"))
    assert pidwait.ProcessInfo(sleeper.pid).name() == "sleep"


def test_ps_is_not_run_by_the_start_of_ps(on, sleeper):
    """As a patched subprocess would do."""
    on("openbsd")
    asked, real = [], subprocess.Popen

    def popen(*args, **kwargs):
        asked.append(args)
        with pytest.raises(OSError, match="is being run by this thread"):
            listed()
        return real(*args, **kwargs)

    on.patch.setattr(subprocess, "Popen", popen)
    assert sleeper.pid in listed() and len(asked) == 1
