# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in subprocess: like the original, but for how it starts and how it waits."""

import gc
import importlib
import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from . import pidwait
from .copies import FILES, put
from .processes import (
    WINDOWS,
    eventually,
    exiting,
    interrupted_by,
    not_on_windows,
    run_python,
    sleeping,
)

ours = importlib.import_module(pidwait.__name__ + ".subprocess")

PARAMETERS = inspect.signature(subprocess.Popen.__init__).parameters
# Python 3.10 and later start by vfork themselves, on Linux.
FORKS = not WINDOWS and ours._would_fork()


@pytest.fixture
def no_sleep(monkeypatch):
    """Make the standard code's busy loop fail."""

    class Time:
        def __getattr__(self, name):
            if name == "sleep":
                raise AssertionError("the standard code sleeps")
            return getattr(importlib.import_module("time"), name)

    monkeypatch.setattr(subprocess, "time", Time())


# The child prints what it finds, and exits with 3.
SCRIPT = r"""
pwd; umask; echo "SPAWN=$SPAWN PATH=$PATH 0=$0"
PATH=/bin:/usr/bin
read -r pid name state parent group session rest < /proc/$$/stat
[ $group = $pid ] && echo "group leader"
[ $session = $pid ] && echo "session leader"
grep -E '^(Uid|Gid|Groups|SigBlk|SigIgn)' /proc/self/status
for fd in /proc/$$/fd/*; do [ ${fd##*/} -lt 200 ] && echo "fd ${fd##*/}"; done
echo error >&2
exit 3
"""


def outcome(Popen, **options):
    """The outcome of a start: all that this process and the child can see of it."""
    with tempfile.TemporaryFile("w+") as file:
        options = dict({"args": ["/bin/sh", "-c", SCRIPT], "stdout": file}, **options)
        try:
            child = Popen(**options)
        except Exception as error:
            return type(error), str(error), getattr(error, "errno", None), filename(error)
        told = child.communicate(timeout=30)
        file.seek(0)
        told = IGNORED.sub(without_those_of_glibc, repr((told, file.read())))
        return child.returncode, told, child.args is options["args"]


IGNORED = re.compile(r"(?<=SigIgn:\\t)[0-9a-f]+")


def without_those_of_glibc(match):
    """Leave out 32 and 33: children that posix_spawn starts ignore these signals of glibc's."""
    return "%x" % (int(match.group(), 16) & ~0x180000000)


def filename(error):
    name = getattr(error, "filename", None)
    return name if name is None or isinstance(name, str) else os.fsdecode(name)


def set_umask():
    os.umask(0o007)


class Once:
    """An iterable that can be read once."""

    def __init__(self, *values):
        self.values = values
        self.left = iter(values)

    def __iter__(self):
        return self.left


class Items:
    """An environment that has items() and no PATH."""

    def items(self):
        return [("SPAWN", "4"), ("SPAWN", "5")]

    def get(self, key, default=None):
        return default

    def __getitem__(self, key):
        raise KeyError(key)


PASSED = 150  # a file descriptor that is not in use

# Each alone, and each with each other, as far as this Python has the arguments.
VALUES = [
    ("args", "/bin/true"),
    ("args", ["sh", "-c", SCRIPT.encode()]),
    ("args", ["nonesuch"]),
    ("args", Once()),
    ("args", Once("sh", "-c", SCRIPT)),
    ("bufsize", 0),
    ("executable", "/bin/sh"),
    ("executable", "/nonesuch"),
    ("executable", "/bin/sh\0"),
    ("stdin", subprocess.DEVNULL),
    ("stdin", subprocess.PIPE),
    ("stdout", subprocess.PIPE),
    ("stdout", subprocess.DEVNULL),
    ("stderr", subprocess.STDOUT),
    ("stderr", subprocess.PIPE),
    ("preexec_fn", set_umask),
    ("close_fds", False),
    ("shell", True),
    ("cwd", "/"),
    ("cwd", Path("/nonesuch")),
    ("cwd", ""),
    ("cwd", b""),
    ("env", {"SPAWN": "1"}),
    ("env", {b"SPAWN": "2", "PATH": "/nonesuch"}),
    ("env", {"A=": ""}),
    ("env", [("SPAWN", "6")]),
    ("env", Items()),
    ("universal_newlines", True),
    ("startupinfo", 1),
    ("creationflags", 1),
    ("restore_signals", False),
    ("start_new_session", True),
    ("pass_fds", (0, 1)),
    ("pass_fds", 0),
    ("pass_fds", Once(PASSED)),
    ("user", 65534),
    ("group", 65534),
    ("extra_groups", [65534]),
    ("encoding", "latin-1"),
    ("text", True),
    ("umask", 0o777),
    ("pipesize", 65536),
    ("process_group", 0),
]


