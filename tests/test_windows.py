# SPDX-License-Identifier: BSD-3-Clause
"""What only Windows has: rights, handles, consoles."""

import _thread
import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from . import pidwait
from .conftest import open_handles
from .processes import exiting, run_python, sleeping

win32 = importlib.import_module(pidwait.__name__ + "._backends.win32")
polled_win32 = importlib.import_module(pidwait.__name__ + "._backends.polled_win32")
table = importlib.import_module(pidwait.__name__ + "._ffi.win32")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
deadline = importlib.import_module(pidwait.__name__ + "._deadline")
handles = importlib.import_module(pidwait.__name__ + "._handle")
toolhelp = importlib.import_module(pidwait.__name__ + "._sources.toolhelp")

SYNCHRONIZE_ONLY = "D:P(A;;0x100000;;;WD)"


def restrict(child):
    """Leave everybody only the right to wait for the child."""
    advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    convert = advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW
    convert.argtypes = [ctypes.c_wchar_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]
    change = advapi32.SetKernelObjectSecurity
    change.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p]
    kernel32.LocalFree.argtypes = [ctypes.c_void_p]
    security = ctypes.c_void_p()
    if not convert(SYNCHRONIZE_ONLY, 1, ctypes.byref(security), None):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        if not change(int(child._handle), 4, security):  # DACL_SECURITY_INFORMATION
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        kernel32.LocalFree(security)


def test_synchronize_alone_waits_without_a_code(start_told):
    child = start_told(7)
    restrict(child)
    with pytest.raises(PermissionError):
        handles.open_process(table.PROCESS_QUERY_LIMITED_INFORMATION, child.pid)
    for pid in (child.pid + 1, child.pid + 2):
        assert not pidwait.pid_exists(pid)
    with pidwait.Process(child.pid) as process:
        assert process.backend == "win32"
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        with pytest.raises(PermissionError) as caught:
            process.terminate()
        assert caught.value.winerror == table.ERROR_ACCESS_DENIED
        assert "OpenProcess, pid %d" % child.pid in str(caught.value)
        child.stdin.close()
        assert process.wait() is None
        assert process.has_exited()
    assert pidwait.wait(child.pid) is None
    assert pidwait.wait(child) == 7  # the Popen's own handle may read the code


def denied(*args):
    raise OSError(0, "denied on purpose", None, table.ERROR_ACCESS_DENIED)


def gone(*args):
    raise OSError(0, "gone on purpose", None, table.ERROR_INVALID_PARAMETER)


def test_no_right_at_all_is_polled(start_told, monkeypatch):
    """Wine grants SYNCHRONIZE to everybody, so the test makes the denial up."""
    child = start_told(7)
    pidwait.pid_exists(child.pid)
    monkeypatch.setitem(calls._resolved, "OpenProcess", denied)
    with pidwait.Process(child.pid) as process:
        assert process.backend == "polling"
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        with pytest.raises(PermissionError):
            process.terminate()
        child.stdin.close()
        assert process.wait() is None
    assert not pidwait.pid_exists(child.pid + 1)
    assert pidwait.wait(child) == 7


def test_polled_pid_that_was_reused(use_variant, sleeper, monkeypatch):
    use_variant("polling")
    with pidwait.Process(sleeper.pid) as process:
        assert not process.has_exited()
        look = polled_win32._look

        def other(pid):
            (*rest, started), code = look(pid)
            return (*rest, started + 1), code

        monkeypatch.setattr(polled_win32, "_look", other)
        assert process.wait(30) is None


def test_neighbouring_pids(variant, sleeper):
    assert pidwait.pid_exists(sleeper.pid)
    for pid in (sleeper.pid + 1, sleeper.pid + 2, sleeper.pid + 3):
        assert not pidwait.pid_exists(pid)
        assert pidwait.wait(pid, 0) is None


def test_handle_is_not_inherited(variant, sleeper):
    with pidwait.Process(sleeper.pid) as process:
        resource = process._guard.resource
        if process.backend == "win32":
            assert not os.get_handle_inheritable(resource.handle)


def test_handle_keeps_pid_and_code(variant, start):
    child = start(*exiting(5))
    with pidwait.Process(child.pid) as process:
        child.wait()
        child._handle.Close()
        if process.backend == "win32":
            assert pidwait.pid_exists(child.pid)
            assert process.wait(30) == 5
        else:
            assert process.wait(30) in (5, None)


