# SPDX-License-Identifier: BSD-3-Clause
"""Puts the stand-in of tests/kqueues.py into the child processes of a test."""

from tests import kqueues

kqueues.install_in_child()
