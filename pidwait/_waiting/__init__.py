# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for what a caller gives: owners that reap, and many at once."""
