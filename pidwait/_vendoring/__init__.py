# SPDX-License-Identifier: BSD-3-Clause
"""Copies of this package for other projects: a folder, or a single file."""
