# SPDX-License-Identifier: BSD-3-Clause
"""For the tests on Windows: HANDLEs, rights, consoles."""

import ctypes
import os
import subprocess
import sys

from ..processes import INTERPRETER

CREATE_SUSPENDED = 0x4
CREATE_NEW_CONSOLE = 0x10
ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER = 5, 87
WAIT_TIMEOUT = 258


def open_handles(kinds=("Process", "Token", "Event", "IoCompletion")):
    """The open HANDLEs of these kinds.

    Python's locks are handles, too. Each number is tried, as Wine's GetProcessHandleCount says 0.
    """
    kernel32, found, last, handle = ctypes.WinDLL("kernel32"), [], 0, 0
    while handle - last < 4 * 256:
        handle += 4
        if kernel32.GetHandleInformation(ctypes.c_void_p(handle), ctypes.byref(ctypes.c_uint())):
            last = handle
            if _kind_of(handle) in kinds:
                found.append(handle)
    return found


def _kind_of(handle):
    buffer = (ctypes.c_size_t * 64)()  # a UNICODE_STRING, and more
    ctypes.WinDLL("ntdll").NtQueryObject(
        ctypes.c_void_p(handle), 2, buffer, ctypes.sizeof(buffer), None
    )
    return ctypes.wstring_at(buffer[1], (buffer[0] & 0xFFFF) // 2)


def leave_only_synchronize(child):
    """Leave everybody only the right to wait for the child."""
    advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    convert = advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW
    convert.argtypes = [ctypes.c_wchar_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]
    change = advapi32.SetKernelObjectSecurity
    change.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p]
    kernel32.LocalFree.argtypes = [ctypes.c_void_p]
    security = ctypes.c_void_p()
    if not convert("D:P(A;;0x100000;;;WD)", 1, ctypes.byref(security), None):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        if not change(int(child._handle), 4, security):  # DACL_SECURITY_INFORMATION
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        kernel32.LocalFree(security)


def refusing(number):
    """A function that fails as the system does."""

    def refuse(*args):
        raise OSError(0, "refused on purpose", None, number)

    return refuse


def end(child, code):
    import _winapi

    _winapi.TerminateProcess(int(child._handle), code)


def in_a_console(code, tmp_path, *args):
    """Run code in a console of its own, as Ctrl-C goes to all processes of one; its lines."""
    script, answer = tmp_path / "script.py", tmp_path / "answer"
    script.write_text(code)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = (INTERPRETER, str(script), str(answer)) + args
    with tmp_path.joinpath("errors").open("w+") as errors:
        status = subprocess.call(command, env=env, stderr=errors, creationflags=CREATE_NEW_CONSOLE)
        errors.seek(0)
        assert (status, errors.read()) == (0, "")
    return answer.read_text().splitlines()


# For in_a_console(): what interrupts waits.
PRESS_CTRL_C = """if True:
    import ctypes, signal, subprocess, sys, threading, time
    import {package} as pidwait

    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.SetConsoleCtrlHandler(None, False)
    NO_WINDOW, SUSPENDED = 0x08000000, 0x4  # the first: another console

    def press():
        kernel32.GenerateConsoleCtrlEvent(0, 0)

    def is_interrupted(wait, *args):
        timer = threading.Timer(0.2, press)
        timer.start()
        try:
            wait(*args)
        except KeyboardInterrupt:
            return True
        finally:
            timer.join()
        return False
"""
