# SPDX-License-Identifier: BSD-3-Clause
"""On Linux: what is told about a process, compared with what psutil tells."""

import os
import re
import subprocess

import pytest

from .. import pidwait
from ..processes import PYTHON, eventually, need_packages, state

pytestmark = pytest.mark.peers

ATTRS = "name ppid cmdline status create_time username uids".split()


def by_psutil(pids):
    need_packages("psutil")
    import psutil

    found = {}
    for pid in pids:
        try:
            told = found[pid] = psutil.Process(pid).as_dict(ATTRS, "denied")
        except psutil.NoSuchProcess:
            continue
        told["uids"] = tuple(told["uids"])
    return found


def as_psutil(ours):
    """Our values, changed in the known ways."""
    told = dict(ours, uids=tuple(ours["uids"]))
    # It opens the file as a text, with universal newlines.
    words = [re.sub("\r\n?", "\n", word) for word in ours["cmdline"]]
    # A lone argument with spaces is a title to it. But a program may have such a name.
    is_title = len(words) == 1 and " " in words[0]
    if is_title:
        words = words[0].split(" ")
    # It compares 15 characters, not bytes: a name that is not ASCII stays cut off.
    cut = os.fsdecode(os.fsencode(ours["name"])[:15])
    if is_title or len(cut) < 15 or not ours["name"].startswith(cut):
        told["name"] = cut
    # It raises ZombieProcess, an error of its own.
    told["cmdline"] = "denied" if ours["status"] == "zombie" else words
    return told


def differences(ours, theirs):
    theirs, told = dict(theirs), as_psutil(ours)
    # Its time of the boot is in whole seconds, rounded down.
    later = ours["create_time"] - theirs.pop("create_time")
    found = [] if -0.1 < later < 1.1 else [("create_time", later)]
    wrong = (name for name in theirs if told[name] != theirs[name])
    return found + [(name, told[name], theirs[name]) for name in wrong]


def look():
    return {info: info.info for info in pidwait.process_iter(ATTRS)}


def test_psutil_tells_the_same_of_every_process_that_does_nothing(sleeper):
    eventually(lambda: state(sleeper.pid) == "S")
    before = look()
    theirs = by_psutil([info.pid for info in before])
    after = look()
    # The name of a kernel's worker is that of its work. Others may run for less than a tick.
    same = [
        info
        for info, told in before.items()
        if told == after.get(info)
        and not told["name"].startswith("kworker/")
        and " -" not in str(theirs[info.pid]["name"])  # a title, for which another test looks
    ]
    assert sleeper.pid in [info.pid for info in same]
    found = [differences(before[info], theirs[info.pid]) for info in same]
    assert [one for many in found for one in many if one[0] != "status"] == []


TITLE = """if True:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, end = int(fields[45]), int(fields[46])
    with open("/proc/self/mem", "r+b", 0) as memory:
        memory.seek(first)
        memory.write((b"title of mine"{})[:end - first])
"""
COMM = "open('/proc/self/comm', 'wb', 0).write(%r)"
CODES = {
    "name given later": COMM % b"a\nb) S (",
    "name of no bytes": COMM % b"\0",
    "title, then NULs": TITLE.format(".ljust(end - first, b'\\0')"),
    # The kernel shows what follows the arguments, which is the environment.
    "title that is too long": TITLE.format(" + b' +' * (end - first)"),
    "users": "os.getuid() or os.setresuid(1, 2, 3)",
    "users without a name": "os.getuid() or os.setresuid(54321, 54322, 54323)",
}


@pytest.mark.parametrize("what", CODES)
def test_what_a_process_changes_later(start, what):
    rest = "\nsys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()"
    command = PYTHON + ("-c", "import os, sys\n" + CODES[what] + rest)
    environment = dict(os.environb, A=b"b\xff")
    child = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert child.stdout.readline() == b"ready\n"
    before, found = None, {}
    while before != found:
        eventually(lambda: state(child.pid) == "S")
        before = pidwait.ProcessInfo(child.pid).as_dict(ATTRS)
        theirs = by_psutil([child.pid])[child.pid]
        found = pidwait.ProcessInfo(child.pid).as_dict(ATTRS)
    assert differences(found, theirs) == []
    if "title" in what:
        assert " ".join(found["cmdline"]).startswith("title of mine")
