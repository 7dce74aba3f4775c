# SPDX-License-Identifier: BSD-3-Clause
"""spawn(): what the child gets, which errors it raises, and what no C library makes different."""

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .. import pidwait
from ..needs import THERE, needs
from ..processes import (
    INTERPRETER,
    PYTHON,
    WINDOWS,
    eventually,
    exiting,
    interrupted_by,
    run_python,
    sleeping,
    state,
)
from .conftest import LIBRARIES, closing_library, every_library, note_starts, ours, output

CLOSED = 97  # a file descriptor that nobody has open
# All that is open in the child, without the one that the shell reads the folder with.
FDS = "for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done; true"


FDS_BY_NUMBER = """if True:
    import os
    for fd in range(1024):
        try:
            os.fstat(fd)
        except OSError:
            continue
        print(fd)
"""


def fds(**options):
    command = ("sh", "-c", FDS) if THERE["/proc"] else PYTHON + ("-c", FDS_BY_NUMBER)
    return sorted(map(int, output(*command, **options).split()))


def streams(**options):
    """The files that the child has as stdin and stderr."""
    if not THERE["/proc"]:
        pytest.skip("there is no /proc")
    return output("readlink", "/proc/self/fd/0", "/proc/self/fd/2", **options).splitlines()


def environment(**options):
    """The child's variables that begin with SPAWN."""
    lines = output("env", **options).splitlines()
    return sorted(line for line in lines if line.startswith("SPAWN"))


def group_and_session(**options):
    """The child's group and session; True stands for one of its own."""
    code = "import os; print(os.getpid(), os.getpgrp(), os.getsid(0))"
    pid, group, session = output(*PYTHON, "-c", code, **options).split()
    return group == pid or int(group), session == pid or int(session)


@pytest.fixture
def inheritable():
    """A file descriptor that C code has made inheritable."""
    fd = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(fd, True)
    yield fd
    os.close(fd)


@every_library
def test_arguments_reach_the_child_as_they_are(library, starts):
    args = "a", "", "b c\xe9".encode("utf-8"), Path("d")
    assert output("printf", "<%s>", *args) == "<a><><b c\xe9><d>"
    assert output(b"printf", "%s", "x") == output(Path("printf"), "%s", b"x") == "x"
    assert starts == [0] * 3 * (library != "without posix_spawn")


@pytest.mark.windows
def test_args_may_be_a_program_alone():
    command = INTERPRETER if WINDOWS else "true"
    with pidwait.spawn(command, stdin=subprocess.DEVNULL) as child:
        pass
    assert (child.exitcode, child.args) == (0, command)


@every_library
def test_env_is_the_environment_of_the_child(library, monkeypatch):
    assert environment() == []
    monkeypatch.setenv("SPAWN_A", "1")
    assert environment() == environment() == ["SPAWN_A=1"]
    monkeypatch.setenv("SPAWN_A", "2")
    assert environment() == ["SPAWN_A=2"]
    env = {"SPAWN_B": "3"}
    assert environment(env=env) == ["SPAWN_B=3"]
    env[b"SPAWN_C"] = b"\xff"
    assert environment(env=env) == ["SPAWN_B=3", "SPAWN_C=\udcff"]
    assert output("env", env={}) == ""
    monkeypatch.delenv("SPAWN_A")
    assert environment() == []


@every_library
def test_child_gets_what_c_code_has_put_into_the_environment(library, monkeypatch):
    """As by subprocess: os.environ does not show it."""
    monkeypatch.setenv("SPAWN_B", "2")
    monkeypatch.setenv("SPAWN_C", "3")
    os.putenv("SPAWN_A", "1")
    os.unsetenv("SPAWN_B")
    try:
        assert environment() == ["SPAWN_A=1", "SPAWN_C=3"]
        assert environment(env=os.environ) == ["SPAWN_B=2", "SPAWN_C=3"]
        assert environment(env={}) == []
    finally:
        os.unsetenv("SPAWN_A")


