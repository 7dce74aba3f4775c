# SPDX-License-Identifier: BSD-3-Clause
"""In each interpreter of a suite on Wine: start again what Wine fails to start.

Under load, CreateProcess of Wine 8 fails with ERROR_INTERNAL_ERROR now and then, whatever was
to be started.
"""

import _winapi
import time

ERROR_INTERNAL_ERROR = 1359

_create = _winapi.CreateProcess


def _patient(*args):
    left = 4
    while True:
        try:
            return _create(*args)
        except OSError as error:
            if error.winerror != ERROR_INTERNAL_ERROR or left == 0:
                raise
        left -= 1
        time.sleep(0.1)


_winapi.CreateProcess = _patient
