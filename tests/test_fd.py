# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors that have an owner from the first moment."""

import functools
import importlib
import itertools
import operator
import os
import platform
import signal

import pytest

from . import pidwait
from .processes import not_on_windows

fd = importlib.import_module(pidwait.__name__ + "._fd")


class Stop(Exception):
    pass


def stop(*args):
    raise Stop


def interrupted():
    """What gives the fd of a file, after a signal whose handler can't run yet: all is C."""
    steps = itertools.chain(
        map(os.open, [os.devnull], [os.O_RDONLY]),
        map(signal.setitimer, [signal.ITIMER_REAL], [1e-6]),
        map(sum, [range(200000)]),  # takes its time
    )
    return filter(functools.partial(operator.contains, range(3, 1000)), steps)


@not_on_windows("setitimer")
@pytest.mark.skipif(platform.python_implementation() == "PyPy", reason="PyPy interprets map")
def test_interrupted():
    """See conftest.nothing_left."""
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stop):
            fd.opened(max, interrupted())
    finally:
        signal.signal(signal.SIGALRM, before)


@not_on_windows("select.epoll")
def test_owner():
    owner = fd.opened(os.open, os.devnull, os.O_RDONLY)
    number = owner.fileno()
    os.fstat(number)
    owner.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    owner.close()


def test_error_of_the_function(tmp_path):
    with pytest.raises(FileNotFoundError):
        fd.opened(os.open, str(tmp_path / "none"), os.O_RDONLY)
