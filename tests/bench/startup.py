# SPDX-License-Identifier: BSD-3-Clause
"""The start of pytest for one test: plugins chosen, as in tox, against autoload with hypothesis

Each start is a fresh process; the bytecode is cached.
"""

import importlib.util
import os
import subprocess
import sys
import time

from . import core

TEST = "tests/test_deadline.py::test_schedule"
NEEDED = ("pytest", "pytest_timeout", "hypothesis")


def start(**env):
    began = time.perf_counter()
    subprocess.check_call(
        [sys.executable, "-m", "pytest", "-q", TEST],
        cwd=str(core.ROOT),
        env=dict(os.environ, **env),
        stdout=subprocess.DEVNULL,
    )
    return (time.perf_counter() - began) * 1000


def run(options):
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise core.Unavailable(name + " is not installed")
    results = core.in_turns(
        {
            "chosen": lambda: start(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
            "autoload": lambda: start(PYTEST_DISABLE_PLUGIN_AUTOLOAD=""),
        },
        options.rounds or 10,
        warm_up=2,
    )
    ours, peer = core.median(results["chosen"]), core.median(results["autoload"])
    return [core.Row("p50, milliseconds", ours, peer, bound=0.75)]
