# SPDX-License-Identifier: BSD-3-Clause
"""Handlers and filters of logging: code of others, which gets our records and may do anything."""

import errno
import itertools
import logging
import os
import queue
import threading

import pytest

from .. import pidwait
from ..needs import needs
from ..processes import become_zombie, eventually, gone_pid
from ..seam import refusing
from . import LONG

pytest.importorskip("ctypes")
pytestmark = pytest.mark.threads


@pytest.fixture
def set_handlers(monkeypatch):
    """set_handlers(handlers...) gives all that is written to these, and to no others."""
    logger = logging.getLogger(pidwait.__name__)
    monkeypatch.setattr(logger, "propagate", False)
    logger.setLevel(logging.INFO)
    yield lambda *handlers: monkeypatch.setattr(logger, "handlers", list(handlers))
    logger.setLevel(logging.NOTSET)


class UsesAll(logging.Handler):
    """A handler of logging that waits for another thread, which uses what has written the record.

    As if the thread were about to log, too, and waited for the lock of this handler.
    """

    def __init__(self, use):
        super().__init__()
        self._use = use
        self.stuck = []
        self.records = []

    def handle(self, record):
        if threading.current_thread() is not threading.main_thread():
            return
        self.records.append(record.getMessage())
        thread = threading.Thread(target=self._use)
        thread.start()
        thread.join(5)
        if thread.is_alive():
            self.stuck.append(self.records[-1])


REFUSED = ["pidfd_open", "epoll", "getrlimit", "waitid"]


@pytest.mark.parametrize("name", REFUSED)
def test_no_lock_of_a_set_is_held_while_a_record_is_written(pidfds, seam, herd, set_handlers, name):
    first, second, gone, told = herd.fork(3), herd.fork(4), gone_pid(), queue.Queue()
    with pidwait.WaitSet([first]) as early:
        waiting, exits = [early], []

        def use():
            for each in waiting:
                each.add(os.getpid())
                exits.extend(each.wait(0))
                each.discard(os.getpid())
            pidwait.wait_procs([os.getpid()], 0)
            pidwait.watch(os.getpid(), print).cancel()

        early.fileno()
        handler = UsesAll(use)
        set_handlers(handler)
        seam.refuse(name, errno.ENOSYS)
        early.add(second)
        early.add(gone)
        with pidwait.WaitSet([first, second]) as late:
            waiting.append(late)
            pidwait.watch(second, lambda *exit: told.put(exit))
            for pid in first, second:
                os.kill(pid, 9)
            while len(exits) < 5:
                for each in early, late:
                    exits.extend(each.wait(0.01))
            assert told.get(timeout=LONG)[0] == second
            waiting.remove(late)
    assert sorted(pid for pid, _ in exits) == sorted([first, second] * 2 + [gone])
    assert handler.records and not handler.stuck
    eventually(lambda: threading.active_count() == 1)


@needs("/proc")
def test_no_lock_of_a_child_is_held_while_a_record_is_written(
    variant, backend, seam, set_handlers, monkeypatch
):
    """Another thread waits for it while the n-th record is written."""
    codes = []
    for number in itertools.count(1):
        child = pidwait.spawn(["sh", "-c", "exit 5"])
        become_zombie(child.pid)
        handler = UsesAll(lambda: len(handler.records) == number and codes.append(child.wait(LONG)))
        set_handlers(handler)
        with monkeypatch.context() as patched, child:
            if backend == "polling":
                patched.setattr(os, "open", refusing(errno.EMFILE))
            else:
                seam.refuse("kqueue" if backend == "kqueue" else "waitid", errno.ENOSYS)
            assert child.wait(LONG) == 5
        seam.undo()
        assert not handler.stuck
        if len(handler.records) < number:
            break
    assert set(codes) == {5}


def raise_on_purpose(record):
    raise ValueError("on purpose")


@pytest.mark.parametrize("where", ["filter", "handler"])
def test_an_exception_of_logging_does_not_come_out(
    pidfds, seam, herd, set_handlers, monkeypatch, capsys, where
):
    """It is printed, as logging prints those of emit()."""
    handler = logging.Handler()
    if where == "handler":
        handler.handle = raise_on_purpose
    else:
        logger = logging.getLogger(pidwait.__name__)
        monkeypatch.setattr(logger, "filters", [raise_on_purpose])
    set_handlers(handler)
    seam.refuse("pidfd_open", errno.EMFILE)
    pid = herd.fork(3)
    with pidwait.WaitSet() as waiting:
        waiting.add(pid)
        assert list(waiting) == [pid] and waiting.wait(0) == []
        os.kill(pid, 9)
        assert pidwait.wait(pid, LONG) == -9
        assert waiting.wait(LONG) == [(pid, -9)]
    assert capsys.readouterr().err.count("ValueError: on purpose") >= 2
