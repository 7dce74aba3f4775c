# SPDX-License-Identifier: BSD-3-Clause
"""One contract for all handles, and one for all pollers: whatever can be made here keeps it.

By each binding. No other test imports these classes.
"""

import gc
import importlib
import io
import os
import select
import signal
from errno import EAGAIN, ESRCH
from functools import partial
from types import SimpleNamespace

import pytest

from .. import pidwait
from ..conftest import VARIANTS, open_fds
from ..processes import WINDOWS, become_zombie, codes, gone_pid, sleeping, state
from ..seam import errors
from ..waiting.threads import Thread

if not hasattr(pidwait, "__path__"):
    pytest.skip("a single file has no modules", allow_module_level=True)
systems, pollers, handle_, deadline = (
    importlib.import_module(pidwait.__name__ + "." + name)
    for name in ("_systems", "_systems.pollers", "_base.handle", "_base.deadline")
)
Deadline, PENDING, RUNNING = deadline.Deadline, handle_.PENDING, handle_.RUNNING
opened, POLLED, is_inherited = open_fds, {}, os.get_inheritable
if WINDOWS:
    is_inherited = os.get_handle_inheritable
    from .windows import open_handles as opened

    snapshot = importlib.import_module(systems.__name__ + ".windows.handle").SnapshotHandle
    POLLED = {"snapshot": snapshot}

pytestmark = [pytest.mark.windows, pytest.mark.kqueue]
EVENTS = [variant for variant in VARIANTS if not variant.startswith("polling")]


def outcome_of(handle, timeout=None, reap=False):
    end = Deadline(timeout)
    return handle_.settled(partial(handle.look, reap), handle.wait(end, reap), end)


def is_readable(fd, seconds=0):
    return select.select([fd], [], [], seconds)[0] != []


# Handles


@pytest.fixture(params=[*VARIANTS, *POLLED])
def make(request, use_variant):
    """make(pid) makes a handle; make.tells(code) is what it says of an exit."""
    kind, handles = request.param, []
    if kind not in POLLED:
        use_variant(kind)
    of_system = systems.system.handle if kind in EVENTS else systems.system.polled

    def make(pid):
        handles.append(POLLED.get(kind, of_system)(pid))
        return handles[-1]

    make.tells = lambda code: None if kind in POLLED else code
    yield make
    for handle in handles:
        handle.close()


def test_a_process_runs(make, sleeper):
    handle, end, backoff = make(sleeper.pid), Deadline(0.01), deadline.Backoff()
    assert handle.pid == sleeper.pid
    while handle.sleep(end, backoff):
        assert handle.look() is handle.look(True) is RUNNING
    assert end.expired()
    for timeout in -1, 0, 0.01:
        assert outcome_of(handle, timeout) is outcome_of(handle, timeout, True) is RUNNING
    handle.send_signal(0)


@pytest.mark.threads
@pytest.mark.parametrize("code", codes(0, 7, -9))
def test_it_exits_and_is_reaped_once_that_is_asked_for(make, start_told, code):
    child = start_told(code)
    handle = make(child.pid)
    waiters = [Thread(outcome_of, handle, timeout).asleep() for timeout in (None, 60)]
    child.stdin.close()
    assert [waiter.result() for waiter in waiters] == [make.tells(code)] * 2
    assert handle.look() == handle.look() == outcome_of(handle, 0) == make.tells(code)
    assert state(child.pid) == "Z"
    assert outcome_of(handle, 60, True) == make.tells(code)
    if not WINDOWS:
        assert state(child.pid) is None
        child.returncode = code
    assert handle.look() in (code, None) and handle.look(True) in (code, None)


@pytest.mark.parametrize("timeout", [None, 60])
def test_it_is_reaped_as_soon_as_it_exits(make, start_told, timeout):
    child = start_told(7)
    waiter = Thread(outcome_of, make(child.pid), timeout, True).asleep()
    child.stdin.close()
    assert waiter.result() == make.tells(7)
    if not WINDOWS:
        assert state(child.pid) is None
        child.returncode = 7


