# SPDX-License-Identifier: BSD-3-Clause
"""Other packages' processes are waited for rightly, and their owners lose nothing by it."""

import collections
import json
import os
import subprocess
import sys

import pytest

from .. import pidwait
from ..waiting.ways import WAYS
from .__main__ import KNOWN, TIMES, WHILE
from .kinds import KINDS, LEFT, ONLY_A_PID, REAPED
from .loops import LOOPS
from .pools import MAYBE_255, POOLS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
Case = collections.namedtuple("Case", "when way code told owners left end")


def run(name, backend):
    env = dict(os.environ, PIDWAIT_BACKEND=backend)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", __package__, name],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    cases = [Case(*json.loads(line)) for line in done.stdout.splitlines()]
    assert len(cases) == len(TIMES) * len(WAYS)
    return cases


def is_right(case, whose, handle_tells):
    """``handle_tells``: the code, whoever reaps meanwhile."""
    if case.owners != case.code or case.end is not None:
        return False
    if whose == REAPED and case.left is not None:
        return False
    if whose == ONLY_A_PID and case.when == KNOWN:
        return case.told is None
    if whose == ONLY_A_PID and not (case.when == WHILE and handle_tells):
        return case.told in (case.code, None)
    return case.told == case.code


def by_pidfd():
    """Whether an open handle knows the exit code after somebody else has reaped: Linux 6.15."""
    child = subprocess.Popen(["true"])
    with pidwait.Process(child.pid) as process:
        child.wait()
        return process.wait() == 0


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("name", list(KINDS))
def test_kind(name, backend):
    handle_tells = backend == "auto" and by_pidfd()
    cases = run(name, backend)
    assert [case for case in cases if not is_right(case, KINDS[name][1], handle_tells)] == []


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("name", list(LOOPS))
def test_loop(name, backend):
    assert [case for case in run(name, backend) if not is_right(case, LEFT, True)] == []


@pytest.mark.parametrize("name", list(POOLS))
def test_pool(name):
    for case in run(name, "auto"):
        if name in MAYBE_255:
            case = case._replace(
                told=case.code if case.told is None else case.told,
                owners=case.code if case.owners == 255 else case.owners,
            )
        assert is_right(case, REAPED, True)
