# SPDX-License-Identifier: BSD-3-Clause
"""Puts the stand-in into the child processes of a test."""

from tests.systems import kqueue

kqueue.install_in_child()
