# SPDX-License-Identifier: BSD-3-Clause
"""Listing, with scripted answers of the system: of /proc, of clocks, of a whole source."""

import errno
import importlib
import os
import threading
import time
from types import SimpleNamespace

import pytest

from . import pidwait
from .processes import gone_pid, is_open

_facts = importlib.import_module(pidwait.__name__ + "._facts")
_family = importlib.import_module(pidwait.__name__ + "._family")
listed = importlib.import_module(pidwait.__name__ + "._sources.listed_procfs")
procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

# Each of the fields from the state on is its number in proc_pid_stat(5), plus 100.
FIELDS = b" ".join(b"%d" % (100 + number) for number in range(4, 53))


@pytest.fixture
def entries(monkeypatch):
    """What the files of a process in /proc have, by their names; or the error of reading them."""
    entries = {"stat": b"77 (a name) S " + FIELDS, "paths": []}

    def read(path, open_=None, is_long=False):
        entries["paths"].append(path)
        text = entries[os.path.basename(path)]
        if isinstance(text, Exception):
            raise text
        return text

    monkeypatch.setattr(procfs, "read", read)
    return entries


def facts(full=False):
    return listed.Facts(os.getpid(), full, listed.users.Names())


def test_fields(entries):
    found = facts()
    assert (found.name(), found.status()) == ("a name", "sleeping")
    assert (found.ppid(), found.pgid(), found.sid()) == (104, 105, 106)
    assert found.started() == 122
    ticks = os.sysconf("SC_CLK_TCK")
    assert found.cpu_times() == tuple(number / ticks for number in (114, 115, 116, 117))
    device = 107
    entries["stat"] = entries["stat"].replace(b" 107 ", b" %d " % (0x8800 + device))
    assert facts().terminal() == "/dev/pts/107"


def test_fields_for_waiting(entries):
    stat = procfs.Stat(entries["stat"])
    assert (stat.parent, stat.flags, stat.threads) == (104, 109, 120)
    assert (stat.started, stat.status, stat.name, stat.state) == (122, 152, "a name", b"S")
    assert procfs.has_executable(os.getpid()) is True
    assert procfs.has_executable(gone_pid()) is False


def test_users(entries):
    entries["status"] = b"Name:\ta\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"
    found = listed.Facts(os.getpid(), False, {1: "one"})
    assert found.username() == "one" and found.uids() == (1, 2, 3)
    uids = _facts.fact(found, "uids")
    assert (uids.real, uids.effective, uids.saved) == (1, 2, 3)
    assert _facts.fact(found, "cpu_times").children_system == found.cpu_times()[3]
    assert _facts.fact(found, "pid") == os.getpid()


def test_folder_is_closed(entries):
    found = facts(True)
    folder = found._directory
    fd = folder.fileno()
    assert is_open(fd)
    found.close()
    assert not is_open(fd) and folder.closed
    found.close()


@pytest.mark.parametrize(
    "state, word",
    [(b"R", "running"), (b"Z", "zombie"), (b"I", "idle"), (b"q", "q"), (b"\xff", "\ufffd")],
)
def test_states(entries, state, word):
    entries["stat"] = b"77 (a) S) " + state + b" " + FIELDS
    assert facts().status() == word and facts().name() == "a) S"


@pytest.mark.parametrize("text", [b"", b"77 (a) S 1 2 3"])
def test_process_that_goes_while_it_is_read(entries, text):
    entries["stat"] = text
    with pytest.raises(ProcessLookupError):
        facts().name()


@pytest.mark.parametrize(
    "text, words",
    [
        (b"", []),
        (b"sleep\0-n\0", ["sleep", "-n"]),
        (b"sh\0\0", ["sh", ""]),
        (b"\0", [""]),
        (b"server: worker 3", ["server:", "worker", "3"]),
        (b"\xff\0", [os.fsdecode(b"\xff")]),
    ],
)
def test_command_lines(entries, text, words):
    entries["cmdline"] = text
    found = facts()
    assert found.cmdline() == words
    entries["cmdline"] = b"another\0"
    assert found.cmdline() == words


