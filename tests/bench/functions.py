# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the package that one wait crosses

A reader who follows a wait has to read each of them. Several calls of a function count once; in a
comprehension or a class's body Python calls functions, too, so the bounds are for 3.11.
"""

import os
import subprocess
import sys

from .. import pidwait
from . import core

TIMEOUT = 5
HERE = os.path.dirname(os.path.abspath(pidwait.__file__)) + os.sep


def by_set(popen):
    with pidwait.WaitSet([popen]) as waiting:
        waiting.wait(TIMEOUT)


CASES = (
    ("wait(pid)", lambda popen: pidwait.wait(popen.pid, TIMEOUT), 12),
    ("wait(popen)", lambda popen: pidwait.wait(popen, TIMEOUT), 14),
    ("WaitSet([popen]), its wait() and close()", by_set, 45),
)


def crossed(function, popen):
    """{(file, function, its line): calls}"""
    seen = {}

    def profile(frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HERE):
            key = code.co_filename, code.co_name, code.co_firstlineno
            seen[key] = seen.get(key, 0) + 1

    sys.setprofile(profile)
    try:
        function(popen)
    finally:
        sys.setprofile(None)
    return seen


def run(options):
    rows = []
    for name, function, bound in CASES:
        for _ in range(2):  # the second one asks the system nothing for the first time
            with subprocess.Popen(["sleep", "0.05"]) as popen:
                seen = crossed(function, popen)
        files = len({key[0] for key in seen})
        notes = ["%d calls, in %d files" % (sum(seen.values()), files)]
        rows.append(core.Row(name, len(seen), kind="count", bound=bound, notes=notes))
    return rows
