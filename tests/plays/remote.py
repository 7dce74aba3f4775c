# SPDX-License-Identifier: BSD-3-Clause
"""The single file, as it is sent to other machines."""

import subprocess

from ..cli.command_line import COMMAND


def single_file():
    return subprocess.check_output([*COMMAND, "vendor", "--single-file"])
