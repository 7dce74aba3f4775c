# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in Popen and its functions have the results and the errors of the standard ones."""

import asyncio
import contextlib
import errno
import gc
import importlib
import inspect
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from .. import pidwait
from ..conftest import targets_of
from ..processes import (
    WINDOWS,
    become_zombie,
    eventually,
    exiting,
    exiting_when_told,
    is_open,
    run_python,
    sleeping,
    state,
)
from .conftest import note_starts, ours, signalled

aio = importlib.import_module(pidwait.__name__ + ".aio")

POPENS = subprocess.Popen, ours.Popen
PARAMETERS = inspect.signature(subprocess.Popen.__init__).parameters


# The child prints what it finds, and exits with 3.
SCRIPT = r"""
pwd; umask; echo "SPAWN=$SPAWN PATH=$PATH 0=$0"
PATH=/bin:/usr/bin
if [ -e /proc/self/stat ]; then
    read -r pid name state parent group session rest < /proc/$$/stat
    [ $group = $pid ] && echo "group leader"
    [ $session = $pid ] && echo "session leader"
    grep -E '^(Uid|Gid|Groups|SigBlk|SigIgn)' /proc/self/status
    for fd in /proc/$$/fd/*; do [ ${fd##*/} -lt 200 ] && echo "fd ${fd##*/}"; done
fi
echo error >&2
exit 3
"""
SHELL = "sh", "-c", SCRIPT
PASSED = 99  # a file descriptor that is not in use
CLOSED = 97
LONG = "x" * 3000000  # E2BIG


class Failing(os.PathLike):
    def __fspath__(self):
        raise LookupError("on purpose")


def set_umask():
    os.umask(0o007)


# Each alone, and mixed at random, as far as this Python has the arguments.
VALUES = {
    "args": ["/bin/true", ["sh", "-c", SCRIPT.encode()], ["nonesuch"], partial(iter, SHELL)],
    "executable": ["/bin/sh", "/nonesuch", "/bin/sh\0"],
    "stdin": [subprocess.DEVNULL, subprocess.PIPE],
    "stdout": [subprocess.PIPE, subprocess.DEVNULL],
    "stderr": [subprocess.STDOUT, subprocess.PIPE],
    "preexec_fn": [set_umask],
    "cwd": ["/", Path("/nonesuch"), "", b""],
    "env": [{"SPAWN": "1"}, {b"SPAWN": "2", "PATH": "/nonesuch"}, {"A=": ""}],
    "pass_fds": [(0, 1), partial(iter, (PASSED,))],
    "extra_groups": [[65534]],
    "encoding": ["latin-1"],
    "umask": [0o777],
    "pipesize": [65536],
}
for value, names in (
    (True, "shell universal_newlines start_new_session text"),
    (False, "close_fds restore_signals"),
    (0, "bufsize process_group"),
    (1, "startupinfo creationflags"),
    (65534, "user group"),
):
    VALUES.update(dict.fromkeys(names.split(), [value]))
BY_THE_STANDARD_CODE = {"preexec_fn", "user", "group", "extra_groups", "umask"}
# What is odd, and up to the standard code.
ODD_VALUES = {
    "args": [partial(iter, ()), Path("/bin/true"), ["true", Failing()]],
    "stdin": [SimpleNamespace(fileno=lambda: subprocess.DEVNULL)],
    "stdout": [SimpleNamespace(fileno=lambda: -7)],
    "stderr": [SimpleNamespace(fileno=lambda: None)],
    "env": [[("SPAWN", "6")], MappingProxyType({"SPAWN": "4"})],
    "restore_signals": ["x", 1.5],
    "start_new_session": ["", None, 2**40],
    "pass_fds": [0, (2**32 + 1,), ([],)],
    "umask": ["x", -2],
    "process_group": [1, 1.5],
}
ODD = [{name: value} for name, values in ODD_VALUES.items() for value in values] + [
    {"args": ["nonesuch", "/bin/sh"], "executable": "/bin/sh"},
    {"args": ["nonesuch"], "stdin": CLOSED},
    {"cwd": "/nonesuch", "stdin": CLOSED},
    {"args": [Path("/bin/true"), LONG]},
    {"args": [Path("/bin/true"), LONG], "close_fds": False},
    {"args": [Path("/nonesuch")], "close_fds": False},
    {"args": ["true"], "executable": Path("/etc/passwd"), "close_fds": False},
    {"args": [Path("true")], "env": {"PATH": "/bin", "A": LONG}},
    {"args": ["nonesuch"], "pass_fds": (CLOSED,)},
    {"args": bytearray(b"true"), "pass_fds": ([],)},
    dict(dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE), pass_fds=(-1,)),
    {"process_group": 0, "start_new_session": True},
]


