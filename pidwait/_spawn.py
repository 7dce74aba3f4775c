# SPDX-License-Identifier: BSD-3-Clause
"""Where _probe looks for CALLS, until it names _spawn_actions."""

from ._spawn_actions import CALLS

__all__ = ["CALLS"]
