# SPDX-License-Identifier: BSD-3-Clause
"""HANDLEs of Windows: closed once, wherever Ctrl-C interrupts."""

from functools import lru_cache

from ._errors import no_such_process, pass_over, raise_of_handler
from ._ffi import calls, win32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


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


def received(cell: bytearray) -> Owned:
    """The owner of the HANDLE that a call will write into ``cell``; of none while that is 0."""
    # As in opened(), no bytecode runs between the call and the owner's knowing the number.
    from_bytes: "Any" = int.from_bytes
    numbers = filter(None, map(from_bytes, (cell,), ("little",)))
    return Owned({}.get, (0,), map(calls.get("CloseHandle"), numbers))


def open_process(rights: int, pid: int) -> Owned:
    try:
        return opened("OpenProcess", rights, False, pid)
    except OSError as error:
        raise_of_handler(error)
        if win32.error_number(error) == win32.ERROR_INVALID_PARAMETER:
            raise no_such_process(pid) from None
        fail(error, "OpenProcess", pid)


def fail(error: OSError, call: str, pid: int) -> "NoReturn":
    """Raise the error of a call, with the call's name and the pid."""
    text = "%s (%s, pid %d)" % (error.strerror, call, pid)
    raise OSError(error.errno, text, None, win32.error_number(error)) from None
