# SPDX-License-Identifier: BSD-3-Clause
"""Run tests where there is no pidfd: `python -m tests.matrix.without_pidfd WAY [PYTEST ARGS]`.

A seccomp filter refuses pidfd_open(2), and what the WAY to wait goes without: `connector` uses
the proc connector, `polling-inotify` inotify, `polling-alone` neither. If no tests are named, it
runs those of waiting.
"""

import errno
import os
import sys

from ..faults import system

REFUSED = {
    "connector": ("pidfd_open",),
    "polling-inotify": ("pidfd_open", "netlink"),
    "polling-alone": ("pidfd_open", "netlink", "inotify_init1"),
}
TESTS = "wait process owners input waiting waitset watching forks handlers green aio".split()
AIO = "cancel completed fds forks interrupted loops owners spawn".split()


def main(way, args):
    if not any(one.startswith("tests/") for one in args):
        args += ["tests/test_{}.py".format(name) for name in TESTS]
        args += ["tests/test_aio_{}.py".format(name) for name in AIO]
    system.forbid(dict.fromkeys(REFUSED[way], errno.ENOSYS))
    os.environ["WITHOUT_PIDFD"] = way
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *args])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
