# SPDX-License-Identifier: BSD-3-Clause
"""The tests of listing, on the stand-in for each system."""

import pytest

from .. import pidwait
from ..test_listing import *  # noqa: F403
from ..test_listing import sleeper  # noqa: F401
from .systems import SYSTEMS


@pytest.fixture(autouse=True, params=sorted(SYSTEMS))
def system(request, on):
    return on(request.param)


def test_command_line(sleeper):  # noqa: F811
    """ps does not show where an argument ends, nor one that is empty."""
    words = pidwait.ProcessInfo(sleeper.pid).cmdline()
    assert words[1:] == ["-c", "import", "sys;", "sys.stdin.read()", "a", "b"]
