# SPDX-License-Identifier: BSD-3-Clause
"""HANDLEs of Windows: closed once, wherever Ctrl-C interrupts."""

from functools import lru_cache

from ._errors import pass_over
from ._ffi import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Owned(map):  # type: ignore[type-arg]
    """A HANDLE, ``number``. close() closes it, at the latest when this object is freed.

    It is ``map(CloseHandle, [number])``: a second iteration finds it exhausted, so CloseHandle
    is called once. Another function can take its place, and further arguments.
    """

    __slots__ = ("number",)

    # It is written in C: Ctrl-C can interrupt a __del__ written in Python; then its exception
    # is printed and lost, and the HANDLE stays open. lru_cache makes a method of a type.
    __del__: "Any" = lru_cache(maxsize=0)(list)

    def __init__(self, close: "Any", numbers: "tuple[int]", *more: object) -> None:
        (self.number,) = numbers

    def close(self) -> None:
        try:
            list(self)
        except OSError as error:  # somebody else has closed it
            pass_over(error, "CloseHandle")


def opened(call: str, *arguments: object) -> Owned:
    """The HANDLE that a call of kernel32 opens, without a bytecode between it and its owner.

    If Ctrl-C comes during the call, its handler runs at the next bytecode; if the handler
    raised there, a plain number would be lost, and the HANDLE leaked.
    """
    # Looked up now: when the interpreter shuts down, it may not be found any more.
    close = calls.get("CloseHandle")
    return next(map(Owned, (close,), zip(map(calls.get(call), *zip(arguments)))))
