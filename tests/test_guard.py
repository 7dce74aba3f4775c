# SPDX-License-Identifier: BSD-3-Clause
"""Guard: many users, one close."""

import importlib
import os
import sys

import pytest

from . import pidwait
from .processes import not_on_windows

guard = importlib.import_module(pidwait.__name__ + "._guard")


class Resource:
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_closed_after_the_last_use():
    resource = Resource()
    shared = guard.Guard(resource)
    with shared as first:
        with shared as second:
            assert first is second is resource
            shared.close()
            assert shared.closed and not resource.closed
        assert not resource.closed
        with pytest.raises(ValueError, match="closed"), shared:
            pass
        assert not resource.closed
    assert resource.closed == 1
    shared.close()
    assert resource.closed == 1


def closing_at(step):
    """Use a guard whose close() a signal handler calls at the step-th line of its code.

    Return the resource, and whether there was such a line.
    """
    resource = Resource()
    shared = guard.Guard(resource)
    lines = []

    def trace(frame, event, argument):
        if frame.f_code.co_filename != guard.__file__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == step:
                sys.settrace(None)
                shared.close()
        return trace

    sys.settrace(trace)
    try:
        with shared:
            assert not resource.closed, "closed while it is used"
    except ValueError:
        assert shared.closed
    finally:
        sys.settrace(None)
    return resource, len(lines) >= step


def test_closed_by_a_signal_handler_at_any_line():
    step = 1
    resource, reached = closing_at(step)
    while reached:
        assert resource.closed == 1, "step %d" % step
        step += 1
        resource, reached = closing_at(step)
    assert step > 7
    assert not resource.closed


@not_on_windows("fork")
def test_fork_in_the_middle_of_a_use():
    """The forked child leaves a block that its parent has entered."""
    resource = Resource()
    shared = guard.Guard(resource)
    with shared:
        pid = os.fork()
    shared.close()
    if pid == 0:
        os._exit(10 + resource.closed)
    assert os.waitpid(pid, 0)[1] == 11 << 8
    assert resource.closed == 1
