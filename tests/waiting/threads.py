# SPDX-License-Identifier: BSD-3-Clause
"""Threads of which a test knows that they sleep, and what they returned."""

import sys
import threading
import time


class Thread(threading.Thread):
    """Runs a function at once; result() returns, or raises, what it did."""

    def __init__(self, function, *args, **kwargs):
        super().__init__(daemon=True)
        self._call = lambda: function(*args, **kwargs)
        self._answer = self._error = None
        self.start()

    def run(self):
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error

    def result(self):
        self.join()
        if self._error is not None:
            raise self._error
        return self._answer

    def asleep(self):
        """Wait until it is where it sleeps: its innermost frame does not move any more."""
        before, times = None, 0
        while times < 5 and self.is_alive():
            frame = sys._current_frames().get(self.ident)
            now = frame and (frame.f_code, frame.f_lasti)
            started = now and frame.f_code.co_filename not in (__file__, threading.__file__)
            times = times + 1 if started and now == before else 0
            before = now
            time.sleep(0.001)
        return self
