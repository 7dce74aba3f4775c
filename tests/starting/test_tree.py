# SPDX-License-Identifier: BSD-3-Clause
"""A Popen with ``tree`` stands for a command and all that it starts."""

import asyncio
import contextlib
import errno
import functools
import gc
import importlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import zipfile

import pytest

from .. import pidwait
from ..conftest import CHOSEN, KQUEUES, open_fds
from ..needs import needs
from ..processes import (
    OnPurpose,
    become_gone,
    become_zombie,
    eventually,
    kill,
    need_packages,
    run_python,
    state,
)
from ..trouble import kernel_tells
from ..waiting.crowd import room
from .conftest import ours

if os.name == "nt":
    pytest.skip("sh", allow_module_level=True)

PIPE, DEVNULL, run, Popen = subprocess.PIPE, subprocess.DEVNULL, ours.run, ours.Popen
KEEPER = pidwait.probe()["calls"].get("keeper of trees", {"available": False})["available"]
needs_keeper = pytest.mark.skipif(not KEEPER, reason="there can be no keeper")
# Both hold the witness; the second is in another group, and the third has lost its parent.
ALL = "setsid sleep 60 & (sleep 60 &) ; echo ready; sleep 60"
# It ends a while after SIGTERM, and says so.
SLOW = "trap 'sleep 0.2; echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
# On a busy machine a shell may not be ready when the first one is over.
TIMEOUTS = 0.3, 3, 30
HAS_PIDFDS = pidwait.probe()["backends"].get("pidfd", {"available": False})["available"]
needs_pidfds = pytest.mark.skipif(not HAS_PIDFDS, reason="a keeper signals its children alone")
MECHANISMS = [pytest.param("reaper", marks=needs_keeper), "group"]
if KQUEUES:  # with ps alone each test takes a quarter of a minute
    MECHANISMS = [one for one in CHOSEN if not one.startswith("polling")]


@pytest.fixture(params=MECHANISMS)
def mechanism(request, monkeypatch):
    if KQUEUES:
        request.getfixturevalue("use_variant")(request.param)
        return "group"
    monkeypatch.setenv("PIDWAIT_TREE", request.param)
    return request.param


@pytest.fixture
def reaper(monkeypatch):
    if not KEEPER:
        pytest.skip("there can be no keeper")
    monkeypatch.setenv("PIDWAIT_TREE", "reaper")


class Witness:
    """A FIFO that each process of a script holds open: no list of processes is trusted."""

    def __init__(self, path):
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.close(os.open(path, os.O_WRONLY))
        self.popens = []

    def sees(self):
        """Whether anybody is left."""
        poll = select.poll()
        poll.register(self.fd)
        return not poll.poll(0)

    def started(self, script, tree=True, **options):
        """A Popen, once the script has said that it is ready."""
        popen = Popen(sh(script), stdout=PIPE, tree=tree, **options)
        self.popens.append(popen)
        assert popen.stdout.readline() == b"ready\n"
        return popen


@pytest.fixture
def witness(tmp_path, monkeypatch):
    path = str(tmp_path / "witness")
    found = Witness(path)
    monkeypatch.setenv("WITNESS", path)
    yield found
    for popen in found.popens:
        with popen:
            popen.kill()
    eventually(lambda: not found.sees())
    os.close(found.fd)


def sh(script):
    return ["sh", "-c", 'exec 9>"$WITNESS"; ' + script]


@pytest.mark.kqueue
@pytest.mark.parametrize("is_text", [False, True])
def test_all_end_at_a_time_out_and_the_exception_has_all_output(mechanism, witness, is_text):
    for timeout in TIMEOUTS:
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            run(sh(ALL), tree=True, timeout=timeout, stdout=PIPE, universal_newlines=is_text)
        assert not witness.sees() and caught.value.timeout == timeout
        if caught.value.output:
            break
    # As in subprocess, whose output is text only on Python 3.6.
    is_str = is_text and sys.version_info < (3, 7)
    assert caught.value.output == ("ready\n" if is_str else b"ready\n")


@pytest.mark.parametrize("name", ["call", "check_call", "check_output", "run"])
def test_each_function_ends_all_and_gives_them_their_grace(mechanism, witness, name, tmp_path):
    file = tmp_path / "output"
    script = "(%s) > %s & sleep 60" % (SLOW, file)
    for timeout in TIMEOUTS:
        with pytest.raises(subprocess.TimeoutExpired):
            getattr(ours, name)(sh(script), tree=True, timeout=timeout, grace=10)
        assert not witness.sees()
        if file.exists() and file.read_text():
            break
    assert file.read_text() == "ready\nterm\n"


@pytest.mark.kqueue
@pytest.mark.parametrize(
    "tree, rest, output",
    [
        ("kill", "sleep 60", b""),
        ("wait", "sleep 0.2", b"late\n"),
        ("leave", "read x <&3", b"late\n"),
    ],
)
def test_when_the_command_has_exited_the_rest_is_ended_or_not(
    mechanism, witness, tree, rest, output
):
    script = "exec 3<&0; (%s; echo late)& exit 7" % rest
    popen = Popen(sh(script), stdin=PIPE, stdout=PIPE, tree=tree)
    assert popen.wait(30) == popen.returncode == 7
    assert witness.sees() == (tree == "leave")
    assert popen.communicate() == (output, None)
    assert (popen.left, popen.mechanism) == ([], mechanism)


@pytest.mark.kqueue
def test_a_time_out_bounds_the_command_and_its_grace_comes_on_top(mechanism, witness):
    def exited():
        popen = witness.started("trap 'exit 3' USR1; (%s)& wait" % SLOW, grace=20)
        popen.send_signal(signal.SIGUSR1)
        become_zombie(popen.pid)
        return popen

    popen = exited()
    assert popen.communicate(timeout=0) == (b"term\n", None) and popen.returncode == 3
    assert exited().wait(0) == 3
    with pytest.raises(subprocess.TimeoutExpired), witness.started(
        "sleep 60 & echo ready", "wait"
    ) as popen:
        popen.wait(0.1)


@pytest.mark.kqueue
@pytest.mark.skipif(sys.maxsize < 2**32, reason="no stack is too large that stack_size() takes")
def test_a_group_ends_where_no_thread_can_be_started(witness, monkeypatch):
    monkeypatch.setenv("PIDWAIT_TREE", "group")
    popen = witness.started(ALL)
    before = threading.stack_size(2**47)
    try:
        popen.kill()
        assert popen.wait() == -signal.SIGKILL and not witness.sees()
        with pytest.raises(RuntimeError):
            Popen(sh(ALL), tree=True)
        assert not witness.sees()
    finally:
        threading.stack_size(before)
    assert run(["true"], tree=True).returncode == 0


def test_an_exception_in_a_with_block_ends_all(mechanism, witness):
    with pytest.raises(OnPurpose), witness.started(ALL) as popen:
        raise OnPurpose
    assert not witness.sees()
    assert popen.returncode == -signal.SIGKILL
    with pytest.raises(KeyboardInterrupt), witness.started(SLOW.replace("echo term;", "")) as popen:
        raise KeyboardInterrupt  # it has 0.25 seconds then
    assert popen.returncode in (5, -signal.SIGKILL)


BEFORE_ITS_BLOCK = """if True:
    import gc, sys
    from {0} import subprocess
    def trace(frame, event, arg):
        if frame.f_code is subprocess.Popen.__init__.__code__ and event == "return":
            if frame.f_locals["self"].mechanism:
                frame.f_locals["self"].stdout.readline()
                1 / 0
        return trace
    sys.settrace(trace)
    try:
        subprocess.run(sys.argv[1:], tree=True, stdout=subprocess.PIPE)
    except ZeroDivisionError:
        sys.settrace(None)
        print("over", flush=True)
    gc.collect()
    sys.stdin.read()
""".format(pidwait.__name__)


def test_an_exception_before_run_has_its_popen_ends_all(mechanism, witness, start):
    """A signal handler may raise right after the start."""
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}  # there are ResourceWarnings
    program = start(sys.executable, "-c", BEFORE_ITS_BLOCK, *sh(ALL), **pipes)
    assert program.stdout.readline() == b"over\n"
    eventually(lambda: not witness.sees())


@pytest.mark.kqueue
@pytest.mark.parametrize("method", ["kill", "end", "terminate"])
def test_they_end_all_from_another_thread_while_communicate_reads(mechanism, witness, method):
    popen = witness.started(ALL)
    thread = threading.Timer(0.05, getattr(popen, method))
    thread.start()
    assert popen.communicate(timeout=60) == (b"", None)
    thread.join()
    assert popen.returncode == (-signal.SIGKILL if method == "kill" else -signal.SIGTERM)


@pytest.mark.kqueue
def test_end_gives_a_grace_and_can_be_shortened(mechanism, witness):
    popen = witness.started(SLOW)
    assert popen.end() == 5
    assert popen.stdout.read() == b"term\n"
    popen = witness.started("(%s)& wait" % SLOW)  # the command ends first: that ends no grace
    assert popen.end() == -signal.SIGTERM
    assert popen.stdout.read() == b"term\n"
    popen = witness.started("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    thread = threading.Thread(target=popen.end, args=(100,))
    thread.start()
    assert popen.end(0.05) == -signal.SIGKILL
    thread.join()
    plain = Popen(["sleep", "60"])
    assert plain.end() == -signal.SIGTERM and plain.mechanism is None


@pytest.mark.kqueue
def test_other_signals_reach_the_command_alone(mechanism, witness):
    popen = witness.started("trap 'echo got; exit 6' USR1; sleep 60 & echo ready; wait", "wait")
    popen.send_signal(signal.SIGUSR1)
    assert popen.stdout.readline() == b"got\n"
    become_zombie(popen.pid)
    assert witness.sees() and popen.poll() is None
    popen.kill()
    assert popen.wait() == 6


@pytest.mark.peers
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("options", [{}, {"start_new_session": True}, {"process_group": 0}])
def test_what_takes_the_pid_finds_the_command_as_without_a_tree(reaper, tmp_path, options, tree):
    need_packages("psutil")
    import psutil

    pidfile = tmp_path / "pid"
    with Popen(["sleep", "60"], tree=tree, **options) as popen:
        pidfile.write_text(str(popen.pid))
        process = psutil.Process(int(pidfile.read_text()))
        eventually(lambda: process.name() == "sleep")
        os.setpriority(os.PRIO_PROCESS, popen.pid, 7)
        assert process.nice() == 7
        if options:
            os.killpg(popen.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        assert popen.wait() == -signal.SIGINT


@pytest.mark.kqueue
def test_the_pid_is_the_commands_until_its_code_is_known(mechanism, witness):
    popen = witness.started("echo ready; echo $$; exit 4")
    assert popen.stdout.read() == b"%d\n" % popen.pid
    become_zombie(popen.pid)
    eventually(lambda: not witness.sees())
    assert state(popen.pid) == "Z" and popen.returncode is None
    assert popen.wait() == 4
    become_gone(popen.pid)


STATE = r"""
pwd; umask; echo "$A"; cut -d' ' -f 4- /proc/$$/stat | cut -d' ' -f 2,3 | sed "s/$$/own/g"
grep -E '^(Uid|Gid|Groups|SigBlk|SigIgn)' /proc/self/status
ls /proc/$$/fd; env | sort; ulimit -a
"""
OPTIONS = [{}, {"env": {"A": "b", "PATH": os.environ["PATH"]}}, {"cwd": "/"}, {"pass_fds": (99,)}]
OPTIONS += [{"restore_signals": False}, {"close_fds": False, "executable": "/bin/sh"}]
OPTIONS += [
    {"start_new_session": True},
    {"process_group": 0},
    {"preexec_fn": os.setsid},
    {"shell": True},
    {"executable": "/bin/sh"},
    {"preexec_fn": functools.partial(os.putenv, "A", "known to C alone")},
]
if sys.version_info >= (3, 9):
    OPTIONS += [{"umask": 0o77}]
    if os.geteuid() == 0:
        OPTIONS += [{"user": 65534, "group": 65533, "extra_groups": [65532]}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_command_finds_what_it_finds_without_a_tree(reaper, options, monkeypatch):
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("LANG", "C")  # Python adds LC_CTYPE to it
    reader, writer = os.pipe()
    os.dup2(reader, 99)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    args = STATE if "shell" in options else ["sh", "-c", STATE]
    try:
        found = [run(args, stdout=PIPE, tree=tree, **options) for tree in (False, True)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for fd in reader, writer, 99:
            os.close(fd)
    assert found[0].returncode == found[1].returncode
    # glibc's posix_spawn has one or both of the signals ignored that it keeps for itself.
    texts = [re.sub("0[01]80000000", "0" * 10, one.stdout.decode()) for one in found]
    assert texts[0].split("\n") == texts[1].split("\n")


@pytest.mark.parametrize("closed", [[0], [1, 2], [0, 1, 2]], ids=str)
def test_a_command_lacks_the_standard_streams_that_its_caller_lacks(reaper, forked, closed):
    def check():
        null = os.open(os.devnull, os.O_RDWR)
        for fd in closed:
            os.close(fd)
        script = "for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] || n=$((n + (1 << fd))); done; exit $n"
        assert run(["sh", "-c", script], tree=True).returncode == sum(1 << fd for fd in closed)
        for fd in closed:
            os.dup2(null, fd)
        os.close(null)

    forked(check)


ERRORS = [
    (["/no/such"], {}), (["no-such"], {}), (["/"], {}), (["true"], {"cwd": "/no/such"}), ([], {}),
    ([1], {}), (["a\0b"], {}), (["true"], {"env": {"a=b": "c"}}), (["true"], {"stdin": 987}),
    (["true"], {"process_group": 2**30}), ([__file__], {}),
]  # fmt: skip
if sys.version_info >= (3, 9) and sys.implementation.name == "cpython":
    ERRORS += [(["true"], {"extra_groups": [2**64]})]
if sys.version_info >= (3, 8):
    ERRORS += [(pathlib.Path("true"), {"shell": True})]


@pytest.mark.parametrize("args, options", ERRORS, ids=str)
def test_errors_of_a_start_are_those_without_a_tree(mechanism, args, options):
    raised = []
    before = len(open_fds())
    for tree in False, True:
        with pytest.raises(Exception) as caught:  # noqa: B017
            run(args, tree=tree, **options)
        error = caught.value
        raised.append((type(error), *map(str, (error, getattr(error, "filename", None)))))
        del caught, error
    assert raised[0] == raised[1]
    # The thread of "group" ends a moment later; PyPy closes its files at a collection.
    eventually(lambda: (gc.collect(), len(open_fds()))[1] == before)


def interpreter_is_a_script():
    return pathlib.Path(sys.executable).read_bytes()[:2] == b"#!"


def test_what_the_keeper_lacks_is_the_error_of_the_start(reaper):
    resource = importlib.import_module("resource")  # Windows has none
    if interpreter_is_a_script():
        pytest.skip("the interpreter is a script, whose shell needs more than the keeper")
    errors = []
    for number in range(4, 20):  # how many it needs depends on the system
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (number, number))
        try:
            with Popen(["true"], tree=True, preexec_fn=limit, stderr=DEVNULL):
                errors.append(None)
        except OSError as error:
            assert "keeper" in error.strerror
            errors.append(error.errno)
    assert {errno.EMFILE, None}.issubset(errors), errors


def in_fork(function):
    """What the function returns in a forked child, which ends within ten seconds."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(9)
            os._exit(function())
        finally:
            os._exit(99)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFEXITED(status), status
    return os.WEXITSTATUS(status)


def test_a_stream_that_is_closed_is_the_error_of_the_start(mechanism):
    """A file of ours must not get its number, or the command would write into that."""

    def start():
        os.close(1)
        try:
            run(["sh", "-c", "echo oops >&2"], stderr=subprocess.STDOUT, tree=True)
        except OSError as error:
            return error.errno

    assert in_fork(start) == errno.EBADF


@pytest.mark.root
def test_the_environment_comes_through_where_its_user_may_not_read_it(reaper, monkeypatch):
    monkeypatch.setenv("MARK", "7")

    def start():
        os.seteuid(65534)
        if not os.access(sys.executable, os.X_OK, effective_ids=True):
            return 98
        return run(["sh", "-c", "exit $MARK"], tree=True).returncode

    code = in_fork(start)
    if code == 98:
        pytest.skip("another user can't reach the interpreter")
    assert code == 7


def test_the_copy_in_a_forked_child_tells_the_end_at_once(mechanism):
    """It took ten seconds, as only the parent can release a keeper."""
    popen = Popen(["true"], tree=True)
    assert pidwait.has_exited(popen.pid, 60)
    assert in_fork(lambda: popen.poll() or 0) == 0
    assert popen.wait() == 0


def test_the_exit_code_is_known_where_sigchld_is_ignored(mechanism):
    code = """if True:
        import signal
        from {} import subprocess
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        popen = subprocess.Popen(["sh", "-c", "read line; exit 5"], tree=True, stdin=-1)
        popen.stdin.close()
        print(popen.wait(), popen.returncode, popen.poll())
    """
    told = run_python(code.format(pidwait.__name__)).stdout
    assert told in ("5 5 5\n", "0 0 0\n" * (mechanism == "group" and not kernel_tells()))


def test_a_time_out_in_the_middle_of_a_character_is_a_time_out(mechanism):
    script = "printf 'a\\303'; exec sleep 60"
    for timeout in TIMEOUTS:
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            run(["sh", "-c", script], tree=True, stdout=PIPE, timeout=timeout, encoding="utf-8")
        if caught.value.output:
            break
    assert caught.value.output == b"a\xc3"


@pytest.mark.kqueue
def test_all_waits_wait_for_the_end_of_the_tree(mechanism, witness):
    def popen(seconds=0.05):
        return witness.started("sleep %s & echo ready; echo $!; exit 3" % seconds, "wait")

    def checked(found):
        assert found == 3 and not witness.sees()

    one = popen(60)
    with pytest.raises(pidwait.TimeoutExpired) as caught:
        pidwait.wait(one, 0.02)
    assert caught.value.pid == one.pid
    with pidwait.WaitSet([one]) as several:
        assert several.wait(0.02) == []
        kill(int(one.stdout.readline()))
        checked(several.wait()[0][1])
    checked(pidwait.wait(popen(), 60))
    checked(pidwait.wait_procs([popen()], 60)[0][0][1])
    exits = []
    two = popen()
    pidwait.watch(two, lambda popen, code: exits.append(code))
    eventually(lambda: exits)
    checked(exits[0])
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        aio = importlib.import_module(pidwait.__name__ + ".aio")
        checked(loop.run_until_complete(aio.wait(popen(), 60)))


INNER = """
from {package} import subprocess
popen = subprocess.Popen({args!r}, tree=True, grace={grace})
{then}
"""


def program(script, then="popen.wait()", grace=0.0):
    code = INNER.format(package=pidwait.__name__, args=sh(script), then=then, grace=grace)
    return [sys.executable, "-c", code]


def test_in_a_tree_of_a_tree_a_signal_comes_once_and_starts_no_other_clock(reaper, witness):
    with Popen(program(SLOW, grace=30), stdout=PIPE, tree=True) as popen:
        assert popen.stdout.readline() == b"ready\n"
        assert popen.end(30) == -signal.SIGTERM
        assert popen.stdout.read() == b"term\n"


# It says each SIGTERM.
TERMS = "trap 'echo term' TERM; echo ready; echo $PPID; while :; do sleep 0.01; done"
DIES_LATE = """
import os, signal
def die(number, frame):
    os.read(0, 1)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
signal.signal(signal.SIGTERM, die)
os.write(1, b"set\\n")
popen.wait()
"""


@needs_pidfds
def test_what_has_had_sigterm_gets_no_other_when_its_program_dies_of_it(reaper, witness):
    pipes = {"stdin": PIPE, "stdout": PIPE}
    with Popen(program(TERMS, DIES_LATE, 0.2), tree="wait", **pipes) as popen:
        assert {popen.stdout.readline() for _ in range(3)} > {b"ready\n", b"set\n"}
        popen.terminate()
        assert popen.stdout.readline() == b"term\n"
        assert popen.communicate() == (b"", None)
    assert popen.returncode == -signal.SIGTERM


def test_a_tree_that_ends_with_its_program_gets_no_sigterm_from_elsewhere(reaper, witness):
    script = "trap 'exit 3' USR1; " + TERMS
    with Popen(program(script, grace=30), stdout=PIPE) as popen:
        assert popen.stdout.readline() == b"ready\n"
        keeper = int(popen.stdout.readline())
        popen.kill()
        assert popen.stdout.readline() == b"term\n"
        for sig in signal.SIGTERM, signal.SIGUSR1:  # as an outer tree's keeper would send it
            eventually(lambda: state(keeper) == "S")
            kill(keeper, sig)
        assert popen.stdout.read() == b""


@needs_pidfds
def test_the_rest_that_has_had_sigterm_gets_no_other_when_the_command_exits(reaper, witness):
    script = "trap 'read line; exit 3' TERM; (%s)& wait" % TERMS
    popen = witness.started(script, stdin=PIPE, grace=0.2)
    kill(int(popen.stdout.readline()), signal.SIGTERM)
    assert popen.stdout.readline() == b"term\n"
    assert popen.communicate() == (b"", None) and popen.returncode == 3


@pytest.mark.parametrize(
    "then", ["import os; os.fork() and popen.wait(); popen.wait()", "popen.wait()"]
)
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_program_ends_all(reaper, witness, then, sig):
    with Popen(program(ALL, then), stdout=PIPE, start_new_session=True) as popen:
        assert popen.stdout.readline() == b"ready\n"
        kill(popen.pid, sig)
        popen.stdout.close()
        if "fork" not in then:
            eventually(lambda: not witness.sees())
        os.killpg(popen.pid, signal.SIGKILL)


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace to slow a call")
def test_what_kills_the_programs_group_spares_the_keeper_from_the_command_s_first_line(reaper):
    """Between fork(2) and setsid(2) a SIGKILL to the group would end the keeper."""
    keepers = ["sh", "-c", "ps -o pgid= -p $PPID"]
    code = "import os\nfrom %s import subprocess\nprint(os.getpgrp(), flush=True)\n"
    code = code % pidwait.__name__ + "subprocess.run(%r, tree=True)" % keepers
    slow = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=setsid:delay_enter=500000"]
    done = run([*slow, sys.executable, "-c", code], stdout=PIPE, check=True)
    program, keeper = map(int, done.stdout.split())
    assert keeper != program


def end_dropped(witness):
    for popen in subprocess._active:
        popen.kill()
    eventually(lambda: not witness.sees())
    for popen in list(subprocess._active):
        popen.wait()
    subprocess._cleanup()


def test_a_popen_that_is_dropped_and_a_thread_that_ends_end_nothing(mechanism, witness):
    pids = []
    thread = threading.Thread(target=lambda: pids.append(Popen(sh(ALL), tree=True).pid))
    with pytest.warns(ResourceWarning):
        thread.start()
        thread.join()
        gc.collect()
    run(["true"], tree=True)
    assert witness.sees() and state(pids[0]) == "S"
    end_dropped(witness)


def test_at_exit_there_is_one_warning_of_a_tree_that_still_runs(mechanism):
    code = "from {} import subprocess; tree = subprocess.Popen(['sleep', '1'], tree=True)"
    done = run_python(code.format(pidwait.__name__), options=("-W", "always"))
    assert done.stderr.count("ResourceWarning:") == done.stderr.count("subprocess ") <= 1, done


def test_a_tree_that_starts_within_the_start_of_a_run_is_nobodys_but_its_own(mechanism, witness):
    class Path:  # as a signal handler would, which could come there, too
        def __fspath__(self):
            popens.append(Popen(sh(ALL), tree=True))
            return "/"

    popens = []
    run(["true"], cwd=Path())
    pid = popens[0].pid
    with pytest.warns(ResourceWarning):
        del popens[:]
        gc.collect()
    run(["true"], tree=True)
    assert witness.sees() and state(pid) == "S"
    end_dropped(witness)


def test_if_somebody_kills_the_keeper_the_command_ends_with_it(reaper, witness):
    popen = witness.started("echo ready; echo $PPID; exec sleep 60")
    kill(int(popen.stdout.readline()))
    assert popen.wait(60) == -signal.SIGKILL
    assert popen.left is None


@pytest.mark.parametrize("timeout", [0, 0.005])
def test_a_default_time_out_of_sockets_is_not_the_trees(reaper, witness, timeout):
    socket = importlib.import_module("socket")
    socket.setdefaulttimeout(timeout)
    try:
        popen = witness.started("echo ready; exec sleep 60")
        assert popen.poll() is None
        assert popen.end(0) == -signal.SIGKILL
    finally:
        socket.setdefaulttimeout(None)


def test_a_chain_of_many_processes_is_ended(reaper, witness, tmp_path):
    file = tmp_path / "chain"
    file.write_text('[ $1 = 0 ] && { echo ready; exec sleep 60; }; sh "$0" $(($1 - 1)); :')
    popen = witness.started("sh %s %d" % (file, room(1010)))
    assert popen.end(1) < 0
    assert popen.left == [] and not witness.sees()


def test_a_signal_to_the_group_comes_to_the_command_though_its_keeper_only_starts(reaper, tmp_path):
    file, fake = tmp_path / "pid", tmp_path / "python"
    code = "#!%s -S\nimport os, pathlib, sys\npathlib.Path(%r).write_text('%%d ' %% os.getpid())\n"
    code += "os.kill(os.getpid(), 19)\nos.execv(%r, [sys.executable, *sys.argv[1:]])\n"
    fake.write_text(code % (sys.executable, str(file), sys.executable))
    fake.chmod(0o755)
    code = """if True:
        import os, signal, sys, threading, time
        from {0} import subprocess

        def interrupt():
            while not (os.path.exists({1!r}) and " " in open({1!r}).read()):
                time.sleep(0.01)
            pid = int(open({1!r}).read())
            while open("/proc/%d/stat" % pid).read().split()[-50] != "T":
                time.sleep(0.01)
            os.killpg(0, signal.SIGINT)
            os.kill(pid, signal.SIGCONT)

        signals = []
        signal.signal(signal.SIGINT, lambda *args: signals.append(args))
        sys.executable = {2!r}
        thread = threading.Thread(target=interrupt)
        thread.start()
        code = subprocess.call(["sleep", "60"], tree=True)
        thread.join()
        print(code, len(signals), *signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    code = code.format(pidwait.__name__, str(file), str(fake))
    done = run_python(code, start_new_session=True)
    assert (done.stdout, done.stderr) == ("-2 1\n", "")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_forked_child_waits_for_the_parents_tree(mechanism, witness, is_killed):
    popen = witness.started("echo ready; read line; exit 3", stdin=PIPE)
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = b"%d" % pidwait.wait(popen)
        os.write(writer, code if popen.wait() == int(code) else b"not both")
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        eventually(lambda: state(pid) == "S")
        assert not select.select([answer], [], [], 0.05)[0]
        popen.kill() if is_killed else popen.communicate(b"\n")
        code = popen.wait()
        assert code == (-signal.SIGKILL if is_killed else 3)
        # Without a keeper nobody may know: then Popen says 0 in a child.
        assert int(answer.read()) in ({code} if mechanism == "reaper" else {code, 0})
    os.waitpid(pid, 0)


@pytest.mark.parametrize("way", ["__exit__", "kill", "terminate", "send_signal"])
def test_a_forked_child_ends_nothing_of_its_parents_tree(mechanism, witness, caplog, way):
    script = "echo ready; read line; exit 3"
    popen = witness.started(script, stdin=PIPE)
    pid = os.fork()
    if not pid:
        caplog.set_level("INFO")
        with contextlib.suppress(BaseException):
            if way == "__exit__":
                popen.wait = lambda: None  # else it waits for the tree
                popen.__exit__(OnPurpose, OnPurpose(), None)
            else:
                getattr(popen, way)(*[signal.SIGINT] * (way == "send_signal"))
        os._exit("which alone ends it" not in caplog.text)
    assert os.waitpid(pid, 0)[1] == 0
    assert popen.poll() is None and witness.sees()
    popen.communicate(b"\n")
    assert popen.returncode == 3


ALL_CLOSED = """if True:
    import os, socket
    from {0} import subprocess

    popens = [subprocess.Popen(["sh", "-c", one], tree=True) for one in {1}]
    os.closerange(3, 200)
    pairs = [socket.socketpair() for _ in range(20)]
    popens[-1].kill()
    codes = [(popen.wait(), popen.wait(), popen.left) for popen in popens]
    for one, two in pairs:
        one.sendall(b"mine")
        two.sendall(b"mine")
        assert (one.recv(100), two.recv(100)) == (b"mine", b"mine")
    print(codes)
"""


def test_a_program_that_has_closed_all_descriptors_knows_the_codes(reaper):
    scripts = ["sleep 0.2; exit 3", "sleep 0.2; kill $$", "sleep 0.2", "kill -9 $$", "sleep 60"]
    done = run_python(ALL_CLOSED.format(pidwait.__name__, scripts))
    known = [(3, 3, []), (-15, -15, []), (0, 0, []), (-9, -9, None), (-9, -9, None)]
    assert done.stdout == "%s\n" % known


@pytest.mark.parametrize("ignores", ["PIPE", "XFSZ", "CHLD", "TERM", ""])
def test_the_command_ignores_the_signals_that_the_program_ignores(reaper, ignores):
    if ignores == "CHLD" and interpreter_is_a_script():
        pytest.skip("the interpreter is a script, whose shell catches SIGCHLD")
    code = """if True:
        import signal
        from {0} import subprocess

        for name in "PIPE", "XFSZ", "CHLD", "TERM":
            ignored = signal.SIG_IGN if name == {1!r} else signal.SIG_DFL
            signal.signal(getattr(signal, "SIG" + name), ignored)
        for tree in False, True:
            subprocess.run(["grep", "SigIgn", "/proc/self/status"], tree=tree, **{2!r})
    """
    for options in {"restore_signals": False}, {}:
        one, two = run_python(code.format(pidwait.__name__, ignores, options)).stdout.splitlines()
        assert one == two


def test_a_variable_without_a_name_is_left_out(reaper):
    output = run(["/usr/bin/env"], env={"A": "b", "": "c"}, tree=True, stdout=PIPE).stdout
    assert output == b"A=b\n"


def test_a_command_needs_a_name(reaper):
    with pytest.raises(ValueError, match="^args "):
        Popen([""], executable="/bin/sh", tree=True)


def test_a_relative_path_of_the_package_outlives_a_chdir(reaper):
    folder = pathlib.Path(pidwait.__spec__.origin).parent
    if not folder.is_dir():
        pytest.skip("the package is in an archive")
    code = """if True:
        import os, sys
        sys.path[:] = ["."] + [one for one in sys.path if one not in ("", {1!r})]
        from {0} import subprocess
        os.chdir("/")
        print(subprocess.call(["sh", "-c", "exit 3"], tree=True))
    """
    top = str(folder)[: -len(pidwait.__name__) - 1]
    done = run_python(code.format(pidwait.__name__, top), cwd=top)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.kqueue
def test_who_holds_the_pipe_from_outside_delays_it_by_a_second_at_most(mechanism, witness):
    popen = witness.started("echo ready; sleep 60")
    held = os.open("/proc/%d/fd/1" % popen.pid, os.O_WRONLY)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, held)
        popen.kill()
        assert popen.wait() == -signal.SIGKILL
        with pytest.raises(subprocess.TimeoutExpired):
            popen.communicate(timeout=0.1)


@needs("/proc")
@pytest.mark.kqueue
def test_run_reads_for_a_second_after_the_end_if_an_outsider_holds_the_pipe(mechanism, monkeypatch):
    standard, before, after = subprocess.Popen.communicate, [], []
    held = contextlib.ExitStack()

    def communicate(self, input=None, timeout=None):
        if self.args != command:  # ps, perhaps
            return standard(self, input, timeout)
        if not (before or after):
            held.callback(os.close, os.open("/proc/%d/fd/1" % self.pid, os.O_WRONLY))
        (before if self.poll() is None else after).append(timeout)
        return standard(self, input, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    command = ["sh", "-c", "trap '' TERM; sleep 60"]
    with held, pytest.raises(subprocess.TimeoutExpired):
        run(command, tree=True, stdout=PIPE, timeout=0.1, grace=0.1)
    assert after and max(before) + sum(after) < 1.5


@pytest.mark.parametrize(
    "options",
    [{"tree": "x"}, {"tree": True, "grace": -1}, {"tree": 1, "grace": float("nan")}, {"grace": 1}],
)
def test_bad_input_is_refused_by_its_name(options):
    with pytest.raises(ValueError, match="^%s " % list(options)[-1]):
        Popen(["true"], **options)


@pytest.mark.parametrize("sig", [2**70, signal.NSIG, -1])
def test_a_number_that_is_no_signal_is_refused(mechanism, witness, sig):
    popen = witness.started(ALL)
    for call in popen.send_signal, functools.partial(popen.end, 60):
        with pytest.raises(ValueError, match="^sig "):
            call(sig)
    assert popen.poll() is None


def test_the_environment_chooses_the_mechanism(monkeypatch):
    monkeypatch.setenv("PIDWAIT_TREE", "grouq")
    with pytest.raises(ValueError, match="auto, reaper, job, group"):
        Popen(["true"], tree=True)
    monkeypatch.setenv("PIDWAIT_TREE", "job")
    with pytest.raises(OSError, match="PIDWAIT_TREE"):
        Popen(["true"], tree=True)


@pytest.mark.parametrize("tree", [True, 1, "kill"])
def test_with_true_the_rest_is_killed(mechanism, witness, tree):
    assert run(sh("sleep 60 & exit 3"), tree=tree).returncode == 3
    assert not witness.sees()


def test_without_an_interpreter_it_is_a_group_and_says_so():
    code = """if True:
        import logging, sys
        from {0} import subprocess
        logging.basicConfig(level=logging.WARNING)
        sys.executable = "/usr/bin/uwsgi"
        print([subprocess.Popen(["true"], tree=True).mechanism for _ in range(2)])
    """
    done = run_python(code.format(pidwait.__name__))
    assert done.stdout == "['group', 'group']\n"
    assert done.stderr.count("WARNING") == 1 and (KQUEUES or "uwsgi" in done.stderr)


@pytest.mark.skipif(not hasattr(sys, "addaudithook"), reason="before Python 3.8")
def test_audit_hooks_see_one_event(mechanism):
    code = """if True:
        import sys
        from {0} import subprocess
        sys.addaudithook(lambda name, args: name == "subprocess.Popen" and print(*args))
        subprocess.call(["true", "x"], tree=True, cwd="/")
        subprocess.call(["true", "y"], tree=True, preexec_fn=int)
    """
    lines = run_python(code.format(pidwait.__name__)).stdout.splitlines()
    lines = [line for line in lines if not line.startswith("/bin/ps ")]
    assert lines == ["true ['true', 'x'] / None", "true ['true', 'y'] None None"]


def test_the_keeper_starts_from_an_archive(reaper, tmp_path):
    folder = pathlib.Path(pidwait.__spec__.origin).parent
    if not folder.is_dir():
        pytest.skip("the package is in an archive: each of these tests shows it")
    with zipfile.ZipFile(str(tmp_path / "a.zip"), "w") as archive:
        for path in folder.rglob("*.py"):
            archive.write(str(path), "copied/%s" % path.relative_to(folder))
    code = "import sys; sys.path.insert(0, sys.argv[1]); from copied import subprocess\n"
    code += "print(subprocess.call(['sh', '-c', 'exit 3'], tree=True))"
    done = run_python(code, str(tmp_path / "a.zip"))
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_run_that_a_signal_handler_interrupts_right_after_the_start_leaves_no_tree(
    mechanism, monkeypatch
):
    def interrupt(popen):
        raise OnPurpose

    monkeypatch.setattr(Popen, "__enter__", interrupt)
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        with contextlib.suppress(OnPurpose):
            run(["sleep", "60"], stdout=writer, tree=True)
        os.close(writer)
        gc.collect()
        assert output.read() == b""
    for popen in list(subprocess._active):
        popen.wait()
    subprocess._cleanup()


def test_nothing_is_left_of_many_runs(mechanism):
    run(["true"], tree=True)
    gc.collect()
    before = len(open_fds()), threading.active_count()
    for _ in range(10):
        run(["true"], tree=True)
    eventually(lambda: threading.active_count() <= before[1])
    gc.collect()
    assert len(open_fds()) == before[0]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