# The last two are for Windows, and errors elsewhere.
FOR_THE_STANDARD_CODE = {
    "preexec_fn",
    "user",
    "group",
    "extra_groups",
    "umask",
    "startupinfo",
    "creationflags",
}


@not_on_windows("POSIX shell, nor /proc")
@pytest.mark.filterwarnings("ignore:pass_fds overriding close_fds:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:line buffering")
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_every_argument_alone_and_in_pairs(number, asked, monkeypatch, passed):
    if VALUES[number][0] not in PARAMETERS:
        return  # test_process_group tests ours where the original has none
    # So that posix_spawn is compared on each Python.
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    for other, value in VALUES[number:]:
        if other not in PARAMETERS:
            continue
        options = dict([VALUES[number], (other, value)])
        original = outcome(subprocess.Popen, **copy_of(options))
        assert asked == []
        assert outcome(ours.Popen, **copy_of(options)) == original, options
        # Else the standard code was compared with itself.
        assert len(asked) == is_for_posix_spawn(**options), options
        asked.clear()


def is_for_posix_spawn(args=True, executable="", env=None, pass_fds=(), **options):
    return not FOR_THE_STANDARD_CODE & set(options) and (
        (env is None or isinstance(env, dict))
        and "\0" not in executable
        and not (isinstance(args, Once) and not args.values)
        and pass_fds != 0
    )


def copy_of(options):
    return {
        name: Once(*value.values) if isinstance(value, Once) else value
        for name, value in options.items()
    }


@pytest.fixture
def passed():
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, PASSED, inheritable=False)
    os.close(null)
    yield PASSED
    os.close(PASSED)


@not_on_windows("posix_spawn")
def test_iterators_get_whole_to_the_standard_code(hide, asked, monkeypatch, passed):
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    hide(["posix_spawn"])
    args = "ls", "/proc/self/fd"
    for output in (
        ours.check_output(Once(*args), pass_fds=Once(PASSED)),
        ours.check_output(map(str, args), pass_fds=iter([PASSED]), process_group=0),
    ):
        assert str(PASSED).encode() in output.split()
    assert asked == [None, None]


@not_on_windows("posix_spawn")
def test_iterators_that_raise(monkeypatch):
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)

    def raising():
        yield "true"
        raise ValueError("on purpose")

    for options in {"args": raising()}, {"args": ["true"], "pass_fds": map(int, raising())}:
        with pytest.raises(ValueError):
            ours.Popen(**options)


@not_on_windows("posix_spawn")
@pytest.mark.parametrize("forced", [False, True])
def test_is_started_by_posix_spawn_where_it_would_fork(starts, monkeypatch, forced):
    if forced:  # by the switch that the standard library has, from 3.11 on
        monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    assert ours.run(["true"], cwd="/", start_new_session=True).returncode == 0
    assert ours.call("exit 3", shell=True) == 3
    assert starts() == 2 * (forced or not has_vfork())


@not_on_windows("posix_spawn")
def test_is_started_by_posix_spawn_without_the_interpreters_start(starts, monkeypatch):
    """gevent takes it away, at any time."""
    monkeypatch.setattr(subprocess, "_fork_exec", None, raising=False)
    with ours.Popen(["true"]) as popen:
        assert popen.wait(60) == 0
    assert starts() == 1


@not_on_windows("posix_spawn")
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, KeyboardInterrupt])
def test_start_that_a_signal_handler_interrupts(monkeypatch, error):
    """The standard code does not start a second process, and the first one has an owner."""
    starting = importlib.import_module(pidwait.__name__ + "._posix_spawn")
    start, pids = starting.start, []
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    with interrupted_by(error("on purpose")) as interrupted:

        def start_and_stop(request):
            pids.append(start(request))
            interrupted()

        monkeypatch.setattr(starting, "start", start_and_stop)
        said = None
        try:  # what pytest.raises() returns would keep the Popen
            ours.Popen(["true"])
        except error as caught:
            said = str(caught)
    assert said == "on purpose" and len(pids) == 1

    def is_reaped():
        gc.collect()
        subprocess._cleanup()  # as the next Popen does
        return not pidwait.pid_exists(pids[0])

    eventually(is_reaped)


@not_on_windows("signals")
def test_time_out_of_a_signal_handlers_own_wait(monkeypatch, start):
    """It comes through as it is: the time-out of the wait that it interrupts is not over."""
    popen = start(*sleeping(60))
    error = pidwait.TimeoutExpired(5, 0)
    with interrupted_by(error) as wait:
        monkeypatch.setattr(ours.process, "wait", wait)
        with pytest.raises(pidwait.TimeoutExpired) as caught:
            ours._wait(getattr(popen, ours._WAIT), popen, 60)
    assert caught.value is error


@not_on_windows("posix_spawn")
def test_arguments_whose_reading_a_signal_handler_interrupts(monkeypatch):
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    reads = []
    with interrupted_by(TimeoutError("on purpose")) as interrupted:

        class Path:
            def __fspath__(self):
                reads.append(self)
                if len(reads) == 1:
                    interrupted()
                return "true"

        with pytest.raises(TimeoutError, match="on purpose"):
            ours.Popen([Path(), "x"])


def has_vfork():
    """Whether the interpreter's own start calls vfork, judging by the names in its C code."""
    if sys.implementation.name != "cpython" or sys.platform != "linux":
        return False
    module = importlib.import_module("_posixsubprocess")
    with open(getattr(module, "__file__", sys.executable), "rb") as file:
        return b"\0vfork\0" in file.read()


AUDIT = """if True:
    import subprocess, sys
    from {package} import _posix_spawn, subprocess as ours
    events, asked = [], []
    start = _posix_spawn.start
    _posix_spawn.start = lambda request: asked.append(1) or start(request)
    ours._would_fork = lambda: True
    add = getattr(sys, "addaudithook", lambda hook: None)  # Python 3.8
    add(lambda name, args: events.append(args) if name == "subprocess.Popen" else None)
    for module in subprocess, ours:
        module.call(["true", "x"])
        module.call("exit $A", shell=True, cwd="/", env={{"A": "3"}})
    print(len(asked), len(events), events[:2] == events[2:])
"""


@not_on_windows("posix_spawn")
def test_audit_hooks_see_what_they_see_of_the_original():
    done = run_python(AUDIT.format(package=pidwait.__name__))
    count = 4 * hasattr(sys, "addaudithook")
    assert (done.stdout, done.stderr) == ("2 %d True\n" % count, "")


@not_on_windows("preexec_fn")
@pytest.mark.parametrize("option", ["preexec_fn", "user", "umask"])
def test_what_the_standard_code_has_to_do(starts, option):
    if option not in PARAMETERS:
        with pytest.raises(TypeError, match=option):
            ours.Popen(["true"], **{option: 0})
        return
    value = (lambda: None) if option == "preexec_fn" else os.getuid() if option == "user" else 0o22
    assert ours.call(["true"], **{option: value}) == 0
    assert starts() == 0


@not_on_windows("process groups of POSIX")
@pytest.mark.parametrize(
    "options", [{}, {"preexec_fn": set_umask}, {"cwd": "/"}], ids=["alone", "preexec_fn", "cwd"]
)
def test_process_group(options):
    with ours.Popen(sleeping(60), process_group=0, **options) as leader:
        try:
            assert os.getpgid(leader.pid) == leader.pid
            with ours.Popen(sleeping(60), process_group=leader.pid, **options) as other:
                assert os.getpgid(other.pid) == leader.pid
                other.kill()
            with ours.Popen(sleeping(60), process_group=None, **options) as other:
                assert os.getpgid(other.pid) == os.getpgid(0)
                other.kill()
        finally:
            leader.kill()


@not_on_windows("process groups of POSIX")
@pytest.mark.parametrize(
    "options", [{"process_group": 1}, {"process_group": 0, "start_new_session": True}]
)
def test_process_group_that_can_not_be_set(options):
    with pytest.raises(PermissionError):
        ours.Popen(["true"], **options)


@pytest.mark.parametrize("value, error", [("0", TypeError), (2**40, OverflowError)])
def test_bad_process_group(value, error):
    try:
        ours.Popen(exiting(0), process_group=value).wait()
    except error:
        return
    # Python 3.12's own Popen truncates large numbers.
    assert ours._HAS_PROCESS_GROUP
    subprocess.Popen(exiting(0), process_group=value).wait()


def test_wait_with_a_time_out(variant, no_sleep):
    with ours.Popen(exiting(3, after=0.05)) as child:
        assert child.wait(30) == child.returncode == 3
        assert child.wait(0) == 3


@pytest.mark.parametrize("module", [ours, subprocess], ids=["ours", "patched"])
def test_wait_beside_a_hub_of_green_threads(monkeypatch, module):
    """A replaced sleep() means a hub, which has to run while we wait: no blocking waitpid()."""
    waited = []
    wait = ours.process.wait
    monkeypatch.setattr(ours.process, "wait", lambda *args: waited.append(args) or wait(*args))
    with ours.patch():
        assert module.call(exiting(3)) == 3
        assert len(waited) == WINDOWS
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds))
        assert module.call(exiting(3)) == 3
    # Python 3.15 has a wait of its own.
    expected = [float("inf")] * (ours._WAIT in ours._METHODS)
    assert [timeout for _, timeout in waited[WINDOWS:]] == expected


GREEN = """if True:
    import sys, time
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(seconds)
    from {package} import process, subprocess as ours
    waited, wait = [], process.wait
    process.wait = lambda *args: waited.append(args) or wait(*args)
    print(ours.call([sys.executable, "-S", "-c", "raise SystemExit(3)"]), len(waited))
"""


def test_hub_that_is_there_from_the_start():
    done = run_python(GREEN.replace("{package}", pidwait.__name__))
    assert done.stdout.split() == ["3", str(int(ours._WAIT in ours._METHODS))], done


def test_ctrl_c_leaves_the_child_some_time(monkeypatch):
    """As in the original, whose wait() calls ours again."""
    if ours._WAITS or not hasattr(subprocess.Popen, "_wait"):  # from Python 3.7 to 3.14
        return
    wait, timeouts = ours.process.wait, []

    def interrupted(child, timeout):
        timeouts.append(timeout)
        if len(timeouts) == 1:
            raise KeyboardInterrupt
        return wait(child, 30)

    monkeypatch.setattr(ours.process, "wait", interrupted)
    child = ours.Popen(exiting(3))
    with pytest.raises(KeyboardInterrupt):
        child.wait(60)
    assert child.returncode == 3 and timeouts[1] < 1


@not_on_windows("os.close")
def test_pipes_are_closed_without_a_hub(monkeypatch):
    """gevent's os.close() closes in its hub, which does not run while a pipe is read."""
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    later = []
    monkeypatch.setattr(os, "close", later.append)
    with ours.Popen(["echo", "x"], stdout=subprocess.PIPE) as child:
        assert child.stdout.read() == b"x\n"
    monkeypatch.undo()
    for fd in later:
        os.close(fd)


@not_on_windows("posix_spawn")
def test_start_that_gevent_has_taken_away(monkeypatch, starts):
    for name in "_fork_exec", "_posixsubprocess":  # Python 3.11, and before
        if hasattr(subprocess, name):
            monkeypatch.setattr(subprocess, name, None)
    assert ours.call(["sh", "-c", "exit 3"]) == 3
    assert starts() == 1


def test_time_out(variant, no_sleep):
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


