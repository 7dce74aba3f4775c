# SPDX-License-Identifier: BSD-3-Clause
"""Several calls as one step, which no exception of a signal handler can split.

Elsewhere the package has plain statements, in an order that makes an interruption harmless. But
these steps, half done, could lose an exit, or report it twice. CPython runs signal handlers between
two bytecodes, never within a function written in C. So one such function makes all calls of a step,
and the called functions are in C, too: an exception comes before all calls, or after. Another
thread may see a step half done; the order of the calls makes that harmless, also without a GIL. On
PyPy partial, itemgetter and attrgetter are written in Python, so they are not used.

A call is a tuple: a function in C, and its arguments. claim(), hand_over() and end_one() are for
members, which several threads may end at once. ``tokens`` is {member: name}, and ``members``
{name: member}. Whoever pops a member's token has ended the member.
"""

from itertools import chain, repeat, starmap
from operator import is_

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Call, Iterable, Iterator, Table

_GONE = object()  # the name of a member whose token somebody else has popped


def atomically(*calls: "Call") -> "list[Any]":
    """Make the calls; return their results."""
    return list(_lazily(calls))


def atomically_if(condition: "Call", *calls: "Call") -> bool:
    """Make the first call; if its result is true, make the others. Return whether it was true."""
    made: "list[bool]" = []
    # No list: without memory, CPython 3.10 loses the references in it.
    then = {True: _lazily(calls + ((made.append, True),))}
    is_true = filter(None, map(bool, _lazily([condition])))
    list(chain.from_iterable(map(then.__getitem__, is_true)))
    return bool(made)


def claim(members: "Table", name: object, member: "Any", *calls: "Call") -> bool:
    """Give the member this name and make the calls; return False if another member has the name."""
    found = map(members.setdefault, (name,), (member,))
    return atomically_if((next, map(is_, found, (member,))), *calls)


def hand_over(into: "list[Any]", tokens: "Table", members: "Table", ended: "Iterable[Any]") -> None:
    """End these members; append to the list ``into`` those that nobody else has ended."""
    into.extend(_popped(tokens, members, ended))


def end_one(tokens: "Table", members: "Table", old: "Any", *calls: "Call") -> bool:
    """End a member and make the calls; return False if somebody else has ended it."""
    return atomically_if((next, _popped(tokens, members, (old,)), None), *calls)


def _lazily(calls: "Iterable[Call]") -> "Iterator[Any]":
    """An iterator in C that makes one call after the other."""
    return chain(*[starmap(function, (args,)) for function, *args in calls])


def _popped(tokens: "Table", members: "Table", ended: "Iterable[Any]") -> "Iterator[Any]":
    """An iterator in C that pops the tokens and the members."""
    names = map(tokens.pop, ended, repeat(_GONE))
    return filter(None, map(members.pop, names, repeat(None)))
