# SPDX-License-Identifier: BSD-3-Clause
"""What this copy is. In a single file (see _vendoring) these are decided when it is made."""

SINGLE_FILE = False
SPAWN = True
LISTING = True
COMMANDS = True
