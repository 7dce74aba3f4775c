# SPDX-License-Identifier: BSD-3-Clause
"""Run tests where there is no pidfd: `python -m tests.matrix.without_pidfd WAY [PYTEST ARGS]`.

A seccomp filter refuses pidfd_open(2), and what the WAY to wait goes without: `connector` uses
the proc connector, `polling-inotify` inotify, `polling-alone` neither.
"""

import errno
import os
import sys

from ..trouble import system

REFUSED = {
    "connector": ("pidfd_open",),
    "polling-inotify": ("pidfd_open", "netlink"),
    "polling-alone": ("pidfd_open", "netlink", "inotify_init1"),
}


def main(way, args):
    system.forbid(dict.fromkeys(REFUSED[way], errno.ENOSYS))
    os.environ["WITHOUT_PIDFD"] = way
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *args])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