PUT = """if True:
    import asyncio, logging, os, subprocess, sys, threading
    import {package} as pidwait
    from {package} import aio, subprocess as ours
    subprocess._USE_VFORK = False
    logging.disable(logging.WARNING)  # it warns that a tree is a group
    command = ["/bin/sh", "-c", "exit $SPAWN"]
    starts = [pidwait.spawn, ours.Popen, lambda command: ours.Popen(command, tree=True)]
    done = threading.Event()
    if sys.argv[1] == "beside a thread":
        threading.Thread(target=done.wait, daemon=True).start()
    async def main():
        async with aio.spawn(command) as child:
            return await child.wait()
    loop = asyncio.new_event_loop()
    for code in 3, 4, 5:
        os.putenv("SPAWN", str(code))
        assert [start(command).wait() for start in starts] == [code] * 3
        assert loop.run_until_complete(main()) == code
    loop.close()
    done.set()
"""


@pytest.mark.parametrize("how", ["alone", "beside a thread"])
def test_each_start_gives_the_child_what_c_code_has_put_into_the_environment(how, binding):
    done = run_python(PUT.replace("{package}", pidwait.__name__), how)
    assert (done.stderr, done.returncode) == ("", 0)


def test_environment_may_change_while_the_child_starts(binding, seam, monkeypatch):
    own, more = seam.get("posix_spawn"), ["SPAWN_%d" % number for number in range(200)]

    def posix_spawn(*arguments):  # as another thread would
        for name in more:
            monkeypatch.setenv(name, name)
        return own(*arguments)

    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        for name in more:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SPAWN", "1")
        seam.put("posix_spawn", posix_spawn)
        assert environment() == ["SPAWN=1"]
    finally:
        done.set()
        thread.join()


class Changing(os.PathLike):
    """An object that is equal to itself, but gives another path each time."""

    count = 0

    def __fspath__(self):
        self.count += 1
        return str(self.count)


def test_env_is_read_anew_where_its_values_may_have_changed(binding):
    env = {"SPAWN": Changing()}
    assert [environment(env=env) for _ in range(2)] == [["SPAWN=1"], ["SPAWN=2"]]


@every_library
def test_cwd_is_the_working_directory_of_the_child(library, starts, tmp_path):
    (tmp_path / "program").symlink_to("/bin/echo")
    for cwd in tmp_path, str(tmp_path), os.fsencode(str(tmp_path)):
        assert output("pwd", cwd=cwd) == "%s\n" % tmp_path
    assert output("./program", "x", cwd=tmp_path) == "x\n"
    assert output("program", "x", cwd=tmp_path, env={"PATH": "."}) == "x\n"
    without = "before chdir", "before setsid", "without posix_spawn"
    assert starts == [0] * 5 * (library not in without)


@every_library
def test_program_is_searched_in_the_path_of_the_child(library, tmp_path, monkeypatch):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "program").write_text("not executable")
    (tmp_path / "second" / "program").symlink_to("/bin/echo")
    folders = [str(tmp_path / "nonesuch"), str(tmp_path / "first")]
    # The error of a file that is there counts, in whichever order.
    for path in map(os.pathsep.join, (folders[::-1], folders)):
        with pytest.raises(PermissionError) as caught:
            pidwait.spawn(["program"], env={"PATH": path})
        assert caught.value.filename == "program"
    folders.append(str(tmp_path / "second"))
    assert output("program", "x", env={"PATH": os.pathsep.join(folders)}) == "x\n"
    monkeypatch.setenv("PATH", folders[2])
    assert output("program", "x") == "x\n"
    assert output("program", "x", env={"PATH": folders[2], "A": "1"}) == "x\n"
    monkeypatch.setenv("PATH", folders[0])
    with pytest.raises(FileNotFoundError):
        pidwait.spawn(["program"])


