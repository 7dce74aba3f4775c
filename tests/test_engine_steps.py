# SPDX-License-Identifier: BSD-3-Clause
"""The places of a target in the engine, from its exit to its report, step by step."""

import importlib

import pytest

from . import pidwait
from .processes import held_by_a_thread_that_is_not_here
from .test_combined import Member, Part, failed, made

_engine = importlib.import_module(pidwait.__name__ + "._engine")
_outcome = importlib.import_module(pidwait.__name__ + "._outcome")
_targets = importlib.import_module(pidwait.__name__ + "._targets")

RUNNING = _outcome.RUNNING


class Owned(_targets.OwnerTarget):
    """A target whose owner gives these answers, and the last one again and again.

    ``asked`` are its owner's: what has been seen, and whether the time is up.
    """

    def __init__(self, key, *answers, told=RUNNING, before=RUNNING):
        super().__init__(key, 11, key)
        self.answers, self.asked = list(answers) or [RUNNING], []
        self.told, self.before = told, before

    def known(self):
        return self.told

    def confirm(self):
        return self.before

    def settle(self, code, last=False):
        self.asked.append((code, last))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer() if callable(answer) else answer


def plain(key, pid=11):
    return _targets.Target(key, pid, key)


def engine_with(*targets, polled=None, shared=False, **answers):
    """An engine with stand-ins for its sets, and these targets."""
    engine = _engine.Engine(shared)
    engine.sets.close()
    engine.sets = made(Part("best", **answers), Part("polled") if polled is None else polled)
    engine.sets._waiting = lambda: list(engine)
    engine.add(targets)
    return engine


def collected(engine, *options):
    exits = []
    engine.collect(exits, *options)
    return [(target.key, code) for target, code in exits]


def exit_of(engine, target, code=3):
    engine.sets.best.exits.append((target, code))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("options, last", [((), False), ((False,), False), ((True,), True)])
def test_looks_are_at_all_only_when_the_time_is_up(shared, options, last):
    engine = engine_with(plain("a"), shared=shared)
    assert collected(engine, *options) == []
    polled = engine.sets.polled.calls
    assert polled == [("hear",), ("look", last), ("take", last)]
    assert engine.sets.best.calls == [("take", last)]


def test_time_that_is_up_only_for_a_look_at_the_fileno():
    """Then a code that may still come is waited for: the file descriptor will tell."""
    engine = engine_with(plain("a"), shared=True)
    assert collected(engine, True, True) == [] == collected(engine, True, False)
    assert engine.sets.best.calls == [("take", False), ("take", True)]
    assert engine.sets.polled.calls[1] == ("look", True)


@pytest.mark.parametrize("shared", [False, True])
def test_lock_is_taken_only_where_threads_share_the_engine(shared):
    class Lock:
        def __enter__(self):
            taken.append(1)

        def __exit__(self, *exc_info):
            """It is free again."""

    engine, taken = engine_with(plain("a"), shared=shared), []
    engine.sets.polled = None
    engine._lock = Lock()
    assert collected(engine) == [] and len(taken) == shared
    engine.close()
    assert len(taken) == shared + 1


def test_copy_of_an_engine_whose_lock_a_thread_of_the_parent_holds():
    engine = engine_with(plain("a"))
    engine.pid, engine._lock = -1, held_by_a_thread_that_is_not_here()
    engine.close()
    assert engine.sets.best.calls == [("close",)]


def test_known_exit_is_told_and_not_waited_for():
    known, running = Owned("a", 5, told=4), Owned("b")
    engine = engine_with(known, running)
    assert engine.sets.best.members == [running]
    assert collected(engine) == [("a", 5)] and known.asked == [(4, False)]


def test_nothing_stays_of_an_add_that_is_interrupted():
    engine, targets = engine_with(), [plain("a"), Owned("b", told=4)]

    def add(members):
        raise KeyboardInterrupt

    engine.sets.best.add = add
    with pytest.raises(KeyboardInterrupt):
        engine.add(targets)
    assert len(engine) == 0 and collected(engine) == [] and not engine.sets.told
    assert [call for call in engine.sets.best.calls if call[0] == "discard"] == [
        ("discard", target) for target in targets
    ]


