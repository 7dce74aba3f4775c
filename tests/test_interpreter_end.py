# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are still open when the interpreter ends print only warnings that were asked for."""

import sys

import pytest

from . import pidwait
from .processes import run_python

USES = {
    "Process": "kept = pidwait.Process(os.getppid())",
    "WaitSet": "kept = pidwait.WaitSet([os.getppid()])",
    "Child": "kept = pidwait.spawn(['sleep', '0.01'])",
    "watch": "kept = pidwait.watch(os.getppid(), print)",
}
SCRIPT = """if True:
    import os, sys
    import {package} as pidwait

    class Cycle: pass
    def keep(cycle):
        {use}
        cycle.kept, cycle.cycle = kept, cycle
    cycle = Cycle()
    {use}
    keep(cycle)
"""


@pytest.mark.parametrize("name", sorted(USES))
def test_nothing_is_printed(either, name):
    done = run_python(SCRIPT.format(package=pidwait.__name__, use=USES[name]))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.skipif(sys.implementation.name == "pypy", reason="PyPy ends without finalizers")
@pytest.mark.parametrize("name", ["Process", "WaitSet"])
def test_warnings_that_are_asked_for(either, name, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "default::ResourceWarning")
    done = run_python(SCRIPT.format(package=pidwait.__name__, use=USES[name]))
    assert "ResourceWarning: unclosed <%s" % name in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert (done.stdout, done.returncode) == ("", 0)
