# SPDX-License-Identifier: BSD-3-Clause
"""A set that listens to events, without a WaitSet around it, and with scripted events."""

import errno
import io
import os
from types import SimpleNamespace

import pytest

from .events import Script, connector, module
from ..processes import eventually, exiting, gone_pid, is_open
from .test_waitset import is_readable

heard_member = module("heard_member")
listening_set = module("listening_set")
polling_set = module("polling_set")
RUNNING = listening_set.RUNNING


class Member:
    def __init__(self, pid):
        self.pid = pid


class Sleeper:
    """What the program sleeps in."""

    def __init__(self):
        self.included = []

    def include(self, fd):
        self.included.append(fd)


def test_member_whose_message_is_late_is_noted_once():
    late = []
    one = heard_member.HeardMember(Member(gone_pid()), lambda: None, gone_pid(), late)
    one.status = SimpleNamespace(code=lambda: None, is_due=lambda: True)
    assert [one.look(), one.look()] == [RUNNING] * 2
    assert late == [one]


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("code", [None, 3])
def test_look_that_sees_the_exit_but_no_code(code, is_due):
    """The code is the messages'."""
    late = []
    one = heard_member.HeardMember(Member(os.getpid()), lambda: None, os.getpid(), late)
    one.status = SimpleNamespace(code=lambda: code, is_due=lambda: is_due)
    waits = code is None and is_due
    assert one.look() is (RUNNING if waits else code)
    assert one.has_exited is waits and bool(late) is waits


def test_look_at_one_of_which_messages_have_told():
    """It is the shortest one."""
    one = heard_member.HeardMember(Member(gone_pid()), None, gone_pid(), [])
    one.status = SimpleNamespace(code=lambda: 3)
    assert one.look() == 3


@pytest.fixture
def script(use_variant, monkeypatch):
    use_variant("polling")
    script = Script()
    monkeypatch.setattr(listening_set, "open_events", lambda: script)
    yield script
    script.close()


@pytest.fixture
def made(script):
    made = listening_set.ListeningSet(Sleeper())
    yield made
    made.close()


@pytest.fixture
def me(made):
    """A member that runs on."""
    me = Member(os.getpid())
    assert made.add([me]) == []
    return me


def reports(made, last=False):
    found = []
    made.hear()
    made.look(last)
    made.take(found.append, last)
    return found


def are_polled(made, *members):
    """Whether these are all the members, and none of them has events."""
    assert len(made) == len(members) and all(member in made for member in members)
    return len(made._plain) == len(members)


def test_without_members(made, script):
    assert not made.lacks_room and len(made) == 0 and made.delay() is None
    assert not made.sleeper.included
    assert reports(made) == []


def test_member_that_is_heard(made, me, script):
    assert made.sleeper.included == [script.fileno()] and script.heard == [me.pid]
    assert me in made and len(made) == 1 and not are_polled(made, me)
    assert made.delay() > 1000
    assert not made.has_exited(me)
    made.discard(me)
    assert me not in made and len(made) == 0 and script.heard == []
    assert not made.has_exited(me)


def test_events_that_the_program_can_not_sleep_for(made, script, monkeypatch):
    """There was no memory for them in the program's own epoll, say: then none stay open."""

    def refuse(fd):
        raise OSError(errno.ENOMEM, "on purpose")

    monkeypatch.setattr(made.sleeper, "include", refuse)
    fd, member = script.fileno(), Member(os.getpid())
    assert made.add([member]) == []
    assert made.lacks_room and are_polled(made, member)
    assert not is_open(fd)


def test_look_in_place_of_a_member(made, me, script):
    """From now on it is looked at, and has no events."""
    answers = [RUNNING, 7]
    made.add_look(me, lambda: answers.pop(0))
    assert script.heard == [] and are_polled(made, me)
    eventually(lambda: reports(made) == [(me, 7)])
    assert me not in made


def test_look_tells_whether_it_has_exited(made):
    one = Member(None)
    for answer, has_exited in (RUNNING, False), (7, True), (None, True):
        made.add_look(one, lambda answer=answer: answer)
        assert made.has_exited(one) is has_exited


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EPERM])
def test_events_that_can_not_be_had(made, me, script, monkeypatch, sleeper, code):
    """If no file descriptor is left, others keep their events; else all members are polled."""
    add = script.add

    def refuse(pid):
        raise OSError(code, "on purpose")

    monkeypatch.setattr(script, "add", refuse)
    other = Member(sleeper.pid)
    assert made.add([other]) == []
    assert made.lacks_room is (code == errno.EMFILE)
    assert other in made._plain
    assert (me in made._plain) is (code == errno.EPERM)
    monkeypatch.setattr(script, "add", add)
    made._retry_at = 0.0
    made.hear()
    assert (other in made._plain) is (code == errno.EPERM)


