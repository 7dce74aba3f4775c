# SPDX-License-Identifier: BSD-3-Clause
"""What a mutant is."""

from collections import namedtuple

# The guard ``old``, which is in the file once, becomes ``new``, and then the test fails.
Mutant = namedtuple("Mutant", "name file old new test")