def test_a_signal_ends_it_and_its_owner_reaps_it(make, sleeper):
    handle = make(sleeper.pid)
    handle.send_signal(signal.SIGTERM)
    code = sleeper.wait()
    assert outcome_of(handle) in (code, None) and outcome_of(handle, None, True) in (code, None)
    if not WINDOWS:
        with pytest.raises(errors.Failed) as caught:
            handle.send_signal(0)
        assert caught.value.errno == ESRCH


def test_it_is_a_zombie_already(make, zombie):
    child = zombie(7)
    try:
        handle, code = make(child.pid), make.tells(7)
    except errors.Failed as why:  # some kqueues watch no zombies, and Windows' snapshot has none
        assert why.errno == (ESRCH if WINDOWS else EAGAIN)
        handle, code = systems.open_handle(child.pid), 7
    assert outcome_of(handle, 0) == outcome_of(handle) == outcome_of(handle, None, True) == code
    child.returncode = None if WINDOWS else 7


def test_there_is_no_such_process(make):
    """A kqueue can't tell that from a zombie."""
    pid = gone_pid()
    for opens, right in (make, (ESRCH, EAGAIN)), (systems.open_handle, (ESRCH,)):
        with pytest.raises(errors.Failed) as caught:
            opens(pid)
        assert caught.value.errno in right


def test_its_identity_is_that_of_the_process(make, start):
    one, other = start(*sleeping(60)), start(*sleeping(60))
    a, b, c = [make(child.pid).identify() for child in (one, one, other)]
    assert a == b and hash(a) == hash(b) and None not in (a, c) and a != c


def test_its_file_descriptor_is_readable_from_the_exit_on(make, start_told):
    child = start_told(7)
    handle = make(child.pid)
    if WINDOWS or handle.backend == "polling":
        with pytest.raises(io.UnsupportedOperation):
            handle.fileno()
        return
    fd = handle.fileno()
    assert not is_readable(fd)
    child.stdin.close()
    for _ in range(3):  # a look takes nothing from others
        assert is_readable(fd, 60) and outcome_of(handle) == 7
    assert handle.fileno() == fd


def test_it_is_closed_and_harmless(make, start_told):
    child = start_told(7)
    make(child.pid).close()  # now all bindings are loaded
    gc.collect()  # handles of earlier tests
    before = opened()
    handle = make(child.pid)
    assert not any(map(is_inherited, set(opened()) - set(before)))
    for _ in range(2):
        handle.close()
        assert opened() == before
    # A loop that took it for a running process would never end; and it does not open the pid again.
    child.stdin.close()
    become_zombie(child.pid)
    before = opened()
    for ask in handle.look, handle.fileno, handle.identify, lambda: handle.send_signal(0):
        with pytest.raises(ValueError, match="the handle is closed"):
            ask()
    for timeout in 0, 60, None:
        for reap in False, True:
            with pytest.raises(ValueError, match="the handle is closed"):
                handle.wait(Deadline(timeout), reap)
    assert opened() == before and child.wait() == 7


# Pollers


class Member:
    """What a core has for each process."""

    def __init__(self, handle):
        self.handle, self.owner = handle, SimpleNamespace(pid=handle.pid)


def opened_by(poller, pid):
    return Member(poller.open(SimpleNamespace(pid=pid)))


def taken(poller):
    """The members to look at, as a core finds them."""
    for who in list(poller.ready):
        if type(who) is not Member:
            poller.ready.update(dict.fromkeys(poller.read(who)))
            poller.ready.pop(who, None)
    return list(poller.ready)


def check_that_no_more_comes(poller):
    poller.ready.clear()
    poller.poll(0.01)
    assert taken(poller) == []
    assert WINDOWS or not is_readable(poller.fileno())


@pytest.fixture(params=[*VARIANTS, "no poller"])
def poller(request, use_variant):
    if request.param == "no poller":
        poller = pollers.PollingPoller()
    else:
        use_variant(request.param)
        poller = pollers.open_poller(True)
    yield poller
    poller.close()
    vars(poller).clear()  # pytest keeps the poller, and that the members


