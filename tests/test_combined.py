# SPDX-License-Identifier: BSD-3-Clause
"""The set made of the best set and the polled one, with stand-ins for both."""

import errno
import importlib
import io

import pytest

from . import pidwait

_combined = importlib.import_module(pidwait.__name__ + "._combined")


class Member:
    def __init__(self, pid):
        self.pid = pid


class Best:
    def __init__(self, members, exited):
        self.members, self.exited = members, exited

    def __contains__(self, member):
        return member in self.members

    def has_exited(self, member):
        return member in self.exited

    def discard(self, member):
        self.members.remove(member)

    def close(self):
        """Nothing is open."""


class Polled(Best):
    """It lacks room, however much is made."""

    lacks_room = True
    covered = 0

    def add(self, members):
        self.members += members
        return []

    def cover_all(self):
        self.covered += 1


def test_room_is_made_by_three_members_that_run():
    exited, polled, own_fd, *running = [Member(pid) for pid in (11, 12, None, 13, 14, 15, 16)]
    sets = _combined.CombinedSet(False, lambda: [exited, polled, own_fd] + running)
    sets.close()
    sets.best = Best([exited, own_fd] + running, [exited])
    sets.polled = Polled([polled], [])
    sets._make_room(sets.polled)
    assert sets.polled.members == [polled] + running[:3] and sets.polled.covered == 3
    assert sets.best.members == [exited, own_fd, running[3]] and not sets.told
    sets._make_room(sets.polled)  # three in all
    assert len(sets.best.members) == 3


def test_no_room_is_made_where_none_is_needed():
    member = Member(11)
    sets = _combined.CombinedSet(False, lambda: [member])
    sets.close()
    sets.best, sets.polled = Best([member], []), Polled([], [])
    sets.polled.lacks_room = False
    sets._make_room(sets.polled)
    assert sets.best.members == [member]


def test_handles_are_offered_only_to_members_that_lacked_room():
    members = [Member(11), Member(12)]
    sets = _combined.CombinedSet(False, lambda: members)
    sets.close()
    sets.best, sets.polled = Best([], []), Polled([], [])
    for member, code in zip(members, (errno.EMFILE, errno.EPERM)):
        sets._poll(member, OSError(code, "on purpose"))
    assert sets.polled.members == members and list(sets._without_room) == members[:1]


# All of it, with stand-ins that note what they are asked


