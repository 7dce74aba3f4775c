# SPDX-License-Identifier: BSD-3-Clause
"""What all else agrees on: deadlines, errors, handles, the probe. It knows no system.

And steps that are whole, without a lock. CPython runs signal handlers between two bytecodes only.
So a step that takes several calls is made of functions in C, and run by one call: an exception of a
handler comes before all of it, or after. For other threads each of the calls is atomic by itself,
without a GIL, too; their order makes each moment in between a good one. On PyPy some of these
functions are Python: see tests/LIMITS.md.
"""

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterable, deque
if not TYPE_CHECKING:
    from _collections import deque  # collections loads more


def at_once(*steps: "partial[Any]") -> "list[Any]":
    """Call these, which are of functions in C; return their results."""
    return list(map(partial.__call__, steps))


# run_through(iterator) has an iterator in C do all that it does.
run_through: "Callable[[Iterable[object]], object]" = partial(deque, maxlen=0)