def outcome(Popen, options):
    """All that this process and the child can see of a start."""
    with tempfile.TemporaryFile("w+") as file:
        options = dict({"args": SHELL, "stdout": file}, **options)
        for name, value in options.items():  # each start gets iterators of its own
            options[name] = value() if isinstance(value, partial) else value
        try:
            child = Popen(**options)
        except Exception as error:
            filename = getattr(error, "filename", None)
            return type(error), str(error), getattr(error, "errno", None), filename
        with child:
            told = child.communicate(timeout=60)
        file.seek(0)
        text = IGNORED.sub(without_those_of_glibc, repr((told, file.read())))
        return child.returncode, text, child.args is options["args"]


IGNORED = re.compile(r"(?<=SigIgn:\\t)[0-9a-f]+")


def without_those_of_glibc(match):
    """Leave out 32 and 33: children that posix_spawn starts ignore these signals of glibc's."""
    return "%x" % (int(match.group(), 16) & ~0x180000000)


def mixes():
    """{id: options}: each value alone, and random ones of two to four arguments."""
    names = [name for name in VALUES if name in PARAMETERS]
    alone = {"%s %d" % (name, n): {name: v} for name in names for n, v in enumerate(VALUES[name])}
    chance = random.Random(1)  # so that all who run the tests in parallel collect the same
    for number in range(100):
        chosen = chance.sample(names, chance.randint(2, 4))
        alone["mix %d" % number] = {name: chance.choice(VALUES[name]) for name in chosen}
    return alone


MIXES = mixes()


@pytest.mark.filterwarnings("ignore:pass_fds overriding close_fds:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:line buffering")
@pytest.mark.parametrize("name", list(MIXES))
def test_arguments_have_the_results_and_errors_of_the_original(name, forks, seam, passed):
    options = MIXES[name]
    original = outcome(subprocess.Popen, options)
    starts = note_starts(seam)
    assert outcome(ours.Popen, options) == original, options
    if isinstance(original[0], int):
        # Else the standard code was compared with itself.
        assert starts.count(0) == (not BY_THE_STANDARD_CODE & set(options)), options


@pytest.mark.parametrize("options", ODD)
def test_odd_arguments_have_the_results_and_errors_of_the_original(options, forks):
    if set(options) <= set(PARAMETERS):
        assert outcome(ours.Popen, options) == outcome(subprocess.Popen, options)
    else:
        assert "process_group" in options or "umask" in options


@pytest.fixture
def passed():
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, PASSED, inheritable=False)
    os.close(null)
    yield PASSED
    os.close(PASSED)


def has_vfork():
    """Whether the interpreter's own start calls vfork, judging by the names in its C code."""
    if sys.implementation.name != "cpython" or sys.platform != "linux":
        return False
    module = importlib.import_module("_posixsubprocess")
    # Of the interpreter itself, which another program may have loaded, or of a library.
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(None, 5)[-1] for line in maps if "/" in line}
    own = {path for path in mapped if Path(path).name.startswith(("python", "libpython"))}
    names = {module.__file__} if hasattr(module, "__file__") else own
    return any(b"\0vfork\0" in Path(name).read_bytes() for name in names)


@pytest.mark.parametrize("how", ["by itself", "by a switch", "gevent took its start away"])
def test_posix_spawn_starts_where_the_interpreter_would_fork(starts, monkeypatch, how):
    if how == "by a switch":
        monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    elif how != "by itself":
        name = "_fork_exec" if hasattr(subprocess, "_fork_exec") else "_posixsubprocess"
        monkeypatch.setattr(subprocess, name, None)
    assert ours.run(["true"], cwd="/", start_new_session=True).returncode == 0
    assert ours.call("exit 3", shell=True) == 3
    assert starts == [0, 0] * (how != "by itself" or not has_vfork())


def test_iterators_get_whole_to_the_standard_code(seam, forks, passed):
    seam.hide("posix_spawn")
    args = iter([sys.executable, "-c", "import os, sys; os.fstat(int(sys.argv[1]))", str(passed)])
    ours.check_call(args, pass_fds=iter([passed]), process_group=0)


