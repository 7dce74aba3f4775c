# SPDX-License-Identifier: BSD-3-Clause
"""The guards for races and errnos: each with what stands there without it, and its test.

tests/matrix/mutants.py makes them. A new guard joins one of the lists.
"""

from . import engine, kqueue, many, starting, waiting

MUTANTS = waiting.MUTANTS + kqueue.MUTANTS + starting.MUTANTS + many.MUTANTS
MUTANTS += engine.MUTANTS
