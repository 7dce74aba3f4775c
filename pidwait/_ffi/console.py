# SPDX-License-Identifier: BSD-3-Clause
"""Waiting on Windows so that Ctrl-C interrupts it, without the interpreter's help."""

import time
from errno import EINTR

from . import kernel32, win32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence


class WaitForMultipleObjects:
    """A substitute for _winapi's, where that is missing. Ctrl-C raises InterruptedError.

    Windows runs console handlers in a thread that it starts for them: see HandlerRoutine in
    its documentation. Python runs signal handlers in the main thread. While the main thread
    waits, our console handler is installed; it sets an event that is waited for, too.
    """

    def __init__(self, binding: "Any", name: str) -> None:
        import threading

        self._threading = threading
        self._wait = kernel32.wait_without_ctrl_c(binding, name + "Ex")
        self._set_event = kernel32.bind(binding, "SetEvent")
        self._set_handler = kernel32.bind(binding, "SetConsoleCtrlHandler")
        # It resets itself when it ends a wait. There is one main thread, so one is enough.
        self._event = kernel32.bind(binding, "CreateEventW")(0, False, False, 0)
        self._handler = binding.callback(win32.HANDLER_ROUTINE, self._handle)

    def _handle(self, event: int) -> int:
        if event == win32.CTRL_C_EVENT:
            self._set_event(self._event)
        return 0  # Windows goes on with the other handlers

    def __call__(self, handles: "Sequence[int]", wait_all: bool, milliseconds: int) -> int:
        threading = self._threading
        if wait_all or threading.current_thread() is not threading.main_thread():
            return self._wait(handles, wait_all, milliseconds)
        self._set_handler(self._handler, True)
        try:
            answer = self._wait((*handles, self._event), wait_all, milliseconds)
        finally:
            self._set_handler(self._handler, False)
        if answer == win32.WAIT_OBJECT_0 + len(handles):
            # The handler that was set last is called first: Python's runs after ours, and
            # ends this sleep.
            time.sleep(0.05)
            raise InterruptedError(EINTR, "Ctrl-C")
        return answer