def test_events_for_some(made, me, script, monkeypatch, sleeper):
    """A member that can have no events is polled, and the others keep theirs."""
    other = Member(sleeper.pid)
    with monkeypatch.context() as patched:
        patched.setattr(script, "add", lambda pid: None)
        made.add([other])
        assert other in made._plain and me not in made._plain and not made.lacks_room
        made.cover_all()
        assert other in made._plain and me not in made._plain
    made.cover_all()
    assert other not in made._plain and script.heard == [me.pid, other.pid]


def test_member_without_events_that_is_gone(made, script, monkeypatch):
    monkeypatch.setattr(script, "add", lambda pid: None)
    ((member, error),) = made.add([Member(gone_pid())])
    assert isinstance(error, ProcessLookupError) and member not in made


def test_retry_is_for_each_member(made, script, monkeypatch, start_told):
    """One that can have no events holds up no other, but if there is no room for any."""
    add, asked = script.add, []
    members = [Member(start_told(3).pid) for _ in range(3)]
    monkeypatch.setattr(script, "add", lambda pid: None)
    assert made.add(members) == [] and are_polled(made, *members)

    def refuse(pid):
        asked.append(pid)
        raise OSError(errno.EMFILE, "on purpose")

    monkeypatch.setattr(script, "add", refuse)
    made.cover_all()
    assert len(asked) == 1 and are_polled(made, *members)
    first = members[0].pid
    monkeypatch.setattr(script, "add", lambda pid: None if pid == first else add(pid))
    made.lacks_room = False
    made.cover_all()
    assert [member in made._plain for member in members] == [True, False, False]


def no_events():
    return None


def no_events_at_all():
    raise OSError(errno.EPERM, "on purpose")


def no_module():
    raise ImportError("on purpose")


@pytest.mark.parametrize("open_events", [no_events, no_events_at_all, no_module])
def test_system_without_events(made, monkeypatch, sleeper, open_events):
    """Its events are asked for once."""
    asked = []

    def noting():
        asked.append(True)
        return open_events()

    monkeypatch.setattr(listening_set, "open_events", noting)
    members = [Member(os.getpid()), Member(sleeper.pid)]
    for member in members:
        assert made.add([member]) == []
        made._retry_at = 0.0
        made.hear()
    assert are_polled(made, *members) and not made.lacks_room and len(asked) == 1


def test_no_room_for_any_events(made, me_alone, script, monkeypatch, sleeper):
    """They are opened as soon as there is room."""
    assert made.lacks_room and are_polled(made, me_alone)
    monkeypatch.setattr(listening_set, "open_events", lambda: script)
    other = Member(sleeper.pid)
    assert made.add([other]) == []
    assert not made.lacks_room and me_alone in made._plain and other not in made._plain
    script.tell(None)
    made._retry_at = 1e9
    made.hear()
    assert me_alone in made._plain and me_alone not in made._eager and len(made) == 2
    made._retry_at = 0.0
    made.hear()
    assert len(made._plain) == 0


def test_member_without_events_is_discarded(made, me, me_alone, script):
    assert me_alone in made._plain
    made.discard(me_alone)
    assert me_alone not in made and script.heard == [me.pid]


def test_event_after_the_exit_was_found(made, one, script):
    made._members[one].plain_look = lambda: 3
    made._members[one].status = None
    made.look(True)
    script.tell(None)
    made.hear()
    assert len(made) == 0 and reports(made, True) == [(one, 3)]


@pytest.fixture
def me_alone(made, monkeypatch):
    """A member for which there was no room for events."""

    def refuse():
        raise OSError(errno.EMFILE, "on purpose")

    me = Member(os.getpid())
    with monkeypatch.context() as patched:
        if made._events is None:
            patched.setattr(listening_set, "open_events", refuse)
        else:
            patched.setattr(made._events, "add", lambda pid: refuse())
        assert made.add([me]) == []
    return me


