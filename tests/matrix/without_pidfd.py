# SPDX-License-Identifier: BSD-3-Clause
"""Run tests where a seccomp filter refuses pidfd_open(2).

`python -m tests.matrix.without_pidfd ARGUMENTS`, which are pytest's.
"""

import errno
import os
import sys

from ..trouble import system


def main(args):
    system.forbid({"pidfd_open": errno.ENOSYS})
    os.environ["WITHOUT_PIDFD"] = "polling"
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *args])


if __name__ == "__main__":
    main(sys.argv[1:])