@pytest.mark.parametrize(
    "name, words, found",
    [
        (
            b"a-quite-long-na",
            [b"/bin/a-quite-long-name", b"a-quite-long-nap"],
            b"a-quite-long-name",
        ),
        (b"a-quite-long-na", [b"a-quite-long-na"], b"a-quite-long-na"),
        (b"a-quite-long-na", [b"/bin/python", b"x"], b"a-quite-long-na"),
        (b"a-quite-long-na", [], b"a-quite-long-na"),
        (b"a-quite-long-n", [b"/bin/a-quite-long-name"], b"a-quite-long-n"),
        (b"fourteen bytes\xc3", [b"/fourteen bytes\xc3\xa9"], b"fourteen bytes\xc3\xa9"),
        (b"a-quite-long-na", PermissionError(), b"a-quite-long-na"),
    ],
)
def test_names(entries, name, words, found):
    """The kernel keeps 15 bytes; the rest is in the command line, unless that is another's."""
    entries["stat"] = b"77 (%s) S %s" % (name, FIELDS)
    hidden = isinstance(words, Exception)
    entries["cmdline"] = words if hidden else b"".join(word + b"\0" for word in words)
    assert facts().name() == os.fsdecode(found)


@pytest.mark.parametrize("full", [False, True])
def test_pid_that_is_given_away_while_the_name_is_read(entries, full):
    """Only what was opened in the folder of a process is surely its own."""
    found = facts(full)
    entries["stat"] = b"77 (a-quite-long-na) S " + FIELDS
    entries["cmdline"] = b"a-quite-long-name\0"
    try:
        found.started()
        entries["stat"] = entries["stat"].replace(b" 122 ", b" 123 ")
        if full:
            assert found.name() == "a-quite-long-name"
            assert entries["paths"] == ["stat", "cmdline"]
        else:
            with pytest.raises(ProcessLookupError):
                found.name()
    finally:
        found.close()


@pytest.mark.parametrize(
    "error, is_found, is_shown, kind",
    [
        (FileNotFoundError(), True, False, PermissionError),
        (FileNotFoundError(), True, True, ProcessLookupError),
        (FileNotFoundError(), False, False, ProcessLookupError),
        (ProcessLookupError(), True, False, PermissionError),
        (ProcessLookupError(), False, False, ProcessLookupError),
        (PermissionError(), True, True, PermissionError),
    ],
)
@pytest.mark.parametrize("full", [False, True])
def test_hidden_and_gone(entries, monkeypatch, error, is_found, is_shown, kind, full):
    """What kill(2) finds, and /proc does not show, is hidden."""

    def opened(*arguments):
        raise error

    if not isinstance(error, ProcessLookupError):
        monkeypatch.setattr(listed, "opened", opened)
    monkeypatch.setattr(listed.exitcodes, "is_found", lambda pid: is_found)
    monkeypatch.setattr(os.path, "exists", lambda path: is_shown)
    entries["stat"] = error
    with pytest.raises(kind):
        found = facts(full)
        try:
            found.name()
        finally:
            found.close()


def test_only_a_start_that_we_may_not_see_is_none(entries):
    assert _facts.started(facts()) == 122
    entries["stat"] = PermissionError()
    assert _facts.started(facts()) is None
    entries["stat"] = OSError(errno.EMFILE, "no fds")
    with pytest.raises(OSError, match="no fds"):
        _facts.started(facts())


def test_long_command_line(start):
    """It takes several reads."""
    words = ["x" * 100000, "", "y" * 50000]
    child = start("sh", "-c", "echo; read line", *words, stdin=-1, stdout=-1)
    child.stdout.readline()
    assert pidwait.ProcessInfo(child.pid).cmdline()[3:] == words
    child.stdin.close()


# Clocks


def test_clock():
    assert getattr(time, "CLOCK_BOOTTIME", 7) == listed._BOOTTIME
    before = procfs.read_stat(os.getpid()).started
    assert before <= listed.now() <= time.clock_gettime(listed._BOOTTIME) * listed._TICKS


