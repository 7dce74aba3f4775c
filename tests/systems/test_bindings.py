# SPDX-License-Identifier: BSD-3-Clause
"""Both bindings, ctypes and cffi, make the same functions of the system's calls.

They import private modules of the package: its tables, and the two adapters.
"""

import ast
import errno
import importlib
import importlib.util
import os
import select
import struct
import sys
import time

import pytest

from .. import LINUX, pidwait
from .. import seam as calls
from ..processes import exiting, not_on_windows, run_python

if hasattr(pidwait, "__path__"):
    ffi = importlib.import_module(pidwait.__name__ + "._systems.bindings")
    linux = importlib.import_module(pidwait.__name__ + "._systems.linux.calls")
else:
    pytest.skip("a single file has no modules", allow_module_level=True)

on_linux = pytest.mark.skipif(not LINUX, reason="its calls are Linux's")


@pytest.fixture
def adapter(binding):
    return ffi.load(binding)


# System calls


@on_linux
def test_a_call_that_fails_raises_the_systems_error(binding):
    with pytest.raises(OSError) as caught:
        calls.get("pidfd_open")(-1)
    assert caught.value.errno == errno.EINVAL
    assert caught.value.strerror == os.strerror(errno.EINVAL)


@on_linux
def test_what_a_signal_handler_raises_while_arguments_are_converted(adapter, monkeypatch):
    """A StopIteration, too: it once ended the arguments early."""

    def handler(self, argument):
        raise StopIteration

    close = adapter.function("close", ("int", "int"))
    monkeypatch.setattr(type(adapter), "convert", handler)
    with pytest.raises(StopIteration):
        close(-1)


@on_linux
@pytest.mark.parametrize("code, told", [(0, (1, 0)), (7, (1, 7)), (-9, (2, 9))])
def test_waitid(binding, start, code, told):
    """CLD_EXITED is 1, CLD_KILLED 2."""
    waitid, child = calls.get("waitid"), start(*exiting(code))
    for options in (linux.WEXITED | linux.WNOWAIT, linux.WEXITED):
        info = waitid(linux.P_PID, child.pid, options)
        assert (info.si_code, info.si_status, info.si_pid) == told + (child.pid,)
    with pytest.raises(ChildProcessError):
        waitid(linux.P_PID, child.pid, linux.WEXITED)
    child.returncode = code


@on_linux
def test_waitid_has_nothing_to_tell(binding, sleeper):
    options = linux.WEXITED | linux.WNOHANG
    assert calls.get("waitid")(linux.P_PID, sleeper.pid, options) is None
    with pytest.raises(OSError):  # as for a pidfd that another thread has just closed
        calls.get("waitid")(linux.P_PIDFD, -1, options)


@on_linux
def test_a_timer(binding):
    fd = calls.get("timerfd_create")(time.CLOCK_MONOTONIC)
    settime = calls.get("timerfd_settime")
    try:
        assert not os.get_inheritable(fd)
        for initial in 50.5, 3e7 - 2**-20, 7:
            settime(fd, initial=initial)
            first, interval = timer(fd)
            assert initial - 10 < sum(first) <= initial and interval == (0, 0)
        settime(fd, initial=1.5e-7)
        with open(fd, "rb", closefd=False) as file:
            assert file.read(8) == struct.pack("=Q", 1)  # the timer has gone off once
        settime(fd, initial=50)
        settime(fd, initial=0)
        assert timer(fd) == ((0, 0), (0, 0))
    finally:
        os.close(fd)


def timer(fd):
    """The time left and the interval, each as seconds and a fraction of a second."""
    with open("/proc/self/fdinfo/%d" % fd) as file:
        info = dict(line.split(": ", 1) for line in file if ": (" in line)
    pairs = (ast.literal_eval(info[name]) for name in ("it_value", "it_interval"))
    return tuple((seconds, rest / 1e9) for seconds, rest in pairs)


@not_on_windows("these functions in kernel32")
def test_a_prototype_converts_arguments_and_result(adapter):
    absolute = adapter.function("labs", ("long", "long"), None)
    assert absolute(1 - sys.maxsize) == sys.maxsize - 1
    number = adapter.function("strtol", ("long", "char *", "void *", "int"), None)
    assert number(b"-%x" % sys.maxsize, adapter.null, 16) == -sys.maxsize


@not_on_windows("read(2)")
def test_a_pointer_is_to_memory_of_ours(adapter):
    buffer = bytearray(8)
    copy = adapter.function("memcpy", ("uintptr_t", "void *", "void *", "uintptr_t"), None)
    copy(adapter.pointer(buffer), adapter.pointer(bytearray(b"abcdefgh")), 5)
    assert buffer == b"abcde\0\0\0"
    cell = adapter.cell()
    copy(cell, adapter.pointer(bytearray(struct.pack("@i", -7))), 4)
    assert cell[0] == -7


@pytest.mark.windows
def test_a_function_that_is_not_there_is_no_import(binding):
    with pytest.raises(LookupError, match="no such_function"):
        ffi.load(binding).function("such_function", ("int", "int"))


# Which binding


@pytest.mark.windows
def test_the_faster_binding_is_chosen(monkeypatch):
    """PyPy's ctypes is written in Python."""
    order = ["cffi", "ctypes"] if sys.implementation.name == "pypy" else ["ctypes", "cffi"]
    bindings = pidwait.probe()["bindings"]
    works = [name for name in order if bindings[name]["available"]]
    if not works:
        pytest.skip("there is no binding")
    monkeypatch.delenv("PIDWAIT_FFI", raising=False)
    calls.forget()
    via = {row["via"] for row in pidwait.probe()["calls"].values()}
    assert works[0] in via and not via & set(works[1:])


