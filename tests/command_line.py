# SPDX-License-Identifier: BSD-3-Clause
"""The command line, as a user calls it."""

import subprocess
import sys

from . import pidwait

COMMAND = [sys.executable, "-m", pidwait.__name__]


def run(*args, **kwargs):
    return subprocess.run(
        COMMAND + [str(arg) for arg in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )
