# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait vendor --single-file: one module of what waiting needs."""

import builtins
import dis
import hashlib
import importlib
import os
import re
import subprocess
import sys
import types

import pytest

from .. import pidwait
from ..cli.command_line import PROG
from ..processes import INTERPRETER, PYTHON, WINDOWS, exiting_when_told
from .conftest import heavy_modules, run, vendor

pytestmark = pytest.mark.windows
HERE = "windows" if WINDOWS else "linux"
SYSTEMS = "linux,bsd,windows"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With waits.py, which has what it needs on this system, and everything.py."""
    folder = tmp_path_factory.mktemp("single")
    for name, args in (
        ("waits", ["--systems", HERE]),
        ("everything", ["--parts", "many,spawn,cli"]),
    ):
        assert vendor("--single-file", *args, folder / (name + ".py"))[0] == 0
    return folder


@pytest.fixture
def imported(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for name in "waits", "everything":
        sys.modules.pop(name, None)


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for inner in codes(constant):
                yield inner


def global_names(text):
    """The names that the code looks up in its module, and those that it stores there."""
    used, stored = set(), set()
    top = compile(text, "file", "exec")
    for code in codes(top):
        for step in dis.get_instructions(code):
            at_top = code is top and step.opname.endswith("_NAME")
            if step.opname.startswith("LOAD_GLOBAL") or (at_top and "LOAD" in step.opname):
                used.add(step.argval)
            elif step.opname == "STORE_GLOBAL" or (at_top and "STORE" in step.opname):
                stored.add(step.argval)
    return used, stored


@pytest.mark.parametrize("args", [[], *(["--systems", one] for one in SYSTEMS.split(","))], ids=str)
def test_it_has_every_name_that_it_uses_and_imports_nothing_of_the_package(args):
    status, text, _ = vendor("--single-file", *args)
    assert status == 0
    # But for what its functions would need of the parts and systems that were left out.
    assert not [line for line in text.splitlines() if line.startswith("from .")]
    used, stored = global_names(text)
    known = {"__name__", "__file__", "__annotations__", "__doc__", "__package__", "WindowsError"}
    known |= set(dir(builtins))
    assert used - stored - known == set()
    assert not {"exec", "eval", "compile"} & used and "b64decode" not in text
    for system, names in (
        ("bsd", "EV_ONESHOT NOTE_EXITSTATUS"),
        ("windows", "CreateIoCompletionPort"),
    ):
        for name in names.split():
            assert (name in text) == (not args or args[1] == system), name


def test_its_head_names_version_systems_parts_digest_and_licence(folder):
    data = folder.joinpath("waits.py").read_bytes()
    assert b"\r" not in data
    head, _, body = data.decode().partition("OF SUCH DAMAGE.\n")
    assert " %s in one file" % pidwait.__version__ in head
    assert "systems: %s\n" % HERE in head and "parts:   wait,many,watch,cli\n" in head
    assert head.startswith(
        "#!/usr/bin/env python3\n# SPDX-License-Identifier: BSD-3-Clause\n# flake8"
    )
    assert "Redistributions of source code must retain" in head
    (digest,) = re.findall(r"\n    ([0-9a-f]{64})\n", head)
    assert digest == hashlib.sha256(data.replace(digest.encode(), b"")).hexdigest()


def redone(text, old=pidwait.__version__, new="0.0.1"):
    """The text with a replacement, as if that were the version that was made."""
    text = text.replace(old.encode(), new.encode(), 1)
    (digest,) = re.findall(rb"\n    ([0-9a-f]{64})\n", text)
    other = hashlib.sha256(text.replace(digest, b"")).hexdigest()
    return text.replace(digest, other.encode())


def test_it_is_the_same_each_time_printed_or_written(folder):
    command = [INTERPRETER, "-OO", "-m", pidwait.__name__, "vendor", "--single-file"]
    printed = subprocess.check_output(
        command + ["--systems", HERE], env=dict(os.environ, PYTHONHASHSEED="2")
    )
    assert printed.replace(b"\r\n", b"\n") == folder.joinpath("waits.py").read_bytes()


def test_it_waits(imported, start_told):
    waits = imported("waits")
    children = [start_told(code) for code in (3, 4)]
    with pytest.raises(waits.TimeoutExpired) as caught:
        waits.wait(children[0].pid, 0)
    assert caught.value.pid == children[0].pid
    assert waits.TimeoutExpired.__module__ == waits.Process.__module__ == "waits"
    with waits.WaitSet(children) as waiting, waits.Process(children[0].pid) as process:
        assert not process.has_exited()
        for child in children:
            child.stdin.close()
        assert process.wait(60) == 3
        found = []
        while waiting:
            found += waiting.wait(60)
    assert sorted(code for _, code in found) == [3, 4]
    assert waits.wait_procs(children, 60)[0] == [(children[0], 3), (children[1], 4)]
    assert waits.probe()["backend"] == pidwait.probe()["backend"]


def test_it_starts_processes_if_asked_for(imported):
    everything = imported("everything")
    with everything.spawn(PYTHON + ("-c", "raise SystemExit(5)")) as child:
        assert everything.wait(child, 60) == 5
    assert everything.TimeoutExpired is not pidwait.TimeoutExpired


def test_import_loads_nothing_heavy(folder):
    assert heavy_modules("waits", path=folder) == (0, "[]\n", "")


def test_it_is_a_command_as_a_file_a_module_or_on_standard_input(folder, start):
    child = start(*exiting_when_told(7), stdin=subprocess.PIPE)
    path = folder / "waits.py"
    with path.open("rb") as file:
        status, _, err = run("-", "-t", "0.01", child.pid, stdin=file)
    assert status == 124
    name = PROG.split()[0] + " -"
    assert err.startswith("%s: timed out; still running: %d" % (name, child.pid))
    child.stdin.close()
    status, out, err = run(path, "--exit-code", "-v", child.pid)
    assert (status, err) == (7, "") and "exited with 7" in out
    status, out, _ = run("-m", "waits", "-h", path=folder)
    assert status == 0 and "--name" not in out and " run " not in out
    for args, message in (
        (["run", "true"], "PID: 'run' is not a number"),
        (["--name", "x"], "--name"),
    ):
        status, _, err = run(path, *args)
        assert status == 2 and message in err and "Traceback" not in err


def test_check_tells_whether_it_is_current_or_was_changed(folder, tmp_path):
    path = tmp_path / "copy.py"
    text = folder.joinpath("waits.py").read_bytes()
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    version = pidwait.__version__
    assert vendor("--check", path) == (0, "%s: %s, current\n" % (path, version), "")
    for changed in text + b"# ours\n", text.replace(b"# fmt: off\n", b"# fmt: off\n# ruff: noqa\n"):
        path.write_bytes(changed)
        said = "%s: %s, changed by hand:\nchanged: %s\n" % (path, version, path)
        assert vendor("--check", path) == (4, said, "")
        assert vendor("--single-file", path)[0] == 1 and path.read_bytes() == changed
    path.write_bytes(redone(text))
    status, out, _ = vendor("--check", path)
    assert (status, out) == (3, "%s: 0.0.1; this is %s\n" % (path, version))
    path.write_bytes(b"import os\n")
    assert vendor("--check", path)[0] == 1


def test_the_ends_of_lines_of_the_package_do_not_matter(tmp_path):
    """Git on Windows may have made them CRLF."""
    copy, path = tmp_path / "renamed", tmp_path / "waits.py"
    assert vendor(copy)[0] == 0
    for file in filter(os.path.isfile, map(str, copy.rglob("*"))):
        with open(file, "rb+") as stream:
            text = stream.read().replace(b"\n", b"\r\n")
            stream.seek(0)
            stream.write(text)
    done = run("-m", "renamed", "vendor", "--single-file", path, path=tmp_path)
    assert done == (0, "", "")
    assert vendor("--check", path)[0] == vendor("--check", copy)[0] == 0


@pytest.mark.skipif(WINDOWS, reason="Windows has no such files")
@pytest.mark.parametrize("options", [[], ["--force"]], ids=["", "force"])
def test_it_takes_the_place_of_a_file_alone(tmp_path, options):
    """Not of a device: root could replace /dev/null."""
    path = tmp_path / "null"
    os.mkfifo(str(path))
    status, out, err = vendor("--single-file", *options, path)
    assert (status, out) == (1, "") and "is not a regular file" in err
    assert path.is_fifo()
    assert vendor("--single-file", *options, tmp_path)[0] == 1


def test_it_overwrites_no_other_file_and_nothing_changed_by_hand(tmp_path):
    other, path = tmp_path / "other.py", tmp_path / "waits.py"
    other.write_text("mine = 1\n")
    for options in [], ["--force"]:
        status, out, err = vendor("--single-file", *options, other)
        assert (status, out) == (1, "") and "is not a copy" in err
    assert other.read_text() == "mine = 1\n"
    assert vendor("--single-file", path)[0] == 0
    made = path.read_bytes()
    path.write_bytes(made + b"# mine\n")
    status, out, err = vendor("--single-file", path)
    assert (status, out) == (1, "") and "--force" in err and path.read_bytes() != made
    assert vendor("--single-file", "--force", path)[0] == 0 and path.read_bytes() == made


def test_an_update_keeps_the_parts_and_systems_that_were_chosen(tmp_path):
    path = tmp_path / "waits.py"
    chosen = "--parts", "wait,spawn", "--systems", "linux,windows"
    assert vendor("--single-file", *chosen, path)[0] == 0
    made = path.read_bytes()
    path.write_bytes(redone(made))
    assert vendor("--single-file", path)[0] == 0 and path.read_bytes() == made
    path.write_bytes(made + b"# mine\n")
    assert vendor("--single-file", "--force", path)[0] == 0 and path.read_bytes() == made
    for args, line in (
        (["--systems", "linux"], b"parts:   wait,spawn\nsystems: linux\n"),
        (["--parts", "many"], b"parts:   wait,many\nsystems: linux\n"),
    ):
        assert vendor("--single-file", *args, path)[0] == vendor("--check", path)[0] == 0
        assert line in path.read_bytes()
    path.write_bytes(b"")
    assert vendor("--single-file", path)[0] == 0
    assert b"parts:   wait,many,watch,cli\nsystems: linux,bsd,windows\n" in path.read_bytes()


@pytest.mark.parametrize("changed", [b"", b"# ours\n"], ids=["", "changed"])
def test_one_of_an_older_version_is_updated(tmp_path, folder, changed):
    """Its digest is of its body alone, and its part "many" had watch()."""
    path = tmp_path / "waits.py"
    body = folder.joinpath("waits.py").read_bytes().partition(b"OF SUCH DAMAGE.\n")[2]
    head = '"""pidwait 0.0.1 in one file: waits.\n\nparts:   wait,many\nsystems: %s\n' % HERE
    head += "sha256 of what follows the licence:\n    %s\n" % hashlib.sha256(body).hexdigest()
    path.write_bytes(head.encode() + b'"""\n# OF SUCH DAMAGE.\n' + body + changed)
    assert vendor("--check", path)[0] == (4 if changed else 3)
    assert vendor("--single-file", path)[0] == (1 if changed else 0)
    if not changed:
        text = path.read_bytes()
        assert b"\nparts:   wait,many,watch\nsystems: " in text and b"'watch'" in text


