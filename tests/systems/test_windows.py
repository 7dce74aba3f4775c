# SPDX-License-Identifier: BSD-3-Clause
"""What only Windows has: rights, HANDLEs, consoles."""

import _thread
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from .. import pidwait
from .. import seam as calls
from ..processes import INTERPRETER, gone_pid, run_python, sleeping
from .windows import (
    CREATE_SUSPENDED,
    ERROR_ACCESS_DENIED,
    ERROR_INVALID_PARAMETER,
    PRESS_CTRL_C,
    WAIT_TIMEOUT,
    end,
    in_a_console,
    leave_only_synchronize,
    open_handles,
    refusing,
)

ctypes = pytest.importorskip("ctypes")
pytestmark = pytest.mark.windows

PACKAGE = pidwait.__name__
ours = importlib.import_module(PACKAGE + ".subprocess")


@pytest.fixture
def suspended(start):
    """A process that runs nothing, which is cheap, until end() ends it."""
    return start("cmd", creationflags=CREATE_SUSPENDED)


# Pids, rights and codes


def test_a_pid_beside_another_is_no_process(variant, suspended):
    """Pids are multiples of 4, and Windows opens 4712 for 4713."""
    assert pidwait.pid_exists(suspended.pid)
    for pid in range(suspended.pid + 1, suspended.pid + 4):
        assert not pidwait.pid_exists(pid)
        assert pidwait.wait(pid, 0) is None
        with pytest.raises(ProcessLookupError):
            pidwait.Process(pid)


@pytest.mark.parametrize("code", [0, 259, 0x7FFFFFFF, 0x80000000, 0xC0000005, 0xFFFFFFFF])
def test_an_exit_code_has_32_bits(variant, suspended, code):
    """259 is STILL_ACTIVE, which GetExitCodeProcess also says of a process that runs."""
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(suspended.pid, 0)
    end(suspended, code)
    assert pidwait.wait(suspended.pid) == pidwait.wait(suspended) == code
    assert suspended.returncode == code


def test_a_handle_keeps_the_pid_and_the_code(variant, suspended):
    with pidwait.Process(suspended.pid) as process:
        end(suspended, 5)
        suspended.wait()
        suspended._handle.Close()
        assert pidwait.pid_exists(suspended.pid) and process.wait() == 5


def test_a_process_that_may_only_be_waited_for_has_no_code(start_told):
    child = start_told(7)
    leave_only_synchronize(child)
    assert not pidwait.pid_exists(child.pid + 1)
    with pidwait.Process(child.pid) as process:
        assert process.backend == "win32"
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        with pytest.raises(PermissionError) as caught:
            process.terminate()
        assert caught.value.winerror == ERROR_ACCESS_DENIED
        assert "OpenProcess" in str(caught.value) and str(child.pid) in str(caught.value)
        child.stdin.close()
        assert process.wait() is None and process.has_exited()
    assert pidwait.wait(child.pid) is None
    assert pidwait.wait(child) == 7  # the Popen's own HANDLE may read the code


def test_a_process_that_may_not_be_opened_is_polled(seam, start_told):
    """The snapshot of all processes tells that it is there. Wine lets everybody wait."""
    child = start_told(7)
    seam.put("OpenProcess", refusing(ERROR_ACCESS_DENIED))
    with pidwait.Process(child.pid) as process:
        assert process.backend == "polling"
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        with pytest.raises(PermissionError):
            process.terminate()
        child.stdin.close()
        assert process.wait() is None
    assert pidwait.pid_exists(os.getpid()) and not pidwait.pid_exists(os.getpid() + 1)
    assert pidwait.wait(child) == 7


def test_a_pid_that_the_snapshot_shows_with_another_parent_has_exited(seam, suspended):
    def changed(real):
        def call(snapshot, entry):
            found = real(snapshot, entry)
            entry[32:36] = bytes(4)  # th32ParentProcessID, in 64 bits
            return found

        return call

    seam.put("OpenProcess", refusing(ERROR_ACCESS_DENIED))
    with pidwait.Process(suspended.pid) as process:
        assert process.backend == "polling" and not process.has_exited()
        for name in "Process32FirstW", "Process32NextW":
            seam.put(name, changed(calls.get(name)))
        assert process.wait() is None
    assert suspended.poll() is None


