# SPDX-License-Identifier: BSD-3-Clause
"""Exit codes, with scripted answers of the system: a code is certain, or it is None."""

import errno
import importlib
import os
from types import SimpleNamespace

import pytest

from . import pidwait
from .processes import gone_pid

exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
linux = exitcodes.linux
RUNNING, NotYet = exitcodes.RUNNING, exitcodes.NotYet

CLD_EXITED, CLD_KILLED, CLD_DUMPED = 1, 2, 3
PID = 77


@pytest.fixture
def system(monkeypatch):
    """The functions that it has by their names, in the place of the real ones."""
    functions = {}
    monkeypatch.setattr(exitcodes, "calls", SimpleNamespace(get=functions.__getitem__))
    return functions


def infos(*answers):
    """What waitid(2) returns: (si_code, si_status), None, or an error that it raises."""
    answers = list(answers)

    def waitid(idtype, id_, options):
        waitid.asked.append((idtype, id_, options))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer and SimpleNamespace(si_code=answer[0], si_status=answer[1])

    waitid.asked = []
    return waitid


@pytest.mark.parametrize(
    "info, code",
    [
        ((CLD_EXITED, 0), 0),
        ((CLD_EXITED, 3), 3),
        ((CLD_EXITED, 0x12307), 7),
        ((CLD_EXITED, -1), 255),
        ((CLD_KILLED, 9), -9),
        ((CLD_DUMPED, 6), -6),
        ((CLD_KILLED, 0), None),  # as on macOS
        (None, RUNNING),
    ],
)
def test_look_at_a_child(system, info, code):
    system["waitid"] = infos(info)
    assert exitcodes.look_at_child(PID) == code
    assert system["waitid"].asked == [(linux.P_PID, PID, linux.LOOK)]


@pytest.mark.parametrize("reap, options", [(False, linux.LOOK), (True, linux.REAP)])
def test_code_of_a_child(system, reap, options):
    system["waitid"] = infos((CLD_EXITED, 3), (CLD_KILLED, 9), (CLD_DUMPED, 6), None)
    for code in (3, -9, -6):
        assert exitcodes.from_child(linux.P_PID, PID, PID, reap) == code
    with pytest.raises(NotYet):
        exitcodes.from_child(linux.P_PIDFD, 5, PID, reap)
    assert system["waitid"].asked == [(linux.P_PID, PID, options)] * 3 + [
        (linux.P_PIDFD, 5, options)
    ]


@pytest.mark.parametrize(
    "error, pid, reap, code",
    [
        (ChildProcessError(), PID, True, None),
        (PermissionError(), PID, False, None),
        (PermissionError(), None, True, None),
        (PermissionError(), None, False, None),
        (PermissionError(), PID, True, 3),
        (OSError(errno.EINVAL, "P_PIDFD"), PID, True, 3),
    ],
)
def test_child_where_waitid_fails(system, monkeypatch, error, pid, reap, code):
    """wait4(2) can only reap: it is called for nothing else."""
    reaped = []
    monkeypatch.setattr(exitcodes, "reap_child", lambda pid: reaped.append(pid) or 3)
    system["waitid"] = infos(error)
    assert exitcodes.from_child(linux.P_PID, 5, pid, reap) == code
    assert reaped == ([PID] if code else [])


def test_child_that_wait4_does_not_reap(monkeypatch):
    answers = [(0, 0), (PID, 3 << 8), (PID, 9)]
    monkeypatch.setattr(os, "waitpid", lambda pid, options: answers.pop(0))
    with pytest.raises(NotYet):
        exitcodes.without_waitid(PermissionError(), PID, True)
    assert exitcodes.without_waitid(PermissionError(), PID, True) == 3
    assert exitcodes.without_waitid(PermissionError(), PID, True) == -9

    def gone(pid, options):
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", gone)
    assert exitcodes.without_waitid(PermissionError(), PID, True) is None


def test_whose_child_it_is(system):
    system["waitid"] = infos((CLD_EXITED, 0), None, ChildProcessError(), PermissionError())
    assert [exitcodes.is_our_child(PID) for _ in range(4)] == [True, True, False, None]
    assert system["waitid"].asked == [(linux.P_PID, PID, linux.LOOK)] * 4


def test_sibling(monkeypatch):
    stats = [SimpleNamespace(parent=os.getppid()), SimpleNamespace(parent=os.getpid()), None, None]
    monkeypatch.setattr(exitcodes.procfs, "read_stat", lambda pid: stats.pop(0))
    assert exitcodes.is_our_sibling(PID) is True
    assert exitcodes.is_our_sibling(PID) is False
    # /proc tells nothing.
    assert exitcodes.is_our_sibling(os.getpid()) is True
    assert exitcodes.is_our_sibling(gone_pid()) is False


def test_process_of_another_user_exists(monkeypatch):
    def refuse(pid, sig):
        assert sig == 0
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert exitcodes.is_found(PID) is True and exitcodes.exists(PID) is True

    def gone(pid, sig):
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    assert exitcodes.is_found(PID) is False and exitcodes.exists(PID) is False


