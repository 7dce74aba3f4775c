# SPDX-License-Identifier: BSD-3-Clause
"""What tests ask of a system that not every system has: the one place that knows what is there."""

import importlib.util
import os
import signal
import sys

import pytest

from . import LINUX

# This system's own. The probe is not asked here: it remembers its answers.
BACKEND = "win32" if os.name == "nt" else "pidfd" if LINUX else "kqueue"
THERE = {
    "/proc": os.path.exists("/proc/self/stat"),
    "realtime signal": hasattr(signal, "SIGRTMIN"),
    "os.waitid()": hasattr(os, "waitid"),
    "os.setresuid()": hasattr(os, "setresuid"),
    "code 0 of a stranger's zombie": not sys.platform.startswith(("darwin", "netbsd", "openbsd")),
}
# Linux's own.
THERE.update(dict.fromkeys(["PTRACE_SEIZE", "clone(2)"], LINUX))
THERE["keeper of trees"] = LINUX and importlib.util.find_spec("_ctypes") is not None


def need_quick_looks(variant):
    """Skip a test that has a thousand processes polled, where that takes as many calls of ps(1)."""
    if variant.startswith("polling") and not THERE["/proc"]:
        pytest.skip("a thousand calls of ps take minutes")


def needs(*names):
    """A mark: the test, or the module, is left out where one of these is not there."""
    lacking = [name for name in names if not THERE[name]]
    return pytest.mark.skipif(bool(lacking), reason="there is no " + " and no ".join(lacking))
