# SPDX-License-Identifier: BSD-3-Clause
"""Listing on Windows: snapshots of all processes, command lines, users, rights."""

import errno
import gc
import itertools
import os
import subprocess
import time

import pytest

from .. import pidwait
from .. import seam as calls
from ..processes import INTERPRETER, PYTHON, become_gone, eventually, exiting

ctypes = pytest.importorskip("ctypes")

pytestmark = pytest.mark.windows

READ = "import sys; sys.stdin.read()"
NAME = os.path.basename(INTERPRETER).lower()
ACCESS_DENIED, NO_MORE_FILES, NOT_FOUND = 5, 18, 1168  # winerror.h
THREADS, PARENT, PID, PROGRAM = 28, 32, 8, 44  # in a PROCESSENTRY32W of 64 bits


@pytest.fixture
def told(start):
    """told(arguments...) runs a child that exits once its stdin is closed."""
    return lambda *more: start(*PYTHON + ("-c", READ) + more, stdin=subprocess.PIPE)


def find(pid, *args):
    found = [info for info in pidwait.process_iter(*args) if info.pid == pid]
    return found[0] if found else None


def put_into(entry, place, number):
    entry[place : place + 4] = number.to_bytes(4, "little")


def argv(line):
    """What the system makes of a command line; of an empty one, our own program's name."""
    shell32, count = ctypes.WinDLL("shell32"), ctypes.c_int()
    shell32.CommandLineToArgvW.restype = ctypes.POINTER(ctypes.c_wchar_p)
    words = shell32.CommandLineToArgvW(ctypes.c_wchar_p(line), ctypes.byref(count))
    found = words[: count.value] if line else []
    ctypes.WinDLL("kernel32").LocalFree(ctypes.cast(words, ctypes.c_void_p))
    return found


NASTY = ["", " ", "\t", 'say "hi"', '"', '""', 'a"b c', "back\\", "two\\\\", 'slash and quote\\"']
NASTY += ["c:\\a folder\\", "\\\\server\\share\\", "\xe9\u0436 \u6f22", "\U0001f600", "x" * 9000]


def test_each_binding_tells_arguments_user_and_times(binding, told):
    before = time.time()
    info = pidwait.ProcessInfo(told(*NASTY).pid)
    assert info.cmdline() == list(PYTHON) + ["-c", READ] + NASTY
    assert before - 0.02 <= info.create_time() <= time.time() + 0.02
    assert (info.ppid(), info.status()) == (os.getpid(), "running")
    name, size = ctypes.create_unicode_buffer(600), ctypes.c_uint(600)
    assert ctypes.WinDLL("secur32").GetUserNameExW(2, name, ctypes.byref(size))
    assert info.username() == name.value
    assert pidwait.ProcessInfo(os.getpid()).create_time() < info.create_time()


LINES = [
    start + "".join(chars)
    for start, length in (("", 4), ("a ", 5), ('"a b"', 3))
    for size in range(length + 1)
    for chars in itertools.product('a" \\\t', repeat=size)
]
LINES += ["a.exe b", '"a b" "\xe9\u6f22" \udc80 ', "a " + 32764 * "b"]


def test_a_command_line_has_the_words_that_the_system_makes_of_it(seam, told):
    def query(handle, class_, size):
        """As NtQueryInformationProcess has been since Windows 8.1, and is not in Wine 8."""
        if isinstance(line, OSError):
            raise line
        text = line.encode("utf-16-le", "surrogatepass")
        assert class_ == 60 and size >= 16 + len(text)
        memory = bytearray(size)
        memory[:2] = len(text).to_bytes(2, "little")
        memory[8:16] = (0x7FFE1234).to_bytes(8, "little")
        memory[16 : 16 + len(text)] = text
        return memory

    child = told()
    info = pidwait.ProcessInfo(child.pid)
    seam.put("NtQueryInformationProcess", query)
    for line in LINES:
        assert info.cmdline() == argv(line), line
    line = OSError(0, "NTSTATUS 0xC0000225", None, NOT_FOUND)  # a process of the kernel's
    assert info.cmdline() == []
    line = OSError(0, "NTSTATUS 0xC0000022", None, ACCESS_DENIED)
    with pytest.raises(PermissionError, match=r"0xC0000022 \(NtQuery.*, pid %d\)" % child.pid):
        info.cmdline()
    child.stdin.close()
    child.wait()
    assert info.cmdline() == []  # as that of any process that has exited


@pytest.mark.parametrize("number", [299, 998])  # ERROR_PARTIAL_COPY, ERROR_NOACCESS
def test_a_command_line_that_can_not_be_read_yet_is_not_told(seam, told, number):
    query = calls.get("NtQueryInformationProcess")

    def query_as_in_wine_8(handle, class_, size):
        if class_ == 60:
            raise OSError(0, "NTSTATUS 0xC0000003", None, 87)
        return query(handle, class_, size)

    def read(*arguments):
        raise OSError(errno.EINVAL, "No access to memory location", None, number)

    info = pidwait.ProcessInfo(told().pid)
    seam.put("NtQueryInformationProcess", query_as_in_wine_8)
    seam.put("ReadProcessMemory", read)
    assert info.as_dict(["ppid", "cmdline"], "?") == {"ppid": os.getpid(), "cmdline": "?"}
    with pytest.raises(PermissionError, match=r"\(ReadProcessMemory, pid %d\)" % info.pid):
        info.cmdline()


