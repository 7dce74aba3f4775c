# SPDX-License-Identifier: BSD-3-Clause
"""HANDLEs of Windows: closed once, whatever Ctrl-C interrupts, and wherever."""

from functools import lru_cache

from ._errors import log
from ._ffi import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Owned(map):  # type: ignore[type-arg]
    """A HANDLE, ``number``, that close() closes, or else the end of this object.

    It is ``map(CloseHandle, [number])``, which calls CloseHandle once, however often it is
    run through.
    """

    __slots__ = ("number",)

    # C's own, as a __del__ of Python's can be interrupted: what Ctrl-C raises in one is
    # printed and lost, and the HANDLE stays open. An lru_cache without a cache makes a
    # method of a type.
    __del__: "Any" = lru_cache(maxsize=0)(list)

    def __init__(self, close: "Any", numbers: "tuple[int]") -> None:
        (self.number,) = numbers

    def close(self) -> None:
        try:
            list(self)
        except OSError as error:  # somebody else has closed it
            log("CloseHandle: %s", error)


def opened(call: str, *arguments: object) -> Owned:
    """What a call of kernel32 opens, without a bytecode between its return and the owner.

    Where Ctrl-C comes during the call, its handler runs at the next bytecode; if that raises,
    a mere number would be lost.
    """
    # Looked up now: at the interpreter's end there may be nothing to find it in.
    close = calls.get("CloseHandle")
    return next(map(Owned, (close,), zip(map(calls.get(call), *zip(arguments)))))
