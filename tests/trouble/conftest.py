# SPDX-License-Identifier: BSD-3-Clause
import pytest

from .. import pidwait, trouble
from . import system


@pytest.fixture
def namespaces():
    try:
        return system.namespaces()
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture
def real_root():
    """The namespaces without one of users: root in them can become any other user."""
    within = ("unshare", *system.NAMESPACES)
    if system.libc is None:
        pytest.skip(system.WHY_NO_CALLS)
    if system.command_fails(within):
        pytest.skip("this root may not make namespaces")
    return within


@pytest.fixture
def pidfds(use_variant):
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())
    use_variant("pidfd-ctypes")
    pidwait.probe()
