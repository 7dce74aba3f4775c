# SPDX-License-Identifier: BSD-3-Clause
"""The tables of calls, and that both adapters make the same functions from them."""

import ast
import errno
import importlib
import os
import signal
import struct
import sys
import time
from types import SimpleNamespace

import pytest

from . import pidwait
from .copies import SOURCES
from .processes import WINDOWS, exiting, not_on_windows, run_python

ffi = importlib.import_module(pidwait.__name__ + "._ffi")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")

CLD_KILLED = 2


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


@not_on_windows("numbers to compare them with")
def test_numbers_are_the_interpreters():
    names = "P_ALL P_PID P_PIDFD WNOHANG WEXITED WNOWAIT CLD_EXITED"
    found = {name: getattr(os, name) for name in names.split() if hasattr(os, name)}
    assert found == {name: getattr(linux, name) for name in found}
    assert linux.CLOCK_MONOTONIC == time.CLOCK_MONOTONIC


@not_on_windows("uname")
@pytest.mark.parametrize(
    "maxsize, machine, layout",
    [
        # offsets of code, pid, status: asm-generic/siginfo.h, and MIPS' own
        (2**63 - 1, "x86_64", (8, 16, 24)),
        (2**63 - 1, "mips64", (4, 16, 24)),
        (2**31 - 1, "armv7l", (8, 12, 20)),
        (2**31 - 1, "x86_64", (8, 12, 20)),  # on a 64-bit kernel
        (2**31 - 1, "mips", (4, 12, 20)),
    ],
)
def test_layout_of_siginfo(monkeypatch, maxsize, machine, layout):
    monkeypatch.setattr(sys, "maxsize", maxsize)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    there = {}
    exec(SOURCES["_ffi/linux.py"], there)
    assert layout == tuple(there["SIGINFO_" + name] for name in ("CODE", "PID", "STATUS"))
    assert maxsize.bit_length() == there["WORD"] * 8 - 1


def test_system_call_numbers_are_for_linux_alone(monkeypatch):
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


@not_on_windows("system calls to call")
def test_arguments_that_are_not_given_are_0(monkeypatch):
    """Flags above all: pidfd_send_signal(2) refuses those it does not know, and obeys the rest."""
    monkeypatch.setattr(linux, "number", lambda name: 434)
    binding = SimpleNamespace(function=lambda name, prototype: lambda *arguments: arguments)
    call = calls._syscall(binding, "pidfd_open")
    assert call(5) == (434, 5, 0, 0, 0)
    assert call(5, 6, 7, 8) == (434, 5, 6, 7, 8)


def test_prototype_converts_arguments_and_result():
    if WINDOWS:
        return  # the library there, kernel32, has no such functions
    for adapter in (ffi.load(name) for name in ffi.NAMES if ffi.missing(name) is None):
        absolute = adapter.function("labs", ("long", "long"), None)
        assert absolute(1 - sys.maxsize) == sys.maxsize - 1
        number = adapter.function("strtol", ("long", "char *", "void *", "int"), None)
        assert number(b"-%x" % sys.maxsize, adapter.null, 16) == -sys.maxsize


@not_on_windows("waitid")
@pytest.mark.parametrize(
    "code, expected",
    [(0, (linux.CLD_EXITED, 0)), (7, (linux.CLD_EXITED, 7)), (-9, (CLD_KILLED, 9))],
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


@not_on_windows("timers")
def test_timer(adapter):
    create = calls._timerfd_create(adapter, "timerfd_create")
    settime = calls._timerfd_settime(adapter, "timerfd_settime")
    fd = create(linux.CLOCK_MONOTONIC)
    try:
        assert not os.get_inheritable(fd)
        settime(fd, initial=50.5)
        first, interval = timer(fd)
        assert 50 < sum(first) <= 50.5 and interval == (0, 0)
        settime(fd, initial=1.5e-7)
        with open(fd, "rb", closefd=False) as file:
            assert file.read(8) == struct.pack("=Q", 1)  # the timer has gone off once
        settime(fd, initial=50)
        settime(fd, initial=0)
        assert timer(fd) == ((0, 0), (0, 0))
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "initial, expected", [(2.5, (2, 500000000)), (3 - 1e-9 / 8, (2, 999999999)), (7, (7, 0))]
)
def test_timer_is_exact_to_a_nanosecond(initial, expected):
    called = []
    binding = SimpleNamespace(
        function=lambda name, prototype: lambda *arguments: called.append(arguments),
        pointer=bytes,
        null=None,
    )
    calls._timerfd_settime(binding, "timerfd_settime")(5, initial=initial)
    ((fd, flags, new, old),) = called
    assert (fd, flags, old) == (5, 0, None)
    assert linux.ITIMERSPEC.unpack(new) == (0, 0, *expected)


def timer(fd):
    """The time left and the interval, each as seconds and a fraction of a second."""
    with open("/proc/self/fdinfo/%d" % fd) as file:
        info = dict(line.split(": ", 1) for line in file if ": (" in line)
    pairs = (ast.literal_eval(info[name]) for name in ("it_value", "it_interval"))
    return tuple((seconds, rest / 1e9) for seconds, rest in pairs)


def test_strings_end_with_null(adapter):
    strings = memory = adapter.strings([b"a", b"b"])
    if adapter.name == "cffi":  # a void * of cffi can't be indexed
        strings = adapter._ffi.cast("char **", memory)
    assert [bool(strings[number]) for number in range(3)] == [True, True, False]