def test_audit_hooks_see_what_they_see_of_the_original(forks, forked):
    def check():
        events, hook = [], getattr(sys, "addaudithook", None)
        if hook is not None:  # Python 3.8
            hook(lambda name, args: events.append(args) if name == "subprocess.Popen" else None)
        for module in subprocess, ours:
            assert module.call(["true", "x"]) == 0
            assert module.call("exit $A", shell=True, cwd="/", env={"A": "3"}) == 3
        assert len(events) == 4 * (hook is not None) and events[:2] == events[2:]

    ours.call(["true"])
    forked(check)  # where the hook ends


@pytest.mark.parametrize("how", ["forbidden", "missing program", "missing cwd", "bad fd"])
def test_audit_hooks_see_a_start_once_though_posix_spawn_fails(how, forks, forked, seam):
    """Then the standard code starts the process, or finds out why it can't."""

    def check():
        seen, hook = [], getattr(sys, "addaudithook", None)
        if hook is not None:  # Python 3.8
            names = "subprocess.Popen", "os.posix_spawn", "os.fork"

            def note(name, args):
                if name in names and args[0] != "/bin/ps":  # of ours, to poll
                    seen.append((name, args[1]))

            hook(note)
        expected = []
        for start in subprocess.Popen, Standard, ours.Popen, pidwait.spawn:
            before = len(seen)
            try:
                with start(**options):
                    pass
                assert how == "forbidden"
            except OSError:
                assert how != "forbidden"
            # From Python 3.15 on the standard code calls os.posix_spawn(), too, which tells them.
            expected = expected or seen[before:]
            if start is pidwait.spawn:
                expected = [("os.posix_spawn", options["args"])] * (hook is not None)
            assert seen[before:] == expected
        assert len(expected) == (hook is not None)

    def Standard(**options):
        with ours.patch():
            return subprocess.Popen(**options)

    ours.call(["true"])
    options = {
        "forbidden": {"args": ["true"]},
        "missing program": {"args": ["/nonesuch"]},
        "missing cwd": {"args": ["true"], "cwd": "/nonesuch"},
        "bad fd": {"args": ["true"], "stdin": CLOSED},
    }[how]
    if how == "forbidden":
        seam.put("posix_spawn", lambda *arguments: errno.EPERM)
    forked(check)  # where the hook ends


def test_errors_are_those_of_the_original_though_gevent_took_its_start_away(monkeypatch):
    expected = outcome(subprocess.Popen, {"args": ["nonesuch"]})
    name = "_fork_exec" if hasattr(subprocess, "_fork_exec") else "_posixsubprocess"
    monkeypatch.setattr(subprocess, name, None)
    assert outcome(ours.Popen, {"args": ["nonesuch"]}) == expected


@pytest.mark.parametrize("options", [{}, {"preexec_fn": set_umask}, {"cwd": "/"}])
def test_process_group_works_on_every_python(options):
    with ours.Popen(sleeping(60), process_group=0, **options) as leader:
        try:
            assert os.getpgid(leader.pid) == leader.pid
            for group, expected in (leader.pid, leader.pid), (None, os.getpgid(0)):
                with ours.Popen(sleeping(60), process_group=group, **options) as other:
                    assert os.getpgid(other.pid) == expected
                    other.kill()
        finally:
            leader.kill()


class Number:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def patched(*args, **options):
    with ours.patch():
        return subprocess.Popen(*args, **options)


STARTS = ours.Popen, patched, partial(ours.Popen, tree=True)
GROUPS = [
    *((group, 3) for group in (0, Number(0), -5)),
    *((group, PermissionError) for group in (1, True, Number(1))),
    *((group, OverflowError) for group in (2**31, -(2**31) - 1, Number(2**40))),
    *((group, TypeError) for group in ("0", 1.5)),
]


@pytest.mark.parametrize("options", [{}, {"preexec_fn": set_umask}, {"cwd": Path("/")}])
@pytest.mark.parametrize("group, expected", GROUPS)
def test_process_group_is_that_of_python_3_11(group, expected, options, forks):
    options = dict(options, process_group=group)
    is_pypy = sys.implementation.name == "pypy"
    if expected is OverflowError and is_pypy and "process_group" in PARAMETERS:
        pytest.skip("PyPy's own process_group is cut to a C int")
    for start in (subprocess.Popen,) * ("process_group" in PARAMETERS) + STARTS:
        found = outcome(start, options)
        assert found[0] == expected
        # Python 3.13 does not name the step before any more.
        assert expected is not PermissionError or found[3] in (None, options.get("cwd"))
    with pytest.raises(PermissionError):
        ours.Popen(["true"], process_group=0, start_new_session=True)


