# SPDX-License-Identifier: BSD-3-Clause
"""A signal handler's exception, at any line: the caller gets it, and not as a system error."""

import errno
import warnings

import pytest

from .. import faults, pidwait
from ..faults import Child, at_line, probe
from .test_interrupts import FILES, among_many, by_handle_twice, by_pid, in_a_set

pytest.importorskip("ctypes")


def not_yet(pid):
    with pidwait.WaitSet([pid]) as waiting:
        assert waiting.wait(0) == []
        assert waiting.wait(0) == []


USES = {use.__name__: use for use in (among_many, by_handle_twice, by_pid, in_a_set, not_yet)}


def comes_out(backend, name, error, is_first):
    warnings.simplefilter("ignore", ResourceWarning)  # this process is the test's own
    use, child = USES[name], Child()
    if use is not not_yet:
        child.become_zombie(7)
    use(child.pid)  # makes the checks whose answers are kept
    number, reached = 0, True
    while reached:
        number += 1
        if is_first:
            probe.forget()
        raised = OSError(getattr(errno, error), "on purpose")

        def handler(raised=raised):
            raise raised

        caught = None
        try:
            with at_line(number, handler, FILES) as line:
                use(child.pid)
        except OSError as error_of_wait:
            caught = error_of_wait
            raised.__traceback__ = raised.__context__ = None  # they refer to what was left open
        reached = line.reached
        assert caught is (raised if reached else None), line.where
    if use is not_yet:
        child.end(7)
    child.reap()
    assert number > 20


@pytest.mark.timeout(300)  # a new wait for each line of one
@pytest.mark.parametrize("name", sorted(USES))
def test_comes_out(name):
    faults.run_on_each_backend(comes_out, name, "EIO", False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", ["ESRCH", "ENOENT", "ECHILD"])
@pytest.mark.parametrize("name", ["by_pid", "in_a_set"])
def test_error_that_also_tells_of_an_exit(name, error):
    """A handler's own code may raise an error by which system calls tell us of an exit."""
    faults.run_on_each_backend(comes_out, name, error, False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["by_pid", "in_a_set"])
def test_comes_out_of_the_first_use(name):
    """An exception in the middle of a check is not kept as the reason why something fails."""
    faults.run_on_each_backend(comes_out, name, "EIO", True)
