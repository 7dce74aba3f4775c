# SPDX-License-Identifier: BSD-3-Clause
"""Small changes of which a caller would notice nothing, each with the reason: equivalent.txt.

tests/matrix/random_mutants.py leaves them out. The line and what it becomes, both without the
indentation, identify a change, so that it may move in its file.
"""

from collections import namedtuple
from pathlib import Path

Equivalent = namedtuple("Equivalent", "file old new reason")


def read(text):
    """Those of a text with lines [file], # reason, - old and + new, which each hold on."""
    found = []
    file = reason = old = None
    for line in text.splitlines():
        mark, rest = line[:2], line[2:]
        if mark == "+ ":
            found.append(Equivalent(file, old, rest, reason))
        elif mark == "- ":
            old = rest
        elif mark == "# ":
            reason, old = rest, None
        elif line.startswith("[") and line.endswith("]"):
            file, reason, old = line[1:-1], None, None
        elif line:
            raise ValueError("not a line of equivalent.txt: %r" % line)
    return found


EQUIVALENT = read(Path(__file__).with_name("equivalent.txt").read_text(encoding="utf-8"))
