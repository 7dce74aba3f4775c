# SPDX-License-Identifier: BSD-3-Clause
import pytest

from ..conftest import CHOSEN, EVENT
from ..processes import become_zombie, exiting


@pytest.fixture
def by_pidfd(use_variant):
    """The test needs pidfds: it runs once, with the first binding that works."""
    if EVENT != "pidfd" or CHOSEN[0] == "polling":
        pytest.skip("no pidfds here")
    use_variant(CHOSEN[0])


@pytest.fixture
def by_polling(use_variant):
    """The test runs once, and polls."""
    use_variant(CHOSEN[-1])


@pytest.fixture
def zombie(start):
    """zombie(code) is a child that has exited, and that nobody has reaped."""

    def zombie(code):
        child = start(*exiting(code))
        become_zombie(child.pid)
        return child

    return zombie
