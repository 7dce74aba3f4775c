# SPDX-License-Identifier: BSD-3-Clause
import pytest

from ..conftest import CHOSEN, EVENT


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