def test_exit_makes_room_for_a_member_that_is_polled():
    one, other = plain("a"), plain("b")
    engine = engine_with(one)
    engine.add([other])
    engine.sets.best.members.remove(other)
    engine.sets.polled.add([other])
    engine.sets._without_room[other] = None
    exit_of(engine, one)
    assert collected(engine) == [("a", 3)] and other in engine.sets.best


def test_exit_that_is_told_twice_is_reported_once():
    one = plain("a")
    engine = engine_with(one)
    for _ in range(2):
        exit_of(engine, one)
    assert collected(engine) == [("a", 3)] and not engine.sets.told


def test_event_of_a_member_that_was_discarded_is_dropped():
    one, again = plain("a"), plain("a")
    engine = engine_with(one)
    exit_of(engine, one)
    engine.discard("a")
    engine.add([again])
    assert collected(engine) == [] and not engine.sets.told and list(engine) == [again]
    first, second = Owned("b", 5), Owned("c", 6)
    engine.add([first, second])
    exit_of(engine, first)
    exit_of(engine, second)
    engine.discard("c")
    assert collected(engine) == [("b", 5)] and second.asked == []


def test_nothing_is_told_of_what_was_discarded_after_its_exit():
    one, owned = plain("a"), Owned("b", 5)
    engine = engine_with(one, owned)
    engine.sets.told.extend([(one, 3), (owned, 4)])
    engine.discard("a")
    engine.discard("b")
    engine.discard("c")
    assert len(engine) == 0 and engine.sets.best.members == []
    assert collected(engine) == [] and owned.asked == []
    assert not engine.sets.told and not engine.is_settling()


def test_owner_is_asked_again_until_it_has_reaped():
    owned, other = Owned("a", RUNNING, RUNNING, 5), Owned("b", 6)
    engine = engine_with(owned, other)
    exit_of(engine, owned)
    assert collected(engine) == [] and owned.asked == [(3, False)]
    ((_, member, look),) = [call for call in engine.sets.polled.calls if call[0] == "add_look"]
    assert member is owned and engine.is_settling() and "a" in engine
    assert collected(engine) == [] and len(owned.asked) == 1
    exit_of(engine, other)
    assert collected(engine) == [("b", 6)] and len(owned.asked) == 1
    assert look() is RUNNING and owned.asked[1:] == [(3, False)]
    engine.sets.polled.exits.append((owned, 5))
    assert collected(engine) == [("a", 5)]
    assert not engine.is_settling() and len(engine) == 0


def test_owner_that_the_time_does_not_suffice_for():
    owned = Owned("a", RUNNING, RUNNING, 5)
    engine = engine_with(owned)
    exit_of(engine, owned)
    assert collected(engine, True) == [] == collected(engine, True)
    assert engine.is_settling() and owned.asked == [(3, True)] * 2
    looks = [call for call in engine.sets.polled.calls if call[0] == "add_look"]
    assert len(looks) == 1
    assert collected(engine, True) == [("a", 5)]
    assert engine.sets.polled.calls[-1] == ("discard", owned)
    assert collected(engine, True) == [] and len(owned.asked) == 3


def test_owner_that_is_discarded_while_it_is_asked():
    engine = engine_with()
    owned = Owned("a", lambda: engine.discard("a") or RUNNING)
    late = Owned("b", RUNNING, lambda: engine.discard("b") or 5)
    engine.add([owned, late])
    exit_of(engine, owned)
    exit_of(engine, late)
    assert collected(engine) == [] and "b" in engine
    engine.discard("c")
    assert list(engine) == [late] and engine.is_settling()
    assert collected(engine, True) == []
    assert len(engine) == 0 and not engine.is_settling()
    assert owned.asked == [(3, False)] and late.asked == [(3, False), (3, True)]


