# SPDX-License-Identifier: BSD-3-Clause
"""A signal handler raises anywhere in add, discard, wait or close, beside other threads."""

import os
import sys

import pytest

from .. import hangs
from ..soak import interruptions

SECONDS = 2.5
LIMIT = SECONDS + 60

pytestmark = pytest.mark.threads


@pytest.mark.skipif(
    not hasattr(sys, "getrefcount"),
    reason="on PyPy a few exits are lost: how many, only the minutes of the deep run tell",
)
def test_an_exception_anywhere():
    """None hangs; each exit is told once, with its code; nothing stays open."""
    command = (sys.executable, "-m", interruptions.__name__, "storm", str(SECONDS))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    code, figures, dump = hangs.finished(command, env, LIMIT)
    assert code == 0, figures + dump
    assert "interruptions" in figures
