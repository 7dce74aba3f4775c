# SPDX-License-Identifier: BSD-3-Clause
"""Listing on Windows: the snapshot, command lines, users, rights, handles."""

import ctypes
import errno
import gc
import importlib
import itertools
import os
import subprocess
import sys
import time

import pytest

from . import pidwait
from .conftest import open_handles
from .processes import PYTHON, become_gone, eventually, exiting, run_python, sleeping
from .test_listing import end
from .test_windows import calls, denied, restrict, table, toolhelp

listed = importlib.import_module(pidwait.__name__ + "._sources.listed_win32")
FOLDER = os.path.dirname(pidwait.__file__)
READ = "import sys; sys.stdin.read()"


@pytest.fixture
def told(start):
    """told(arguments...) runs a child that exits once its stdin is closed."""
    return lambda *more: start(*PYTHON, "-c", READ, *more, stdin=subprocess.PIPE)


def pids(*args):
    return [info.pid for info in pidwait.process_iter(*args)]


NASTY = [
    ["", " ", "\t", ""],
    ['say "hi"', '"', '""', 'a"b c'],
    ["back\\", "two\\\\", 'slash and quote\\"', "c:\\a folder\\", "\\\\server\\share\\"],
    ["\xe9\u0436 \u6f22", "\U0001f600", "\xdf"],
    ["x" * 20000],
]


@pytest.mark.parametrize("arguments", NASTY, ids=range(len(NASTY)))
def test_arguments(binding, told, arguments):
    child = told(*arguments)
    assert pidwait.ProcessInfo(child.pid).cmdline() == [*PYTHON, "-c", READ, *arguments]


def test_command_line_as_it_was_written(binding):
    line = '"%s"  -S -c "%s" a""b \'c d\' "e""f" \\\\"g h\\\\" i\\"j "' % (sys.executable, READ)
    with subprocess.Popen(line, stdin=subprocess.PIPE) as child:
        assert pidwait.ProcessInfo(child.pid).cmdline() == argv(line)


def argv(line):
    shell32, kernel32 = ctypes.WinDLL("shell32"), ctypes.WinDLL("kernel32")
    shell32.CommandLineToArgvW.restype = ctypes.POINTER(ctypes.c_wchar_p)
    count = ctypes.c_int()
    words = shell32.CommandLineToArgvW(ctypes.c_wchar_p(line), ctypes.byref(count))
    try:
        return words[: count.value]
    finally:
        kernel32.LocalFree.argtypes = [ctypes.c_void_p]
        kernel32.LocalFree(words)


@pytest.mark.parametrize("start, length", [("", 5), ("a ", 6), ('"a b"', 4)])
def test_words_are_those_of_the_system(start, length):
    """Each line of that many of these characters."""
    for size in range(length + 1):
        for chars in itertools.product('a" \\\t', repeat=size):
            line = start + "".join(chars)
            # Of an empty line the system makes the name of our own program.
            assert listed.split(line) == (argv(line) if line else []), line


class CommandLines:
    """NtQueryInformationProcess as Windows has had it since 8.1, and Wine 8 has not."""

    def __init__(self, line):
        self.line = line

    def __call__(self, handle, class_, size):
        assert class_ == 60 and size >= 16 + 65534
        if isinstance(self.line, OSError):
            raise self.line
        text = self.line.encode("utf-16-le", "surrogatepass")
        memory = bytearray(size)
        memory[:2] = len(text).to_bytes(2, "little")
        memory[2:4] = (len(text) + 2).to_bytes(2, "little")
        memory[8:16] = (0x7FFE1234).to_bytes(8, "little")
        memory[16 : 16 + len(text)] = text
        return memory


def status(text, number):
    return OSError(0, "NTSTATUS " + text, None, number)


@pytest.mark.parametrize(
    "line, words",
    [
        ("a.exe b", ["a.exe", "b"]),
        ('"a b" "\xe9\u6f22" \udc80 ', ["a b", "\xe9\u6f22", "\udc80"]),
        ("a " + 32764 * "b", ["a", 32764 * "b"]),
        ("", []),
        (status("0xC0000225", 1168), []),  # STATUS_NOT_FOUND: a process of the kernel's
    ],
    ids=["short", "strange", "long", "empty", "none"],
)
def test_command_line_that_the_system_tells(told, monkeypatch, line, words):
    child = told()
    pidwait.ProcessInfo(child.pid).cmdline()
    monkeypatch.setitem(calls._resolved, "NtQueryInformationProcess", CommandLines(line))
    assert pidwait.ProcessInfo(child.pid).cmdline() == words