def test_events_that_end_within_an_add(made, me, script, monkeypatch):
    """As where a signal handler waits meanwhile, and meets an error."""

    def gone(pid):
        made.deafen()
        raise ProcessLookupError

    monkeypatch.setattr(listening_set, "ProcfsHandle", gone)
    other = Member(os.getpid())
    ((member, error),) = made.add([other])
    assert member is other and isinstance(error, ProcessLookupError)
    assert are_polled(made, me)


def test_two_members_with_one_pid(made, me, script):
    other = Member(me.pid)
    made.add([other])
    made.discard(me)
    script.tell(other.pid, True, 0)
    made.hear()
    assert other in made._eager and script.heard == [other.pid]
    made.discard(other)
    assert script.heard == [] and not made._by_key


def test_retries_become_rare(made, me, monkeypatch, sleeper):
    def refuse(pid):
        raise OSError(errno.EMFILE, "on purpose")

    monkeypatch.setattr(made._events, "add", refuse)
    made.add([Member(sleeper.pid)])
    monkeypatch.setattr(listening_set, "monotonic", lambda: 0.0)
    waits = []
    for _ in range(3):
        made._retry_at = 0.0
        made.hear()
        waits.append(made._retry_at)
        made.hear()  # it is not time yet
        assert made._retry_at == waits[-1]
    assert waits == [1, 2, 4]


@pytest.mark.parametrize("call", ["read", "add_again", "may_have_exited"])
def test_events_that_fail(made, me, script, monkeypatch, start_told, caplog, call):
    def fail(*arguments):
        raise OSError(errno.EIO, "on purpose")

    monkeypatch.setattr(script, call, fail)
    with caplog.at_level("DEBUG"):
        if call == "may_have_exited":
            script.tell(me.pid)
        else:
            made._eager.hurry()
            script.tell(None)
        eventually(lambda: reports(made) == [] and are_polled(made, me))
    assert "events: [Errno %d] on purpose" % errno.EIO in caplog.text
    assert not is_open(script.reader)
    with monkeypatch.context() as patched:  # nothing is due but the looks
        for name in "SHORTEST", "LONGEST":
            patched.setattr(polling_set, name, 3600.0)
        made.look(True)
        assert made.delay() > 1000
    made._plain.add_look(me, made._members[me].look)
    child = start_told(3)
    other = Member(child.pid)
    assert made.add([other]) == [] and are_polled(made, me, other)
    child.stdin.close()
    eventually(lambda: reports(made) == [(other, 3)])
    assert are_polled(made, me)


@pytest.fixture
def one(made, start):
    """A member that was added before it exited and was reaped."""
    child = start(*exiting(3, 60))
    one = Member(child.pid)
    made.add([one])
    child.kill()
    child.wait()
    return one


def test_heard_member_that_has_exited(made, me, one):
    assert made.has_exited(one) and not made.has_exited(me)


def test_message_makes_a_look_superfluous(made, one, script):
    made._members[one].plain_look = None
    script.tell(one.pid, True, 4 << 8)
    assert reports(made) == [(one, 4)]


def test_code_of_a_message_counts_before_there_is_a_look(made, one, me, script):
    """Looks may be rare; and the message is about no other member."""
    script.tell(one.pid, True, 4 << 8)
    made.hear()
    found = []
    made.take(found.append, False)
    assert found == [(one, 4)] and me in made._quiet


def test_two_messages_are_one_report(made, one, script):
    for _ in range(2):
        script.tell(one.pid, True, 4 << 8)
        made.hear()
    assert reports(made) == [(one, 4)]
    assert reports(made, True) == [] and len(made) == 0


def test_event_without_a_message(made, me, script, monkeypatch):
    """The events are asked whether the member may have exited; if so, looks follow soon."""
    asked = []
    for answer in False, True:

        def may_have_exited(*key, answer=answer):
            asked.append(key)
            return answer

        monkeypatch.setattr(script, "may_have_exited", may_have_exited)
        script.tell(me.pid)
        eventually(lambda: reports(made) == [] and not made._due)
        assert (me in made._eager) is answer
    assert asked == [(me.pid, me.pid)] * 2


def test_eager_looks_end(made, me, script):
    script.tell(None)
    made.hear()
    assert me in made._eager
    assert reports(made, True) == []
    eventually(lambda: reports(made) == [] and me in made._quiet)
    assert script.heard == [me.pid]