@pytest.mark.parametrize("call", ["clone3", "execve", "setpgid"])
def test_what_answers_eperm_is_found_out(call, forks, forked):
    """clone3(2) can be done without; if execve(2) is refused, the error names the program."""
    system = importlib.import_module(__package__.rpartition(".")[0] + ".trouble.system")
    if system.why_no_policy():
        pytest.skip(system.why_no_policy())

    def check():
        system.forbid({call: errno.EPERM})
        for program, cwd in ("true", None), (b"/bin/true", b"/"), (Path("/bin/true"), Path("/")):
            for group in None, 0, os.getpgrp():
                named = {"execve": (program, os.fspath(program)), "setpgid": (None, cwd)}
                expected = named.get(call, (0,)) if call != "setpgid" or group is not None else (0,)
                for start in (*STARTS, pidwait.spawn):
                    try:
                        with start([program], cwd=cwd, process_group=group) as child:
                            found = child.wait()
                    except PermissionError as error:
                        found = error.filename
                    assert found in expected, (start, program, group)

    forked(check)


@pytest.mark.parametrize("how", ["ours", "patched", "tree"])
def test_a_wait_calls_no_poll_that_calls_wait(how):
    class Mine(ours.Popen if how != "patched" else subprocess.Popen):
        polls = 0

        def poll(self):
            self.polls += 1
            return self.wait(timeout=0)

    def by_aio(popen):
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            return loop.run_until_complete(aio.wait(popen, 30))

    most = dict.fromkeys([Mine.wait, lambda popen: popen.wait(30)], 0)
    most[lambda popen: popen.communicate() and popen.returncode] = 0
    most.update({pidwait.wait: 9, by_aio: 9})
    most[lambda popen: pidwait.wait_procs([popen, os.getppid()], 0.5)[0][0][1]] = 9
    with ours.patch() if how == "patched" else contextlib.ExitStack():
        for wait in most:
            with Mine(exiting(3, after=0.02), **{"tree": True} if how == "tree" else {}) as popen:
                assert wait(popen) == popen.returncode == 3
            assert popen.polls <= most[wait]


def test_end_of_a_pipe_is_not_taken_for_a_closed_file_descriptor(forks):
    """It has got the number of one that was to be passed, or to be a stream."""
    told = []
    for Popen in POPENS:
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        command = ["sh", "-c", "[ -e /proc/$$/fd/%d ]" % free]
        with Popen(command, stdout=subprocess.PIPE, pass_fds=(free,)) as child:
            assert child.stdout.fileno() == free
            told.append(child.wait(30))
        with pytest.raises(OSError) as caught:
            Popen(["true"], stdout=subprocess.PIPE, stderr=free)
        told.append((type(caught.value), caught.value.errno, caught.value.filename))
    assert told == [1, (OSError, errno.EBADF, None)] * 2


def test_ends_for_the_child_are_closed(forks, forked, monkeypatch):
    """Even if one has the number 0; and at once, though gevent's os.close() closes later."""

    def check():
        kept = os.dup(0)
        for Popen in POPENS:
            os.close(0)
            with Popen(["cat"], stdin=subprocess.PIPE) as child:
                assert child.stdin.fileno() != 0 and not is_open(0)
            assert child.returncode == 0
            os.dup2(kept, 0)
        os.close(kept)

    ours.call(["true"])
    forked(check)
    later = []
    monkeypatch.setattr(os, "close", later.append)
    with ours.Popen(["echo", "x"], stdout=subprocess.PIPE) as child:
        assert child.stdout.read() == b"x\n"
    monkeypatch.undo()
    for fd in later:
        os.close(fd)


@pytest.mark.windows
def test_wait_returns_the_code(variant, no_sleep):
    with ours.Popen(exiting(3, after=0.05)) as child:
        assert child.wait(30) == child.returncode == 3
        assert child.wait(0) == child.poll() == 3
    with ours.Popen(exiting(4)) as child:
        assert child.wait() == 4


