# SPDX-License-Identifier: BSD-3-Clause
"""Small changes that change nothing a caller could see, each with the reason.

tests/matrix/random_mutants.py leaves them out. They are known by the line and what it becomes,
without its indentation: they may move in their file.
"""

from collections import namedtuple

Equivalent = namedtuple("Equivalent", "file old new reason")

EQUIVALENT = []
