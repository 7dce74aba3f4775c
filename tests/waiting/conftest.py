# SPDX-License-Identifier: BSD-3-Clause
import signal

import pytest

from ..conftest import CHOSEN, EVENT, VARIANTS


@pytest.fixture
def by_pidfd(use_variant):
    """The test needs pidfds: it runs once, with the first binding that works."""
    if EVENT != "pidfd" or CHOSEN[0] == "polling":
        pytest.skip("no pidfds here")
    use_variant(CHOSEN[0])


@pytest.fixture
def by_polling(use_variant):
    """The test runs once, and polls."""
    use_variant(list(VARIANTS)[-1])


@pytest.fixture
def alarms():
    """alarms(function): from now on SIGALRM comes every few milliseconds, and calls it."""
    before = signal.getsignal(signal.SIGALRM)

    def alarms(function):
        signal.signal(signal.SIGALRM, lambda *args: function())
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.005)

    yield alarms
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