def test_eager_looks_go_on_for_about_a_tenth_of_a_second(made, me, script, monkeypatch):
    now = [1000.0]
    for name in "listening_set", "paced_sets", "polling_set":
        monkeypatch.setattr(module(name), "monotonic", lambda: now[0])
    monkeypatch.setattr(polling_set, "clock", lambda: 0.0)
    made._retry_at = made._eager._paid = 0.0
    for _ in range(2):  # the second event is heard amid the looks that follow the first
        script.tell(None)
        made.hear()
        assert made.delay() == 0
        began = now[0]
        while me in made._eager and now[0] - began < 0.05:
            now[0] += made.delay() or 0.0001
            assert reports(made) == []
    while me in made._eager:
        now[0] += made.delay() or 0.0001
        assert reports(made) == []
    assert 0.1 < now[0] - began < 0.15


def test_member_that_can_have_no_events_any_more(made, me, script, monkeypatch):
    """It may have called execve(2); later it may have some again."""
    monkeypatch.setattr(script, "add_again", lambda key, pid: script.discard(key))
    script.tell(None)
    eventually(lambda: reports(made) == [] and me in made._plain)
    assert are_polled(made, me)
    made.cover_all()
    assert me not in made._plain and script.heard == [me.pid]


def test_signal_handler_that_raises_while_events_are_asked_for_again(made, me, script, monkeypatch):
    """The member has none then, until it is tried again."""

    def interrupted(key, pid):
        assert key == me.pid
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "add_again", interrupted)
    script.tell(None)
    with pytest.raises(KeyboardInterrupt):
        eventually(lambda: reports(made) != [])
    eventually(lambda: reports(made) == [] and me in made._plain)
    made.cover_all()
    assert me not in made._plain


def test_events_while_another_thread_looks(made, me, script):
    """What its looks find is not known yet: no event is forgotten."""
    script.tell(None)
    made.hear()
    heard = []

    def look():
        script.tell(me.pid, True, 0)
        made.hear()
        heard.append(me in made._eager)
        return RUNNING

    made._members[me].plain_look = look
    made.look()
    assert heard == [True] and reports(made) == []


def test_quiet_members_are_left_alone(made, one):
    """Until it is time, or the last look."""
    looks = []
    made._members[one].plain_look = lambda: looks.append(True) or RUNNING
    made.look()
    assert not looks
    made.look(True)
    assert looks


def test_it_may_be_all_there_is(made, me, monkeypatch):
    """The set in which the program slept may have failed."""
    made.deafen()
    made.look(True)
    slept = []
    monkeypatch.setattr(polling_set, "time", SimpleNamespace(sleep=slept.append))
    made.sleep(None)
    assert len(slept) == 1
    with pytest.raises(io.UnsupportedOperation):
        made.fileno(False)
    fd = made.fileno()
    assert is_open(fd) and not is_readable(made)
    made.alarm(0)
    assert is_readable(made, 60)
    made.close()
    assert not is_open(fd)


def test_lost_message_with_an_error_of_a_signal_handler(made, me, script, monkeypatch):
    """All are looked at: what had been read may have been about any of them."""
    read = script.read

    def interrupted():
        read()
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "read", interrupted)
    script.tell(me.pid, True, 0)
    with pytest.raises(KeyboardInterrupt):
        made.hear()
    assert made.delay() == 0 and me in made._quiet
    monkeypatch.setattr(script, "read", read)
    made.hear()
    assert me in made._eager


def test_copy_in_a_fork(made, me, script, start_told):
    child = start_told(3)
    other = Member(child.pid)
    made.add_look(other, lambda: RUNNING)
    copy = made.forked()
    try:
        assert are_polled(copy, me, other)
        assert not copy.has_exited(me)
        copy.discard(me)
        assert are_polled(copy, other)
        assert len(made) == 0 and not is_open(script.reader)  # the copy of it in the child
    finally:
        copy.close()


def test_copy_in_a_fork_waits_for_no_messages(made, one, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)
    copy, found = made.forked(), []
    copy.look()
    copy.take(found.append, False)
    assert found == [(one, None)] and len(copy) == 0
    copy.close()


def test_copy_in_a_fork_reports_once_what_was_found(made, one, me):
    made._members[one].plain_look = lambda: 3
    made._members[one].status = None
    made.look(True)
    copy, found = made.forked(), []
    assert len(copy) == 1
    for _ in range(2):
        copy.look(True)
        copy.take(found.append, True)
    assert found == [(one, 3)]
    copy.close()
