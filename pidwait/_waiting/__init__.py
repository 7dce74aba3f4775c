# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for any object of a caller: owners that reap, and many processes at once."""
