# SPDX-License-Identifier: BSD-3-Clause
"""Which tests run a line of the package? A pytest plugin records it, and Lines reads the record.

sys.monitoring tells each line once in a test, which costs little. A Python before 3.12 has none:
there the record is empty.
"""

import collections
import os
import sys
from pathlib import Path

import pytest

RECORDER = Path(__file__).with_name("recorder")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    os.environ["RECORDED_TEST"] = item.nodeid
    if hasattr(sys, "monitoring"):
        sys.monitoring.restart_events()
    yield
    del os.environ["RECORDED_TEST"]


def environment(file, tree):
    """What has pytest, with this plugin, record in ``file`` the lines of the tree's package."""
    return {
        "PYTHONPATH": os.pathsep.join([str(RECORDER), str(tree)]),
        "RECORD_LINES": os.pathsep.join([str(file), str(tree / "pidwait")]),
    }


class Lines:
    """What was recorded in ``file``."""

    def __init__(self, file):
        self._tests = collections.defaultdict(set)
        self._of_file = collections.defaultdict(set)
        self._count = collections.Counter()
        for row in set(file.read_text().splitlines() if file.exists() else ()):
            test, module, line = row.split("\t")
            self._tests[module, int(line)].add(test)
            self._of_file[module].add(test)
            self._count[test] += 1

    def tests(self, module, line):
        """The tests that run it, first those that run little else, by their node ids.

        If an import runs it, or none was seen to, those that run anything of the module.
        """
        found = self._tests[module, line]
        if not found or "" in found:
            found = self._of_file[module]
        return sorted(found - {""}, key=lambda test: (self._count[test], test))
