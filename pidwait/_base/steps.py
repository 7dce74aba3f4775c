# SPDX-License-Identifier: BSD-3-Clause
"""Steps that are whole, without a lock.

CPython runs signal handlers between two bytecodes only.
So a step that takes several calls is made of functions in C, and run by one call: an exception of a
handler comes before all of it, or after. For other threads each of the calls is atomic by itself,
without a GIL, too; their order makes each moment in between a good one. On PyPy partial, itemgetter
and attrgetter are Python: no step is made of them.
"""

from functools import partial
from itertools import chain, starmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterable, Iterator, deque
if not TYPE_CHECKING:
    from _collections import deque  # collections loads more


def step(function: "Callable[..., Any]", *args: "Any") -> "Iterator[Any]":
    """What calls ``function(*args)``, of a function in C, when it is gone through."""
    return starmap(function, (args,))


def at_once(*steps: "Iterable[Any]") -> "list[Any]":
    """Go through these; return their results."""
    return list(chain(*steps))


def only_if(condition: "Iterator[Any]", *steps: "Iterable[Any]") -> "Iterator[Any]":
    """Go through the steps if what the condition yields, one value at most, is true."""
    there = {True: chain(*steps)}
    return chain.from_iterable(map(there.__getitem__, filter(None, map(bool, condition))))


# run_through(iterator) has an iterator in C do all that it does.
run_through: "Callable[[Iterable[object]], object]" = partial(deque, maxlen=0)