def test_uids_are_not_told():
    info = pidwait.ProcessInfo(os.getpid())
    assert info.as_dict(["uids"], "?") == {"uids": "?"}
    with pytest.raises(OSError, match="the system does not show the uids") as caught:
        info.uids()
    assert caught.value.errno == errno.ENOSYS


def test_numbers_beside_a_pid_are_no_pids(variant, told):
    """OpenProcess takes them for it."""
    pid = told().pid
    assert pidwait.pid_exists(pid)
    for number in range(pid + 1, pid + 4):
        assert not pidwait.pid_exists(number)
        with pytest.raises(ProcessLookupError):
            pidwait.ProcessInfo(number)


# The snapshot


@pytest.fixture
def snapshot(seam):
    """snapshot(change, end) has change(entry) called for each entry, and end() after the last."""

    def snapshot(change=None, end=None):
        for name in "Process32FirstW", "Process32NextW":
            seam.put(name, changed(calls.get(name), change, end))

    def changed(real, change, end):
        def call(snapshot, entry):
            try:
                found = real(snapshot, entry)
            except OSError as error:
                if end is not None and error.winerror == NO_MORE_FILES:
                    end()
                raise
            if change is not None:
                change(entry)
            return found

        return call

    return snapshot


@pytest.mark.parametrize("is_held", [False, True])
def test_a_process_may_exit_after_the_snapshot(snapshot, told, is_held):
    child = told()

    def end():
        child.stdin.close()
        child.wait()
        if not is_held:
            child._handle.Close()
            become_gone(child.pid)

    snapshot(end=end)
    info = find(child.pid, ["ppid", "status", "cmdline"])
    if is_held:
        assert info.info == {"ppid": os.getpid(), "status": "zombie", "cmdline": []}
        with pytest.raises(ProcessLookupError, match="pid %d" % child.pid):
            info.name()  # it is in the next snapshot no more
    else:
        assert info is None


def test_a_pid_may_be_another_processes_after_the_snapshot(seam, snapshot, told):
    """Neither Windows nor Wine uses a pid again so soon: the entry of ours gets the new one."""
    fake, new = 2**32 - 4, []
    real = calls.get("OpenProcess")

    def change(entry):
        if int.from_bytes(entry[PID : PID + 4], "little") == os.getpid():
            put_into(entry, PID, fake)
            put_into(entry, PARENT, 5 if new else 4)

    def open_process(rights, inherit, pid):
        if pid != fake:
            return real(rights, inherit, pid)
        if not new:
            began = time.time()
            eventually(lambda: time.time() > began + 0.1)
            new.append(told())
        return real(rights, inherit, new[0].pid)

    snapshot(change)
    seam.put("OpenProcess", open_process)
    assert find(fake, ["ppid"]).info == {"ppid": 5}


# Rights


def restrict(child):
    """Leave everybody only the right to wait for the child."""
    advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
    security = ctypes.c_void_p()
    convert = advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW
    text = ctypes.c_wchar_p("D:P(A;;0x100000;;;WD)")
    assert convert(text, 1, ctypes.byref(security), None), ctypes.get_last_error()
    handle = ctypes.c_void_p(int(child._handle))
    assert advapi32.SetKernelObjectSecurity(handle, 4, security), ctypes.get_last_error()


def test_of_a_process_that_may_not_be_opened_the_snapshot_tells(binding, snapshot, told):
    child = told()
    restrict(child)
    info = pidwait.ProcessInfo(child.pid)
    assert info != pidwait.ProcessInfo(child.pid) and info.is_running()
    found = info.as_dict(ad_value="?")
    assert find(child.pid, [], "?").info == found
    assert found.pop("name").lower() == NAME
    names = ("cmdline", "username", "create_time")
    denied = dict.fromkeys(names + ("uids",), "?")
    assert found == dict(denied, pid=child.pid, ppid=os.getpid(), status="running")
    for name in names:
        with pytest.raises(PermissionError, match="pid %d" % child.pid):
            getattr(info, name)()
    snapshot(lambda entry: put_into(entry, THREADS, 0))  # so Windows may show one that has exited
    assert info.status() == "zombie"
    child.stdin.close()
    assert pidwait.wait(info, 60) is None


def handles():
    """How many handles are open: every number is tried, as Wine counts none."""
    get = ctypes.WinDLL("kernel32").GetHandleInformation
    flags = ctypes.byref(ctypes.c_uint())
    return {number for number in range(4, 4096, 4) if get(ctypes.c_void_p(number), flags)}


def test_no_handle_is_left(start, told):
    done, alive = start(*exiting(3)), told()
    done.wait()

    def look():
        assert len(list(pidwait.process_iter([]))) > 1
        next(pidwait.process_iter())
        with pidwait.ProcessInfo(alive.pid).oneshot():
            pass
        with pytest.raises(ProcessLookupError):
            pidwait.ProcessInfo(done.pid).as_dict()

    look()  # what is opened once and kept
    gc.collect()
    before = handles()
    for _ in range(100):
        look()
    assert len(handles() - before) < 10
