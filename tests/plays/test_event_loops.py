# SPDX-License-Identifier: BSD-3-Clause
"""Process.fileno() and WaitSet.fileno() in the event loops of other packages."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from .event_loops import LOOPS, ONCE

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REPORTED = [7, 6, 5]


def python_of(name):
    """GLib's package has to be compiled: so it is Debian's, with Debian's Python."""
    if name != "glib" or importlib.util.find_spec("gi"):
        return sys.executable
    debian = "/usr/bin/python3"
    if subprocess.call([debian, "-c", "import gi"], stderr=subprocess.DEVNULL):
        pytest.skip("no PyGObject: Debian's package python3-gi has it")
    return debian


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("name", list(LOOPS))
def test_loop(name, backend):
    done = subprocess.run(
        [
            python_of(name),
            *("-W", "ignore", "-W", "always::ResourceWarning"),
            *("-m", __package__ + ".event_loops", name),
        ],
        cwd=ROOT,
        env=dict(os.environ, PIDWAIT_BACKEND=backend, PYTHONPATH=ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    # Qt would warn there of a descriptor that was closed too early, Python of a handle left open.
    assert done.stderr == ""
    found, watched = json.loads(done.stdout.splitlines()[-1])
    one = ONCE
    if backend == "polling" or name == "eventlet_patched":
        one = "ValueError" if name == "selector" else "UnsupportedOperation"
    assert found == {"told": one, "early": one, "objects": REPORTED, "pids": REPORTED}
    assert watched == []
