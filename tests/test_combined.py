# SPDX-License-Identifier: BSD-3-Clause
"""The set made of the best set and the polled one, with stand-ins for both."""

import errno
import importlib

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
