# SPDX-License-Identifier: BSD-3-Clause
"""In each interpreter of a suite on Wine: what Wine 8, or 3.13's launcher, fails to do.

Under load, CreateProcess fails with ERROR_INTERNAL_ERROR now and then, whatever was to be started.
CopyFile2, by which CPython 3.14 copies files, is not there: the process ends; shutil has others.
os.getppid() of CPython 3.12 calls PssCaptureSnapshot, which Wine lacks: the process ends.
"""

import _winapi
import os
import sys
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
vars(_winapi).pop("CopyFile2", None)


def _getppid():
    import ctypes

    facts = (ctypes.c_size_t * 6)()  # PROCESS_BASIC_INFORMATION; its last one is the parent's pid
    ctypes.windll.ntdll.NtQueryInformationProcess(
        ctypes.c_void_p(-1), 0, facts, ctypes.sizeof(facts), None
    )
    return facts[5]


if sys.version_info[:2] == (3, 12):
    os.getppid = _getppid
    # It takes its own path from the command line, where its own launcher puts it; 3.13's does not.
    sys._base_executable = os.path.join(sys.base_prefix, os.path.basename(sys.executable))