@pytest.mark.windows
def test_time_out_is_the_exception_of_the_original(variant, no_sleep):
    with ours.Popen(sleeping(60)) as child:
        for timeout in 0, 0.01:
            with pytest.raises(subprocess.TimeoutExpired) as caught:
                child.wait(timeout)
            assert (caught.value.cmd, caught.value.timeout) == (child.args, timeout)
        assert str(caught.value) == str(subprocess.TimeoutExpired(child.args, 0.01))
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is subprocess.TimeoutExpired and again.cmd == child.args
        assert child.returncode is None
        child.kill()
        assert child.wait(30) == (1 if WINDOWS else -signal.SIGKILL)


def test_communicate_has_a_time_out(variant, no_sleep):
    reader, writer = os.pipe()
    script = "exec >&-; read line; exit 5"  # its stdout ends before it does
    with ours.Popen(["sh", "-c", script], stdin=reader, stdout=subprocess.PIPE) as child:
        os.close(reader)
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=0.02)
        os.close(writer)
        assert child.wait(30) == 5
    with ours.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.communicate(b"x", timeout=30) == (b"x", None)


def test_child_that_other_code_reaps_has_the_code_0_as_with_the_original(variant):
    with ours.Popen(exiting(3)) as child:
        os.waitpid(child.pid, 0)
        assert child.wait(30) == 0


def test_code_of_a_child_that_is_reaped_meanwhile_is_known_where_the_kernel_tells():
    from ..trouble import kernel_tells

    if pidwait.probe()["backend"] != "pidfd" or not kernel_tells():
        pytest.skip("this kernel does not tell it")
    with ours.Popen(sleeping(60)) as child, ThreadPoolExecutor(1) as pool:
        code = pool.submit(child.wait, 60)
        eventually(lambda: any("pidfd" in link for link in targets_of(range(200)).values()))
        os.kill(child.pid, signal.SIGKILL)
        try:
            os.waitpid(child.pid, 0)
        except ChildProcessError:
            assert state(child.pid) is None  # the thread was quicker
        assert code.result() == child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "error", [pidwait.TimeoutExpired(5, 0), KeyboardInterrupt(), ProcessLookupError()], ids=repr
)
def test_error_of_a_signal_handler_comes_through_from_wait(variant, error):
    """It is no answer of the system's, nor the time-out of the wait that it interrupts."""

    raised = []

    def handle():
        if not raised:
            raised.append(error)
            raise error

    with ours.Popen(sleeping(60)) as child:
        with pytest.raises(type(error)) as caught, signalled(handle):
            child.wait(60)
        assert caught.value is error and child.returncode is None
        child.kill()


def told_while_a_thread_waits(Popen, timeout):
    """What the caller is told of processes that have exited, while a thread is in wait()."""
    told = []
    for ask in [Popen.poll, partial(Popen.wait, timeout=0), partial(pidwait.wait, timeout=0)] * 4:
        child = Popen(exiting_when_told(7), stdin=subprocess.PIPE)
        with child, ThreadPoolExecutor(1) as pool:
            code = pool.submit(child.wait, timeout)
            child.stdin.close()
            eventually(lambda pid=child.pid: state(pid) in ("Z", None))
            told += [ask(child), code.result(), child.returncode]
    return told


@pytest.mark.parametrize("timeout", [None, 60])
def test_exit_is_told_while_another_thread_waits(variant, timeout):
    """The standard Popen says None: its wait() holds the lock (cpython#127050)."""
    assert told_while_a_thread_waits(ours.Popen, timeout) == [7] * 36


def test_exit_is_told_while_the_lock_is_held():
    """As by the poll() that a signal handler interrupts; to reap is left to that."""
    with ours.Popen(exiting(7)) as child:
        become_zombie(child.pid)
        with child._waitpid_lock:
            assert child.poll() == child.wait(0) == child.wait(5) == child.wait() == 7
            assert pidwait.wait(child, 0) == pidwait.wait(child) == 7
            assert child.returncode is None and state(child.pid) == "Z"
        assert child.poll() == child.returncode == 7


