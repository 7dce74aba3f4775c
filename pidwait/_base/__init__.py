# SPDX-License-Identifier: BSD-3-Clause
"""Common to all systems: deadlines, errors, handles, checks."""