def test_command_line_that_is_denied(told, monkeypatch):
    """STATUS_ACCESS_DENIED of a running process, STATUS_PROCESS_IS_TERMINATING of the other."""
    child = told()
    info = pidwait.ProcessInfo(child.pid)
    info.cmdline()
    refuse = CommandLines(status("0xC0000022", table.ERROR_ACCESS_DENIED))
    monkeypatch.setitem(calls._resolved, "NtQueryInformationProcess", refuse)
    with pytest.raises(PermissionError, match=r"0xC0000022 \(NtQuery.*, pid %d\)" % child.pid):
        info.cmdline()
    child.stdin.close()
    child.wait()
    assert info.cmdline() == []


def test_user(binding, told):
    name = ctypes.create_unicode_buffer(600)
    size = ctypes.c_uint(len(name))
    assert ctypes.WinDLL("secur32").GetUserNameExW(2, name, ctypes.byref(size))
    assert name.value.count("\\") == 1
    for pid in (os.getpid(), told().pid):
        assert pidwait.ProcessInfo(pid).username() == name.value


def test_user_without_a_name(binding):
    numbers = [21, 1, 2**32 - 1, 4711]
    sid = bytearray([1, len(numbers), 0, 0, 0, 0, 0, 5])
    for number in numbers:
        sid += number.to_bytes(4, "little")
    assert listed.user_name(sid) == "S-1-5-21-1-4294967295-4711"


def test_user_that_is_denied(told, monkeypatch):
    """Nothing is closed if no HANDLE came."""
    child = told()
    info = pidwait.ProcessInfo(child.pid)
    info.username()
    closed = []
    close = calls.get("CloseHandle")
    monkeypatch.setitem(
        calls._resolved, "CloseHandle", lambda handle: close(closed.append(handle) or handle)
    )
    monkeypatch.setitem(calls._resolved, "OpenProcessToken", denied)
    with pytest.raises(PermissionError, match="OpenProcessToken, pid %d" % child.pid):
        info.username()
    assert len(closed) == 1 and closed[0]
    child.stdin.close()
    child.wait()
    with pytest.raises(ProcessLookupError):
        info.username()


def test_times(binding, told):
    before = time.time()
    child = told()
    created = pidwait.ProcessInfo(child.pid).create_time()
    assert before - 0.02 <= created <= time.time() + 0.02
    assert pidwait.ProcessInfo(os.getpid()).create_time() < created


def test_processor_times(binding):
    def micro(seconds):
        return int(round(seconds * 1e6))

    info = pidwait.ProcessInfo(os.getpid())
    before = os.times()
    found = info.cpu_times()
    after = os.times()
    assert micro(before.user) <= micro(found.user) <= micro(after.user)
    assert micro(before.system) <= micro(found.system) <= micro(after.system)
    assert found[2:] == (0.0, 0.0)


def test_clock_is_that_of_the_start_times(told):
    before = listed.now()
    facts = [listed.read(told().pid, False) for _ in range(2)]
    assert before < facts[0].started() <= facts[1].started()
    eventually(lambda: listed.now() > facts[1].started())
    for one in facts:
        one.close()


def test_names_and_parents(binding, told):
    child = told()
    for info in pidwait.process_iter(["name", "ppid", "status"]):
        if info.pid == child.pid:
            assert info.info == info.as_dict(["name", "ppid", "status"])
            name = os.path.basename(sys.executable).lower()
            found = info.info["name"].lower(), info.info["ppid"], info.info["status"]
            assert found == (name, os.getpid(), "running")
            return
    pytest.fail("the child is not listed")


def test_idle_process_is_left_out(monkeypatch):
    """Wine has none."""
    entry = toolhelp.find(os.getpid())
    entry.pid, entry.name = 0, "[System Process]"
    monkeypatch.setattr(toolhelp, "entries", lambda: [entry])
    opened = []
    monkeypatch.setitem(calls._resolved, "OpenProcess", opened.append)
    assert pids() == [] and not opened


def test_what_windows_does_not_tell(told):
    info = pidwait.ProcessInfo(told().pid)
    names = ["uids", "terminal"]
    assert info.as_dict(names, ad_value="?") == {"uids": "?", "terminal": "?"}
    for name in names:
        with pytest.raises(OSError, match="Windows does not tell the %s" % name) as caught:
            getattr(info, name)()
        assert caught.value.errno == errno.ENOSYS
    facts = listed.read(info.pid, True)
    for function in (facts.pgid, facts.sid):
        with pytest.raises(OSError, match="Windows does not tell the") as caught:
            function()
        assert caught.value.errno == errno.ENOSYS
    facts.close()


