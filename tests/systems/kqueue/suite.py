# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin, -p tests.kqueue.suite: run the tests of waiting on each system's stand-in."""

import os

os.environ.setdefault(
    "KQUEUE_STANDIN", "freebsd12 freebsd11 netbsd11 netbsd10 openbsd dragonfly darwin"
)
