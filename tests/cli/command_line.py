# SPDX-License-Identifier: BSD-3-Clause
"""The command line, as a user calls it."""

import json
import subprocess
import sys

from .. import pidwait

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


NOTHING = "python -m %s: no process fits (with -e that is no error)\n" % pidwait.__name__


def chosen(*args):
    """The PIDs of the processes that the arguments choose."""
    done = run("--list", "--json", *args)
    assert (done.returncode, done.stderr) in ((0, ""), (1, NOTHING)), done
    return [json.loads(line)["pid"] for line in done.stdout.splitlines()]
