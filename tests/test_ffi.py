# SPDX-License-Identifier: BSD-3-Clause
"""The tables, and that both adapters make the same functions of them."""

import errno
import importlib
import os
import signal
import sys

import pytest

from . import pidwait
from .processes import exiting, not_on_windows, run_python

ffi = importlib.import_module(pidwait.__name__ + "._ffi")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")


@pytest.fixture(params=["ctypes", "cffi"])
def adapter(request):
    reason = ffi.missing(request.param)
    if reason:
        pytest.skip(str(reason))
    return ffi.load(request.param)


@pytest.mark.parametrize(
    "machine, abi, word, number",
    [
        ("x86_64", "x86_64-linux-gnu", 8, 434),
        ("x86_64", "i386-linux-gnu", 4, 434),
        ("x86_64", "", 4, 434),
        ("x86_64", "x86_64-linux-gnux32", 4, 0x40000000 + 434),
        ("aarch64", "aarch64-linux-gnu", 8, 434),
        ("aarch64", "arm-linux-gnueabihf", 4, 434),
        ("armv7l", "", 4, 434),
        ("riscv64", "riscv64-linux-gnu", 8, 434),
        ("ppc64le", "powerpc64le-linux-gnu", 8, 434),
        ("s390x", "s390x-linux-gnu", 8, 434),
        ("alpha", "alpha-linux-gnu", 8, 544),
        ("mips", "mips-linux-gnu", 4, 4434),
        ("mips64", "mipsel-linux-gnu", 4, 4434),
        ("mips64", "mips64el-linux-gnuabi64", 8, 5434),
        ("mips64", "mips64el-linux-gnuabin32", 4, 6434),
        ("mips64", "", 8, 5434),
    ],
)
def test_system_call_numbers(machine, abi, word, number):
    assert linux.SYSCALLS["pidfd_open"] + linux.offset(machine, abi, word) == number


@pytest.mark.parametrize("machine, word", [("ia64", 8), ("mips64", 4), ("vax", 4), ("", 8)])
def test_unknown_architecture_is_no_guess(machine, word):
    with pytest.raises(LookupError, match="not known"):
        linux.offset(machine, "", word)


def test_another_system_has_none(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LookupError, match="not Linux"):
        linux.number("pidfd_open")


@not_on_windows("system calls to call")
@pytest.mark.parametrize("name", ["pidfd_open", "pidfd_send_signal"])
def test_system_call(adapter, name, sleeper):
    opened = calls._syscall(adapter, "pidfd_open")(sleeper.pid)
    try:
        assert not os.get_inheritable(opened)
        send = calls._syscall(adapter, "pidfd_send_signal")
        assert send(opened, 0) == 0
        send(opened, signal.SIGTERM)
        assert sleeper.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError) as caught:
            send(opened, 0)
        assert caught.value.errno == errno.ESRCH
    finally:
        os.close(opened)


@not_on_windows("system calls to call")
def test_system_call_errors(adapter):
    with pytest.raises(OSError) as caught:
        calls._syscall(adapter, "pidfd_open")(-1)
    assert caught.value.errno == errno.EINVAL
    assert caught.value.strerror == os.strerror(errno.EINVAL)


@not_on_windows("waitid")
@pytest.mark.parametrize(
    "code, expected",
    [(0, (linux.CLD_EXITED, 0)), (7, (linux.CLD_EXITED, 7)), (-9, (linux.CLD_KILLED, 9))],
)
def test_waitid(adapter, start, code, expected):
    waitid = calls._waitid(adapter, "waitid")
    child = start(*exiting(code))
    for options in (linux.WEXITED | linux.WNOWAIT, linux.WEXITED):
        info = waitid(linux.P_PID, child.pid, options)
        assert (info.si_code, info.si_status) == expected
    with pytest.raises(ChildProcessError):
        waitid(linux.P_PID, child.pid, linux.WEXITED)


@not_on_windows("waitid")
def test_waitid_with_nothing_to_tell(adapter, sleeper):
    waitid = calls._waitid(adapter, "waitid")
    assert waitid(linux.P_PID, sleeper.pid, linux.WEXITED | linux.WNOHANG) is None


def test_function_that_is_not_there(adapter):
    with pytest.raises(ImportError, match="no such_function"):
        adapter.function("such_function", ("int", "int"))


@not_on_windows("system calls to call")
def test_prototypes_stay_our_own():
    """Another user of libc in this process sees nothing of ours."""
    ctypes = pytest.importorskip("ctypes")
    calls._syscall(ffi.load("ctypes"), "pidfd_open")
    theirs = ctypes.CDLL(None).syscall
    assert theirs.argtypes is None
    assert theirs.restype is ctypes.c_int


BROKEN = """if True:
    import sys

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[2].split(","):
                raise {error}("broken on purpose")

    sys.meta_path.insert(0, Broken())
    import os
    import {package} as pidwait
    for name in ("pidfd_open", "waitid"):  # the interpreter's own
        if hasattr(os, name) and sys.argv[1] == "-":
            delattr(os, name)
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    answer = pidwait.probe()
    print(pidwait.wait(pid, 30), answer["backend"], answer["calls"]["pidfd_open"]["via"])
    print(answer["backends"]["pidfd"]["reason"])
"""


@not_on_windows("fork")
@pytest.mark.parametrize("error", ["ImportError", "OSError", "MemoryError", "SystemError"])
def test_ctypes_that_does_not_load(error):
    """cffi takes over; without it, polling."""
    code = BROKEN.format(error=error, package=pidwait.__name__)
    done = run_python(code, "-", "ctypes,_ctypes")
    if ffi.missing("cffi") is None:
        assert done.stdout.split()[:3] == ["3", "pidfd", "cffi"], done
    done = run_python(code, "-", "ctypes,_ctypes,cffi,_cffi_backend")
    first, reason = done.stdout.splitlines()
    assert first.split() == ["3", "polling", "None"], done
    assert "broken on purpose" in reason and "cffi" in reason
