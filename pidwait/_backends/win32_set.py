# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once: WaitForMultipleObjects, on groups of as many HANDLEs as it can take.

The thread that calls sleep() waits for the first group itself, and Ctrl-C interrupts it. Each
further group has its own thread, which hands over the processes that have exited, and ends when
its group is empty. Each group has an event, too: setting it wakes the thread, so that it can
wait for another list of HANDLEs.

If a HANDLE is closed while a thread waits for it, the behaviour is "undefined": see
WaitForMultipleObjects. So it is closed with its last reference, which the thread may have.
"""

import _thread
from errno import EAGAIN

from .._errors import log
from .._ffi import calls, win32
from .._handle import opened
from .win32 import Win32Handle, milliseconds
from .win32_members import Win32Members, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .contract import Member


class Win32Set(Win32Members):
    def __init__(self, shared: bool) -> None:
        super().__init__()
        self._error: "OSError | None" = None  # the error that has ended a thread
        # The first is sleep()'s; a closed set has none.
        self._groups = [_Group("WaitForMultipleObjects")]

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        failed = []
        changed = set()
        try:
            for member in members:
                try:
                    changed.add(self._add(member))
                except OSError as error:
                    failed.append((member, error))
        finally:
            for group in changed:
                group.wake()
        return failed

    def _add(self, member: "Member") -> "_Group":
        member.ticket = handle = Win32Handle(member.pid or 0)
        group = self._find_room()
        self._members[handle] = member, group
        group.handles[handle] = None
        return group

    def _find_room(self) -> "_Group":
        for group in self._groups:
            if len(group.handles) < group.size:
                break
        else:
            group = _Group("WaitForMultipleObjectsEx")
            self._groups.append(group)
        # Ctrl-C may have come before the thread was started. Two threads for a group do no harm.
        if group is not self._groups[0] and not group.has_thread:
            try:
                _thread.start_new_thread(self._watch, (group,))
            except RuntimeError as error:
                self._groups.remove(group)
                raise OSError(EAGAIN, str(error)) from error
            group.has_thread = True
        return group

    def _watch(self, group: "_Group") -> None:
        try:
            while group.is_open:
                self._hand_over(group, group.sleep(win32.INFINITE, lambda: not group.is_open))
        except OSError as error:
            self._error = error
            self._wake()

    # A separate function, so that no variable of a sleeping thread keeps a HANDLE open.
    def _hand_over(self, group: "_Group", exited: "Sequence[Win32Handle]") -> None:
        # Another thread may have discarded some since the look: take() drops those.
        for handle in exited:
            self._exited[handle] = None
            group.handles.pop(handle, None)
        if exited:
            self._wake()

    def _wake(self) -> None:
        """End a sleep()."""
        for first in self._groups[:1]:
            first.wake()

    def _end_wait(self, handle: "Win32Handle", group: "_Group") -> None:
        group.handles.pop(handle, None)
        if not group.handles and group in self._groups[1:]:
            group.is_open = False
            self._groups.remove(group)
        group.wake()

    def _drop(self, handle: "Win32Handle") -> None:
        for group in self._groups:
            group.handles.pop(handle, None)
        super()._drop(handle)

    def sleep(self, seconds: "float | None") -> None:
        if self._error is not None:
            raise self._error
        for handle in self._groups[0].sleep(
            milliseconds(seconds), lambda: self._is_ringing or self._exited or self._error
        ):
            self._exited[handle] = None

    def _look(self) -> "Sequence[Win32Handle]":
        return [handle for group in self._groups for handle in group.look()]

    def close(self) -> None:
        for group in self._groups:
            group.is_open = False
            group.handles.clear()
            group.wake()
        self._groups.clear()
        super().close()


class _Group:
    """HANDLEs, and an event that wakes the thread that sleeps on them."""

    def __init__(self, call: str) -> None:
        # MAXIMUM_WAIT_OBJECTS, 64, less the event. The interpreter's own function takes 62: one
        # place is for Ctrl-C, and older versions (3.7) refuse 63, though they say "at most 63".
        self.size = 61 if call == "WaitForMultipleObjects" else 63
        self.handles: "dict[Win32Handle, None]" = {}
        self.is_open = True
        self.has_thread = False
        self._wait = calls.get(call)
        self._look = calls.get("WaitForMultipleObjectsEx")
        self._set, self._reset = calls.get("SetEvent"), calls.get("ResetEvent")
        self._event = opened("CreateEventW", 0, True, False, 0)

    def wake(self) -> None:
        self._set(self._event.number)

    def sleep(self, milliseconds: int, is_awake: "Callable[[], object]") -> "Sequence[Win32Handle]":
        """Those that have exited. Empty at the time-out, if is_awake(), or after wake()."""
        self._reset(self._event.number)
        # A change from here on sets the event.
        try:
            if is_awake():
                milliseconds = 0
            return self._find(self._wait, milliseconds)
        except InterruptedError:
            return ()  # Python's signal handler has run, or runs now
        finally:
            # This may be the sleep of a signal handler, inside another sleep. That one must
            # wake, too: the event may have been set for it, or its list of HANDLEs is old.
            self.wake()

    def look(self) -> "Sequence[Win32Handle]":
        """Those that have exited."""
        return self._find(self._look, 0)

    def _find(self, wait: "Callable[..., int]", milliseconds: int) -> "Sequence[Win32Handle]":
        exited: "list[Win32Handle]" = []
        handles = list(self.handles)
        numbers = (*[handle.handle for handle in handles], self._event.number)
        index = 0
        try:
            while True:
                index += wait(numbers[index:], False, milliseconds)
                if index >= len(handles):  # the event, or WAIT_TIMEOUT
                    return exited
                exited.append(handles[index])
                index += 1
                milliseconds = 0
        except InterruptedError:
            raise
        except OSError as error:
            closed = [handle for handle in handles if look_at(handle) is None]
            if not closed:
                raise
            log("somebody else has closed %d HANDLEs: %s", len(closed), error)
            for handle in closed:
                self.handles.pop(handle, None)
                handle.close()
            return exited
