# SPDX-License-Identifier: BSD-3-Clause
"""Every interleaving of a few threads, where a storm would pass by the one that matters.

Threads that share an object run one at a time. At each line of the package (in a loop, in its first
three turns) another one can go on in place of the one that runs, a signal handler can raise, and
the process can fork. A *plan* says where: it is a list of (step, what), and a step is the number of
a line that was run. ``what`` is the number of the thread to go on, the name of the class that the
handler raises, or "fork". Without an entry the first thread runs until it sleeps or ends, and then
the next one that can go on.

The clock stands still while a thread runs. What sleeps asks whether it may go on, and lets others
run; when all sleep, the clock goes on to the first time-out. So nothing is decided by time: if
nobody can go on, a wake-up was lost; a thread that runs 20,000 lines without a sleep spins.

schedule.py runs one plan, search.py finds the plans, scenarios.py has what is run.
"""

from .. import trouble  # noqa: F401  # it stands in for pytest where there is none
