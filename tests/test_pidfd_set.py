# SPDX-License-Identifier: BSD-3-Clause
"""The set of pidfds in an epoll, without a WaitSet around it."""

import errno
import importlib
import os
import select
from types import SimpleNamespace

import pytest

from . import pidwait
from .conftest import not_on_kqueue
from .events import VARIANT, end, module
from .processes import exiting, interrupted_by, is_open, not_on_windows
from .test_waitset import is_readable

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
checks = importlib.import_module(pidwait.__name__ + "._checks")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
pidfd, pidfd_set = module("pidfd"), module("pidfd_set")

pytestmark = [not_on_windows("pidfds"), not_on_kqueue]


class Member:
    def __init__(self, pid):
        self.pid = pid
        self.ticket = None


@pytest.fixture
def pidfds(use_variant):
    use_variant(VARIANT)
    pidfds = pidfd_set.PidfdSet(False)
    yield pidfds
    pidfds.close()


@pytest.fixture
def added(pidfds, start_told):
    """added(code): a child, and its member."""

    def added(code):
        child = start_told(code)
        member = Member(child.pid)
        assert pidfds.add([member]) == []
        return child, member

    return added


@pytest.fixture
def zombie(added):
    """zombie(code): a child that has exited, and its member."""

    def zombie(code):
        child, member = added(code)
        end(child)
        return child, member

    return zombie


def tell(pidfds, *members, mask=select.POLLIN):
    for member in members:
        pidfds._events.append((member.ticket.fileno(), mask))


def taken(pidfds, last=False):
    found = []
    pidfds.take(found.append, last)
    return found


def test_exits_are_told_in_their_order(pidfds, zombie):
    (_, first), (_, second) = zombie(3), zombie(-9)
    tell(pidfds, second, first)
    assert pidfds.delay() == 0
    assert taken(pidfds) == [(second, -9), (first, 3)]
    assert pidfds.delay() is None and first not in pidfds


def test_event_of_a_member_that_runs(pidfds, added):
    """It was another one's, whose pidfd had the same number, or that of a member that is gone."""
    child, member = added(3)
    pidfds._epoll.modify(member.ticket.fileno(), pidfd_set._ONESHOT)  # it was told
    pidfds._events.append((2**20, select.POLLIN))
    tell(pidfds, member)
    assert taken(pidfds) == [] and member in pidfds
    end(child)
    pidfds.sleep(None)
    assert taken(pidfds) == [(member, 3)]


def test_process_of_which_only_the_pidfd_is_known(pidfds, start_told):
    """The caller's pidfd stays open, and is needed no more."""
    child, member = start_told(3), Member(None)
    with pidwait.Process(child.pid) as process:
        member.fileno = process.fileno
        assert pidfds.add([member]) == []
        assert member.ticket.fileno() != process.fileno()
    end(child)
    pidfds.sleep(None)
    assert taken(pidfds) == [(member, 3)]


def test_process_that_is_gone_or_not_to_be_had(pidfds, sleeper, monkeypatch):
    def refuse(pid):
        raise OSError(errno.EMFILE, "on purpose")

    member = Member(sleeper.pid)
    monkeypatch.setattr(pidfd, "open_pidfd", refuse)
    ((failed, error),) = pidfds.add([member])
    assert failed is member and error.errno == errno.EMFILE
    assert member not in pidfds and not pidfds.has_exited(member)
    pidfds.discard(member)