@every_library
def test_streams_may_be_files_file_descriptors_or_devnull(library, starts, tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    with path.open() as file:
        assert streams(stdin=file, stderr=file.fileno()) == [str(path)] * 2
        assert streams(stdin=file)[0] == streams(stderr=file)[1] == str(path)
    null = subprocess.DEVNULL
    assert streams(stdin=null, stderr=null) == [os.devnull] * 2
    assert fds(stdin=null, stderr=null) == [0, 1, 2]
    assert output("sh", "-c", "echo a; echo b >&2", stderr=subprocess.STDOUT) == "a\nb\n"
    assert starts == [0] * 6 * (library != "without posix_spawn")


# stdin, stdout, stderr: what the pipes that are 0, 1 and 2 get. Only 2 is inheritable.
ORDERS = {
    (0, 1, 2): [b"zero\n", b"one\n", b"two\n"],
    (1, 2, 0): [b"two\n", b"zero\n", b"one\n"],
    (2, 1, 0): [b"two\n", b"one\n", b"zero\n"],
    (0, 0, 1): [b"zero\none\n", b"two\n", b""],
    (2, None, subprocess.STDOUT): [b"", b"two\n", b"zero\n"],
    (2, 0, subprocess.STDOUT): [b"one\ntwo\n", b"", b"zero\n"],
}
WORDS = "{ echo zero >&0; echo one >&1; } 2>/dev/null; echo two >&2"


@every_library
@pytest.mark.parametrize("close_fds", [True, False])
def test_streams_may_change_places(library, close_fds, forked):
    def exchange():
        kept, found = [os.dup(fd) for fd in range(3)], {}
        for stdio in orders:
            readers = []
            for fd in range(3):
                reader, writer = os.pipe()
                os.dup2(writer, fd, fd == 2)
                os.close(writer)
                readers.append(reader)
            with pidwait.spawn(["sh", "-c", WORDS], None, None, *stdio, close_fds=close_fds):
                pass
            for fd in range(3):
                os.dup2(kept[fd], fd)
            found[stdio] = [os.read(reader, 100) for reader in readers]
            for reader in readers:
                os.close(reader)
        for fd in kept:
            os.close(fd)
        assert found == {stdio: ORDERS[stdio] for stdio in orders}

    # On macOS a stream that is not replaced is passed, though it is not inheritable.
    orders = [stdio for stdio in ORDERS if library != "as on macOS" or None not in stdio]
    forked(exchange)


@every_library
def test_child_has_no_other_file_descriptors(library, inheritable):
    assert fds() == [0, 1, 2]
    # The program that runs the tests may have left others inheritable.
    left = set(fds(close_fds=False))
    assert inheritable in left
    others = left - {0, 1, 2, inheritable}
    assert others == {fd for fd in others if os.get_inheritable(fd)}


@every_library
def test_pass_fds_are_the_others_that_the_child_has(library, inheritable):
    reader, writer = os.pipe()
    high = inheritable + 100
    os.dup2(writer, high, inheritable=False)
    os.close(writer)
    before = os.get_inheritable(0)
    try:
        assert fds(pass_fds=[high, inheritable, high]) == [0, 1, 2, inheritable, high]
        assert fds(pass_fds=iter([reader])) == [0, 1, 2, reader]
        assert fds(pass_fds=[1, 2]) == [0, 1, 2]
        for here in True, False:
            os.set_inheritable(0, here)
            assert fds(pass_fds=[0]) == [0, 1, 2]
            assert os.get_inheritable(0) is here
    finally:
        os.set_inheritable(0, before)
        os.close(reader), os.close(high)


@closing_library
def test_fds_are_closed_whatever_the_limit_is(library, starts, limit, inheritable, tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    limit(5000)
    os.dup2(inheritable, 4999)
    try:
        with path.open() as file:
            options = {"stdin": file, "stderr": 0, "pass_fds": [inheritable, 0]}
            assert fds(**options) == [0, 1, 2, inheritable]
            assert streams(**options)[0] == str(path)
    finally:
        os.close(4999)
    found = starts[:]  # the probe may start a keeper's interpreter
    has_closefrom = pidwait.probe()["calls"]["addclosefrom_np"]["available"]
    assert found == [0, 0] * (has_closefrom or library == "as on macOS")


@pytest.mark.skipif("before closefrom" not in LIBRARIES, reason="it is about Linux's C library")
@pytest.mark.parametrize("library", ["before closefrom"], indirect=True)
@pytest.mark.parametrize("case", ["above the limit", "not shown"])
def test_fds_that_can_not_be_listed_are_closed(library, starts, limit, monkeypatch, case):
    """Without closefrom, each has to be closed by its number."""
    reader, writer = os.pipe()
    limit(1000)
    os.dup2(reader, 900)
    os.close(reader), os.write(writer, b"text"), os.close(writer)
    try:
        if case == "above the limit":
            limit(900)
        else:
            monkeypatch.setattr(os, "listdir", lambda path: os.stat("/nonesuch"))
        assert fds() == [0, 1, 2]
        assert output("cat", stdin=900) == "text"
        assert starts == []
        with pidwait.spawn(["true"], close_fds=False) as child:
            assert child.wait(30) == 0
        assert starts == [0]
    finally:
        os.close(900)


@closing_library
def test_fds_that_other_threads_open_meanwhile_are_closed(library, seam, inheritable):
    own, opened = seam.get("posix_spawn"), []

    def posix_spawn(*arguments):
        for free in os.dup(inheritable), 700:
            os.dup2(inheritable, free)
            opened.append(free)
        return own(*arguments)

    seam.put("posix_spawn", posix_spawn)
    try:
        assert fds(pass_fds=[inheritable]) == [0, 1, 2, inheritable]
        assert len(opened) == 2
    finally:
        for fd in opened:
            os.close(fd)


@every_library
def test_child_joins_a_process_group_or_leads_one_or_a_session(library, starts):
    session = os.getsid(0)
    assert group_and_session() == (os.getpgid(0), session)
    assert group_and_session(process_group=0) == (True, session)
    with pidwait.spawn(sleeping(60), process_group=0) as leader:
        assert group_and_session(process_group=leader.pid) == (leader.pid, session)
        leader.kill()
    assert starts == [0] * 4 * (library != "without posix_spawn")
    assert group_and_session(start_new_session=True) == (True, True)
    refused = {"before setsid": 4, "without posix_spawn": 0}
    assert len(starts) == refused.get(library, 5)


@needs("/proc")
@every_library
def test_signals_are_those_that_subprocess_gives_a_child(library):
    """The mask is this thread's, SIGPIPE and SIGXFSZ have their default actions."""

    def masks(text):
        found = {line.split()[0]: int(line.split()[1], 16) for line in text.splitlines()}
        # Children of some glibc's posix_spawn ignore 32 and 33, signals of glibc's own.
        return dict(found, **{"SigIgn:": found["SigIgn:"] & ~0x180000000})

    command = "grep", "^Sig[BIC]", "/proc/self/status"
    before = [signal.signal(signal.SIGHUP, signal.SIG_IGN)]
    before.append(signal.signal(signal.SIGUSR1, lambda *args: None))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        expected = masks(subprocess.check_output(command, universal_newlines=True))
        assert masks(output(*command)) == expected
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in zip((signal.SIGHUP, signal.SIGUSR1), before):
            signal.signal(number, handler)
    assert expected["SigBlk:"] & bit(signal.SIGUSR2)
    assert not expected["SigCgt:"] & bit(signal.SIGUSR1)
    ignored = bit(signal.SIGHUP) | bit(signal.SIGPIPE) | bit(signal.SIGXFSZ)
    assert expected["SigIgn:"] & ignored == bit(signal.SIGHUP)


def bit(number):
    return 1 << number - 1


def test_user_is_the_effective_one(binding, forked, tmp_path):
    """As by subprocess: a flag of posix_spawn could reset it."""
    (tmp_path / "locked").mkdir(mode=0o600)
    tmp_path.chmod(0o755)
    locked = {"args": ["/bin/true"], "cwd": "locked"}

    def check():
        os.chdir(str(tmp_path))  # others may not search the folders above it
        if os.getuid() == 0:
            os.seteuid(65534)
        for options in {"process_group": 0}, {"start_new_session": True}:
            assert output("id", "-u", **options) == "%d\n" % os.geteuid()
        found = [outcome(start, locked) for start in (subprocess.Popen, pidwait.spawn)]
        assert found == [(PermissionError, errno.EACCES, "locked")] * 2

    output("true")
    forked(check)


def test_audit_hooks_see_each_start_and_may_forbid_it(binding, starts, forked):
    """As os.posix_spawn; the hooks end with the forked child."""

    def check():
        seen = []

        def hook(event, args):
            if event == "os.posix_spawn" and args[0] != "/bin/ps":  # of ours, to poll
                seen.append(args)
                if args[0] == "false":
                    raise PermissionError("on purpose")

        sys.addaudithook(hook)
        env = {"PATH": os.environ["PATH"], "A": "1"}
        for options in {}, {"env": env}:
            with pidwait.spawn(("true", "x"), **options):
                pass
        assert seen == [("true", ["true", "x"], os.environ), ("true", ["true", "x"], env)]
        with pytest.raises(PermissionError, match="on purpose"):
            pidwait.spawn(["false"])
        assert starts == [0, 0]

    if not hasattr(sys, "addaudithook"):
        pytest.skip("audit hooks are new in Python 3.8")
    forked(check)


def test_flags_are_those_that_the_system_needs(seam):
    """NetBSD's RETURNERROR."""
    own, flags = seam.get("posix_spawnattr_setflags"), []
    seam.set_spawn_flag("RETURNERROR", 0x2000)
    pidwait.probe()  # which sets flags, too
    seam.put(
        "posix_spawnattr_setflags",
        lambda attributes, given: flags.append(given) or own(attributes, given & ~0x2000),
    )
    for options in {}, {"process_group": 0}, {"close_fds": False}:
        with pidwait.spawn(["true"], **options):
            pass
    assert len(flags) >= 3 and all(given & 0x2000 for given in flags)


# Which errors it raises


BAD_INPUT = [
    (TypeError, {"args": [3, None]}),
    (ValueError, {"args": [[]]}),
    (TypeError, {"env": [["A=B"]], "stdout": ["file"], "stderr": [True], "pass_fds": [["1"]]}),
    (ValueError, {"stdin": [subprocess.PIPE], "stdout": [subprocess.STDOUT], "stderr": [-7]}),
    (ValueError, {"pass_fds": [[-1], [2**31]], "process_group": [-1, 2**31]}),
    (TypeError, {"process_group": ["0", True, False]}),
]


@pytest.mark.windows
def test_bad_input_is_a_type_or_value_error():
    for error, options in BAD_INPUT:
        for name, values in options.items():
            for value in values:
                with pytest.raises(error, match=name):
                    pidwait.spawn(**dict({"args": ["x"]}, **{name: value}))
    with pytest.raises(ValueError, match="process_group"):
        pidwait.spawn(["x"], process_group=0, start_new_session=True)
    with pytest.raises(ValueError, match="pass_fds"):
        pidwait.spawn(["x"], pass_fds=[5], close_fds=False)
    if WINDOWS:
        for options in {"process_group": 5}, {"pass_fds": [1]}, {"start_new_session": True}:
            with pytest.raises(ValueError, match=next(iter(options))):
                pidwait.spawn(["x"], **options)


def outcome(start, options):
    """The exit code, or the error's class, errno and filename."""
    try:
        child = start(**options)
    except OSError as error:
        return type(error), error.errno, error.filename
    except (TypeError, ValueError) as error:
        return type(error)
    with child:
        return child.wait()


TWO_PATHS = {"PATH": "/bin", b"PATH": b"/bin"}
FAILURES = {
    "missing": {"args": [b"/nonesuch"]},
    "missing in PATH": {"args": ["nonesuch"]},
    "no PATH": {"args": ["nonesuch"], "env": {"PATH": ""}},
    "two PATHs": {"args": ["true"], "env": TWO_PATHS},
    "two PATHs that are not needed": {"args": ["/bin/true"], "env": TWO_PATHS},
    "empty name": {"args": [""]},
    "directory": {"args": ["/etc"]},
    "not executable": {"args": ["/etc/passwd"]},
    "long name": {"args": ["/" + "x" * 5000]},
    "cwd missing": {"args": ["true"], "cwd": "/nonesuch"},
    "cwd is a file": {"args": ["true"], "cwd": Path("/etc/passwd")},
    "cwd and program missing": {"args": ["/nonesuch"], "cwd": "/nonesuch"},
    "cwd is empty": {"args": ["true"], "cwd": ""},
    "below a file in cwd": {"args": ["./passwd/x"], "cwd": "/etc"},
    "arguments too long": {"args": ["true", "x" * 200000]},
    "environment too long": {"args": ["true"], "env": {"X": "x" * 3000000}},
    "NUL in the program": {"args": ["tr\0ue"]},
    "NUL in an argument": {"args": ["true", "\0"]},
    "NUL in cwd": {"args": ["true"], "cwd": "/\0"},
    "NUL in the environment": {"args": ["true"], "env": {"A": "\0"}},
    "= in a name": {"args": ["true"], "env": {"A=B": ""}},
    "number as argument": {"args": ["true", 1]},
    "number in the environment": {"args": ["true"], "env": {"A": 1}},
    "number as cwd": {"args": ["true"], "cwd": 3},
    "closed stdin": {"args": ["true"], "stdin": CLOSED},
    "closed stdin, program missing": {"args": ["nonesuch"], "stdin": CLOSED},
    "closed stdin, cwd missing": {"args": ["true"], "cwd": "/nonesuch", "stdin": CLOSED},
    "highest number as stdin": {"args": ["true"], "stdin": 2**31 - 1},
    "closed pass_fds": {"args": ["true"], "pass_fds": [CLOSED]},
    "closed pass_fds, program missing": {"args": ["nonesuch"], "pass_fds": [CLOSED]},
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """{name: options} of all failures, and what subprocess makes of each."""
    folder = tmp_path_factory.mktemp("failures")
    for name, text in ("no format", "exit 3\n"), ("no interpreter", "#!/nonesuch\n"):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "loop").symlink_to("loop")
    options = {path.name: {"args": [path]} for path in folder.iterdir()}
    options.update(FAILURES)
    return options, {name: outcome(subprocess.Popen, options[name]) for name in options}


@every_library
def test_failures_are_those_of_subprocess(library, failures):
    options, expected = failures
    assert {name: outcome(pidwait.spawn, options[name]) for name in options} == expected
    assert expected["missing"] == (FileNotFoundError, errno.ENOENT, b"/nonesuch")
    assert expected["closed stdin, program missing"] == (OSError, errno.EBADF, None)


@every_library
def test_closed_stream_can_not_be_passed(library, forked):
    """Whatever takes its place in the child. But the child may have it closed, too."""

    def check():
        kept = [os.dup(fd) for fd in range(3)]
        null, found = os.open(os.devnull, os.O_RDWR), []
        for closed in (0, 1), (0, 2), (0, 1, 2):
            for start in subprocess.Popen, pidwait.spawn:
                for fd in closed:
                    os.close(fd)
                options = dict.fromkeys(("stdin", "stdout", "stderr"), null)
                found.append(outcome(start, dict(options, args=["true"], pass_fds=closed[-1:])))
                found.append(outcome(start, {"args": ["true"]}))
                for fd in closed:
                    os.dup2(kept[fd], fd)
        for fd in kept + [null]:
            os.close(fd)
        assert found == [(OSError, errno.EBADF, None), 0] * 6

    output("true")  # loads what else would get the closed numbers
    forked(check)


def test_devnull_that_is_not_there_is_named(binding, monkeypatch):
    """It is not the fault of the program."""
    monkeypatch.setattr(os, "devnull", "/dev/nonesuch")
    with pytest.raises(FileNotFoundError) as caught:
        pidwait.spawn(["true"], stdin=subprocess.DEVNULL)
    assert caught.value.filename == "/dev/nonesuch"


@closing_library
def test_group_that_can_not_be_joined_is_a_permission_error(library):
    for group in 1, 2**31 - 1:
        with pytest.raises(PermissionError) as caught:
            pidwait.spawn(["true"], process_group=group)
        assert caught.value.errno == errno.EPERM


def test_wrong_backend_is_an_error_before_there_is_a_child_or_a_patch(seam, monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", "foo")
    seam.hide()
    starts, before = note_starts(seam), dict(vars(subprocess.Popen))
    for function in lambda: pidwait.spawn(["true"]), ours.patch:
        with pytest.raises(ValueError, match="PIDWAIT_BACKEND"):
            function()
    assert starts == [] and dict(vars(subprocess.Popen)) == before


# What posix_spawn can't do goes to the standard library


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.ENOMEM, errno.EINVAL])
def test_posix_spawn_that_is_refused_is_asked_once(binding, seam, error, forks):
    """By a policy, say; the standard library starts the child."""
    seam.put("posix_spawn", lambda *arguments: error)
    refusals = note_starts(seam)
    with pidwait.spawn(exiting(3), process_group=0, cwd="/") as child:
        assert child.wait(30) == 3
    assert refusals == [error]


def test_file_actions_that_can_not_be_made_are_left_to_subprocess(binding, seam, starts):
    # Each of the two is where the other one is to go, and no number is known to be free.
    with pidwait.spawn(["true"], stdout=2, stderr=1, close_fds=False) as child:
        assert child.wait(30) == 0
    before = list(starts)
    seam.put("posix_spawn_file_actions_adddup2", lambda *arguments: errno.ENOMEM)
    assert output("pwd", cwd="/") == "/\n"
    assert starts == before


NEEDED = (
    "posix_spawn_file_actions_init posix_spawnattr_init posix_spawnattr_setflags "
    "posix_spawnattr_setpgroup posix_spawnattr_setsigdefault sigemptyset sigaddset"
).split()


def test_library_that_lacks_any_function_starts_by_subprocess(seam, forks):
    for name in NEEDED:
        seam.hide(name)
        starts = note_starts(seam)
        assert output("cat", stdin=subprocess.DEVNULL) == ""
        with ours.Popen(exiting(3), process_group=0) as popen:
            assert popen.wait(30) == 3
        # The first of the two starts needs no group.
        assert starts == [0] * (name == "posix_spawnattr_setpgroup")
        seam.undo()


@pytest.mark.threads
def test_threads_start_at_the_same_time(binding):
    def start(number):
        with pidwait.spawn(["sh", "-c", "exit %d" % number]) as child:
            pass
        return child.exitcode

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(start, range(48))) == list(range(48))