def test_unsettled_owner_is_asked_no_more_once_discarded():
    owned = Owned("a", RUNNING)
    engine = engine_with(owned)
    exit_of(engine, owned)
    assert collected(engine) == []
    engine.discard("a")
    assert not engine.is_settling()
    assert collected(engine, True) == [] and owned.asked == [(3, False)]


def test_owner_that_is_added_again_while_it_is_asked():
    engine, again = engine_with(), Owned("a", 6)

    def settle():
        engine.discard("a")
        engine.add([again])
        return 5

    owned = Owned("a", settle)
    engine.add([owned])
    exit_of(engine, owned)
    assert collected(engine) == [] and list(engine) == [again]
    exit_of(engine, again)
    assert collected(engine) == [("a", 6)]


class Interrupted(dict):
    """A signal handler uses the engine as soon as an entry has been taken."""

    handler = None

    def pop(self, *args):
        found = super().pop(*args)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return found


@pytest.mark.parametrize("make", [plain, lambda key: Owned(key, 3)])
def test_signal_handler_that_raises_meanwhile_has_it_told_later(make):
    def interrupt():
        raise KeyboardInterrupt

    target = make("a")
    engine = engine_with(target)
    exit_of(engine, target)
    engine.members = Interrupted(engine.members)
    engine.members.handler = interrupt
    with pytest.raises(KeyboardInterrupt):
        collected(engine)
    assert list(engine) == [target] and not engine._settling
    assert collected(engine) == [("a", 3)] and len(engine) == 0


@pytest.mark.parametrize("make", [plain, lambda key: Owned(key, RUNNING, 5)])
def test_signal_handler_that_collects_meanwhile_does_not_tell_it_again(make):
    target = make("a")
    engine, told = engine_with(target), []
    exit_of(engine, target)
    if type(target) is Owned:
        assert collected(engine) == []
    engine.members = Interrupted(engine.members)
    engine.members.handler = lambda: told.append(collected(engine, True))
    code = 5 if type(target) is Owned else 3
    assert collected(engine, True) == [("a", code)] and told == [[]]
    assert len(engine) == 0 and collected(engine, True) == []


def test_exception_of_an_owner_keeps_what_was_being_settled():
    def interrupt():
        raise KeyboardInterrupt

    first, second = Owned("a", 4), Owned("b", interrupt, 5)
    engine = engine_with(first, second)
    exit_of(engine, first)
    exit_of(engine, second)
    exits = []
    with pytest.raises(KeyboardInterrupt):
        engine.collect(exits)
    assert [target for target, _ in exits] == [first] and list(engine) == [second]
    assert not engine._settling
    engine.put_back(exits)
    assert (
        exits == []
        and len(engine) == 2
        and [one for one, _ in engine.sets.told]
        == [
            first,
            second,
        ]
    )
    assert collected(engine) == [("a", 4), ("b", 5)]
    assert len(engine) == 0 and not engine._settling


def test_child_that_is_reaped_before_it_is_added():
    """The pid that the set waits for may be another process's by now."""
    gone, there = Owned("a", 5, before=None), Owned("b")
    engine = engine_with(gone, there, plain("c"))
    assert list(engine.sets.told) == [(gone, None)]
    assert collected(engine) == [("a", 5)] and gone.asked == [(None, False)]


# A pid that the system gives out again


class Handle:
    def __init__(self, outcome):
        self.outcome, self.is_closed = outcome, False

    def wait(self, deadline, reap):
        assert reap is False  # it is another one's child, perhaps
        return self.outcome

    def close(self):
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch):
    """The handles that are opened; the first of ``outcomes`` is what the next one finds."""

    def open_handle(pid):
        assert pid == 11
        outcome = opened.outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        opened.handles.append(Handle(outcome))
        return opened.handles[-1]

    class opened:
        outcomes, handles = [], []

    monkeypatch.setattr(_engine._backends, "open_handle", open_handle)
    yield opened
    assert all(handle.is_closed for handle in opened.handles) and not opened.outcomes