@pytest.mark.parametrize(
    "stat, seen, real, of_process, alone, code",
    [
        (None, True, True, True, True, None),
        ((False, 7 << 8), True, True, True, True, None),
        ((True, 7 << 8), False, False, False, False, 7),
        ((True, 9), False, False, False, False, -9),
        ((True, 1), False, False, False, False, -1),
        ((True, 0), True, True, True, False, 0),
        ((True, 0), True, True, False, True, 0),
        ((True, 0), True, True, False, False, None),
        ((True, 0), True, False, True, True, None),
        ((True, 0), False, True, True, True, None),
    ],
)
def test_code_of_a_zombie(monkeypatch, stat, seen, real, of_process, alone, code):
    """A status of 0 counts if we may see it, and if it is that of the process."""
    works = {
        exitcodes.check_status: real,
        exitcodes.check_status_of_process: of_process,
    }
    shown = stat and SimpleNamespace(exited=stat[0], status=stat[1])
    procfs = SimpleNamespace(
        read_stat=lambda pid: shown,
        shows_namespace=lambda pid: seen,
        had_one_thread=lambda pid: alone,
    )
    monkeypatch.setattr(exitcodes, "procfs", procfs)
    monkeypatch.setattr(exitcodes, "_checks", SimpleNamespace(surely_works=works.get))
    found = exitcodes.from_zombie(PID)
    assert found == code and type(found) is type(code)


def test_zombie_without_a_pid():
    """Of a pidfd from another PID namespace."""
    assert exitcodes.from_zombie(None) is None


def test_kernel_whose_proc_tells_the_main_threads_status(monkeypatch):
    looked_at = []

    def stat(path):
        looked_at.append(path)
        raise FileNotFoundError(errno.ENOENT, "an older kernel")

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(OSError, match="an older kernel"):
        exitcodes.check_status_of_process()
    assert looked_at == ["/proc/sys/kernel/arch"]


@pytest.mark.parametrize(
    "answers, found",
    [
        ([(0, 7 << 8)], (False, None)),
        ([(8, 7 << 8)], (True, 7)),
        ([(8 | 3, 0)], (True, 0)),
        ([(8, 9)], (True, -9)),
        ([(7, 0)], (False, None)),
        ([None, (8, 7 << 8)], (True, 7)),
        ([None, None], (True, None)),
    ],
)
def test_code_by_a_pidfd(system, answers, found):
    """The kernel sets a bit of the mask if there is a status; for a moment it finds nothing."""

    def ioctl(fd, request, info, changes):
        assert (fd, request, changes) == (5, linux.PIDFD_GET_INFO, True)
        answer = answers.pop(0)
        assert info == linux.PIDFD_INFO_REQUEST
        if answer is None:
            raise ProcessLookupError
        info[:] = linux.PIDFD_INFO.pack(answer[0], PID, PID, 1, answer[1])

    system["ioctl"] = ioctl
    assert exitcodes.from_pidfd(5) == found
    assert answers == []


# What the links in /proc tell, where no file descriptor is left


GONE, DENIED = FileNotFoundError(errno.ENOENT, "gone"), PermissionError(errno.EACCES, "denied")


@pytest.mark.parametrize(
    "works, folders, space, links, has_exited",
    [
        (True, [GONE, GONE], "user", 3, True),
        (False, [GONE, GONE], "user", 3, False),
        (True, ["/", GONE], "user", 3, False),
        (True, [DENIED, GONE], "user", 3, False),
        (True, [GONE, "/"], "user", 3, False),
        (True, [GONE, DENIED], "user", 3, False),
        (True, [GONE, GONE], GONE, 3, False),
        (True, [GONE, GONE], DENIED, 3, False),
        (True, [GONE, GONE], "user", 4, False),
        (True, [GONE, GONE], "user", GONE, False),
    ],
)
def test_exit_by_links(monkeypatch, works, folders, space, links, has_exited):
    folders = list(folders)

    def answer(value):
        if isinstance(value, Exception):
            raise value
        return value

    procfs = exitcodes.procfs
    fake = SimpleNamespace(
        readlink=lambda path: answer(folders.pop(0) if path.endswith("/cwd") else space),
        stat=lambda path: SimpleNamespace(st_nlink=answer(links)),
    )
    monkeypatch.setattr(procfs, "os", fake)
    monkeypatch.setattr(procfs, "_checks", SimpleNamespace(works=lambda check: works))
    assert procfs.links_tell_exit(PID) is has_exited


def test_threads_of_a_zombie_that_is_just_reaped(monkeypatch):
    """One of the two files is gone: that does not prove that it had one thread."""
    procfs = exitcodes.procfs
    stat = b"77 (x) Z 1 1 1 0 -1 0 5 0 6 0 0"
    for gone in (["stat"], ["task/77/stat"], ["stat", "task/77/stat"], []):
        monkeypatch.setattr(
            procfs, "_read_entry", lambda pid, name, gone=gone: None if name in gone else stat
        )
        assert procfs.had_one_thread(PID) is (not gone)


def test_proc_whose_link_shows_another_pid(monkeypatch):
    procfs = exitcodes.procfs
    monkeypatch.setattr(procfs, "read", lambda path: b"Name:\ta\n")
    procfs.check()
    monkeypatch.setattr(os, "readlink", lambda path: str(os.getpid() + 1))
    with pytest.raises(OSError, match="another PID namespace"):
        procfs.check()


def test_fields_that_are_cut_off():
    """The first ones, and the rest in one piece."""
    name, fields = exitcodes.procfs.split_stat(b"1 (a (b)) S 2 3 4 5\n", 2)
    assert (name, fields) == (b"a (b)", [b"S", b"2", b"3 4 5\n"])
    assert exitcodes.procfs.split_stat(b"1 (a) S 2 3\n") == (b"a", [b"S", b"2", b"3"])
