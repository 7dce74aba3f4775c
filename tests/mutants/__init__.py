# SPDX-License-Identifier: BSD-3-Clause
"""The guards for races and errnos: each with the text to put in its place, and the test for it.

tests/matrix/mutants.py makes these changes. A new guard joins one of the lists.
"""

from . import cli, engine, events, kqueue, listing, loops, many, starting, waiting

MUTANTS = waiting.MUTANTS + kqueue.MUTANTS + starting.MUTANTS + many.MUTANTS
MUTANTS += engine.MUTANTS + cli.MUTANTS + loops.MUTANTS + listing.MUTANTS + events.MUTANTS
