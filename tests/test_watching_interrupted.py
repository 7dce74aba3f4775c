# SPDX-License-Identifier: BSD-3-Clause
"""A signal handler that runs at any line of watch(), and raises or calls watch() itself."""

import importlib
import linecache
import os
import queue
import sys

import pytest

from . import pidwait
from .faults import at_line
from .processes import eventually, gone_pid
from .test_watching import threads

_watching = importlib.import_module(pidwait.__name__ + ".watching")
FILES = ("watching.py", "waiting.py", "_engine.py", "_fork.py")


def interrupt():
    """Raise, but only where a signal handler could: not between a `with` and its block.

    An exception of a trace function there would skip the end of the block, and keep a lock.
    """
    frame = sys._getframe(1).f_locals["frame"]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)  # of a zip
    if not line.strip().startswith(("with ", "try:", "finally:")):
        raise KeyboardInterrupt


def watches_at_line(number, pid):
    """Call watch() at a line of another watch(); return the line, and the watches made."""
    made = []

    def watch():
        made.append(pidwait.watch(pid, print))

    with at_line(number, watch, FILES) as line:
        watch()
    return line, made


@pytest.mark.timeout(300)  # a new thread for each line
def test_watch_in_the_middle_of_a_watch(either, sleeper):
    """One thread serves both, and ends after the last."""
    number, reached = 0, True
    told = queue.Queue()
    while reached:
        number += 1
        line, made = watches_at_line(number, sleeper.pid)
        eventually(lambda: len(threads()) == 1)
        gone = gone_pid()
        pidwait.watch(gone, lambda *exit: told.put(exit))
        assert told.get(timeout=5) == (gone, None), line.where
        assert len(_watching._watchers) == 1 and len(threads()) == 1, line.where
        (watches,) = _watching._watcher()._sets.values()
        assert len(watches) == len(made) == 1 + line.reached, line.where
        for watch in made:
            watch.cancel()
        eventually(lambda: not threads())
        reached = line.reached
    assert number > 20


@pytest.mark.timeout(300)
def test_watch_that_an_exception_interrupts(either, sleeper):
    """The next watch works, and nothing is left of the interrupted one."""
    number, reached = 0, True
    told = queue.Queue()
    while reached:
        number += 1
        try:
            with at_line(number, interrupt, FILES) as line:
                pidwait.watch(sleeper.pid, print)
        except KeyboardInterrupt:
            pass
        gone = gone_pid()
        pidwait.watch(gone, lambda *exit: told.put(exit))
        try:
            answer = told.get(timeout=5)
        except queue.Empty:
            pytest.fail("nothing is reported after " + str(line.where))
        assert answer == (gone, None)
        # Interrupted at its very end, watch() has made the watch.
        for watches in list(_watching._watcher()._sets.values()):
            for target in watches._engine:
                target.key.cancel()
        eventually(lambda: not threads())
        reached = line.reached
    assert number > 20
    assert os.getpid() in _watching._watchers