def test_terminate_as_popen_does(variant, start):
    for end in ("terminate", "kill"):
        children = [start(*sleeping(60)) for _ in range(2)]
        with pidwait.Process(children[0].pid) as process:
            process.send_signal(0)
            getattr(process, end)()
            getattr(children[1], end)()
            assert process.wait(30) == children[1].wait() == 1
            for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
                with pytest.raises(ProcessLookupError):
                    send()


def test_terminate_just_after_the_exit(start, monkeypatch):
    """Windows denies it, Wine does not: the test makes the denial up."""
    child = start(*exiting(0))
    monkeypatch.setitem(calls._resolved, "TerminateProcess", denied)
    handle = win32.Win32Handle(child.pid)
    try:
        child.wait()
        with pytest.raises(ProcessLookupError):
            handle.send_signal(signal.SIGTERM)
    finally:
        handle.close()


@pytest.mark.parametrize("event", [signal.CTRL_C_EVENT, signal.CTRL_BREAK_EVENT])
def test_console_events(sleeper, event, monkeypatch):
    sent = []
    monkeypatch.setitem(
        calls._resolved, "GenerateConsoleCtrlEvent", lambda *args: sent.append(args)
    )
    with pidwait.Process(sleeper.pid) as process:
        process.send_signal(event)
        assert sent == [(event, sleeper.pid)]
        monkeypatch.setitem(calls._resolved, "GenerateConsoleCtrlEvent", denied)
        with pytest.raises(PermissionError, match="GenerateConsoleCtrlEvent, pid"):
            process.send_signal(event)
        assert not process.has_exited()  # os.kill() of older Pythons would have ended it


def test_console_event_arrives(tmp_path):
    (codes,) = in_a_console(SEND_EVENT.format(package=pidwait.__name__), tmp_path)
    ours, popens = codes.split()
    assert ours == popens == "3"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGBREAK, 1, 9])
def test_signals_that_windows_lacks(variant, sleeper, sig):
    with pidwait.Process(sleeper.pid) as process:
        with pytest.raises(ValueError, match="^sig must be SIGTERM or a CTRL_ event"):
            process.send_signal(sig)
        assert not process.has_exited()


def test_snapshot(sleeper):
    shown = toolhelp.find(sleeper.pid)
    assert shown.name.lower() == os.path.basename(sys.executable).lower()
    assert shown.parent == os.getpid()
    assert shown.threads >= 1
    assert toolhelp.find(os.getpid() + 1) is None


MAIN_THREAD_ENDS = """if True:
    import ctypes, os, threading

    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.OpenThread.restype = ctypes.c_void_p
    main = ctypes.c_void_p(kernel32.OpenThread(0x100000, False, threading.get_ident()))

    def rest():
        kernel32.WaitForSingleObject(main, -1)
        os.write(1, b".")
        os.read(0, 1)
        os._exit(9)

    threading.Thread(target=rest).start()
    kernel32.ExitThread(0)
"""


def test_main_thread_that_ended_first(variant, start):
    pipe = subprocess.PIPE
    child = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=pipe, stdout=pipe)
    assert child.stdout.read(1) == b"."
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(child.pid, 0.01)
    child.stdin.close()
    assert pidwait.wait(child.pid, 30) == 9


def test_prototypes_stay_our_own():
    win32.Win32Handle(os.getpid()).close()
    assert ctypes.windll.kernel32.GetProcessId.argtypes is None
    assert ctypes.WinDLL("kernel32").GetProcessId.argtypes is None


BROKEN = """if True:
    import sys

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[1].split(","):
                raise ImportError("broken on purpose")

    import _winapi, subprocess
    sys.meta_path.insert(0, Broken())
    import {package} as pidwait
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert pidwait.pid_exists(child.pid) and not pidwait.pid_exists(child.pid + 1)
    answer = pidwait.probe()
    print(pidwait.wait(child.pid, 30), answer["backend"], answer["calls"]["GetProcessId"]["via"])
"""


@pytest.mark.parametrize(
    "missing, via",
    [("ctypes,_ctypes", "cffi"), ("ctypes,_ctypes,cffi,_cffi_backend", "None")],
)
def test_without_a_binding(missing, via):
    """The interpreter's own calls are enough to wait."""
    done = run_python(BROKEN.format(package=pidwait.__name__), missing)
    assert done.stdout.split() == ["3", "win32", via], done


