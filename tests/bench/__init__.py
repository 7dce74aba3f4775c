# SPDX-License-Identifier: BSD-3-Clause
"""Measurements against peers: python -m tests.bench NAME...

A machine is slow or fast, idle or busy, so nothing here has an absolute limit in seconds. Bounds
are for counts, and for ratios to a peer that is measured in the same run, in turns with us. A peer
that is not installed is shown as missing (psutil: `tox -e bench`).

Each module is one bench: its docstring's first line describes it, and `run(options)` returns Rows,
or raises Unavailable where the machine lacks what it needs.
"""