def test_a_code_that_a_polled_process_has_told_is_kept(use_variant, seam, suspended):
    use_variant("polling")
    with pidwait.Process(suspended.pid) as process:
        end(suspended, 5)
        suspended.wait()
        assert process.has_exited()
        seam.put("OpenProcess", refusing(ERROR_INVALID_PARAMETER))
        assert process.wait(0) == 5


def test_a_process_that_the_system_refuses_to_wait_for_is_polled(use_variant, seam, suspended):
    """As with a policy that came after the HANDLE; it is still told apart, and has its code."""
    use_variant("win32-own")
    with pidwait.Process(suspended.pid) as process:
        seam.put("WaitForMultipleObjects", refusing(ERROR_ACCESS_DENIED))
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.01)
        assert process.backend == "polling"
        end(suspended, 5)
        assert process.wait() == 5


# HANDLEs


def test_waits_leave_no_handle(variant, start, suspended):
    done = start("cmd", creationflags=CREATE_SUSPENDED)
    end(done, 3)
    done.wait()
    gone = gone_pid()

    def waits(count):
        for _ in range(count):
            assert pidwait.wait(done.pid) == 3
            with pytest.raises(pidwait.TimeoutExpired):
                pidwait.wait(suspended.pid, 0)
            with pidwait.Process(suspended.pid) as process:
                process.send_signal(0)
            assert pidwait.wait(gone) is None
            assert pidwait.wait_procs([done.pid, suspended.pid], 0)[0] == [(done.pid, 3)]

    waits(2)  # what is opened once and kept
    gc.collect()  # garbage of earlier tests
    before = set(open_handles())
    waits(30)
    assert set(open_handles()) <= before


def test_prototypes_stay_our_own(use_variant, suspended):
    """Other users of kernel32 in this process don't get them."""
    use_variant("win32-ctypes")
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(suspended.pid, 0)
    for name in "WaitForMultipleObjects", "OpenProcess":
        assert getattr(ctypes.windll.kernel32, name).argtypes is None


BROKEN = """if True:
    import sys

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[1].split(","):
                raise ImportError("broken on purpose")

    import _winapi, subprocess
    sys.meta_path.insert(0, Broken())
    import {package} as pidwait
    child = subprocess.Popen("cmd", creationflags=0x4)
    assert pidwait.pid_exists(child.pid) and not pidwait.pid_exists(child.pid + 1)
    with pidwait.Process(child.pid) as process:
        process.terminate()
        answer = pidwait.probe()
        print(process.wait(30), answer["backend"], answer["calls"]["GetProcessTimes"]["via"])
"""


@pytest.mark.parametrize(
    "missing, via", [("ctypes,_ctypes", "cffi"), ("ctypes,_ctypes,cffi,_cffi_backend", "None")]
)
def test_the_interpreters_own_calls_are_enough_to_wait(missing, via):
    done = run_python(BROKEN.format(package=PACKAGE), missing)
    assert done.stdout.split() == ["1", "win32", via], done


# Signals


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_it_ends_a_process_as_popen_does(variant, start, how):
    children = [start("cmd", creationflags=CREATE_SUSPENDED) for _ in range(2)]
    with pidwait.Process(children[0].pid) as process:
        process.send_signal(0)
        getattr(process, how)()
        getattr(children[1], how)()
        assert process.wait() == children[1].wait() == 1
        for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
            with pytest.raises(ProcessLookupError):
                send()


def test_a_process_that_exits_just_before_it_is_terminated_is_gone(seam, suspended):
    """Windows denies access then; Wine does not."""

    def too_late(*args):
        end(suspended, 3)
        suspended.wait()
        raise OSError(0, "refused on purpose", None, ERROR_ACCESS_DENIED)

    with pidwait.Process(suspended.pid) as process:
        seam.put("TerminateProcess", too_late)
        with pytest.raises(ProcessLookupError):
            process.terminate()
        assert process.wait(0) == 3