def test_error_that_a_signal_handler_raises(pidfds, sleeper, monkeypatch):
    """It says nothing about the member."""
    with interrupted_by(OSError(errno.EMFILE, "on purpose")) as interrupted:
        monkeypatch.setattr(pidfd, "open_pidfd", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            pidfds.add([Member(sleeper.pid)])


EXIT = linux.PIDFD_INFO_EXIT


@pytest.mark.parametrize(
    "mask, status, code",
    [
        (EXIT, 0, 0),
        (EXIT, 1 << 8, 1),
        (EXIT, 255 << 8, 255),
        (EXIT, 9, -9),
        (EXIT, 0x80 | 6, -6),  # and its memory was dumped
        (0, 9, 7),
    ],
)
def test_code_that_the_pidfd_tells(pidfds, zombie, monkeypatch, mask, status, code):
    def ioctl(fd, request, info, mutate):
        assert fd == member.ticket.fileno() and request == linux.PIDFD_GET_INFO and mutate
        info[:] = linux.PIDFD_INFO.pack(mask, 1, 2, 3, status)

    _, member = zombie(3)
    pidfds._tells, pidfds._ioctl = True, ioctl
    monkeypatch.setattr(pidfd_set._Borrowed, "wait", lambda *arguments: 7)
    tell(pidfds, member, mask=select.POLLIN | select.POLLHUP)
    assert taken(pidfds) == [(member, code)]


@pytest.mark.parametrize("tells", [False, True])
def test_code_of_a_child_is_asked_for_once(pidfds, zombie, monkeypatch, tells):
    _, member = zombie(3)
    pidfds._tells, pidfds._ioctl = tells, None
    monkeypatch.setattr(pidfd_set._Borrowed, "wait", None)
    tell(pidfds, member)
    assert taken(pidfds) == [(member, 3)]


@pytest.mark.parametrize("is_discarded", [False, True])
def test_look_that_fails(pidfds, zombie, monkeypatch, is_discarded):
    """A signal handler may have discarded the member meanwhile."""

    def look(fd, pid):
        if is_discarded:
            pidfds.discard(member)
        raise OSError(errno.ENOMEM, "on purpose")

    _, member = zombie(3)
    pidfds._are_ours = pidfds._tells = False
    monkeypatch.setattr(pidfds, "_look", look)
    tell(pidfds, member)
    if is_discarded:
        assert taken(pidfds) == [] and pidfds.delay() is None
    else:
        with pytest.raises(OSError, match="on purpose"):
            taken(pidfds)
        assert member in pidfds and pidfds.delay() == 0


@pytest.mark.parametrize("is_discarded", [False, True])
def test_pidfd_of_which_a_forked_child_has_a_copy(pidfds, added, is_discarded):
    """It stays ready, and in the epoll: there is nothing to report all the same."""
    child, member = added(3)
    copy = os.dup(member.ticket.fileno())
    try:
        if is_discarded:
            pidfds.discard(member)
            end(child)
        else:
            end(child)
            pidfds.sleep(None)
            assert taken(pidfds) == [(member, 3)]
        assert member not in pidfds and not is_readable(pidfds)
        child.wait()
        assert not is_readable(pidfds)
    finally:
        os.close(copy)


def test_system_that_does_not_tell_of_pidfds(pidfds, monkeypatch):
    """The set needs no ioctl then."""
    get = calls.get

    def lacking(name):
        if name == "ioctl":
            raise OSError(errno.ENOSYS, "on purpose")
        return get(name)

    monkeypatch.setitem(checks._answers, pidfd.check_get_info, OSError(errno.ENOTTY, "old"))
    monkeypatch.setattr(calls, "get", lacking)
    pidfd_set.PidfdSet(False).close()


def test_pidfd_that_the_epoll_does_not_take(pidfds, sleeper, monkeypatch):
    def register(fd, events):
        fds.append(fd)
        raise OSError(errno.ENOSPC, "on purpose")

    fds, member, epoll = [], Member(sleeper.pid), pidfds._epoll
    monkeypatch.setattr(pidfds, "_epoll", SimpleNamespace(register=register))
    ((failed, error),) = pidfds.add([member])
    monkeypatch.setattr(pidfds, "_epoll", epoll)
    assert failed is member and error.errno == errno.ENOSPC
    assert member not in pidfds and not pidfds._members and not is_open(fds[0])
    pidfds.discard(member)


def test_lost_event_comes_again(pidfds, zombie):
    _, member = zombie(3)
    pidfds.sleep(None)
    pidfds._events.clear()
    pidfds.sleep(0)
    assert pidfds.delay() is None
    pidfds.recover()
    pidfds.sleep(None)
    assert taken(pidfds) == [(member, 3)]


def test_pidfd_that_was_closed_before_a_signal_handler_raised(pidfds, zombie, sleeper):
    _, member = zombie(3)
    other = Member(sleeper.pid)
    pidfds.add([other])
    member.ticket.close()
    pidfds.recover()
    assert list(pidfds._members.values()) == [other]


def test_policy_that_forbids_to_recover(pidfds, zombie, monkeypatch):
    def modify(fd, events):
        raise OSError(errno.EPERM, "on purpose")

    _, member = zombie(3)
    with monkeypatch.context() as patched:
        patched.setattr(pidfds, "_epoll", SimpleNamespace(modify=modify))
        with pytest.raises(PermissionError):
            pidfds.recover()
    assert list(pidfds._members.values()) == [member]


def test_signal_handler_that_discards_what_is_reported(pidfds, zombie):
    _, member = zombie(3)
    tell(pidfds, member)
    found = []

    def report(exit):
        found.append(exit)
        pidfds.discard(member)

    pidfds.take(report, False)
    assert found == [(member, 3)] and not pidfds._members


def test_signal_handler_that_discards_what_is_being_closed(pidfds, zombie):
    _, member = zombie(3)
    del pidfds._members[member.ticket.fileno()]
    pidfds.discard(member)
    assert not pidfds._members and pidfds.delay() is None
    member.ticket.close()


def test_signal_handler_that_adds_another_member(pidfds, zombie, sleeper):
    """It gets the number of the pidfd that was closed."""
    _, member = zombie(3)
    fd, other = member.ticket.fileno(), Member(sleeper.pid)
    tell(pidfds, member)

    def report(exit):
        pidfds.discard(member)
        assert pidfds.add([other]) == []

    pidfds.take(report, False)
    assert other.ticket.fileno() == fd and pidfds._members == {fd: other}
    assert other in pidfds and member not in pidfds


def test_look_at_a_child_reaps_nothing(pidfds, zombie):
    """Also after a stranger, for which waitid(2) was in vain."""
    child, member = zombie(3)
    pidfds._are_ours = False
    tell(pidfds, member)
    assert taken(pidfds) == [(member, 3)]
    assert child.wait() == 3


@pytest.mark.parametrize(
    "are_ours, mask", [(True, select.POLLIN | select.POLLHUP), (False, select.POLLIN)]
)
def test_waitid_is_not_called_in_vain(pidfds, zombie, monkeypatch, are_ours, mask):
    """For what has been reaped, and after a stranger."""
    _, member = zombie(3)
    pidfds._are_ours, pidfds._tells = are_ours, False
    monkeypatch.setattr(pidfd_set._Borrowed, "wait", lambda *arguments: 7)
    monkeypatch.setitem(calls._resolved, "waitid", None)
    tell(pidfds, member, mask=mask)
    assert taken(pidfds) == [(member, 7)]


def test_stranger_is_asked_once_whether_it_is_ours(pidfds, zombie, monkeypatch):
    members, asked = [zombie(code)[1] for code in (3, 4)], []

    def waitid(*arguments):
        asked.append(arguments)
        raise ChildProcessError(errno.ECHILD, "on purpose")

    pidfds._tells = False
    monkeypatch.setattr(pidfd_set._Borrowed, "wait", lambda *arguments: 7)
    monkeypatch.setitem(calls._resolved, "waitid", waitid)
    tell(pidfds, *members)
    assert taken(pidfds) == [(member, 7) for member in members]
    assert len(asked) == 1


@pytest.fixture
def fading(pidfds, zombie, monkeypatch):
    """The member of a zombie whose code only the reaping will tell; [now] of its clock."""

    def wait(self, deadline, reap):
        assert not reap, "it is its owner's"

    _, member = zombie(3)
    now = [1000.0]
    monkeypatch.setattr(pidfd_set, "monotonic", lambda: now[0])
    monkeypatch.setattr(pidfd_set._Borrowed, "wait", wait)
    monkeypatch.setattr(pidfd_set._Borrowed, "get_info", lambda self: (False, None))
    pidfds._are_ours = pidfds._tells = False
    tell(pidfds, member)
    assert taken(pidfds) == [] and member in pidfds
    return member, now


def test_code_that_the_reaping_may_tell_is_waited_for(pidfds, fading):
    member, now = fading
    assert 0.005 < pidfds.delay() < 0.02
    now[0] += 0.004
    tell(pidfds, member)  # the time is that of the first event
    assert pidfds.delay() == 0
    assert taken(pidfds) == [] and 0.005 < pidfds.delay() < 0.007
    now[0] += 60
    assert pidfds.delay() == 0
    assert taken(pidfds) == [(member, None)]
    assert pidfds.delay() is None and member not in pidfds


def test_code_that_the_reaping_may_tell_is_not_waited_for_at_the_end(pidfds, fading):
    assert taken(pidfds, True) == [(fading[0], None)]


def test_member_that_is_discarded_while_its_code_is_waited_for(pidfds, fading):
    pidfds.discard(fading[0])
    assert pidfds.delay() is None and taken(pidfds, True) == []


def test_number_of_a_pidfd_whose_code_was_waited_for(pidfds, fading, sleeper):
    """It was reported, and a signal handler raised: nobody else's code is given up."""
    member, now = fading
    fd, other = member.ticket.fileno(), Member(sleeper.pid)
    del pidfds._members[fd]
    member.ticket.close()
    pidfds._fading[2**20] = now[0]
    assert pidfds.add([other]) == [] and other.ticket.fileno() == fd
    now[0] += 60
    assert taken(pidfds) == [] and other in pidfds and pidfds.delay() is None


def test_copy_in_a_forked_child(pidfds, added):
    """Several threads may share it, also where one has made it; it takes over the members."""
    child, member = added(3)
    fd = pidfds.fileno()
    copy = pidfds.forked()
    try:
        assert not is_open(fd)
        copy.alarm(0)
        assert is_readable(copy, 60)
        copy.alarm(None)
        end(child)
        copy.sleep(None)
        assert taken(copy) == [(member, 3)]
    finally:
        copy.close()


def test_close_closes_all_pidfds(pidfds, start):
    members = [Member(start(*exiting(3, 60)).pid) for _ in range(3)]
    pidfds.add(members)
    fds = [member.ticket.fileno() for member in members]
    assert all(map(is_open, fds))
    pidfds.close()
    assert not any(map(is_open, fds))


def test_whether_it_has_exited(pidfds, added):
    child, member = added(3)
    assert not pidfds.has_exited(member)
    end(child)
    assert pidfds.has_exited(member)
    pidfds.discard(member)
    assert not pidfds.has_exited(member) and not pidfds.has_exited(Member(child.pid))
