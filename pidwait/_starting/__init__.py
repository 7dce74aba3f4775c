# SPDX-License-Identifier: BSD-3-Clause
"""Starting processes by posix_spawn(3)."""