def test_two_thousand_waits_leave_no_handle(variant, start):
    done, alive = start(*exiting(3)), start(*sleeping(60))
    done.wait()

    def waits(count):
        for _ in range(count):
            assert pidwait.wait(done.pid) == 3
            with pytest.raises(pidwait.TimeoutExpired):
                pidwait.wait(alive.pid, 0)

    waits(10)  # what is opened once and kept
    gc.collect()  # garbage of earlier tests
    before = open_handles()
    waits(1000)
    assert set(open_handles()) <= set(before)


def cpu_of(function, *args):
    before = time.process_time()
    function(*args)
    return time.process_time() - before


def test_waiting_takes_no_more_time_of_a_processor_than_sleeping(use_variant, sleeper):
    sleeping = cpu_of(time.sleep, 5)
    for variant in ("win32-own", "win32-ctypes"):
        use_variant(variant)
        with pidwait.Process(sleeper.pid) as process:
            process.has_exited()  # the first call costs more

            def wait(process=process):
                with pytest.raises(pidwait.TimeoutExpired):
                    process.wait(5)

            # Under Wine the clock ticks every 10 ms, and a tick may be somebody else's.
            assert any(cpu_of(wait) <= sleeping + 0.005 for _ in range(4))


def test_other_threads_run_meanwhile(variant, start_told):
    child = start_told(0)
    waiter = threading.Thread(target=pidwait.wait, args=(child.pid,))
    waiter.start()
    for _ in range(20):
        time.sleep(0.001)
        assert waiter.is_alive()
    child.stdin.close()
    waiter.join()


def no_call_waits(monkeypatch):
    """Have each call return at once, and Ctrl-C come in the second; return the milliseconds.

    So _winapi behaves if Ctrl-C came just before the first call: it is not interrupted.
    """
    waits = []

    def wait(handles, wait_all, milliseconds):
        waits.append(milliseconds)
        if len(waits) > 1:
            _thread.interrupt_main()
        return 258  # WAIT_TIMEOUT

    monkeypatch.setitem(calls._resolved, "WaitForMultipleObjects", wait)
    return waits