def test_pid_is_anothers_only_if_a_process_that_runs_has_it(opened):
    old, new = plain("a"), plain("a")
    engine = engine_with(old)
    engine.add([new])  # it runs
    exit_of(engine, old)
    opened.outcomes += [3, ProcessLookupError("gone"), failed()]
    for _ in range(3):
        engine.add([new])
        assert list(engine) == [old]
    opened.outcomes += [RUNNING]
    engine.add([new])
    assert list(engine) == [old, new] and len(engine) == 2


def test_object_and_pidfd_stand_for_one_process(opened):
    owned, own_fd = Owned("a"), plain("b", None)
    engine = engine_with(owned, own_fd)
    exit_of(engine, owned)
    exit_of(engine, own_fd)
    engine.add([Owned("a"), plain("b", None)])
    assert list(engine) == [owned, own_fd]


@pytest.fixture
def superseding(opened):
    old, new = plain("a"), plain("a")
    engine = engine_with(old)
    exit_of(engine, old)
    opened.outcomes += [RUNNING]
    engine.add([new])
    return engine, old, new


@pytest.mark.parametrize("first", ["old", "new"])
def test_both_processes_of_a_pid_are_told(superseding, first):
    engine, old, new = superseding
    del engine.sets.best.exits[:]
    exit_of(engine, new if first == "new" else old, 4)
    assert collected(engine) == [("a", 4)]
    assert list(engine) == [old if first == "new" else new]
    exit_of(engine, old if first == "new" else new, 5)
    assert collected(engine) == [("a", 5)] and len(engine) == 0


def test_both_processes_of_a_pid_can_be_put_back(superseding):
    engine, old, new = superseding
    exit_of(engine, new, 4)
    exits = []
    engine.collect(exits)
    assert len(exits) == 2 and len(engine) == 0
    engine.put_back(exits)
    assert len(engine) == 2 and exits == []
    assert collected(engine) == [("a", 3), ("a", 4)] and len(engine) == 0


def test_discard_leaves_other_pids_alone(superseding):
    engine, old, new = superseding
    other = plain("b")
    engine.add([other])
    engine.discard("b")
    assert list(engine) == [old, new]
    engine.add([other])
    engine.discard("a")
    assert list(engine) == [other] and not old.is_member and not new.is_member


# The end


def test_engine_is_closed_once():
    engine = engine_with(plain("a"))
    best = engine.sets.best
    for _ in range(2):
        engine.close()
        engine.alarm(0)
        engine.take_over()
    assert best.calls == [("close",)]
    for use in engine.fileno, lambda: engine.add([plain("b")]), lambda: engine.discard("a"):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_forked_child_settles_what_a_thread_of_its_parent_was_settling():
    owned, copies = Owned("a", 5), [Part("copy"), Part("copy")]
    engine = engine_with(owned, forked=copies[0])
    copies[0].answers["forked"] = copies[1]
    engine._settling[owned] = 3
    for copy in copies:
        engine.sets.polled = None
        engine.take_over()
        assert engine.sets.best is copy
    assert list(engine.sets.told) == [(owned, 3)]
    assert collected(engine) == [("a", 5)]


def test_engine_tells_what_its_sets_tell():
    engine = engine_with(plain("a"), fileno=7, delay=4)
    polled = engine.sets.polled
    assert engine.delay() == 4 and engine.is_settling()
    assert engine.fileno() == 7 and ("fileno",) in engine.sets.best.calls
    assert engine.fileno(False) == 7 and ("fileno", False) in engine.sets.best.calls
    engine.alarm(5)
    assert engine.sets.best.calls[-1] == ("alarm", 5)
    del engine.sets.best.answers["delay"]
    polled.answers["delay"] = 6
    assert engine.delay() == 6 and not engine.is_settling()
    assert "a" in engine and "b" not in engine and Member(11) not in engine
