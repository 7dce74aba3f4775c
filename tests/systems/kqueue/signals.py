# SPDX-License-Identifier: BSD-3-Clause
"""Python's signal handlers run before or after a system call of the stand-in, not in its middle.

They run between any two bytecodes of the main thread, so in those of the stand-in, too. There they
are put off until the call has ended; a call that sleeps ends by them, with EINTR. Python 3.11 and
newer runs them nowhere between the end of the call and what called it in C.
"""

import ctypes
import errno
import functools
import signal
import threading
from time import monotonic  # a test may stop the clock


class _Interrupted(BaseException):
    """Ends a sleep."""


class _Now:
    depth = 0  # the main thread's calls, one in the other
    sleeps = False
    put_off = []  # the numbers of the signals


# Like a signal that comes now. With PyDLL no other thread runs meanwhile.
_raise = ctypes.PyDLL(None)["raise"]


def _is_main():
    return threading.get_ident() == threading.main_thread().ident


def system_call(function, retries=None):
    """The function as a system call.

    ``retries(seconds, args...)``: with what it is made again after EINTR, so many seconds later.
    """

    def call(*args):
        if not _is_main():
            return function(*args)
        while True:
            answer = error = None
            began = monotonic()
            _Now.depth += 1
            try:
                answer = function(*args)
            except BaseException as why:
                error = why
            again = map(_raise, _Now.put_off if _Now.depth == 1 else ())
            if isinstance(error, InterruptedError) and retries:
                args = retries(monotonic() - began, *args)
                error = retries
            # From here on the interpreter does not look for signals until the loop goes on.
            _Now.depth -= 1
            done = [*again]
            if done:
                _Now.put_off = []
            if error is None:
                return answer
            if error is not retries:
                try:
                    raise error
                finally:
                    error = None  # else its traceback would keep all of these frames

    return call


def sleeping(function, *args):
    """The function's result; EINTR if a handler is due."""
    if not _is_main():
        return function(*args)
    if _Now.put_off:
        raise InterruptedError(errno.EINTR, "a handler is due")
    try:
        _Now.sleeps = True
        return function(*args)
    except _Interrupted:
        raise OSError(errno.EINTR, "a signal handler") from None
    finally:
        _Now.sleeps = False


class InC(functools.partial):
    """A function that does not pass for one of Python."""

    func = property()


def forked():
    _Now.depth, _Now.sleeps, _Now.put_off = 0, False, []


def _putting_off(handler):
    if not callable(handler) or getattr(handler, "__module__", "").startswith("asyncio"):
        return handler  # asyncio's does nothing: what the signal has written is what counts

    def put_off(number, frame):
        if not _Now.depth:
            return handler(number, frame)
        _Now.put_off.append(number)
        if _Now.sleeps:
            _Now.sleeps = False
            raise _Interrupted
        return None

    put_off.handler = handler
    return put_off


def install(patch):
    def own(handler):
        return getattr(handler, "handler", handler)

    def set_handler(number, handler):
        return own(real_signal(number, _putting_off(handler)))

    real_signal, real_getsignal = signal.signal, signal.getsignal
    patch(signal, "signal", set_handler)
    patch(signal, "getsignal", lambda number: own(real_getsignal(number)))