# It starts as many as the first digit says, and they as many as the next. Each prints whose
# child it is: Wine 8 lacks what os.getppid() of Python 3.12 calls.
TREE = """if True:
    import os, subprocess, sys

    code, widths, parent = sys.argv[1:]
    pid = str(os.getpid())
    command = [sys.executable, "-S", "-E", "-c", code, code, widths[1:], pid]
    width, pipe = int(widths[:1] or 0), subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe) for _ in range(width)]
    os.write(1, ("%s %s\\n" % (parent, pid)).encode())
    os.read(0, 1)
    for popen in started:
        popen.stdin.close()
        popen.wait()
"""


def test_children(binding, start):
    pipe = subprocess.PIPE
    top = start(*PYTHON, "-c", TREE, TREE, "211", str(os.getpid()), stdin=pipe, stdout=pipe)
    parents = {}
    while len(parents) < 7:
        parent, pid = map(int, top.stdout.readline().split())
        parents[pid] = parent
    info = pidwait.ProcessInfo(top.pid)
    of_top = [pid for pid in parents if parents[pid] == top.pid]
    assert len(of_top) == 2
    assert sorted(child.pid for child in info.children()) == sorted(of_top)
    family = info.children(recursive=True)
    assert sorted([top.pid] + [child.pid for child in family]) == sorted(parents)
    top.stdin.close()
    exited, alive = pidwait.wait_procs([info, *family], 60)
    assert not alive and {code for _, code in exited} == {0}


def after_the_snapshot(monkeypatch, function):
    entries = toolhelp.entries

    def then():
        found = entries()
        function()
        return found

    monkeypatch.setattr(toolhelp, "entries", then)


def test_process_that_exits_after_the_snapshot(binding, told, monkeypatch):
    first, second = told(), told()

    def function():
        end(first)
        become_gone(first.pid)

    after_the_snapshot(monkeypatch, function)
    found = pids()
    assert first.pid not in found and second.pid in found


def test_process_that_exits_after_the_snapshot_while_a_handle_is_open(binding, told, monkeypatch):
    child = told()

    def function():
        child.stdin.close()
        child.wait()

    after_the_snapshot(monkeypatch, function)
    names = ["name", "ppid", "status", "cmdline"]
    (info,) = [info for info in pidwait.process_iter(names) if info.pid == child.pid]
    name = os.path.basename(sys.executable).lower()
    assert info.info["name"].lower() == name
    del info.info["name"]
    assert info.info == {"ppid": os.getpid(), "status": "zombie", "cmdline": []}


def test_pid_that_was_given_to_another_process_after_the_snapshot(told, monkeypatch):
    """Neither Windows nor Wine uses a pid again so soon: the test puts the new one in."""
    entry = toolhelp.find(os.getpid())
    entry.pid, entry.parent, entry.name = 2**32 - 4, 4, "other.exe"
    entries = toolhelp.entries()
    with monkeypatch.context() as patch:
        patch.setattr(toolhelp, "entries", lambda: [*entries, entry])
        listing = pidwait.process_iter(["ppid", "name"])
        found = [next(listing)]
    began = time.time()
    eventually(lambda: time.time() > began + 0.1)
    new = told()
    entry.pid = new.pid
    found += listing
    assert found[-1].info == {"ppid": os.getpid(), "name": toolhelp.find(new.pid).name}
    assert os.getpid() in [info.pid for info in found]


def test_clock_that_is_set_back(told, monkeypatch):
    child = told()
    monkeypatch.setattr(time, "time", lambda: 1.0)
    (info,) = [info for info in pidwait.process_iter(["ppid"]) if info.pid == child.pid]
    assert info.info["ppid"] == os.getpid()


def test_exited_process_with_an_open_handle(start):
    child = start(*exiting(3))
    child.wait()
    info = pidwait.ProcessInfo(child.pid)
    assert info.is_running() and info.status() == "zombie" and info.cmdline() == []
    assert info.create_time() > 0
    assert pidwait.wait(info) == 3
    # It is in the snapshot no more.
    for function in (info.name, info.ppid, info.as_dict):
        with pytest.raises(ProcessLookupError, match="pid %d" % child.pid):
            function()