def test_communicate_with_a_time_out(variant, no_sleep):
    code = "import os, sys, time; os.close(1); time.sleep(0.1); sys.exit(5)"
    with ours.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=0.001)
        assert child.communicate(timeout=30) == (b"", None)
        assert child.returncode == 5


@not_on_windows("waitpid")
def test_child_that_somebody_else_reaped(variant):
    """The code is 0, as with the original."""
    with ours.Popen(exiting(3)) as child:
        os.waitpid(child.pid, 0)
        assert child.wait(30) == 0


@not_on_windows("waitpid")
def test_code_of_a_child_that_is_reaped_meanwhile(monkeypatch):
    """The original reports 0; a pidfd that was opened before the exit has the code."""
    wait = ours.process.wait

    def wait_and_know(child, timeout):
        os.waitpid(child.pid, 0)
        wait(child, timeout)
        return 3

    monkeypatch.setattr(ours.process, "wait", wait_and_know)
    with ours.Popen(exiting(3)) as child:
        assert child.wait(30) == child.returncode == 3


def test_is_the_original_in_all_else():
    with ours.Popen(exiting(0)) as child:
        assert isinstance(child, subprocess.Popen)
        assert pidwait.wait(child, 30) == 0
    assert type(child).__name__ == "Popen"
    if "__repr__" in vars(subprocess.Popen):
        assert repr(child).startswith("<Popen: returncode: 0 args: %s" % ascii(child.args)[:20])
    for name in subprocess.__all__:
        if name not in (
            "Popen",
            "run",
            "call",
            "check_call",
            "check_output",
        ) and not name.startswith("get"):
            assert getattr(ours, name) is getattr(subprocess, name)
    assert set(ours.__all__) == set(subprocess.__all__) | {"patch", "unpatch"}


@pytest.mark.parametrize("name", ["run", "call", "check_call", "check_output"])
def test_functions_take_what_the_originals_take(name):
    function, original = getattr(ours, name), getattr(subprocess, name)
    assert inspect.signature(function) == inspect.signature(original)
    assert function.__doc__ == original.__doc__
    with pytest.raises(subprocess.TimeoutExpired):
        function(sleeping(60), timeout=0.05)


def test_functions():
    hello = [sys.executable, "-c", "import sys; print(sys.stdin.read() + '!')"]
    done = ours.run(
        hello, input="hello", stdout=subprocess.PIPE, universal_newlines=True, check=True
    )
    assert type(done) is subprocess.CompletedProcess and done.stdout == "hello!\n"
    assert ours.check_output(hello, input=b"you").split() == [b"you!"]
    assert ours.call(exiting(3)) == 3
    for function in ours.check_call, ours.check_output:
        with pytest.raises(subprocess.CalledProcessError) as caught:
            function(exiting(3))
        assert pickle.loads(pickle.dumps(caught.value)).returncode == 3


def test_threads(no_sleep):
    wrong = []

    def start(number):
        with ours.Popen(exiting(number), process_group=0) as child:
            if child.wait(50) != number:
                wrong.append((child.returncode, number))

    count = 8 if WINDOWS else 64
    threads = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


METHODS = "__init__", "_execute_child", ours._WAIT


def methods():
    return [vars(subprocess.Popen)[name] for name in METHODS]


@pytest.fixture
def nothing_patched():
    before = methods()
    yield
    assert methods() == before


def test_patch(nothing_patched, no_sleep, variant):
    before = methods()
    with ours.patch():
        assert subprocess.call(exiting(3, after=0.02), timeout=30) == 3
        with subprocess.Popen(exiting(4), process_group=0) as child:
            pass
        assert child.returncode == 4 and type(child) is subprocess.Popen
        with ours.Popen(exiting(5)) as child:
            assert child.wait(30) == 5
    assert methods() == before


def test_patch_twice(nothing_patched):
    before = methods()
    patched = ours.patch()
    once = methods()
    with ours.patch():
        assert methods() == once
    assert methods() == once
    with patched:
        pass
    assert methods() == before
    ours.unpatch()
    assert methods() == before


