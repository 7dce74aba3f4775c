# SPDX-License-Identifier: BSD-3-Clause
"""spawn through posix_spawn: each feature, on C libraries that lack one thing or another."""

import ast
import errno
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from . import pidwait
from .conftest import CHDIR, CLOSEFROM, LIBRARIES, MUSL
from .processes import PYTHON, eventually, exiting, run_python, sleeping

ours = importlib.import_module(pidwait.__name__ + ".subprocess")
actions = importlib.import_module(pidwait.__name__ + "._spawn_actions")
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
ffi = importlib.import_module(pidwait.__name__ + "._ffi")
_probe = importlib.import_module(pidwait.__name__ + "._probe")
child_module = importlib.import_module(pidwait.__name__ + "._child")
popen_start = importlib.import_module(pidwait.__name__ + "._popen_start")
starting = importlib.import_module(pidwait.__name__ + "._posix_spawn")

# The child prints what it finds.
REPORT = """if True:
    import os, sys
    fds = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
            fds.append(int(name))
        except OSError:  # that of the listing
            pass
    print(ascii({
        "argv": sys.argv[1:],
        "cwd": os.getcwd(),
        "env": {k: v for k, v in os.environ.items() if k.startswith("SPAWN")},
        "fds": sorted(fds),
        "group": os.getpgid(0) == os.getpid() or os.getpgid(0),
        "session": os.getsid(0) == os.getpid() or os.getsid(0),
        "stdin": os.fstat(0)[:2], "stderr": os.fstat(2)[:2],
    }))
"""


def report(*args, **options):
    """Start a child, and return what it finds."""
    reader, writer = os.pipe()
    try:
        child = pidwait.spawn(PYTHON + ("-c", REPORT) + args, stdout=writer, **options)
    finally:
        os.close(writer)
    with child, open(reader) as pipe:
        found = ast.literal_eval(pipe.read())
    assert child.exitcode == 0
    return found


def is_file(found, path):
    return found == os.stat(path)[:2]


def test_default(library, starts):
    found = report("a", "", "b c\xe9".encode("utf-8"), Path("d"))
    assert found["argv"] == ["a", "", "b c\xe9", "d"]
    assert found["cwd"] == os.getcwd()
    assert found["fds"] == [0, 1, 2]
    assert (found["group"], found["session"]) == (os.getpgid(0), os.getsid(0))
    assert starts() == (library != "without posix_spawn")


def test_cwd(library, starts, tmp_path):
    assert report(cwd=tmp_path)["cwd"] == str(tmp_path)
    assert report(cwd=os.fsencode(str(tmp_path)))["cwd"] == str(tmp_path)
    assert starts() == 2 * (library in ("new", "before closefrom", "as on macOS"))


def test_program_relative_to_cwd(library, tmp_path):
    (tmp_path / "program").symlink_to("/bin/true")
    with pidwait.spawn(["./program"], cwd=tmp_path) as child:
        pass
    assert child.exitcode == 0
    with pidwait.spawn("program", cwd=tmp_path, env={"PATH": "."}) as child:
        pass
    assert child.exitcode == 0


def test_process_group(library, starts):
    assert report(process_group=0)["group"] is True
    with pidwait.spawn(sleeping(60), process_group=0) as leader:
        assert report(process_group=leader.pid)["group"] == leader.pid
        leader.kill()
    assert starts() == 3 * (library != "without posix_spawn")


def test_session(library, starts):
    found = report(start_new_session=True)
    assert found["group"] is found["session"] is True
    assert starts() == (library not in ("before setsid", "without posix_spawn"))


