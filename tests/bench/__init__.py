# SPDX-License-Identifier: BSD-3-Clause
"""Measurements against peers: python -m tests.bench NAME... [--json]

A machine is slow or fast, idle or busy, so nothing here has an absolute limit in seconds. What has
a bound is a ratio to a peer that was measured in the same run, in turns with us, or a count. A peer
that is not installed is shown as that (psutil: `tox -e bench`).

Each module is one bench: its docstring's first line describes it, and `run(options)` returns Rows,
or raises Unavailable where the machine lacks what it needs.
"""
