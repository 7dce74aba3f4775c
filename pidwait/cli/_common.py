# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share: durations, exit statuses, what they are called."""

import argparse
import os
import re
import sys
from errno import EINVAL, EPIPE

TIMED_OUT = 124  # as GNU timeout says it

# What is run is the package above this one, in a vendored copy, too. __name__ tells it, as
# __package__ is not set yet where zipimport loads this, before Python 3.10.
PROG = "python -m " + __name__.rsplit(".", 2)[0]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    match = re.match(r"(\d+\.?\d*|\.\d+)([smhd]?)\Z", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(
            "%r is not a duration: give seconds, or a number with s, m, h or d" % text
        )
    return float(match.group(1)) * _UNITS[match.group(2)]


def write_line(text: str) -> None:
    # A process can have any bytes for its name, and stdout any encoding.
    encoding = sys.stdout.encoding or "ascii"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        # The C library of Windows has no number for ERROR_NO_DATA, bpo-35754.
        if os.name == "nt" and error.errno == EINVAL:
            raise BrokenPipeError(EPIPE, os.strerror(EPIPE)) from None
        raise