def test_the_faster_binding_is_chosen(monkeypatch):
    """PyPy's ctypes is written in Python."""
    order = ["cffi", "ctypes"] if sys.implementation.name == "pypy" else ["ctypes", "cffi"]
    monkeypatch.setattr(ffi, "forced", lambda: None)
    asked = []

    def load(name):
        asked.append(name)
        raise ImportError

    monkeypatch.setattr(ffi, "load", load)
    with pytest.raises(ImportError):
        ffi.adapter()
    assert asked == order


@not_on_windows("ioctl, nor epoll")
@pytest.mark.parametrize("name", ["ioctl", "epoll"])
def test_call_that_somebody_has_taken_away(monkeypatch, name):
    """As gevent deletes select.epoll: no other module has it."""
    module = importlib.import_module(calls._CALLS[name][0])
    monkeypatch.delattr(module, name)
    monkeypatch.delitem(calls._resolved, name, raising=False)
    with pytest.raises(OSError, match="the module %s has no %s" % (module.__name__, name)) as error:
        calls.get(name)
    assert error.value.errno == errno.ENOSYS


def test_integers_of_a_structure():
    buffer = bytearray(struct.pack("=bhiq", -1, -2, -(2**30), -(2**40)))
    for offset, size, value in ((0, 1, -1), (1, 2, -2), (3, 4, -(2**30)), (7, 8, -(2**40))):
        assert calls.integer(buffer, offset, size) == value
    assert calls.integer(buffer, 3) == -(2**30)


def test_function_that_is_not_there(adapter):
    with pytest.raises(ImportError, match="no such_function"):
        adapter.function("such_function", ("int", "int"))


@not_on_windows("system calls to call")
def test_prototypes_stay_our_own():
    """Other users of libc in this process don't get our prototypes."""
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
    """cffi takes over; without cffi, the proc connector, or else we poll."""
    connects = pidwait.probe()["backends"]["connector"]["available"]
    code = BROKEN.format(error=error, package=pidwait.__name__)
    done = run_python(code, "-", "ctypes,_ctypes")
    if ffi.missing("cffi") is None:
        assert done.stdout.split()[:3] == ["3", "pidfd", "cffi"], done
    done = run_python(code, "-", "ctypes,_ctypes,cffi,_cffi_backend")
    first, reason = done.stdout.splitlines()
    assert first.split() == ["3", "connector" if connects else "polling", "None"], done
    assert "broken on purpose" in reason and "cffi" in reason


@not_on_windows("lack of ctypes")
def test_missing_binding_is_looked_for_once():
    code = """if True:
        import importlib, sys
        import {package} as pidwait
        ffi = importlib.import_module("{package}._ffi")

        class Finder:
            names = []

            @classmethod
            def find_spec(cls, name, path=None, target=None):
                cls.names.append(name)

        sys.modules["_ctypes"] = sys.modules["_cffi_backend"] = None
        sys.meta_path.insert(0, Finder)
        for _ in range(2):
            for name in "ctypes", "cffi":
                print(ffi.missing(name))
            print("{package}._ffi._ctypes" in Finder.names)
            del Finder.names[:]
    """
    done = run_python(code.format(package=pidwait.__name__))
    *reasons, looked = done.stdout.splitlines()
    assert reasons[:3] == [*reasons[3:], "True"] and looked == "False", done
    assert "_ctypes" in reasons[0] and "_cffi_backend" in reasons[1]


@pytest.fixture
def unloaded(monkeypatch):
    """The module of an adapter that has not been loaded yet."""
    monkeypatch.delitem(ffi._loaded, "ctypes", raising=False)
    monkeypatch.setattr(ffi, "_missing", {})
    return importlib.import_module(pidwait.__name__ + "._ffi._ctypes")


def raising(error):
    def call(*arguments):
        raise error

    return call


def test_reason_is_remembered_until_it_is_forgotten(unloaded, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(unloaded, "Adapter", raising(ImportError("on purpose")))
        assert "on purpose" in str(ffi.missing("ctypes"))
    assert "on purpose" in str(ffi.missing("ctypes"))
    ffi.forget()
    assert "on purpose" not in str(ffi.missing("ctypes"))


@pytest.mark.parametrize("told", [True] if WINDOWS else [True, False])
def test_lack_of_file_descriptors_is_no_lack_of_a_binding(unloaded, monkeypatch, told):
    """An ImportError does not tell it; but then nothing else can be opened, either."""
    lack = OSError(errno.EMFILE, "on purpose")
    with monkeypatch.context() as patched:
        patched.setattr(unloaded, "Adapter", raising(lack if told else ImportError("no file")))
        if not told:
            patched.setattr(os, "open", raising(lack))
        with pytest.raises(OSError, match="on purpose"):
            ffi.load("ctypes")
    assert ffi._missing == {}


def test_lack_of_file_descriptors_is_no_lack_of_a_call(monkeypatch):
    if WINDOWS:
        return  # nothing tells it there
    monkeypatch.setitem(calls._CALLS, "nonesuch", (None, raising(ImportError("no file"))))
    monkeypatch.setattr(calls, "adapter", dict)
    with pytest.raises(OSError, match="no file") as caught:
        calls.get("nonesuch")
    assert caught.value.errno == errno.ENOSYS
    monkeypatch.setattr(os, "open", raising(OSError(errno.EMFILE, "full")))
    with pytest.raises(OSError, match="full"):
        calls.get("nonesuch")