class Part:
    """A set that notes the calls of its methods; ``answers`` are what they return or raise."""

    def __init__(self, name, members=(), exits=(), **answers):
        self.name, self.members, self.exits = name, list(members), list(exits)
        self.answers, self.calls, self.sleeper = answers, [], None
        self.lacks_room = False

    def __contains__(self, member):
        return member in self.members

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def method(*arguments):
            self.calls.append((name, *arguments))
            answer = self.answers.get(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return method

    def add(self, members):
        self.members += members
        return [(member, self.answers["add"]) for member in members if "add" in self.answers]

    def discard(self, member):
        self.calls.append(("discard", member))
        if member in self.members:
            self.members.remove(member)

    def has_exited(self, member):
        return any(one is member for one, _ in self.exits)

    def take(self, report, last):
        self.calls.append(("take", last))
        if "take" in self.answers:
            raise self.answers["take"]
        while self.exits:
            report(self.exits.pop(0))


def failed():
    return OSError(errno.EPERM, "on purpose")


def made(best, polled=None, members=()):
    sets = _combined.CombinedSet(False, lambda: list(members))
    sets.close()
    sets.best, sets.polled = best, polled
    return sets


def lost(sets):
    sets._has_lost = True


def broken(sets):
    sets._broken = failed()


def told(sets):
    sets.told.append((Member(11), 3))


@pytest.mark.parametrize(
    "best, polled, expected",
    [(None, None, None), (None, 2, 2), (3, None, 3), (3, 2, 2), (2, 3, 2)],
)
def test_delay_is_that_of_the_part_that_is_due_first(best, polled, expected):
    assert made(Part("best", delay=best), Part("polled", delay=polled)).delay() == expected
    assert made(Part("best", delay=best)).delay() == best
    alone = Part("both", delay=polled)
    assert made(alone, alone).delay() == polled and alone.calls == [("delay",)]


@pytest.mark.parametrize("work", [told, lost, broken])
def test_there_is_no_sleep_while_there_is_work(work):
    best = Part("best", delay=5)
    sets = made(best, Part("polled", delay=6))
    work(sets)
    sets.sleep(None)
    assert best.calls == [] and sets.delay() == 0
    sets.told.clear()
    sets._has_lost, sets._broken = False, None
    sets.sleep(None)
    assert best.calls == [("sleep", 6)]


@pytest.mark.parametrize(
    "seconds, delay, expected",
    [(None, None, None), (None, 2, 2), (3, None, 3), (3, 2, 2), (2, 3, 2)],
)
def test_sleep_ends_for_the_next_look(seconds, delay, expected, monkeypatch):
    monkeypatch.setattr(_combined, "monotonic", lambda: 1000.0)
    best = Part("best")
    sets = made(best, Part("polled", delay=delay))
    sets.sleep(seconds)
    assert best.calls == [("sleep", expected)]
    assert sets.wakes_at == (float("inf") if expected is None else 1000 + expected)


def test_sleep_that_the_system_refuses_has_all_polled():
    members = [Member(pid) for pid in (11, 12, 13)]
    best = Part("best", members, sleep=failed())
    polled = Part("polled", members[1:2])
    sets = made(best, polled, members)
    sets.sleep(1)
    assert sets.delay() == 0 and sets.best is best
    sets.told.append((members[2], 5))
    sets.take(False)
    assert sets.best is polled and best.calls == [("sleep", 1), ("close",)]
    assert polled.members == [members[1], members[0]] and list(sets.told) == [(members[2], 5)]
    assert ("deafen",) in polled.calls and ("take", False) not in polled.calls
    sets.told.clear()
    sets.sleep(1)
    assert polled.calls[-1] == ("sleep", 1)
    polled.exits = [(members[0], 4)]
    sets.take(True)
    assert list(sets.told) == [(members[0], 4)] and polled.calls[-1] == ("take", True)


def test_error_of_the_polled_set_itself_comes_out_and_is_forgotten():
    alone = Part("both", sleep=failed())
    sets = made(alone, alone)
    sets.sleep(1)
    with pytest.raises(PermissionError, match="on purpose"):
        sets.take(False)
    sets.take(False)
    assert alone.calls.count(("close",)) == 0 and alone.calls.count(("take", False)) == 1


def test_what_an_exception_has_lost_is_found_once():
    best = Part("best", sleep=KeyboardInterrupt(), recover=KeyboardInterrupt())
    sets = made(best)
    for use in lambda: sets.sleep(1), lambda: sets.take(False):
        with pytest.raises(KeyboardInterrupt):
            use()
        assert sets.delay() == 0
    del best.answers["recover"], best.calls[:]
    for _ in range(3):
        sets.take(True)
    assert best.calls == [("recover",)] + [("take", True)] * 3
    best.answers["take"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sets.take(False)
    assert sets.delay() == 0


def test_exits_of_both_parts_are_told():
    members = [Member(11), Member(12)]
    best, polled = Part("best", exits=[(members[0], 3)]), Part("polled", exits=[(members[1], 4)])
    sets = made(best, polled)
    assert sets.has_exited(members[0]) and sets.has_exited(members[1])
    assert not sets.has_exited(Member(13))
    sets.take(True)
    assert list(sets.told) == [(members[0], 3), (members[1], 4)]
    assert best.calls == polled.calls == [("take", True)]
    assert sets.has_exited(members[0]) and not sets.has_exited(Member(11))
    sets.look(True)
    assert polled.calls[-1] == ("look", True)
    made(best).look(True)


def test_both_parts_forget_a_member_whatever_comes():
    members = [Member(11), Member(12)]
    best, polled = Part("best", members[:1]), Part("polled", members[1:])
    sets = made(best, polled)
    sets._without_room[members[1]] = None

    def discard(member):
        raise KeyboardInterrupt

    best.discard = discard
    with pytest.raises(KeyboardInterrupt):
        sets.discard(members[1])
    assert polled.members == [] and not sets._without_room
    sets.close()
    assert best.calls == [("close",)] and polled.calls[-1] == ("close",)


def test_pid_that_no_process_has_is_not_polled():
    """By now it may be another process's."""
    member, polled = Member(11), Part("polled")
    sets = made(Part("best", add=OSError(errno.ESRCH, "gone")), polled, [member])
    sets.add([member])
    assert list(sets.told) == [(member, None)] and polled.members == []


def test_member_that_can_not_be_polled_either_is_gone():
    member, own_fd = Member(11), Member(None)
    own_fd.known = print
    polled = Part("polled", add=OSError(errno.ESRCH, "gone"))
    sets = made(Part("best", add=OSError(errno.EMFILE, "on purpose")), polled, [member])
    sets.add([member])
    assert list(sets.told) == [(member, None)] and not sets._without_room
    sets.told.clear()
    sets._poll(own_fd, OSError(errno.EMFILE, "on purpose"))  # only the object can tell
    assert polled.calls == [("add_look", own_fd, print)] and not sets.told


def test_set_that_refuses_all_members_has_them_polled():
    members = [Member(11), Member(12)]
    best, polled = Part("best"), Part("polled")

    def add(members):
        raise failed()

    best.add = add
    sets = made(best, polled, members)
    sets.add(members)
    assert polled.members == members and not sets.told


@pytest.mark.parametrize("lacks_room, refused", [(True, False), (False, True), (True, True)])
def test_room_is_made_when_a_member_that_had_none_is_polled(lacks_room, refused):
    running, new = Member(11), Member(12)
    best, polled = Part("best", [running]), Part("polled")
    polled.lacks_room = lacks_room
    if refused:
        best.add = lambda members: [(one, OSError(errno.EMFILE, "on purpose")) for one in members]
    sets = made(best, polled, [running, new])
    sets.add([new])
    assert (running in polled) is (lacks_room and refused) and (new in polled) is refused


@pytest.mark.parametrize("best, polled", [(3, 2), (None, 2), (3, None)])
def test_only_what_the_best_set_still_expects_is_settling(best, polled):
    sets = made(Part("best", delay=best), Part("polled", delay=polled))
    assert sets.is_settling() is (best is not None)
    alone = Part("both", delay=2)
    assert made(alone, alone).is_settling() is False


# File descriptors that become free


def with_polled(count, **answers):
    members = [Member(11 + number) for number in range(count)]
    sets = made(Part("best", **answers), Part("polled", members), members)
    sets._without_room.update(dict.fromkeys(members))
    return sets, members


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_as_many_handles_are_opened_as_have_become_free(count):
    sets, members = with_polled(3)
    sets.use_room(count)
    assert sets.best.members == members[:count] and sets.polled.members == members[count:]
    assert list(sets._without_room) == members[count:]


def test_room_that_is_used_up_already():
    sets, members = with_polled(2, add=OSError(errno.EMFILE, "on purpose"))
    sets.use_room(5)
    assert sets.polled.members == members == list(sets._without_room)


def test_member_that_has_exited_needs_no_handle():
    """Its pid may be another process's by now: what the look has found is reported."""
    sets, members = with_polled(3)
    sets.polled.exits = [(members[0], 3)]
    del sets.polled.members[1]  # it has been reported
    sets.use_room(1)
    assert sets.best.members == members[2:] and sets.polled.members == members[:1]
    assert not sets._without_room


def test_no_handles_are_opened_once_all_are_polled():
    sets, members = with_polled(2)
    sets.best = sets.polled
    sets.use_room(2)
    assert sets.polled.members == members and sets.polled.calls == []


# Alarms, and the file descriptor


def test_alarm_that_may_still_be_on_is_noted():
    best = Part("best")
    sets = made(best)
    for seconds, expected in (5, True), (None, False), (0, True):
        sets.alarm(seconds)
        assert sets.is_alarmed is expected
    assert best.calls == [("alarm", 5), ("alarm", None), ("alarm", 0)]


def test_alarm_goes_off_at_once_without_a_timer():
    best, asked = Part("best"), []

    def alarm(seconds):
        asked.append(seconds)
        if seconds in refused:
            raise failed()

    best.alarm, refused = alarm, [5]
    sets = made(best)
    sets.alarm(5)
    assert asked == [5, 0] and sets.is_alarmed
    refused.append(0)
    sets.alarm(None)
    assert asked == [5, 0, None] and not sets.is_alarmed
    sets.alarm(5)  # nothing is certain then
    assert sets.is_alarmed


def test_fileno_is_readable_when_the_next_look_is_due():
    best = Part("best", fileno=7)
    sets = made(best, Part("polled", delay=2))
    assert sets.fileno(False) == 7
    assert best.calls == [("fileno", False)] and not sets.is_alarmed
    assert sets.fileno(True) == 7
    assert best.calls[1:] == [("fileno",), ("delay",), ("alarm", 2)] and sets.is_alarmed


@pytest.mark.parametrize("call", ["fileno", "alarm"])
@pytest.mark.parametrize("kind", [PermissionError, io.UnsupportedOperation])
def test_set_that_has_no_fileno(call, kind):
    sets = made(Part("best", **{call: kind("on purpose")}))
    with pytest.raises(io.UnsupportedOperation, match="on purpose"):
        sets.fileno(True)


# A forked child


def test_each_part_is_replaced_in_a_forked_child():
    best, polled = Part("copy"), Part("copy")
    sets = made(Part("best", forked=best), Part("polled", forked=polled))
    sets.take_over()
    assert sets.best is best and sets.polled is polled and polled.sleeper is best
    sets = made(Part("best", forked=best))
    sets.take_over()
    assert sets.best is best and sets.polled is None
    alone = Part("both", forked=polled)
    sets = made(alone, alone)
    sets.take_over()
    assert sets.best is sets.polled is polled and alone.calls == [("forked",)]


def test_forked_child_that_can_have_no_such_set_polls():
    member = Member(11)
    copy = Part("copy")
    best = Part("best", [member], forked=failed())
    sets = made(best, Part("polled", forked=copy), [member])
    sets.take_over()
    assert sets.best is sets.polled is copy and copy.members == [member]
    assert ("close",) in best.calls