def test_process_that_may_not_be_looked_at(binding, told):
    child = told()
    restrict(child)
    info = pidwait.ProcessInfo(child.pid)
    assert info != pidwait.ProcessInfo(child.pid)
    assert info.is_running()
    found = {"pid": child.pid, "ppid": os.getpid(), "status": "running", "name": info.name()}
    assert info.name().lower() == os.path.basename(sys.executable).lower()
    denied = ("cmdline", "username", "create_time", "cpu_times")
    found.update(dict.fromkeys(denied + ("uids", "terminal"), "?"))
    assert info.as_dict(ad_value="?") == found
    for name in denied:
        with pytest.raises(PermissionError, match="pid %d" % child.pid):
            getattr(info, name)()
    (listed,) = [i for i in pidwait.process_iter([], ad_value="?") if i.pid == child.pid]
    assert listed.info == found
    child.stdin.close()
    assert pidwait.wait(info, 60) is None


def test_entry_without_threads(told, monkeypatch):
    """So Windows may show a process that has exited; what may be opened tells by itself."""
    child = told()
    restrict(child)
    entry = toolhelp.find(child.pid)
    entry.threads = 0
    monkeypatch.setattr(toolhelp, "entries", lambda: [entry])
    assert pidwait.ProcessInfo(child.pid).status() == "zombie"
    (info,) = pidwait.process_iter(["status"])
    assert info.info["status"] == "zombie"


@pytest.mark.timeout(300)
def test_thousand_listings_leave_no_handle(binding, start):
    done, alive = start(*exiting(3)), start(*sleeping(600))
    done.wait()

    def look(count):
        for _ in range(count):
            assert len(list(pidwait.process_iter(["pid", "name"]))) > 1
            next(pidwait.process_iter())
            pidwait.ProcessInfo(alive.pid).as_dict()
            with pytest.raises(ProcessLookupError):
                pidwait.ProcessInfo(done.pid).as_dict()

    look(10)  # what is opened once and kept
    gc.collect()  # garbage of earlier tests
    before = open_handles()
    look(1000)
    assert set(open_handles()) <= set(before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError, ProcessLookupError])
def test_signal_handlers_that_raise_leave_no_handle(told, start, error, monkeypatch):
    """At each line; but not in the bindings: for two lines, only they know a HANDLE."""
    child = told()
    info = pidwait.ProcessInfo(child.pid)
    entry = toolhelp.find(child.pid)
    monkeypatch.setattr(toolhelp, "entries", lambda: [entry])
    exited = start(*exiting(0))
    exited.wait()
    done = pidwait.ProcessInfo(exited.pid)

    def look():
        info.as_dict()
        assert done.cmdline() == []
        assert len(list(pidwait.process_iter([]))) == 1

    def interrupt(number):
        """Return whether there was a line with that number."""
        lines = itertools.count()

        def trace(frame, event, arg):
            file = frame.f_code.co_filename
            if not file.startswith(FOLDER) or "_ffi" in file:
                return None
            if event == "line" and next(lines) == number:
                raise error
            return trace

        sys.settrace(trace)
        try:
            look()
        finally:
            sys.settrace(None)
        return next(lines) > number

    look()
    gc.collect()  # garbage of earlier tests
    before = open_handles()
    for number in itertools.count():
        try:
            assert not interrupt(number)
            break
        except error:
            pass
    assert number > 100
    gc.collect()
    assert set(open_handles()) <= set(before)


WITHOUT_A_BINDING = """if True:
    import sys

    for name in ("ctypes", "_ctypes", "cffi", "_cffi_backend"):
        sys.modules[name] = None
    import {package} as pidwait

    try:
        list(pidwait.process_iter())
    except OSError as error:
        print(error.errno)
"""


def test_without_a_binding():
    done = run_python(WITHOUT_A_BINDING.format(package=pidwait.__name__))
    assert done.stdout.split() == [str(errno.ENOSYS)], done


ONLY_NAMES = """if True:
    import sys
    import {package} as pidwait

    list(pidwait.process_iter(["name", "ppid", "create_time"]))
    print(*[name for name in sys.modules if "advapi32" in name])
    pidwait.ProcessInfo({pid}).username()
    print(*[name for name in sys.modules if "advapi32" in name])
"""


def test_libraries_are_loaded_when_they_are_needed():
    done = run_python(ONLY_NAMES.format(package=pidwait.__name__, pid=os.getpid()))
    assert done.stdout.splitlines() == ["", pidwait.__name__ + "._ffi.advapi32"], done