@pytest.mark.parametrize(
    "looks, boot",
    [
        ([5000.001], 5000.0),
        ([4999.999], 5000.0),
        ([4990.0, 4990.0, 4999.0, 5000.01], 5000.0),  # other processes have run in between
        ([4990.0, 5000.0, 4999.0, 4999.5], 5000.0),
        ([5000.1, 5000.1, 5000.1, 5000.1], 5000.1),
        ([5000.5, 5000.4, 5000.5, 5000.3], 5000.5),
        ([4999.5, 4999.5, 4999.4, 4999.3], 4999.5),
        ([1400.0, 1400.0, 1390.0, 1399.0], 1400.0),
        ([8600.0, 8600.0, 8590.0, 8599.0], 8600.0),
    ],
)
def test_boot_time(monkeypatch, looks, boot):
    """It stays the same, unless the clock has been set."""
    looks = list(looks) + [looks[-1]] * 9
    monkeypatch.setattr(listed, "_boot", [5000.0])
    monkeypatch.setattr(listed, "_look_at_clocks", lambda: looks.pop(0))
    assert listed._boot_time() == boot == listed._boot[0]


# A whole source


class Facts(SimpleNamespace):
    """It can be referred to weakly."""


class Source:
    """``closed`` has the pids of the processes whose facts were closed, in their order."""

    NEED_FULL = frozenset(["cmdline"])

    def __init__(self, *started):
        self.started, self.made = list(started), []
        self.reads, self.open, self.closed = [], [], []

    def now(self):
        return 100

    def read(self, pid, full):
        self.reads.append(full)
        return self.facts(pid, self.started.pop(0))

    def read_all(self, full):
        self.reads.append(full)
        for pid, started in enumerate(self.started, 1):
            yield self.facts(pid, started)

    def facts(self, pid, started):
        self.open.append(pid)

        def tell():
            if isinstance(started, Exception):
                raise started
            return started

        def close():
            if pid in self.open:
                self.open.remove(pid)
                self.closed.append(pid)

        def vanishing():
            if isinstance(started, int) and started < 0:
                raise ProcessLookupError
            return ["word"]

        def hidden():
            raise PermissionError

        facts = Facts(
            pid=pid, started=tell, close=close, cmdline=vanishing, ppid=lambda: vanishing() and 1
        )
        facts.name = hidden
        self.made.append(facts)  # so that only a close() ends their use
        return facts


@pytest.fixture
def source(monkeypatch):
    """source(*started) has a process for each of the times; a negative one is gone later."""

    def use(*started):
        source = Source(*started)
        monkeypatch.setattr(_facts, "_sources", [source])
        return source

    yield use


@pytest.mark.parametrize(
    "first, later, is_another",
    [
        (5, 5, False),
        (5, 6, True),
        (6, 5, True),
        (PermissionError(), 5, False),
        (5, PermissionError(), False),
        (PermissionError(), PermissionError(), False),
    ],
)
def test_later_process_with_the_pid(source, first, later, is_another):
    """Only a start time tells, and we may not see each."""
    used = source(first, later, later, later)
    info = pidwait.ProcessInfo(os.getpid())
    assert used.open == []
    if is_another:
        with pytest.raises(ProcessLookupError):
            info.cmdline()
        with pytest.raises(ProcessLookupError):
            info.as_dict(["cmdline"])
        assert not info.is_running()
    else:
        assert info.cmdline() == ["word"]
        assert info.as_dict(["cmdline"]) == {"cmdline": ["word"]}
        assert info.is_running()
    assert used.open == []


def test_what_is_read_is_closed(source):
    used = source(5, 5, 5)
    info = pidwait.ProcessInfo(os.getpid())
    with info.oneshot():
        assert used.reads == [False, True] and len(used.open) == 1
        assert info.cmdline() == ["word"]
    assert used.open == []
    assert info.as_dict(["cmdline"]) == {"cmdline": ["word"]}
    assert used.reads == [False, True, True] and used.open == []
    with pytest.raises(ProcessLookupError):
        pidwait.ProcessInfo(gone_pid())