@pytest.mark.parametrize("name", ["CTRL_C_EVENT", "CTRL_BREAK_EVENT"])
def test_a_console_event_goes_to_the_group_of_the_process(seam, suspended, name):
    event, sent = getattr(signal, name), []
    with pidwait.Process(suspended.pid) as process:
        seam.put("GenerateConsoleCtrlEvent", lambda *args: sent.append(args))
        process.send_signal(event)
        assert sent == [(event, suspended.pid)]
        seam.put("GenerateConsoleCtrlEvent", refusing(ERROR_ACCESS_DENIED))
        with pytest.raises(PermissionError, match="GenerateConsoleCtrlEvent"):
            process.send_signal(event)
        assert not process.has_exited()  # os.kill() of older Pythons would have ended it


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
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE,
                          creationflags=subprocess.CREATE_NEW_PROCESS_GROUP) as child:
        child.stdout.readline()
        with pidwait.Process(child.pid) as process:
            process.send_signal(signal.CTRL_C_EVENT)
            code = process.wait(50)
    with open(sys.argv[1], "w") as file:
        print(code, file=file)
"""


def test_a_console_event_arrives(tmp_path):
    assert in_a_console(SEND_EVENT.format(package=PACKAGE), tmp_path) == ["3"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGBREAK", 1, 9])
def test_a_signal_that_windows_lacks_is_bad_input(variant, suspended, name):
    sig = getattr(signal, name) if isinstance(name, str) else name
    with pidwait.Process(suspended.pid) as process:
        with pytest.raises(ValueError, match="sig must be SIGTERM or a CTRL_ event"):
            process.send_signal(sig)
        assert not process.has_exited()


# Ctrl-C

INTERRUPTED = (
    PRESS_CTRL_C
    + """
    import {package}.subprocess
    flags = NO_WINDOW | SUSPENDED
    herd = [subprocess.Popen("cmd", creationflags=flags) for _ in range(66)]
    sleeper, waiting = herd[0], pidwait.WaitSet(herd)
    herd.append({package}.subprocess.Popen("cmd", creationflags=flags, tree=True))
    thread = threading.Thread(target=waiting.wait)
    try:
        with pidwait.Process(sleeper.pid) as process:
            told = [
                is_interrupted(pidwait.wait, sleeper.pid, 100),
                is_interrupted(pidwait.wait, sleeper),
                is_interrupted(process.wait),
                is_interrupted(pidwait.wait_procs, herd),
                is_interrupted(lambda: list(pidwait.as_completed(herd, 100))),
                is_interrupted(waiting.wait),
                is_interrupted(herd[-1].wait),
            ]
        thread.start()
        told.append(is_interrupted(waiting.wait, 100))
        told.append(thread.is_alive())
        seen = []  # a handler that raises nothing: the wait goes on
        signal.signal(signal.SIGINT, lambda *args: seen.append(time.monotonic()))
        began = time.monotonic()
        try:
            is_interrupted(pidwait.wait, sleeper, 1)
        except pidwait.TimeoutExpired:
            told.append(time.monotonic() - began > 0.98)
        told.append(len(seen) == 1)
    finally:
        for child in herd:
            child.kill()
            child.wait()
    thread.join()
    waiting.close()
    with open(sys.argv[1], "w") as file:
        print(*told, file=file)
