# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once: WaitForMultipleObjects, in groups of as many handles as it takes.

Who calls poll() waits for the first group itself, with Ctrl-C; each further one has a
thread, which hands over what has exited, and ends once its group is empty. Nobody who
sleeps can be told of another handle, so that each sleeper has an event among them.
"""

import _thread
from errno import EAGAIN
from io import UnsupportedOperation
from time import sleep

from .._deadline import NOW
from .._errors import log
from .._exitcodes import RUNNING
from .._ffi import calls, win32
from .._polling import LONGEST
from .win32 import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn, Sequence

    from .._owners import Owner

    Report = Callable[[tuple[Owner, int | None]], object]  # novm


class _Event:
    """It ends one wait, and is reset then."""

    __slots__ = ("_close", "handle")

    def __init__(self) -> None:
        self.handle = 0
        self._close = calls.get("CloseHandle")  # not to be looked up at the interpreter's end
        self.handle = calls.get("CreateEventW")(0, False, False, 0)

    def set(self) -> None:
        calls.get("SetEvent")(self.handle)

    def __del__(self) -> None:
        if self.handle:
            self._close(self.handle)


class _Group:
    """Handles, and who sleeps on them.

    A handle that is taken out is closed when the last one who sleeps on it has woken up,
    and forgets it: closing it before is "undefined", WaitForMultipleObjects.
    """

    def __init__(self, call: str) -> None:
        self._wait = calls.get(call)
        # MAXIMUM_WAIT_OBJECTS, less the event. The interpreter's own takes 62 handles:
        # one place is for Ctrl-C, and older ones (3.7) refuse 63, though they say "at most 63".
        self.size = 61 if call == "WaitForMultipleObjects" else 63
        self.owners: "dict[Handle, Owner]" = {}
        self._sleepers: "list[_Event]" = []
        self._idle = [_Event()]
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        self.owners.clear()
        self._idle.clear()
        self.wake()

    def wake(self) -> None:
        for event in list(self._sleepers):
            event.set()

    def sleep(self, milliseconds: int, is_awake: "Callable[[], object]") -> "list[Handle]":
        """Who has exited; none if the time is up, is_awake(), or wake() was called."""
        exited: "list[Handle]" = []
        try:
            event = self._idle.pop()
        except IndexError:  # others sleep, too
            event = _Event()
        self._sleepers.append(event)
        # Who changes anything from now on sets the event.
        handles = list(self.owners)
        try:
            if is_awake():
                milliseconds = 0
            numbers = (*[handle.handle for handle in handles], event.handle)
            number = 0
            while True:
                number += self._wait(numbers[number:], False, milliseconds)
                if number >= len(handles):  # the event, or WAIT_TIMEOUT
                    break
                exited.append(handles[number])
                number += 1
                milliseconds = 0
        except InterruptedError:
            pass  # Python's handler has run, or runs now
        except OSError as error:
            if not self._drop_closed(handles):
                log("%d handles are waited for again: %s", len(handles), error)
                sleep(LONGEST)
        finally:
            self._sleepers.remove(event)
            if self._is_open:
                self._idle.append(event)
        return exited

    def _drop_closed(self, handles: "Sequence[Handle]") -> int:
        """Forget those that somebody else has closed; return how many."""
        count = 0
        for handle in handles:
            try:
                handle.exited()
            except OSError as error:
                log("pid %d, a handle that is not ours any more: %s", handle.pid, error)
                handle.handle = 0
                self.owners.pop(handle, None)
                count += 1
        return count


class Many:
    def __init__(self) -> None:
        self._ringing = False
        # handle: whose it is; handed over by a thread.
        self._exited: "dict[Handle, Owner]" = {}
        self._first = _Group("WaitForMultipleObjects")
        self._groups = [self._first]

    def forked(self) -> "Many":
        return self

    def add(self, owners: "Sequence[Owner]") -> "list[tuple[Owner, OSError]]":
        failed = []
        changed = set()
        try:
            for owner in owners:
                try:
                    owner.ticket = handle, group = Handle(owner.pid or 0), self._find_room()
                    changed.add(group)
                    group.owners[handle] = owner
                except OSError as error:
                    failed.append((owner, error))
        finally:
            for group in changed:
                group.wake()
        return failed

    def _find_room(self) -> "_Group":
        for group in self._groups:
            if len(group.owners) < group.size:
                return group
        group = _Group("WaitForMultipleObjectsEx")
        self._groups.append(group)
        try:
            _thread.start_new_thread(self._watch, (group,))
        except RuntimeError as error:
            self._groups.remove(group)
            raise OSError(EAGAIN, str(error)) from error
        return group

    def _watch(self, group: "_Group") -> None:
        while group in self._groups:
            self._hand_over(group, group.sleep(win32.INFINITE, lambda: group not in self._groups))

    def _hand_over(self, group: "_Group", exited: "Sequence[Handle]") -> None:
        for handle in exited:
            owner = group.owners.get(handle)
            if owner is not None:  # else it has been discarded
                self._exited[handle] = owner
                group.owners.pop(handle, None)
        if exited:
            self._first.wake()

    def discard(self, owner: "Owner") -> None:
        if owner.ticket is not None:
            group = owner.ticket[1]
            self._forget(owner)
            group.wake()

    def poll(self, milliseconds: "float | None") -> "list[Owner | None]":
        most = win32.INFINITE
        if milliseconds is not None:
            most = min(-int(-milliseconds // 1), most - 1)
        exited = self._first.sleep(most, lambda: self._ringing or self._exited)
        return [self._first.owners.get(handle) for handle in exited]

    def take(self, events: "list[Owner | None]", report: "Report") -> None:
        events.extend(self._exited.values())
        for owner in events:
            # Another thread may have taken or discarded it since.
            if owner is None or owner.ticket is None:
                continue
            code = owner.ticket[0].wait(NOW, False)
            if code is not RUNNING:
                report((owner, code))
                self._forget(owner)

    def _forget(self, owner: "Owner") -> None:
        (handle, group), owner.ticket = owner.ticket, None
        group.owners.pop(handle, None)
        self._exited.pop(handle, None)
        if not group.owners and group is not self._first and group in self._groups:
            self._groups.remove(group)
            group.wake()

    def recover(self) -> None:
        """Nothing gets lost: a process that has exited is signalled for good."""

    def ring(self, on: bool) -> None:
        self._ringing = on
        if on:
            self._first.wake()

    def fileno(self) -> "NoReturn":
        raise UnsupportedOperation("on Windows a set has no fileno")

    def close(self) -> None:
        groups, self._groups = self._groups, []
        for group in groups:
            for owner in list(group.owners.values()):
                owner.ticket = None
            group.close()
        self._exited.clear()
