# SPDX-License-Identifier: BSD-3-Clause
"""The soft limit of file descriptors, which is the whole process's."""

import importlib
import resource

import pytest

from . import pidwait
from .processes import OnPurpose

_highfds = importlib.import_module(pidwait.__name__ + "._highfds")
NOFILE = resource.RLIMIT_NOFILE


@pytest.fixture
def limits():
    """A soft limit that is not the hard one."""
    before = resource.getrlimit(NOFILE)
    if before[1] < 128:
        pytest.skip("the hard limit leaves no room for a lower one")
    resource.setrlimit(NOFILE, (100, before[1]))
    yield (100, before[1])
    resource.setrlimit(NOFILE, before)


def raised_while(use):
    found = []

    def inside(move):
        found.append(resource.getrlimit(NOFILE))
        use()

    try:
        _highfds.Raised()(inside)
    finally:
        assert found == [(found[0][1],) * 2]


def test_limit_is_put_back(limits):
    raised_while(lambda: None)
    assert resource.getrlimit(NOFILE) == limits


def test_limit_is_put_back_after_an_exception(limits):
    def use():
        raise OnPurpose

    with pytest.raises(OnPurpose):
        raised_while(use)
    assert resource.getrlimit(NOFILE) == limits


@pytest.mark.parametrize("soft", [64, 120])
def test_limit_that_another_thread_sets_meanwhile(limits, soft):
    raised_while(lambda: resource.setrlimit(NOFILE, (soft, limits[1])))
    assert resource.getrlimit(NOFILE) == (soft, limits[1])


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="PyPy has no prlimit(2)")
@pytest.mark.parametrize("step", [1, 2])
def test_limit_that_another_thread_sets_just_before_a_call(limits, monkeypatch, step):
    """Before the first it is raised from there, before the second it is put back as it is."""
    exchange, steps = _highfds._exchange, []

    def interposed(wanted):
        steps.append(wanted)
        if len(steps) == step:
            resource.setrlimit(NOFILE, (80, limits[1]))
        return exchange(wanted)

    monkeypatch.setattr(_highfds, "_exchange", interposed)
    _highfds.Raised()(lambda move: None)
    assert resource.getrlimit(NOFILE) == (80, limits[1])


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="PyPy has no prlimit(2)")
def test_limits_are_exchanged_in_one_call(limits, monkeypatch):
    """Between getrlimit(2) and setrlimit(2) another thread's would be overwritten."""
    monkeypatch.setattr(resource, "setrlimit", None)
    raised_while(lambda: None)
    monkeypatch.undo()
    assert resource.getrlimit(NOFILE) == limits