HANDLER = """if True:
    import signal, subprocess, threading
    import {package} as pidwait
    from {package} import subprocess as ours

    Popen = {Popen}

    def wait(timeout, how):
        told, signals = [], []

        def handle(number, frame):
            signals.append(number)
            if len(signals) == 2:  # the first one may have come too early
                child.terminate()
                told.append(how(child))

        signal.signal(signal.SIGALRM, handle)
        child = Popen(["sleep", "60"])
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        told.append(child.wait(timeout))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert told == [-15, -15] and child.returncode == -15, told

    over = threading.Event()
    for start in int, threading.Thread(target=over.wait).start:  # alone, and beside a thread
        start()
        for timeout in None, 60:
            wait(timeout, lambda child: child.wait())
            wait(timeout, lambda child: child.wait(5))
            wait(timeout, lambda child: pidwait.wait(child))
            wait(timeout, lambda child: pidwait.wait(child, 5))
            wait(timeout, lambda child: next(filter(None, iter(child.poll, 0))))
    over.set()
"""


@pytest.mark.parametrize("kind", ["ours.Popen", "ours.patch() and subprocess.Popen"])
def test_signal_handler_may_wait_for_the_child_whose_wait_it_interrupts(kind):
    done = run_python(HANDLER.format(package=pidwait.__name__, Popen=kind))
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.threads
def test_threads_start_and_wait_at_the_same_time(no_sleep):
    def start(number):
        with ours.Popen(exiting(number), process_group=0) as child:
            return child.wait(50)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(start, range(40))) == list(range(40))


def test_child_that_is_forgotten_while_it_runs_is_reaped_by_a_later_start(forks):
    for Popen in POPENS:
        child = Popen(sleeping(60))
        pid = child.pid
        with pytest.warns(ResourceWarning, match="is still running"):
            del child
            gc.collect()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: ours.call(["true"]) == 0 and state(pid) is None)


NO_SUCH = """if True:
    import gc, logging
    from {} import subprocess
    logging.disable(logging.WARNING)  # it warns that a tree is a group
    for name in "run", "call", "check_output":
        try:
            getattr(subprocess, name)(["./no-such"], tree=True)
        except FileNotFoundError:
            print("not found")
    gc.collect()
"""


@pytest.mark.windows
@pytest.mark.parametrize("mechanism", ["auto"] if WINDOWS else ["auto", "group"])
def test_a_tree_whose_command_is_not_found_prints_nothing_when_it_is_freed(monkeypatch, mechanism):
    monkeypatch.setenv("PIDWAIT_TREE", mechanism)
    done = run_python(NO_SUCH.format(pidwait.__name__), options=["-W", "default"])
    assert (done.stdout, done.stderr, done.returncode) == ("not found\n" * 3, "", 0)


@pytest.mark.windows
def test_all_other_names_are_those_of_the_original():
    with ours.Popen(exiting(0)) as child:
        assert isinstance(child, subprocess.Popen)
        assert pidwait.wait(child, 30) == 0
    assert type(child).__name__ == "Popen"
    if "__repr__" in vars(subprocess.Popen):
        assert repr(child).startswith("<Popen: returncode: 0 args: %s" % ascii(child.args)[:20])
    replaced = "Popen run call check_call check_output getoutput getstatusoutput".split()
    for name in set(subprocess.__all__).difference(replaced):
        assert getattr(ours, name) is getattr(subprocess, name)
    assert set(ours.__all__) == set(subprocess.__all__) | {"patch", "unpatch"}
    for name in replaced[1:]:
        function, original = getattr(ours, name), getattr(subprocess, name)
        assert inspect.signature(function) == inspect.signature(original)
        assert function.__doc__ == original.__doc__


def test_functions_do_what_the_originals_do():
    done = ours.run(
        ["tr", "a", "b"], input="aha", stdout=subprocess.PIPE, universal_newlines=True, check=True
    )
    assert type(done) is subprocess.CompletedProcess and done.stdout == "bhb"
    assert ours.check_output(["tr", "a", "b"], input=b"aha") == b"bhb"
    assert ours.getstatusoutput("echo x; exit 3") == (3, "x")
    assert ours.getoutput("echo x") == "x"
    assert ours.call(exiting(3)) == 3 and ours.check_call(exiting(0)) == 0
    for function in ours.check_call, ours.check_output:
        with pytest.raises(subprocess.CalledProcessError) as caught:
            function(exiting(3))
        assert pickle.loads(pickle.dumps(caught.value)).returncode == 3
    for function in ours.run, ours.call, ours.check_call, ours.check_output:
        with pytest.raises(subprocess.TimeoutExpired):
            function(sleeping(60), timeout=0.02)
