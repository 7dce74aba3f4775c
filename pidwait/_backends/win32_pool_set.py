# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once, for an event loop: RegisterWaitForSingleObject.

The system's own threads wait, each for many HANDLEs, and no thread is Python's. At the exit of
a process such a thread calls _tell(), which notes the exit and wakes the loop.

The system knows a wait by a number, and never a Python object by its address: _tell() may be
called a moment after the wait has been unregistered, and then finds nothing under the number.
"""

import atexit
from errno import ESHUTDOWN
from itertools import count
from weakref import ref

from .._errors import pass_over, raise_of_handler
from .._ffi import calls, win32
from .._handle import Owned
from .win32 import Win32Handle
from .win32_members import Win32Members, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .contract import Member

_NO_WAIT = bytes(win32.WORD)  # UnregisterWaitEx refuses it

_numbers = count(1)
# By its number: the memory that receives the HANDLE of the wait. Whoever takes it out of here
# unregisters the wait, so that this happens once.
_waits: "dict[int, bytes | bytearray]" = {}
# By its number: the HANDLE of the process, and the set. As long as the HANDLE is in here it is
# open: the garbage collector may finalize the objects of a cycle in any order.
_told: "dict[int, tuple[Win32Handle, ref[Win32PoolSet]]]" = {}
_ended: "list[bool]" = []


def _tell(number: int, is_timeout: int) -> None:
    """A process has exited. This is called in a thread of the system's."""
    found = _told.get(number)
    if found is not None:
        handle, get_set = found
        waiting = get_set()
        if waiting is not None:
            waiting.tell(handle)


@atexit.register
def _end() -> None:
    """Have the system call nothing of an interpreter that is gone."""
    _ended.append(True)
    for number in list(_waits):
        wait = int.from_bytes(_waits.pop(number, _NO_WAIT), "little")
        # Return when _tell() has, too.
        calls.get("UnregisterWaitEx")(wait, win32.INVALID_HANDLE_VALUE)


class Win32PoolSet(Win32Members):
    def __init__(self, wake: "Callable[[], object]") -> None:
        super().__init__()
        self._call = wake
        self._register = calls.get("RegisterWaitForSingleObject")
        self._unregister = calls.get("UnregisterWaitEx")

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        failed = []
        for member in members:
            try:
                self._add(member)
            except OSError as error:
                raise_of_handler(error)
                failed.append((member, error))
        return failed

    def _add(self, member: "Member") -> None:
        if _ended:
            raise OSError(ESHUTDOWN, "the interpreter is shutting down")
        member.ticket = handle = Win32Handle(member.pid or 0)
        number, wait = next(_numbers), bytearray(win32.WORD)
        self._members[handle] = member, self._own(number)
        _told[number] = handle, ref(self)
        _waits[number] = wait
        try:
            # _tell() may be called before this returns.
            self._register(wait, handle.handle, _tell, number)
        except BaseException:
            self._forget(handle)
            handle.close()  # the traceback refers to it
            raise

    def _own(self, number: int) -> Owned:
        """What unregisters the wait with that number, and then forgets it."""
        # Without a bytecode, and never blocking: the garbage collector may do this in a thread
        # that runs _tell(), and a wait for that would be for itself.
        from_bytes: "Any" = int.from_bytes
        wait = map(from_bytes, map(_waits.pop, (number,), (_NO_WAIT,)), ("little",))
        return Owned(_told.pop, (number,), map(self._unregister, wait, (0,)))

    def _end_wait(self, handle: "Win32Handle", owned: Owned) -> None:
        owned.close()

    def tell(self, handle: "Win32Handle") -> None:
        """Note an exit, in any thread."""
        self._exited[handle] = None
        if handle in self._members:
            self._wake()
        else:  # it was discarded meanwhile, or the set was closed
            self._exited.pop(handle, None)

    def _wake(self) -> None:
        try:
            self._call()
        # A closed loop raises RuntimeError. One that another thread is closing raises what its
        # socket does: OSError, and AttributeError in Python 3.7.
        except Exception as error:
            pass_over(error, "an event loop can't be woken")

    def _look(self) -> "Sequence[Win32Handle]":
        return [handle for handle in list(self._members) if look_at(handle)]

    def sleep(self, seconds: "float | None") -> None:
        """It ends at once, as it may: an event loop sleeps elsewhere."""

    def close(self) -> None:
        for _, owned in list(self._members.values()):
            owned.close()
        super().close()