BROKEN = """if True:
    import sys

    class Broken:
        names = []

        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[1].split(","):
                self.names.append(name)
                raise {error}("broken on purpose")

    sys.meta_path.insert(0, Broken())
    import os
    import {package} as pidwait
    for name in ("pidfd_open", "waitid"):  # the interpreter's own
        if hasattr(os, name):
            delattr(os, name)
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    answer = pidwait.probe()
    print(pidwait.wait(pid, 30), answer["backend"], answer["calls"]["pidfd_open"]["via"])
    tried = len(Broken.names)
    with pidwait.Process(pid) as process:
        assert pidwait.wait(process, 30, reap=True) == 3
    assert pidwait.probe() == answer and len(Broken.names) == tried > 0  # each is tried once
    print(answer["bindings"]["ctypes"]["reason"])
    print(answer["backends"]["pidfd"]["reason"])
"""


@on_linux
@pytest.mark.parametrize("error", ["ImportError", "OSError", "MemoryError", "SystemError"])
@pytest.mark.parametrize("lacks", ["ctypes", "both"])
def test_a_binding_that_does_not_load_gives_way(error, lacks):
    """To cffi; without both, processes are polled, and the probe tells why."""
    answer = pidwait.probe()
    broken = "ctypes,_ctypes" + ",cffi,_cffi_backend" * (lacks == "both")
    done = run_python(BROKEN.format(error=error, package=pidwait.__name__), broken)
    first, of_ctypes, of_pidfd = done.stdout.splitlines()
    code, backend, via = first.split()
    assert code == "3" and "broken on purpose" in of_ctypes, done
    if lacks == "both" or not answer["bindings"]["cffi"]["available"]:
        assert (via, backend) == ("None", "polling"), done
        assert "ctypes" in of_pidfd and "cffi" in of_pidfd
    elif answer["backends"]["pidfd"]["available"]:
        assert (backend, via) == ("pidfd", "cffi"), done


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="its calls go through a binding")
def test_a_binding_that_is_not_needed_is_not_loaded():
    """Where the interpreter has the calls itself."""
    code = """if True:
        import os, sys
        import {package} as pidwait
        pid = os.fork() or os._exit(3)
        assert pidwait.wait(pid, reap=True) == 3
        print("_ctypes" in sys.modules or "_cffi_backend" in sys.modules)
    """
    done = run_python(code.format(package=pidwait.__name__))
    assert done.stdout == "False\n", done


@on_linux
def test_a_call_that_somebody_has_taken_away(monkeypatch):
    monkeypatch.delattr("fcntl.ioctl")
    calls.forget()
    with pytest.raises(OSError, match="the module fcntl has no ioctl") as caught:
        calls.get("ioctl")
    assert caught.value.errno == errno.ENOSYS
    monkeypatch.undo()
    calls.forget()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll")
def test_a_type_whose_name_somebody_has_taken_away(monkeypatch):
    """As gevent deletes select.epoll."""
    monkeypatch.delattr(select, "epoll")
    calls.forget()
    with calls.get("epoll")() as epoll:
        assert epoll.poll(0) == []
    calls.forget()


# Tables


@pytest.mark.parametrize(
    "machine, abi",
    [
        ("x86_64", "x86_64-linux-gnu"),
        ("x86_64", "i386-linux-gnu"),
        ("aarch64", "arm-linux-gnueabihf"),
        ("armv7l", ""),
        ("riscv64", "riscv64-linux-gnu"),
        ("ppc64le", "powerpc64le-linux-gnu"),
        ("s390x", "s390x-linux-gnu"),
    ],
)
def test_system_call_numbers(machine, abi):
    assert linux.number_of("pidfd_open", machine, abi) == 434
    assert linux.number_of("pidfd_send_signal", machine, abi) == 424


@pytest.mark.parametrize(
    "machine, abi",
    [("alpha", ""), ("ia64", ""), ("mips", ""), ("mips64", "mips64el-linux-gnuabi64")]
    + [("x86_64", "x86_64-linux-gnux32")],
)
def test_where_the_numbers_are_others_there_is_no_call(machine, abi):
    with pytest.raises(LookupError, match="not known"):
        linux.number_of("pidfd_open", machine, abi)


@on_linux
def test_numbers_are_the_interpreters():
    names = "P_PID P_PIDFD WNOHANG WEXITED WNOWAIT".split()
    found = {name: getattr(os, name) for name in names if hasattr(os, name)}
    assert found == {name: getattr(linux, name) for name in found}


@on_linux
@pytest.mark.parametrize(
    "maxsize, machine, layout",
    [
        # Offsets of code, pid, status: asm-generic/siginfo.h
        (2**63 - 1, "x86_64", (8, 16, 24)),
        (2**31 - 1, "armv7l", (8, 12, 20)),
        (2**31 - 1, "x86_64", (8, 12, 20)),  # on a 64-bit kernel
    ],
)
def test_the_layout_of_siginfo(monkeypatch, maxsize, machine, layout):
    monkeypatch.setattr(sys, "maxsize", maxsize)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", machine)))
    spec = linux.__spec__
    there = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(there)
    assert layout == there.SIGINFO
    assert maxsize.bit_length() + 1 == 8 * there.WORD