def test_other_threads_run_while_the_child_starts(binding, seam, starts, tmp_path):
    """The start hangs in opening a FIFO until another thread opens it, too."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    name = "posix_spawn_file_actions_addopen"
    own, seen = seam.get(name), []
    seam.put(name, lambda actions, fd, *rest: own(actions, fd, os.fsencode(fifo), 0, 0))

    def let_go():
        seen.extend(starts)
        with open(fifo, "w"):
            pass

    thread = threading.Timer(0.05, let_go)
    thread.start()
    with pidwait.spawn(["true"], stdin=subprocess.DEVNULL, cwd=tmp_path) as child:
        thread.join()
    assert (child.exitcode, starts, seen) == (0, [0], [])


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, KeyboardInterrupt])
@pytest.mark.parametrize("start", [pidwait.spawn, ours.Popen])
def test_error_of_a_signal_handler_is_no_reason_to_start_again(seam, forks, start, error):
    """The child is reaped by a later start."""
    own, pids, said = seam.get("posix_spawn"), [], None
    with interrupted_by(error("on purpose")) as interrupted:

        def and_interrupt(cell, *arguments):
            assert own(cell, *arguments) == 0
            pids.append(cell[0])
            interrupted()

        seam.put("posix_spawn", and_interrupt)
        try:  # what pytest.raises() returns would keep the Popen
            start(["true"])
        except error as caught:
            said = str(caught)
        seam.put("posix_spawn", own)
    assert said == "on purpose" and len(pids) == 1

    def is_reaped():
        gc.collect()
        with start(["true"]):
            pass
        return state(pids[0]) is None

    eventually(is_reaped)


@pytest.mark.parametrize("start", [pidwait.spawn, ours.Popen])
def test_error_of_a_signal_handler_before_there_is_a_child_starts_nothing(seam, forks, start):
    class Path:
        def __fspath__(self):
            return interrupted()

    with interrupted_by(OSError(errno.ENOSYS, "on purpose")) as interrupted:
        for args in ["true"], [Path(), "x"]:
            seam.put("posix_spawn", lambda *arguments: interrupted())
            with pytest.raises(OSError, match="on purpose"):
                start(args)


def test_start_needs_no_file_descriptor(variant, limit):
    if not pidwait.probe()["calls"]["addclosefrom_np"]["available"]:
        pytest.skip("without closefrom, /proc tells which file descriptors are to be closed")
    output("true")
    limit(64)
    opened = []
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        while True:
            opened.append(os.dup(0))
    try:
        with pidwait.spawn(["sh", "-c", "exit 3"]) as child:
            assert child.wait(30) == 3
    finally:
        for fd in opened:
            os.close(fd)


def test_nothing_is_kept_of_starts_that_are_over(binding, seam, tmp_path):
    """The library's structures are kept for later starts that are alike, but only some."""
    alive = []

    def note(name, note):
        name = "posix_spawn_file_actions_" + name
        own = seam.get(name)
        seam.put(name, lambda pointer: note(id(pointer)) or own(pointer))

    note("init", alive.append)
    note("destroy", alive.remove)
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        with pidwait.spawn(["true"], cwd=tmp_path / str(number)):
            pass
        assert alive
    gc.collect()  # PyPy
    assert len(alive) <= 20