def test_listing_leaves_out_what_is_gone(source):
    used = source(5, ProcessLookupError(), -1, 7, PermissionError())
    found = []
    for info in pidwait.process_iter(["cmdline", "ppid"]):
        assert used.open == []  # while the caller does its work
        found.append((info.pid, info.info))
    assert found == [(pid, {"cmdline": ["word"], "ppid": 1}) for pid in (1, 4, 5)]
    assert used.closed == [1, 2, 3, 4, 5] and used.reads == [True]
    used = source(5, ProcessLookupError(), -1, 7)
    assert [info.pid for info in pidwait.process_iter()] == [1, 3, 4]
    assert used.closed == [1, 2, 3, 4] and used.reads == [False]


def test_what_is_hidden_is_none(source):
    source(5, 5)
    (first, _) = pidwait.process_iter(["name"])
    assert first.info == {"name": None}
    assert first.as_dict(["name"]) == {"name": None}
    assert first.as_dict(["name", "cmdline"], 0) == {"name": 0, "cmdline": ["word"]}
    source(5)
    assert [info.info for info in pidwait.process_iter(["name"], "?")] == [{"name": "?"}]


def test_oneshots_of_two_threads(source):
    """What one reads stays when the other enters and leaves its own."""
    used = source(*[5] * 9)
    info = pidwait.ProcessInfo(os.getpid())

    def use():
        with info.oneshot():
            assert info.cmdline() == ["word"]

    with info.oneshot():
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        before = len(used.reads)
        assert info.cmdline() == ["word"]
        assert len(used.reads) == before == 3


# Families


class Info:
    def __init__(self, pid, started, runs=True):
        self.pid, self._started, self.runs = pid, started, runs

    def is_running(self):
        return self.runs


def family(top, *looks, **options):
    """The pids that are found by these looks, each of which has pairs of a process and a parent."""
    looks = list(looks)

    def parents():
        return looks.pop(0) if len(looks) > 1 else looks[0]

    recursive = options.get("recursive", True)
    found = _family.Family(top, recursive, parents, lambda: options.get("began", 100)).find()
    assert all(isinstance(info, Info) for info in found)
    return [info.pid for info in found]


def test_generations():
    top, child, inner, other = Info(5, 10), Info(3, 11), Info(4, 12), Info(9, 10)
    look = [(child, 5), (inner, 3), (top, 1), (other, 1)]
    assert family(top, look) == [3, 4]
    assert family(top, look, recursive=False) == [3]
    assert family(other, look) == []


def test_generation_that_is_seen_by_the_second_look():
    top, child, inner, innermost = Info(5, 10), Info(6, 11), Info(7, 12), Info(8, 13)
    first = [(top, 1), (child, 5)]
    second = first + [(inner, 6)]
    third = second + [(innermost, 7)]
    assert family(top, first, second, third) == [6, 7, 8]
    assert family(top, first, second, third, recursive=False) == [6]
    assert family(top, second, [(top, 1), (inner, 1)]) == [6, 7]  # it has lost its parent


def test_pid_that_another_process_has_now():
    top, child, stranger, its_child = Info(5, 10), Info(6, 11), Info(6, 50), Info(7, 51)
    first = [(top, 1), (child, 5)]
    second = [(top, 1), (stranger, 1), (its_child, 6)]
    assert family(top, first, second) == [6]
    assert family(top, [(Info(5, 60), 1), (child, 5)]) == []


@pytest.mark.parametrize(
    "parent, child, runs, is_child",
    [
        (10, 11, False, True),
        (10, 10, False, True),  # in the same tick
        (10, 9, True, False),
        (10, 99, False, True),
        (10, 100, False, False),
        (10, 100, True, True),
        (10, 101, False, False),
        (10, 101, True, True),
        (None, 11, True, False),
        (10, None, True, False),
        (None, None, True, False),
    ],
)
def test_child_by_its_start(parent, child, runs, is_child):
    """An older process is no child; one younger than the look needs a parent that still runs."""
    top, other = Info(5, parent, runs), Info(6, child)
    assert family(top, [(top, 1), (other, 5)]) == ([6] if is_child else [])
