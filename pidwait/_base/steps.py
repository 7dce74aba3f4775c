# SPDX-License-Identifier: BSD-3-Clause
"""Several calls in one: where an exception of a signal handler must not come in between.

Elsewhere the package has plain statements, in an order that makes an interruption harmless. But a
step that is half done may lose an exit, or report it twice. CPython runs signal handlers between
two bytecodes, never within a function written in C. So one such function makes all calls of a step,
and these are functions in C themselves: an exception comes before all of them, or after. Other
threads see each call made or not, and the order of the calls makes that harmless, too, without a
GIL as well. On PyPy partial, itemgetter and attrgetter are written in Python: they are not used.

A call is a tuple: a function in C, and its arguments. The last three functions are about members
that several threads may end. Each member has a token, ``tokens`` is {member: name}, and ``members``
{name: member}. Whoever pops the token has ended the member.
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
    """Make the first call, and if its result is true, the others; return whether it was."""
    made: "list[bool]" = []
    then = {True: _lazily((*calls, (made.append, True)))}
    is_true = filter(None, map(bool, _lazily([condition])))
    list(chain.from_iterable(map(then.__getitem__, is_true)))
    return bool(made)


def claim(members: "Table", name: object, member: "Any", *calls: "Call") -> bool:
    """Give the member this name and make the calls; return False if another one has the name."""
    found = map(members.setdefault, (name,), (member,))
    return atomically_if((next, map(is_, found, (member,))), *calls)


def hand_over(into: "list[Any]", tokens: "Table", members: "Table", ended: "Iterable[Any]") -> None:
    """End these members; append those whose token nobody else has popped to the list ``into``."""
    into.extend(_popped(tokens, members, ended))


def replace(tokens: "Table", members: "Table", old: "Any", *calls: "Call") -> bool:
    """End a member and make the calls; return False if somebody else has ended it."""
    return atomically_if((next, _popped(tokens, members, (old,)), None), *calls)


def _lazily(calls: "Iterable[Call]") -> "Iterator[Any]":
    """An iterator in C that makes one call after the other."""
    return chain(*[starmap(function, (args,)) for function, *args in calls])


def _popped(tokens: "Table", members: "Table", ended: "Iterable[Any]") -> "Iterator[Any]":
    """An iterator in C that pops the tokens and the members."""
    names = map(tokens.pop, ended, repeat(_GONE))
    return filter(None, map(members.pop, names, repeat(None)))