"""
)


def test_ctrl_c_interrupts_every_wait(variant, tmp_path):
    """Of the main thread; another one that waits on the same set goes on."""
    (told,) = in_a_console(INTERRUPTED.format(package=PACKAGE), tmp_path)
    assert told.split() == ["True"] * 11


@pytest.mark.parametrize("timeout", [None, 3600])
@pytest.mark.parametrize("many", [False, True])
def test_a_ctrl_c_that_the_call_has_swallowed_comes_when_it_ends(
    use_variant, seam, suspended, timeout, many
):
    """The interpreter's own forgets one that came right before it. So no call is long.

    A time-out of the system also stands still while the machine sleeps.
    """
    use_variant("win32-own")
    waits = []

    def wait(handles, wait_all, milliseconds):
        waits.append(milliseconds)
        if len(waits) > 1:
            _thread.interrupt_main()
        return WAIT_TIMEOUT

    with pidwait.Process(suspended.pid) as process, pidwait.WaitSet([suspended.pid]) as waiting:
        seam.put("WaitForMultipleObjects", wait)
        with pytest.raises(KeyboardInterrupt):
            (waiting if many else process).wait(timeout)
    assert 0 < max(waits) <= 5000 and len(waits) == 2


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


def test_ctrl_c_ends_the_command_line_as_it_ends_python(tmp_path, start, suspended):
    first = start(*sleeping(0))
    code = COMMAND_LINE.format(package=PACKAGE)
    (status,) = in_a_console(code, tmp_path, str(first.pid), str(suspended.pid))
    assert int(status) == 0xC000013A  # STATUS_CONTROL_C_EXIT


RUN = """if True:
    import ctypes, subprocess, sys, time
    import {package} as pidwait

    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.SetConsoleCtrlHandler(None, False)
    sleeping = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    job = subprocess.Popen(
        [sys.executable, "-m", "{package}", "run", sys.executable, "-c", sleeping],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    command = pidwait.Process(int(job.stdout.readline()))
    try:
        kernel32.GenerateConsoleCtrlEvent(0, 0)
        time.sleep(60)  # ours comes in its own time
    except KeyboardInterrupt:
        codes = job.wait(), command.wait(50)
    with open(sys.argv[1], "w") as file:
        print(*codes, file=file)
"""


def test_ctrl_c_ends_run_and_its_command(tmp_path):
    (codes,) = in_a_console(RUN.format(package=PACKAGE), tmp_path)
    # The command is Python, which exits with 1 before version 3.8.
    of_command = 0xC000013A if sys.version_info >= (3, 8) else 1
    assert list(map(int, codes.split())) == [0xC000013A, of_command]


# The rest of the command line


@pytest.mark.parametrize("encoding", ["cp437", "utf-8"])
def test_the_command_line_tells_a_status_in_hexadecimal(start, tmp_path, suspended, encoding):
    """And the name, as far as the code page has its letters."""
    name = "\u0436\u00e9.exe"
    shutil.copy(os.environ["COMSPEC"], str(tmp_path / name))
    child = start(str(tmp_path / name), creationflags=CREATE_SUSPENDED)
    end(suspended, 0)
    with subprocess.Popen(
        [INTERPRETER, "-m", PACKAGE, "-v", str(suspended.pid), str(child.pid)],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONIOENCODING=encoding),
    ) as waiter:
        waiter.stdout.readline()  # the first has exited, and the second is waited for
        end(child, 0xC0000005)
        printed = waiter.stdout.read()
    shown = name.encode(encoding, "backslashreplace")
    assert printed.startswith(b"%d (%s): exited with 0xC0000005; waited" % (child.pid, shown))


# What a process has used


BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_times_of_a_child(variant):
    """Wine reports no peak memory of a process that has exited."""
    command = [INTERPRETER, "-c", BUSY]
    popen = ours.Popen(command)
    assert popen.usage is None
    popen.wait()
    with pidwait.spawn(command) as child:
        child.wait()
    for usage in popen.usage, child.usage, ours.run(command).usage:
        assert 0.3 <= usage.user + usage.system < 100 and usage.max_rss >= 0


def test_memory_and_jobs_as_windows_reports_them(seam):
    """Wine reports zeros."""
    query = seam.get("QueryInformationJobObject")
    known = {1: (12 * 10**6, 3 * 10**6, 0, 0), 9: (0, 34500000, 0)}
    seam.put("K32GetProcessMemoryInfo", lambda handle: 34500000)
    seam.put(
        "QueryInformationJobObject",
        lambda job, kind, *as_: known.get(kind) or query(job, kind, *as_),
    )
    command = [INTERPRETER, "-c", ""]
    assert ours.run(command).usage.max_rss == 34500000
    assert ours.run(command, tree=True).usage == (1.2, 0.3, 34500000)