def test_files(library, tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    with path.open() as file:
        found = report(stdin=file, stderr=file.fileno())
    assert is_file(found["stdin"], str(path)) and is_file(found["stderr"], str(path))
    found = report(stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert is_file(found["stdin"], os.devnull) and is_file(found["stderr"], os.devnull)
    assert found["fds"] == [0, 1, 2]


def test_devnull_takes_no_detour(binding, starts):
    with pidwait.spawn(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        pass
    assert (child.exitcode, starts()) == (0, 1)


def test_spare_number_is_needed_only_for_an_exchange(binding, starts):
    """A number is known to be free only if all other file descriptors are closed."""
    with pidwait.spawn(["true"], stderr=1, close_fds=False) as child:
        pass
    assert (child.exitcode, starts()) == (0, 1)
    with pidwait.spawn(["true"], stdout=2, stderr=1, close_fds=False) as child:
        pass
    assert (child.exitcode, starts()) == (0, 1)


def test_stderr_to_stdout(library, starts):
    reader, writer = os.pipe()
    command = ["sh", "-c", "echo out; echo err >&2"]
    with open(reader) as pipe, pidwait.spawn(command, stdout=writer, stderr=subprocess.STDOUT):
        os.close(writer)
        assert pipe.read() == "out\nerr\n"
    assert starts() == (library != "without posix_spawn")


# In an interpreter of its own, where file descriptors 0, 1 and 2 can be anything.
STANDARD_FDS = """if True:
    import os, subprocess, sys
    import {package} as pidwait
    kept = os.dup(1)
    for number in range(3):  # three pipes, so that each has an end to be read
        reader, writer = os.pipe()
        os.dup2(writer, number, number == 2)  # 2 alone is inheritable
        os.close(writer)
        os.set_inheritable(reader, False)
        os.dup2(reader, 20 + number, False)
        os.close(reader)
    script = "{ echo zero >&0; echo one >&1; } 2>/dev/null; echo two >&2"
    stdio = eval(sys.argv[1])
    code = pidwait.spawn(["sh", "-c", script], None, None, *stdio).wait()
    for number in range(3):
        os.close(number)
    texts = [os.read(20 + number, 100) for number in range(3)]
    os.write(kept, ascii((code, texts)).encode())
"""


@pytest.mark.parametrize(
    "stdio, expected",
    [
        ((0, 1, 2), ("zero", "one", "two")),
        ((1, 2, 0), ("two", "zero", "one")),
        ((2, 1, 0), ("two", "one", "zero")),
        ((0, 0, 1), ("zero one", "two", "")),
        ((2, None, -2), ("", "two", "zero")),  # 1 is not inheritable
        ((2, 0, -2), ("one two", "", "zero")),
    ],
)
@pytest.mark.parametrize("hidden", ["", CLOSEFROM, "posix_spawn"])
def test_standard_fds_in_any_order(stdio, expected, hidden):
    code = STANDARD_FDS
    if hidden:
        code = code.replace("import {package} as pidwait\n", HIDE_IN_CODE + "\n", 1)
    code = code.replace("{package}", pidwait.__name__).replace("{hidden}", hidden)
    done = run_python(code, repr(stdio))
    texts = ["".join(word + "\n" for word in text.split()).encode() for text in expected]
    assert done.stdout == repr((0, texts)), done


HIDE_IN_CODE = """import {package} as pidwait
    from {package} import _probe
    from {package}._ffi import calls

    def missing(binding, name):
        raise ImportError(name)

    calls._CALLS["{hidden}"] = (None, missing)
"""


@pytest.fixture
def inheritable():
    """A file descriptor that C code has made inheritable."""
    fd = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(fd, True)
    yield fd
    os.close(fd)


def test_close_fds(library, inheritable):
    assert report()["fds"] == [0, 1, 2]
    # The program that runs the tests may have left others inheritable.
    left = set(report(close_fds=False)["fds"])
    assert inheritable in left
    others = left - {0, 1, 2, inheritable}
    assert others == {fd for fd in others if os.get_inheritable(fd)}


def test_pass_fds(library, inheritable):
    reader, writer = os.pipe()
    high = inheritable + 100
    os.dup2(writer, high, inheritable=False)
    try:
        assert report(pass_fds=[high, inheritable, high])["fds"] == [0, 1, 2, inheritable, high]
        assert report(pass_fds=iter([reader]))["fds"] == [0, 1, 2, reader]
        assert report(pass_fds=[1, 2])["fds"] == [0, 1, 2]
    finally:
        os.close(reader), os.close(writer), os.close(high)


@pytest.mark.parametrize("inheritable", [True, False])
def test_pass_stdin(library, inheritable):
    before = os.get_inheritable(0)
    os.set_inheritable(0, inheritable)
    try:
        assert report(pass_fds=[0])["fds"] == [0, 1, 2]
        assert os.get_inheritable(0) is inheritable
    finally:
        os.set_inheritable(0, before)


def test_closed_by_the_kernel(binding, cloexec_default, starts, inheritable, tmp_path):
    """As on macOS: whatever the limit is, and no temporary file descriptor stays open."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] <= 5000:
        pytest.skip("the hard limit of file descriptors is %d" % limits[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, limits[1]))
    path = tmp_path / "file"
    path.write_text("text")
    try:
        os.dup2(inheritable, 4999)
        with path.open() as file:
            found = report(stdin=file, stderr=0, pass_fds=[inheritable, 0])
        assert found["fds"] == [0, 1, 2, inheritable]
        assert is_file(found["stdin"], str(path))
        assert starts() == 1
    finally:
        os.closerange(4999, 5000)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_closed_by_the_kernel_where_one_is_not_open(binding, cloexec_default, asked):
    """A closed one can't be inherited, so the standard code starts the child."""
    kept = os.dup(0)
    os.close(0)
    try:
        with pidwait.spawn(["true"]) as child:
            assert child.wait() == 0
        assert asked == [None]
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def unreadable(path):
    raise FileNotFoundError(errno.ENOENT, "/proc is not there", path)


@pytest.mark.parametrize("limit", ["fell", "is high", "is low, but no fd is shown"])
def test_fd_above_the_limit(hide, starts, monkeypatch, limit):
    """Without closefrom, if not all fds can be listed, the standard code starts the child."""
    import resource

    hide([CLOSEFROM])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        if limit == "fell":
            resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
            os.dup2(fd, 900)
            resource.setrlimit(resource.RLIMIT_NOFILE, (900, limits[1]))
        elif limit != "is high":
            resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
            monkeypatch.setattr(os, "listdir", unreadable)
        elif limits[1] <= 5000:
            pytest.skip("the hard limit of file descriptors is %d" % limits[1])
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (5000, limits[1]))
            os.dup2(fd, 4999)
        assert report()["fds"] == [0, 1, 2]
        assert starts() == 0
    finally:
        os.close(fd)
        os.closerange(900, 901)
        os.closerange(4999, 5000)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_limit_does_not_matter_where_none_are_closed(hide, starts, monkeypatch):
    hide([CLOSEFROM])
    monkeypatch.setattr(os, "listdir", unreadable)
    with pidwait.spawn(["true"], close_fds=False) as child:
        assert child.wait() == 0
    assert starts() == 1


def test_high_limit(binding, starts):
    """With closefrom a high limit does not matter."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] <= 5000:
        pytest.skip("the hard limit of file descriptors is %d" % limits[1])
    has_closefrom = pidwait.probe()["calls"]["addclosefrom_np"]["available"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, limits[1]))
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(fd, 4999)
        assert report()["fds"] == [0, 1, 2]
        assert starts() == has_closefrom
    finally:
        os.close(fd)
        os.closerange(4999, 5000)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_environment_is_built_once(binding, starts, monkeypatch):
    built = []

    class Counted(starting.Environment):
        def __init__(self, snapshot):
            built.append(snapshot)
            super().__init__(snapshot)

    monkeypatch.setattr(starting, "Environment", Counted)
    _probe.forget()
    starting._starters.clear()
    for env in (None, None, {"SPAWN_A": "1"}, {"SPAWN_A": "1"}, None):
        with pidwait.spawn(["true"], env=env) as child:
            pass
        assert child.exitcode == 0
    assert (starts(), len(built)) == (5, 2)


NOTHING = actions.INHERIT, actions.INHERIT, actions.INHERIT


@pytest.fixture
def closing(monkeypatch):
    """closing(stdio, pass_fds, limit) builds file actions: the numbers closed, each and from."""
    made = {"addclose": [], "addclosefrom_np": []}
    for name, numbers in made.items():

        def add(pointer, number, numbers=numbers):
            numbers.append(number)
            return 0

        monkeypatch.setitem(calls._resolved, "posix_spawn_file_actions_" + name, add)

    def closing(stdio, pass_fds, limit):
        actions.build_actions(None, stdio, True, pass_fds, limit)
        return made["addclose"], made["addclosefrom_np"]

    return closing


@pytest.mark.parametrize(
    "stdio, pass_fds, limit, closed",
    [
        (NOTHING, (), 0, ([], [3])),
        (NOTHING, (), 6, ([3, 4, 5], [])),
        (NOTHING, (3,), 0, ([], [4])),
        (NOTHING, (4, 6), 0, ([3, 5], [7])),
        (NOTHING, (4, 6), 9, ([3, 5, 7, 8], [])),
        ((3, 3, actions.DEVNULL), (0, 2, 3), 6, ([4, 5], [])),
    ],
)
def test_all_from_3_on_are_closed_but_those_that_are_passed(
    closing, stdio, pass_fds, limit, closed
):
    assert closing(stdio, pass_fds, limit) == closed


def test_list_of_numbers_to_close_is_not_too_long(closing, monkeypatch):
    monkeypatch.setattr(actions, "_LONGEST_LIST", 5)
    with pytest.raises(actions.Unable, match="descriptor 7 is to be passed"):
        closing(NOTHING, (7,), 0)


@pytest.mark.parametrize("group", [2**31, 2**32, 2**64])
def test_number_that_no_group_can_have(binding, group):
    with pytest.raises(actions.Unable, match="can't be a process group"):
        actions.build_attributes(group, False, False)


def test_highest_number_that_a_group_can_have():
    actions.build_attributes(2**31 - 1, False, False)


def request_of_group(group, session=False):
    true = "/bin/true"
    return starting.Request([true], true, None, None, NOTHING, True, (), group, session)


@pytest.mark.parametrize("group, session", [(1, False), (0, True)])
def test_group_that_is_refused(binding, group, session):
    """Popen raises another error for it than for what else posix_spawn can't do."""
    request = request_of_group(group, session)
    assert starting.start(request) is None
    assert request.group_is_refused and request.refusal


def test_what_is_refused_is_not_the_group(binding, monkeypatch):
    answer = []
    monkeypatch.setitem(calls._resolved, "posix_spawn", lambda *args: answer[0])
    for error, group, session in (
        (errno.ENOMEM, 1, False),
        (errno.EPERM, -1, True),
        (errno.EPERM, 0, False),
        (errno.EPERM, 2**31, False),
    ):
        answer[:] = [error]
        request = request_of_group(group, session)
        assert starting.start(request) is None
        assert request.refusal and not request.group_is_refused


def test_what_is_built_is_kept_for_later_starts():
    starting._starters.clear()
    requests = [request_of_group(group) for group in (-1, 0)]
    for request in requests * 2:
        assert os.waitpid(starting.start(request), 0)[1] == 0
    (starter,) = starting._starters
    first, second = map(starter._structures_for, requests)
    assert starter._structures_for(requests[0]) is first is not second


@pytest.mark.parametrize("stdio", [NOTHING, (actions.DEVNULL, 1, 2)])
def test_error_of_the_program_needs_no_second_start(stdio):
    """It was not for want of a file descriptor or of /dev/null."""
    args, env = ["nonesuch"], {"PATH": "/"}  # not a folder that we may not search
    request = starting.Request(args, args[0], env, "/", stdio, True, (0,), -1, False)
    with pytest.raises(FileNotFoundError) as caught:
        starting.start(request)
    assert caught.value.filename == "nonesuch"


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_start_that_raises_though_there_is_a_child(monkeypatch):
    """Nothing starts a second one, and the first one is reaped."""
    start, pids = starting.start, []

    def start_and_raise(request):
        pids.append(start(request))
        request.started = {0: pids[-1]}  # with cffi it has no other index, either
        raise ValueError("on purpose")

    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    monkeypatch.setattr(starting, "start", start_and_raise)
    for use in pidwait.spawn, ours.Popen:
        try:  # what pytest.raises() returns would keep the Popen
            use(["true"])
        except ValueError as error:
            assert str(error) == "on purpose"
        else:
            raise AssertionError("a second one was started")
    assert len(pids) == 2

    def are_reaped():
        gc.collect()
        subprocess._cleanup()
        child_module.reap_left()
        return not any(map(pidwait.pid_exists, pids))

    eventually(are_reaped)


def test_popen_that_is_interrupted_after_its_pipes_are_closed(monkeypatch):
    """The standard code does not close them again: others may have got their numbers."""
    start, taken = popen_start.start, []

    def start_and_be_interrupted(popen, plan, *rest):
        assert start(popen, plan, *rest)
        taken.append(plan["c2pwrite"])
        os.dup2(0, taken[0])
        popen.kill()
        popen.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    monkeypatch.setattr(popen_start, "start", start_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    os.close(taken[0])


def test_highest_number_of_a_file_descriptor():
    """It is one, though not open."""
    with pytest.raises(OSError) as caught:
        pidwait.spawn(["true"], stdin=2**31 - 1)
    assert caught.value.errno == errno.EBADF


def test_devnull_that_is_not_there(monkeypatch):
    """It is not the fault of the program."""
    monkeypatch.setattr(os, "devnull", "/dev/nonesuch")
    with pytest.raises(FileNotFoundError) as caught:
        pidwait.spawn(["true"], stdin=subprocess.DEVNULL)
    assert caught.value.filename == "/dev/nonesuch"


@pytest.mark.parametrize("hidden", [CLOSEFROM, CHDIR, "posix_spawn"])
def test_library_that_lacks_one_function(hide, hidden):
    """A first start loads what it may need instead of posix_spawn."""
    assert starting.is_whole() is not MUSL
    hide([hidden])
    assert not starting.is_whole()


def test_signals_are_restored(library):
    command = "grep", "SigIgn", "/proc/self/status"
    reader, writer = os.pipe()
    with open(reader) as pipe, pidwait.spawn(command, stdout=writer):
        os.close(writer)
        ignored = int(pipe.read().split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


EFFECTIVE_USER = """if True:
    import os
    import {package} as pidwait

    pidwait.spawn(["true"]).wait()  # imports what the other user could not
    if os.getuid() == 0:
        os.seteuid(65534)
    print(os.geteuid(), flush=True)
    for options in dict(process_group=0), dict(start_new_session=True):
        pidwait.spawn(["id", "-u"], **options).wait()
"""


def test_effective_user_is_kept():
    """As subprocess does: flags of posix_spawn could reset it."""
    done = run_python(EFFECTIVE_USER.format(package=pidwait.__name__))
    expected, *found = done.stdout.split()
    assert found == [expected] * 2, done


def test_environment(library, monkeypatch):
    assert report()["env"] == {}
    monkeypatch.setenv("SPAWN_A", "1")
    assert report()["env"] == {"SPAWN_A": "1"}
    assert report()["env"] == {"SPAWN_A": "1"}
    monkeypatch.setenv("SPAWN_A", "2")
    assert report()["env"] == {"SPAWN_A": "2"}
    monkeypatch.delenv("SPAWN_A")
    assert report()["env"] == {}
    env = {"SPAWN_B": "3"}
    assert report(env=env)["env"] == {"SPAWN_B": "3"}
    env[b"SPAWN_C"] = b"\xff"
    assert report(env=env)["env"] == {"SPAWN_B": "3", "SPAWN_C": "\udcff"}
    assert report(env={})["env"] == {}


class Changing(os.PathLike):
    """An object that is equal to itself, but gives another path each time."""

    count = 0

    def __fspath__(self):
        self.count += 1
        return str(self.count)


def test_environment_that_changes_unseen(binding):
    env = {"SPAWN": Changing()}
    assert [report(env=env)["env"]["SPAWN"] for _ in range(2)] == ["1", "2"]


def test_structures_are_destroyed_with_their_last_user(binding, monkeypatch, tmp_path):
    """They are built for 40 directories, and kept for later starts only for a few."""
    alive = []

    def noted(name, note):
        function = calls.get("posix_spawn_file_actions_" + name)

        def call(pointer):
            note(id(pointer))
            return function(pointer)

        monkeypatch.setitem(calls._resolved, "posix_spawn_file_actions_" + name, call)

    noted("init", alive.append)
    noted("destroy", alive.remove)
    most = 0
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        with pidwait.spawn(["true"], cwd=tmp_path / str(number)):
            gc.collect()  # PyPy
            most = max(most, len(alive))
    assert 1 < most <= 16


UNMADE = """if True:
    from {package} import _spawn_actions
    from {package}._ffi import calls

    calls._resolved["posix_spawnattr_init"] = lambda structure: 12
    try:
        _spawn_actions.Structure("posix_spawnattr")
    except OSError as error:
        print(error.errno)
"""


def test_structure_that_can_not_be_made():
    """Then it is not destroyed, either."""
    done = run_python(UNMADE.format(package=pidwait.__name__))
    assert (done.stdout, done.stderr) == ("12\n", "")


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_one_stream_alone(tmp_path, name):
    path = tmp_path / "file"
    code = "import os, sys; sys.exit(os.path.samestat(os.fstat(%d), os.stat(sys.argv[1])))"
    number = ["stdin", "stdout", "stderr"].index(name)
    command = PYTHON + ("-c", code % number, str(path))
    with path.open("w+") as file, pidwait.spawn(command, **{name: file}) as child:
        assert child.wait() == 1


def test_path_of_the_child(library, tmp_path, monkeypatch):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "program").write_text("not executable")
    (tmp_path / "second" / "program").symlink_to("/bin/true")
    folders = [str(tmp_path / "nonesuch"), str(tmp_path / "first")]
    for path in map(os.pathsep.join, (folders[::-1], folders)):
        with pytest.raises(PermissionError) as caught:
            pidwait.spawn(["program"], env={"PATH": path})
        assert caught.value.filename == "program"
    with pidwait.spawn(["program"], env={"PATH": path + ":" + str(tmp_path / "second")}) as child:
        pass
    assert child.exitcode == 0
    # With a directory that may not be searched it would be a PermissionError.
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(FileNotFoundError):
        pidwait.spawn(["program"])


def test_group_that_is_not_there(binding):
    with pytest.raises(PermissionError) as caught:
        pidwait.spawn(["true"], process_group=1)
    assert caught.value.errno == errno.EPERM


def test_another_thread_opens_inheritable_fds(library):
    """Nothing that is opened while a child starts gets into it."""
    stop = []

    def open_all_the_while():
        while not stop:
            fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            for fd in fds:
                os.set_inheritable(fd, True)
            for fd in fds:
                os.close(fd)

    opener = threading.Thread(target=open_all_the_while)
    opener.start()
    try:
        for _ in range(15):
            reader, writer = os.pipe()
            child = pidwait.spawn(["ls", "/proc/self/fd"], stdout=writer)
            os.close(writer)
            with child, open(reader) as pipe:
                assert pipe.read().split() == ["0", "1", "2", "3"]  # 3 is ls's own
    finally:
        stop.append(True)
        opener.join()


def test_threads_start(binding, inheritable):
    wrong = []

    def start(number):
        for code in (number, number + 64):
            with pidwait.spawn(["sh", "-c", "exit %d" % code]) as child:
                pass
            if child.exitcode != code:
                wrong.append((child.exitcode, code))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_meanwhile(binding, tmp_path, monkeypatch):
    """The start hangs in a file action until another thread lets it go on."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    build = actions.build_actions

    def build_with_fifo(*wanted):
        built = build(*wanted)
        add = calls.get("posix_spawn_file_actions_addopen")
        assert not add(built.pointer, 0, os.fsencode(fifo), os.O_RDONLY, 0)
        return built

    monkeypatch.setattr(actions, "build_actions", build_with_fifo)
    _probe.forget()

    def let_go():
        with open(fifo, "w"):
            pass

    thread = threading.Timer(0.05, let_go)
    thread.start()
    with pidwait.spawn(["true"]) as child:
        thread.join()
    assert child.exitcode == 0


def test_forced_by_policy_goes_to_the_standard_library(binding, monkeypatch):
    """The policy forbids posix_spawn."""
    monkeypatch.setitem(calls._resolved, "posix_spawn", lambda *args: errno.EPERM)
    with pidwait.spawn(exiting(3)) as child:
        pass
    assert child.exitcode == 3


def test_what_posix_spawn_can_not_do_is_asked_once(binding, asked, monkeypatch):
    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    # Each of the two is where the other one is to go, and no fd is known to be free.
    with pidwait.spawn(["true"], stdout=2, stderr=1, close_fds=False) as child:
        pass
    assert child.exitcode == 0
    assert asked == [None]


def test_probe_tells_what_the_library_has(library):
    rows = pidwait.probe()["calls"]
    hidden, flags = LIBRARIES[library]
    assert rows["addclosefrom_np"]["available"] is (not MUSL and CLOSEFROM not in hidden)
    assert ("POSIX_SPAWN_CLOEXEC_DEFAULT" in rows) is (sys.platform == "darwin")
    assert rows["addchdir_np"]["available"] is (CHDIR not in hidden)
    assert rows["posix_spawn"]["available"] is ("posix_spawn" not in hidden)
    assert rows["POSIX_SPAWN_SETSID"]["available"] is (not flags)
    if CHDIR in hidden:
        assert "has no " + CHDIR in rows["addchdir_np"]["reason"]


def test_library_without_what_each_start_may_need(binding, hide, asked, monkeypatch):
    """The check finds out before anything is started; the standard library starts the child."""

    def missing(*arguments):
        raise OSError(errno.ENOSYS, name)

    monkeypatch.setattr(subprocess, "_USE_VFORK", False, raising=False)
    hide([])  # for its limit of file descriptors
    attributes = "posix_spawnattr_setsigdefault", "posix_spawnattr_setpgroup"
    for name in ("sigemptyset", "sigaddset", "posix_spawn_file_actions_init", *attributes):
        with monkeypatch.context() as patched:
            patched.setitem(calls._resolved, name, missing)
            starting._starters.clear()
            with ours.Popen(("true",)) as popen:
                assert popen.wait() == 0
            with pidwait.spawn(("true",)) as child:
                assert child.wait() == 0
    assert asked == [None] * 10