of_events = pytest.mark.parametrize("poller", EVENTS, indirect=True)


@of_events
@pytest.mark.parametrize("late", [False, True], ids=["armed, it exits", "exited, it is armed"])
def test_each_exit_is_taken_once(poller, start_told, late):
    children = [start_told(code) for code in (5, 6)]
    members = [opened_by(poller, child.pid) for child in children]
    for child, member, code in zip(children, members, (5, 6)):
        if late:
            child.stdin.close()
            become_zombie(child.pid)
        armed = []
        for times in range(1, 3):
            poller.arm(member, (armed.append, member))
            assert armed == [member] * times
        if late:
            poller.poll(0)
        else:
            poller.poll(0.01)
            assert taken(poller) == []
            child.stdin.close()
            assert WINDOWS or is_readable(poller.fileno(), 60)
            while not taken(poller):
                poller.poll(60)
        assert taken(poller) == [member]
        assert handle_.settled(member.handle.look, member.handle.look(), Deadline(None)) == code
        if late:  # on Windows poll(0) looks at all, and the event may still come
            poller.drop(member)
        check_that_no_more_comes(poller)


@of_events
def test_several_members_are_for_one_process(poller, start_told):
    """What is dropped is taken no more, and what comes again is."""
    child = start_told(5)
    dropped, *members = [opened_by(poller, child.pid) for _ in range(3)]
    for member in [dropped, *members]:
        poller.arm(member)
    for _ in range(2):
        poller.drop(dropped)
    members.append(opened_by(poller, child.pid))
    poller.arm(members[-1])
    child.stdin.close()
    while len(taken(poller)) < 3:
        poller.poll(60)
    assert set(taken(poller)) == set(members)
    check_that_no_more_comes(poller)


def test_what_is_polled_is_left_to_others(poller, sleeper):
    member, armed = Member(systems.system.polled(sleeper.pid)), []
    poller.arm(member, (armed.append, member))
    for seconds in 0, 0.01:  # at its end nothing has come
        poller.poll(seconds)
    assert armed == taken(poller) == []
    poller.drop(member)


def test_what_it_can_not_open_is_refused(poller):
    """The core polls that, or knows that it is gone."""
    pids = [gone_pid(), None]
    if type(poller) is not pollers.PollingPoller and systems.backend() == "polling":
        pids.append(os.getpid())
    for pid in pids:
        with pytest.raises((errors.Failed, io.UnsupportedOperation)):
            poller.open(SimpleNamespace(pid=pid, proc=io.IOBase()))


@pytest.mark.threads
def test_a_ring_ends_each_sleep(poller):
    """If each that has slept rings, too."""
    sleeps = [Thread(lambda: (poller.poll(None), poller.wake(0.0))).asleep() for _ in range(3)]
    poller.wake(0.0)
    for sleep in sleeps:
        sleep.result()
    poller.poll(0)
    assert taken(poller) == []


def test_a_ring_has_its_file_descriptor_readable_once(poller):
    if WINDOWS or type(poller) is pollers.PollingPoller:
        with pytest.raises(io.UnsupportedOperation):
            poller.fileno()
        return
    fd = poller.fileno()
    for seconds in 0.02, 0.0, 0.02:
        assert not is_readable(fd)
        poller.wake(seconds)
        poller.wake(seconds)
        assert is_readable(fd, 60 if seconds else 0)
        poller.poll(0)
        assert taken(poller) == [] and poller.fileno() == fd


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_closed_poller_leaves_nothing_open(use_variant, kind):
    use_variant(kind)
    for _ in range(2):  # at first bindings are loaded
        before = opened()
        poller = pollers.open_poller(True)
        poller.poll(0)
        if not WINDOWS:
            poller.fileno()
            poller.wake(60.0)
        assert not any(map(is_inherited, set(opened()) - set(before)))
        for _ in range(2):
            poller.close()
    assert opened() == before