@pytest.mark.parametrize("timeout", [None, 3600])
def test_no_call_is_long(use_variant, sleeper, monkeypatch, timeout):
    """A Ctrl-C that the call has swallowed is raised when the call ends."""
    use_variant("win32-own")
    with pidwait.Process(sleeper.pid) as process:
        waits = no_call_waits(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            process.wait(timeout)
    assert 0 < max(waits) <= 5000 and len(waits) == 2


def test_deadline_that_passes_while_the_machine_sleeps(use_variant, sleeper, monkeypatch):
    """The clock goes on, but the call's time-out stands still."""
    use_variant("win32-own")
    slept = []
    clock = deadline.monotonic
    monkeypatch.setattr(deadline, "monotonic", lambda: clock() + 3600 * len(slept))

    def wait(handles, wait_all, milliseconds):
        assert milliseconds <= 5000
        if milliseconds:
            slept.append(milliseconds)
        return 258  # WAIT_TIMEOUT

    with pidwait.Process(sleeper.pid) as process:
        monkeypatch.setitem(calls._resolved, "WaitForMultipleObjects", wait)
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(60)
    assert len(slept) == 1


def test_snapshot_is_closed_before_its_entries_are_looked_at(monkeypatch):
    """A generator left half-way would close it only when collected, on PyPy perhaps never."""
    opened = {}
    create = calls.get("CreateToolhelp32Snapshot")
    close = calls.get("CloseHandle")

    def noting(*args):
        handle = create(*args)
        opened[handle] = True
        return handle

    def closing(handle):
        opened.pop(handle)
        return close(handle)

    monkeypatch.setitem(calls._resolved, "CreateToolhelp32Snapshot", noting)
    monkeypatch.setitem(calls._resolved, "CloseHandle", closing)
    entries = iter(toolhelp.entries())
    assert next(entries) and not opened


def test_handle_is_owned_before_ctrl_c_can_come(sleeper, monkeypatch):
    """A handler that raises at the first bytecode after OpenProcess has returned."""
    win32.Win32Handle(sleeper.pid).close()
    gc.collect()  # garbage of earlier tests
    before = open_handles()
    code = handles.Owned.__init__.__code__

    def trace(frame, event, arg):
        if frame.f_code is code:
            raise KeyboardInterrupt

    for _ in range(10):
        sys.settrace(trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                win32.Win32Handle(sleeper.pid)
        finally:
            sys.settrace(None)
    assert set(open_handles()) <= set(before)


def test_handle_is_closed_once():
    closed = []
    calls_before = dict(calls._resolved)
    calls._resolved["CloseHandle"] = closed.append
    calls._resolved["OpenProcess"] = lambda *args: 7
    try:
        owned = handles.opened("OpenProcess", 0, False, 1)
        assert owned.number == 7
        owned.close()
        owned.close()
        del owned
        assert closed == [7]
        handles.opened("OpenProcess", 0, False, 1)
        assert closed == [7, 7]
    finally:
        calls._resolved.clear()
        calls._resolved.update(calls_before)


def test_code_that_a_polled_process_has_told_is_kept(use_variant, start, monkeypatch):
    use_variant("polling")
    child = start(*exiting(5))
    child.wait()
    handle = polled_win32.SnapshotHandle(child.pid)
    monkeypatch.setitem(calls._resolved, "OpenProcess", gone)
    assert handle.has_exited()
    assert handle.collect(False) == 5


# In a console of its own, since Ctrl-C goes to all processes of a console.
PRESS_CTRL_C = """if True:
    import ctypes, signal, subprocess, sys, threading, time
    import {package} as pidwait

    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.SetConsoleCtrlHandler(None, False)
    NO_WINDOW, SUSPENDED = 0x08000000, 0x4  # the first: another console
    sent = []

    def press():
        sent.append(time.perf_counter())
        kernel32.GenerateConsoleCtrlEvent(0, 0)

    def seconds_until_raised(wait, *args):
        del sent[:]
        timer = threading.Timer(0.3, press)
        began = False
        try:
            timer.start()
            began = True
            wait(*args)
        except KeyboardInterrupt:
            return time.perf_counter() - sent[0] if began else 99.0
        except pidwait.TimeoutExpired:
            return 99.0
        finally:
            timer.join()

    def least(enough, wait, *args):
        tries = [seconds_until_raised(wait, *args)]
        while tries[-1] > enough and len(tries) < 3:  # the machine may be busy
            tries.append(seconds_until_raised(wait, *args))
        return min(tries)
"""
INTERRUPTED = (
    PRESS_CTRL_C
    + """
    def interrupt():
        with pidwait.Process(sleeper.pid) as process:
            yield least(0.2, pidwait.wait, sleeper.pid, 10)
            yield least(0.2, pidwait.wait, sleeper, 10)
            yield least(0.2, process.wait, 10)
            yield least(0.2, process.wait)

    def interrupt_without_an_exception():  # a handler that raises nothing: the wait goes on
        seen = []
        signal.signal(signal.SIGINT, lambda *args: seen.append(time.perf_counter()))
        for _ in range(3):
            del seen[:]
            start = time.perf_counter()
            assert seconds_until_raised(pidwait.wait, sleeper, 1) == 99.0
            lasted = time.perf_counter() - start
            late = seen[0] - sent[0]
            if late < 0.2 and lasted < 3:
                break
        return late, lasted, len(seen)

    code = "import time; time.sleep(60)"
    sleeper = subprocess.Popen([sys.executable, "-c", code], creationflags=NO_WINDOW)
    try:
        took = list(interrupt())
        went_on = interrupt_without_an_exception()
    finally:
        sleeper.kill()
        sleeper.wait()
    with open(sys.argv[1], "w") as file:
        print(*took, file=file)
        print(*went_on, file=file)
"""
)
# CTRL_C_EVENT goes to a process group, whose processes ignore it until they enable it.
SEND_EVENT = """if True:
    import signal, subprocess, sys
    import {package} as pidwait

    CHILD = (
        "import ctypes, os, sys, time\\n"
        "ctypes.WinDLL('kernel32').SetConsoleCtrlHandler(None, False)\\n"
        "try:\\n"
        "    print(flush=True)\\n"
        "    time.sleep(60)\\n"
        "except KeyboardInterrupt:\\n"
        "    os._exit(3)\\n"
    )
    codes = []
    for ours in (True, False):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE,
                                 creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
        child.stdout.readline()
        with pidwait.Process(child.pid) as process:
            (process if ours else child).send_signal(signal.CTRL_C_EVENT)
            codes.append(process.wait(20))
        child.stdout.close()
        child.wait()
    with open(sys.argv[1], "w") as file:
        print(*codes, file=file)
"""
NEW_CONSOLE = {"creationflags": 0x00000010}  # CREATE_NEW_CONSOLE


def in_a_console(code, tmp_path, *args):
    script = tmp_path / "script.py"
    script.write_text(code)
    answer = tmp_path / "answer"
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = (sys.executable, str(script), str(answer)) + args
    with tmp_path.joinpath("errors").open("w+") as errors:
        status = subprocess.call(command, env=env, stderr=errors, **NEW_CONSOLE)
        errors.seek(0)
        assert (status, errors.read()) == (0, "")
    return answer.read_text().splitlines()


def test_ctrl_c_interrupts_every_wait(variant, tmp_path):
    code = INTERRUPTED.format(package=pidwait.__name__)
    first, second = in_a_console(code, tmp_path)
    assert max(map(float, first.split())) < 0.2, first
    late, lasted, count = map(float, second.split())
    assert late < 0.2 and count == 1
    assert 0.98 < lasted < 3


COMMAND_LINE = """if True:
    import ctypes, subprocess, sys, time

    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.SetConsoleCtrlHandler(None, False)
    waiter = subprocess.Popen(
        [sys.executable, "-m", "{package}", "-v"] + sys.argv[2:],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # no terminal: what a Ctrl-C cuts short there, exit can't flush
    )
    waiter.stdout.readline()  # the first has exited, and the second is waited for
    try:
        kernel32.GenerateConsoleCtrlEvent(0, 0)
        time.sleep(60)  # ours comes in its own time
    except KeyboardInterrupt:
        code = waiter.wait()
    with open(sys.argv[1], "w") as file:
        print(code, file=file)
"""


def test_command_line_interrupted(tmp_path, start, sleeper):
    code = COMMAND_LINE.format(package=pidwait.__name__)
    first = start(*sleeping(0))
    (status,) = in_a_console(code, tmp_path, str(first.pid), str(sleeper.pid))
    assert int(status) == 0xC000013A  # STATUS_CONTROL_C_EXIT, as Python itself since 3.8


def test_command_line_without_a_terminal(start):
    """The null device says that it is a terminal, and has no size."""
    child = start(*sleeping(2.5))
    command = [sys.executable, "-m", pidwait.__name__, str(child.pid)]
    null = subprocess.DEVNULL
    assert subprocess.call(command, stdin=null, stdout=null, stderr=null) == 0


def test_command_line_tells_a_status_in_hexadecimal(start):
    child = start(*exiting(0xC0000005, after=1))
    command = [sys.executable, "-m", pidwait.__name__, "-v", str(child.pid)]
    assert b"exited with 0xC0000005; waited" in subprocess.check_output(command)


@pytest.mark.parametrize("encoding", ["cp437", "cp1252", "utf-8"])
def test_command_line_on_code_pages(start, tmp_path, encoding):
    name = "\u0436\u00e9.exe"
    code = """if True:
        import sys
        from {package} import cli
        from {package}.cli import _waited
        _waited.name_of = lambda pid: {name!r}
        sys.exit(cli.main(["-v", sys.argv[1]]))
    """.format(package=pidwait.__name__, name=name)
    child = start(*exiting(0, after=0.5))
    done = subprocess.run(
        [sys.executable, "-c", code, str(child.pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONIOENCODING=encoding),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    shown = name.encode(encoding, "backslashreplace")
    assert done.stdout.startswith(b"%d (%s): exited with 0; waited" % (child.pid, shown))


def test_process_group_of_spawn():
    with pidwait.spawn(sleeping(60), process_group=0) as child:
        child.terminate()
    with pytest.raises(ValueError, match="process_group"):
        pidwait.spawn(sleeping(60), process_group=5)


def test_run_has_no_trees():
    command = [sys.executable, "-m", pidwait.__name__, "run", "--tree"]
    assert subprocess.call(command + list(exiting(0)), stderr=subprocess.DEVNULL) == 125