@pytest.mark.skipif(WINDOWS, reason="Windows has no such modes, nor links for everybody")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755], ids=oct)
def test_an_update_keeps_the_mode_and_a_symbolic_link(tmp_path, folder, mode):
    real, link, far = tmp_path / "there" / "real.py", tmp_path / "waits.py", tmp_path / "far.py"
    real.parent.mkdir()
    real.write_bytes(folder.joinpath("waits.py").read_bytes() + b"# mine\n")
    real.chmod(mode)
    link.symlink_to(os.path.join("there", "real.py"))
    far.symlink_to(link)
    assert vendor("--single-file", "--force", far)[0] == vendor("--check", link)[0] == 0
    assert far.is_symlink() and link.is_symlink() and not real.is_symlink()
    assert real.stat().st_mode & 0o7777 == mode and real.parent.joinpath("real.py") == real
    assert [len(list(one.iterdir())) for one in (tmp_path, real.parent)] == [3, 1]


@pytest.mark.skipif(WINDOWS, reason="Windows has other rights")
@pytest.mark.skipif(not WINDOWS and os.getuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_named(tmp_path, folder):
    path = tmp_path / "waits.py"
    path.write_bytes(folder.joinpath("waits.py").read_bytes())
    tmp_path.chmod(0o555)
    try:
        status, _, err = vendor("--single-file", path)
    finally:
        tmp_path.chmod(0o755)
    assert status == 1 and err.endswith("%s: Permission denied\n" % path)


@pytest.mark.parametrize("parts", ["wait", "many", "find", "probe", "cli"])
def test_it_is_a_program_where_it_has_a_command_line(tmp_path, parts):
    path = tmp_path / "waits.py"
    assert vendor("--single-file", "--parts", parts, path)[0] == 0
    first = path.read_bytes().split(b"\n")[0]
    assert (first == b"#!/usr/bin/env python3") == (parts == "cli")
    if not WINDOWS:
        assert os.access(str(path), os.X_OK) == (parts == "cli")


def test_parts_bring_what_they_need(tmp_path):
    names = {"wait": {"wait", "Usage"}, "many": {"WaitSet"}, "watch": {"watch", "watch_parent"}}
    names.update(spawn={"spawn", "Child"}, find={"process_iter"}, end={"end_procs"})
    names["probe"] = {"probe"}
    needs = {"end": {"many", "find"}, "probe": {"spawn"}}
    for part in names:
        status, text, _ = vendor("--single-file", "--parts", part, "--systems", HERE)
        assert status == 0
        made = types.ModuleType("made")
        exec(text, made.__dict__)
        there = {"wait", part, *needs.get(part, ())}
        assert {one for one in names if names[one] & set(made.__all__)} == there
        assert set.union(*map(names.get, there)) <= set(made.__all__) <= set(dir(made))


def test_elsewhere_it_says_what_it_is_for(tmp_path):
    other = "linux" if WINDOWS else "windows"
    path = tmp_path / "other.py"
    assert vendor("--single-file", "--systems", other, path)[0] == 0
    status, _, err = run(path)
    assert status == 1
    assert "ImportError: this copy is for %s alone" % other in err


@pytest.mark.parametrize(
    "args, text",
    [
        (["--systems", "plan9"], "--systems: 'plan9' is not one of linux, bsd, windows"),
        (["--parts", "a"], "--parts: 'a' is not one of wait, many, watch, spawn, find, end, "),
        (["--parts", "wait,aio"], "--parts: a single file can't have aio; copy a folder"),
        (["a", "b"], "give one FILE"),
        (["/no/such/folder/file.py"], "file.py: "),
    ],
)
def test_wrong_arguments_are_named(args, text):
    status, _, err = vendor("--single-file", *args)
    assert status == 2 - args[0].startswith("/")
    assert text in err