def test_patch_with_a_wrong_backend(nothing_patched, monkeypatch):
    """It tells that at once, and not at the first wait."""
    probe = importlib.import_module(pidwait.__name__ + "._probe")
    with monkeypatch.context() as patched:
        patched.setenv("PIDWAIT_BACKEND", "foo")
        probe.forget()
        with pytest.raises(ValueError, match="PIDWAIT_BACKEND"):
            ours.patch()
    probe.forget()


def test_only_what_is_missing_is_patched(nothing_patched):
    with ours.patch():
        changed = [
            name for name, is_new in zip(METHODS, methods()) if hasattr(is_new, "__wrapped__")
        ]
    has_group = not WINDOWS and "process_group" in PARAMETERS
    assert ("__init__" in changed) is (not has_group)
    assert ("_execute_child" in changed) is (not has_group or FORKS)
    assert (ours._WAIT in changed) is (WINDOWS or not hasattr(subprocess.Popen, "_wait_pidfd"))


def test_subclass_of_the_drop_in():
    class Mine(ours.Popen):
        pass

    with Mine(exiting(3)) as child:
        assert child.wait(30) == 3


def test_subclass_with_another_base():
    """Our methods are in line with those of the other base."""
    called = []

    def method(name):
        def call(self, *args, **kwargs):
            called.append(name)
            return getattr(super(Other, self), name)(*args, **kwargs)

        return call

    names = "_execute_child", ours._WAIT
    Other = type("Other", (subprocess.Popen,), {name: method(name) for name in names})
    Mine = type("Mine", (ours.Popen, Other), {})
    with Mine(exiting(3)) as child:
        assert child.wait(30) == 3
        assert called == list(names)
        assert child.wait() == 3
        assert called == [*names, ours._WAIT]


@not_on_windows("posix_spawn")
def test_subclass_of_the_original_is_patched_too(nothing_patched, starts):
    class Mine(subprocess.Popen):
        pass

    with ours.patch(), Mine(["true"]) as child:
        assert child.wait(30) == 0
    assert starts() == FORKS


@not_on_windows("posix_spawn")
def test_drop_in_under_patch(nothing_patched, hide, asked, monkeypatch):
    """posix_spawn is asked only once, even if it can't start it."""
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    hide(["posix_spawn"])
    with ours.patch():
        assert ours.call(["true"], process_group=0) == 0
    assert asked == [None]


COPIES = """if True:
    import subprocess
    original = dict(vars(subprocess.Popen))
    from one import subprocess as one
    one.patch()
    from two import subprocess as two  # what it finds is patched
    two.patch()
    two.patch()
    assert two._HAS_PROCESS_GROUP == one._HAS_PROCESS_GROUP
    one.unpatch()
    one.unpatch()  # not the other's
    assert subprocess.call(["true"], timeout=30) == 0
    assert two.call(["true"], timeout=30) == one.call(["true"], timeout=30) == 0
    with two.Popen(["true"], process_group=0) as child:
        assert child.wait(30) == 0
    two.unpatch()
    assert "_patched" in vars(subprocess.Popen)
    two.unpatch()
    changed = [name for name, value in vars(subprocess.Popen).items() if original[name] != value]
    assert changed == [], changed
    print("good")
"""


@not_on_windows("program called true")
def test_two_copies(tmp_path):
    for name in "one", "two":
        put(FILES, tmp_path / name)
    done = run_python(COPIES, env=dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert done.stdout == "good\n", done


ASYNCIO = """if True:
    import asyncio, sys
    from {package} import subprocess, _posix_spawn
    count = []
    start = _posix_spawn.start
    _posix_spawn.start = lambda request: count.append(1) or start(request)

    async def main():
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "cat; exit 3", stdin=pipe, stdout=pipe, process_group=0
        )
        output, _ = await process.communicate(b"hello")
        return output, process.returncode

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with subprocess.patch():
        print(*loop.run_until_complete(main()), len(count))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
"""


@not_on_windows("POSIX shell")
def test_asyncio_starts_by_a_patched_popen_and_waits_itself():
    done = run_python(ASYNCIO.format(package=pidwait.__name__))
    missing = FORKS or "process_group" not in PARAMETERS
    assert (done.stdout, done.stderr) == ("b'hello' 3 %d\n" % missing, "")
