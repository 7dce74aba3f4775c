# SPDX-License-Identifier: BSD-3-Clause
"""Checks of what works here: what is remembered of them."""

import errno
import importlib

import pytest

from . import pidwait

checks = importlib.import_module(pidwait.__name__ + "._checks")


class Check:
    """It raises the error, if there is one; ``calls`` counts."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def __call__(self):
        self.calls += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def check():
    made = []

    def check(error):
        made.append(Check(error))
        return made[-1]

    yield check
    for one in made:
        checks._answers.pop(one, None)


@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EPERM])
def test_answer_that_is_remembered(check, code):
    call = check(code and OSError(code, "no"))
    works = code is None
    assert checks.known(call, "not asked yet") == "not asked yet" and not checks.is_known(call)
    assert checks.ask(call) is checks.ask(call) is checks.known(call, 0) is call.error
    assert checks.works(call) is checks.surely_works(call) is works and checks.is_known(call)
    assert call.calls == 1
    if code:
        assert call.error.__traceback__ is call.error.__context__ is None
    assert checks.still_works(call) is works and call.calls == 2  # it is asked again
    call.error = OSError(errno.ENOSYS, "no") if works else None  # a policy has been set, or ended
    assert checks.works(call) is works and checks.still_works(call) is not works
    assert checks.ask(call) is call.error and call.calls == 3
    checks.forget()
    assert not checks.is_known(call)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_failure_that_passes(check, code):
    """It says nothing about the system, but what works is not sure either."""
    call = check(OSError(code, "not now"))
    assert checks.ask(call) is None and checks.works(call) is True
    assert checks.surely_works(call) is checks.still_works(call) is False
    assert not checks.is_known(call) and call.calls == 4
    call.error = None
    assert checks.surely_works(call) is checks.is_known(call) is True
