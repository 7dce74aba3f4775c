# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait vendor DEST: a copy in another project, and what becomes of it."""

import errno
import hashlib
import importlib.util
import marshal
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .. import LINUX, pidwait
from ..cli.command_line import PROG
from ..processes import WINDOWS, exiting
from .conftest import put, read, run, vendor

ROOT = Path(__file__).resolve().parents[2]
VERSION = pidwait.__version__
HERE = "windows" if WINDOWS else "linux" if LINUX else "bsd"
OTHER = "0.0.1"
SILENCE = [b"# flake8: noqa", b"# pylint: skip-file", b"# fmt: off", b"# mypy: ignore-errors"]
RENAMED = "another._vendor.renamed"
CHANGED_BY_HAND = 4


@pytest.fixture
def copy(tmp_path, contents):
    """A new copy, called another._vendor.renamed."""
    dest = tmp_path / "another" / "_vendor" / "renamed"
    assert vendor(dest)[0] == 0
    return dest


@pytest.fixture
def old(tmp_path, contents):
    """Where another version of the package is, called other; it has one folder more."""
    top = put(contents, tmp_path / "old" / "other")
    init = top / "__init__.py"
    init.write_bytes(init.read_bytes().replace(VERSION.encode(), OTHER.encode()))
    put({"_more/__init__.py": b"# of the other\n", "_more/module.py": b"# of the other\n"}, top)
    return top.parent


def test_a_copy_is_the_package_with_its_licence_and_a_record(tmp_path):
    dest = tmp_path / "another" / "_vendor" / "renamed"
    status, out, err = vendor(dest)
    assert (status, err) == (0, "")
    got = read(dest)
    assert out.startswith("%s: %s: %d written" % (dest, VERSION, len(got) - 1))
    # Git on Windows may have changed the ends of its lines.
    assert got["LICENSE"].split() == ROOT.joinpath("LICENSE").read_bytes().split()
    assert b"Copyright" in got["LICENSE"].splitlines()[2] and got["py.typed"] == b""
    for path in filter(lambda path: path.endswith(".py"), got):
        lines = got[path].split(b"\n")
        assert lines[:5] == [b"# SPDX-License-Identifier: BSD-3-Clause", *SILENCE], path
        assert lines[5].startswith(b"# pyright: ") and lines[5:].count(lines[5]) == 1
    lines = got["VENDORED"].decode().splitlines()
    assert lines[0] == "# pidwait " + VERSION
    digests = dict(reversed(line.split("  ")) for line in lines[1:])
    assert digests == {
        path: hashlib.sha256(data).hexdigest() for path, data in got.items() if path != "VENDORED"
    }
    assert run("-m", RENAMED, "-V", path=tmp_path) == (
        0,
        "%s -m %s %s\n" % (PROG.split()[0], RENAMED, VERSION),
        "",
    )


def test_a_copy_of_a_copy_or_from_a_zip_is_the_same(tmp_path, copy):
    again, zipped, archive = tmp_path / "again", tmp_path / "from_zip", tmp_path / "app.zip"
    assert run("-m", RENAMED, "vendor", again, path=tmp_path)[0] == 0
    assert read(again) == read(copy)
    with zipfile.ZipFile(str(archive), "w") as opened:
        opened.writestr("zipped/__init__.py", "")
        for name, data in read(copy).items():
            opened.writestr("zipped/inside/" + name, data)
    status, _, err = run("-m", "zipped.inside", "vendor", zipped, path=archive)
    assert status == 0, err
    assert read(zipped) == read(copy)
    status, out, err = run("-m", "zipped.inside", "-t0", os.getpid(), path=archive)
    assert status == 124 and "zipped.inside: timed out" in err


def test_compiled_files_alone_are_no_source_but_work(tmp_path, copy):
    for path in list(copy.rglob("*.py")):
        code = compile(path.read_bytes(), str(path), "exec")
        head = importlib.util.MAGIC_NUMBER + b"\0" * (12 if sys.version_info >= (3, 7) else 8)
        path.with_suffix(".pyc").write_bytes(head + marshal.dumps(code))
        path.unlink()
    status, _, err = run("-m", RENAMED, "vendor", tmp_path / "dest", path=tmp_path)
    assert status == 1
    assert "__init__.py" in err and not tmp_path.joinpath("dest").exists()
    code = "from %s import subprocess; print(subprocess.run(%r, tree=True).returncode)"
    assert run("-c", code % (RENAMED, exiting(3)), path=tmp_path) == (0, "3\n", "")


@pytest.mark.parametrize("name", ["with-dash", "class", "1st", "async", "await", "\ufb01le"])
def test_a_name_that_can_not_be_imported_is_refused(tmp_path, name):
    status, _, err = vendor(tmp_path / name)
    assert status == 2
    assert repr(name) in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["", "--force", "--check", "--single-file"])
def test_an_empty_name_is_refused(tmp_path, monkeypatch, option):
    """It would be the current folder's."""
    monkeypatch.chdir(tmp_path)
    status, out, err = vendor(*option.split(), "")
    name = "FILE" if option == "--single-file" else "DEST"
    assert (status, out) == (2, "") and ": give one %s" % name in err
    assert not list(tmp_path.iterdir())


def test_a_copy_of_another_version_is_updated_both_ways(tmp_path, old):
    dest = tmp_path / "dest"
    assert run("-m", "other", "vendor", dest, path=old)[0] == 0
    assert vendor("--check", dest) == (3, "%s: %s; this is %s\n" % (dest, OTHER, VERSION), "")
    status, out, err = vendor(dest)
    assert (status, err) == (0, "")
    assert out.startswith("%s: %s to %s: 1 written, 2 removed\n" % (dest, OTHER, VERSION))
    assert read(dest / "_more") == {}
    assert vendor("--check", dest) == (0, "%s: %s, current\n" % (dest, VERSION), "")
    put({"own.txt": b"ours", "_more/own.txt": b"ours"}, dest)
    assert run("-m", "other", "vendor", dest, path=old)[0] == 0
    assert vendor(dest)[0] == 0
    assert (dest / "own.txt").exists() and read(dest / "_more") == {"own.txt": b"ours"}


def test_the_same_version_with_other_contents_is_not_current(copy, old):
    init = old / "other" / "__init__.py"
    init.write_bytes(init.read_bytes().replace(OTHER.encode(), VERSION.encode()))
    status, out, _ = run("-m", "other", "vendor", "--check", copy, path=old)
    assert (status, out) == (3, "%s: %s, but differs from this package\n" % (copy, VERSION))


def test_a_current_copy_is_left_alone(copy):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    status, out, _ = vendor(copy)
    assert status == 0 and ": 0 written, 0 removed\n" in out
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


@pytest.mark.parametrize("name, data", [("aio.py", b"# changed\n"), ("cli/run.py", None)])
def test_what_was_changed_by_hand_is_kept_until_forced(copy, name, data):
    path = copy / name
    path.unlink() if data is None else path.write_bytes(path.read_bytes() + data)
    before = read(copy)
    status, out, err = vendor("--check", copy)
    word = "removed" if data is None else "changed"
    assert (status, err) == (CHANGED_BY_HAND, "") and "%s: %s\n" % (word, name) in out
    status, out, err = vendor(copy)
    assert (status, out) == (1, "") and name in err and "--force" in err
    assert read(copy) == before
    assert vendor("--force", copy)[0] == vendor("--check", copy)[0] == 0


def test_what_was_added_by_hand_stays_and_is_no_change(copy, old):
    put({"cli/more.py": b"# ours\n", "_more/module.py": b"# ours\n"}, copy)
    assert vendor("--check", copy)[0] == vendor(copy)[0] == 0
    assert vendor("--force", copy)[0] == vendor("--check", copy)[0] == 0
    # Nor does a version that has a file of that name write over it.
    status, _, err = run("-m", "other", "vendor", copy, path=old)
    assert status == 1 and "_more/module.py" in err
    assert copy.joinpath("_more", "module.py").read_bytes() == b"# ours\n"
    assert copy.joinpath("cli", "more.py").read_bytes() == b"# ours\n"


def test_compiled_files_ends_of_lines_and_remarks_are_no_change(copy):
    put({"__pycache__/wait.cpython-311.pyc.139746": b""}, copy)
    for name, data in read(copy).items():
        copy.joinpath(name).write_bytes(data.replace(b"\n", b"\r\n"))
    with open(str(copy / "VENDORED"), "ab") as file:
        file.write(b"\n# a remark  of ours\n")
    assert vendor("--check", copy)[0] == 0


@pytest.mark.parametrize("update", [False, True], ids=["cp -r", "update"])
def test_a_copy_without_the_lines_that_silence_checks_is_updated(tmp_path, contents, update):
    """They were not in older versions, and are not in what cp -r makes."""
    dest, silence = tmp_path / "dest", contents["aio.py"].partition(b'"""')[0].split(b"\n", 1)[1]
    plain = {path: data.replace(silence, b"", 1) for path, data in contents.items()}
    text = pkgutil.get_data(pidwait.__name__, "__init__.py").replace(b"\r\n", b"\n")
    plain["__init__.py"] = text.replace(silence, b"", 1)
    put(plain, dest)
    if update:
        record = ["%s  %s\n" % (hashlib.sha256(plain[path]).hexdigest(), path) for path in plain]
        put({"VENDORED": ("# pidwait %s\n%s" % (OTHER, "".join(record))).encode()}, dest)
        assert vendor("--check", dest)[0] == 3
    with dest.joinpath("aio.py").open("ab") as file:
        file.write(b"# changed\n")
    status, out, err = vendor(dest)
    assert (status, out) == (1, "") and "aio.py was changed" in err
    put({"aio.py": plain["aio.py"]}, dest)
    assert vendor(dest)[0] == vendor("--check", dest)[0] == 0
    assert {path: data for path, data in read(dest).items() if path != "VENDORED"} == contents


def test_what_would_be_imported_instead_is_a_change(copy, old):
    more = ["_sets/__init__.py", "cli/run.cpython-311-x86_64-linux-gnu.so", "_base/__init__.pyd"]
    put(dict.fromkeys(more, b"# ours\n"), copy)
    put({"_sets/module.py": b"", "cli/other.so": b"", "own/__init__.py": b""}, copy)
    changes = "".join("added: %s\n" % path for path in sorted(more))
    status, out, err = vendor("--check", copy)
    assert (status, out) == (4, "%s: %s, changed by hand:\n%s" % (copy, VERSION, changes))
    status, out, err = vendor(copy)
    assert (status, out) == (1, "") and "_sets/__init__.py was added" in err
    assert vendor("--force", copy)[0] == 0 and copy.joinpath("_sets", "__init__.py").exists()


def test_a_changed_copy_does_not_update_itself(tmp_path, copy):
    copy.joinpath("aio.py").write_bytes(b"# changed\n")
    status, _, err = run("-m", RENAMED, "vendor", "--force", copy, path=tmp_path)
    assert status == 1 and "can't update itself" in err


@pytest.mark.parametrize("update", [False, True], ids=["new", "update"])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_what_a_full_disk_ends_is_done_again(tmp_path, old, monkeypatch, step, update):
    dest = tmp_path / "dest"
    if update:
        for name in "aio.py", "cli/run.py":
            path = old / "other" / name
            path.write_bytes(path.read_bytes() + b"# of the other\n")
        assert run("-m", "other", "vendor", dest, path=old)[0] == 0
    steps, real = [], os.replace

    def replace(source, target):
        if len(steps) == step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source)
        steps.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    status, out, err = vendor(dest)
    assert (status, out) == (1, "") and os.strerror(errno.ENOSPC) in err
    monkeypatch.undo()
    assert vendor("--check", dest)[0] == (3 if update else 1)
    assert vendor(dest)[0] == vendor("--check", dest)[0] == 0


@pytest.mark.skipif(WINDOWS, reason="Windows has no SIGKILL")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
@pytest.mark.parametrize("args", [["copy"], ["--single-file", "copy.py"]], ids=" ".join)
def test_what_a_signal_ends_is_done_again_and_leaves_nothing(tmp_path, start, number, args):
    code = "import os, %s.cli as cli; cli.main()" % pidwait.__name__
    # It stands still between the writing of its third file, or its only one, and the renaming.
    stands = "import os, sys, time; real = os.replace; left = [%d]\n" % (
        2 if args[0] == "copy" else 0
    )
    stands += """def replace(*args):
    if not left[0]:
        print(flush=True)
        time.sleep(60)
    left[0] -= 1
    real(*args)
os.replace = replace
"""
    program = start(
        *(sys.executable, "-c", stands + code, "vendor", *args),
        cwd=str(tmp_path),
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        stdout=subprocess.PIPE,
    )
    assert program.stdout.readline()
    program.send_signal(number)
    assert program.wait() == -number
    dest = tmp_path / args[-1]
    folder = dest if args[0] == "copy" else tmp_path
    assert [one.suffix for one in folder.iterdir()].count(".part") == 1
    assert vendor("--check", dest)[0] == 1
    assert vendor(*args[:-1], dest)[0] == vendor("--check", dest)[0] == 0
    assert not [one for one in folder.iterdir() if one.suffix == ".part"]


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_what_is_no_copy_is_not_touched(tmp_path, force):
    dest = put({"own.txt": b"ours"}, tmp_path / "dest")
    assert vendor("--check", dest)[0] == 1
    status, out, err = vendor(dest, *force)
    assert (status, out) == (1, "") and str(dest) in err
    assert read(dest) == {"own.txt": b"ours"}
    dest.joinpath("own.txt").unlink()
    assert vendor(dest)[0] == 0  # an empty folder
    shutil.rmtree(str(dest))
    dest.write_bytes(b"a file")
    assert vendor(dest, *force)[0] == 1 and dest.read_bytes() == b"a file"
    status, out, err = vendor(dest / "below", *force)
    assert (status, out) == (1, "") and str(dest) in err and "Traceback" not in err


def names(path):
    return sorted(one.name for one in path.rglob("*"))


@pytest.mark.parametrize("args", [["one"], ["cli/one"], ["--single-file", "one.py"]], ids=" ".join)
def test_no_copy_is_put_into_the_package_itself(tmp_path, copy, args):
    """The next copy would contain it."""
    before = names(copy)
    where = copy / args[-1]
    for force in [], ["--force"]:
        status, out, err = run("-m", RENAMED, "vendor", *force, *args[:-1], where, path=tmp_path)
        assert (status, out) == (1, "") and "%s: a copy can't update itself" % where in err
    assert names(copy) == before
    # Nor does the package become a part of one.
    status, out, err = run("-m", RENAMED, "vendor", copy.parent, path=tmp_path)
    assert (status, out) == (1, "") and str(copy.parent) in err
    assert names(copy.parent) == sorted(["renamed", *before])


def broken(name, folder):
    """Put something else in the place of a file or folder."""
    path = folder / name
    if path.is_dir():
        shutil.rmtree(str(path))
    elif path.exists():
        path.unlink()
    return path


@pytest.mark.parametrize("name", ["aio.py", "VENDORED", "LICENSE", "cli/run.py"])
def test_a_folder_in_the_place_of_a_file_is_named(copy, name):
    broken(name, copy).mkdir()
    for force in [], ["--force"]:
        status, out, err = vendor(*force, copy)
        assert (status, out) == (1, "") and str(copy) in err and name in err
        assert "VENDORED." not in err and "Traceback" not in err
    assert copy.joinpath(name).is_dir() and not list(copy.glob("VENDORED.*"))


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="only Linux has this file")
def test_files_that_are_not_of_the_package_are_not_read(copy):
    copy.joinpath("own").symlink_to("/proc/self/mem")  # to read it is an error
    assert vendor(copy)[0] == 0
    status, out, err = vendor("--check", copy)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("path", ["../own.txt", "/own.txt", "cli/../../own.txt"])
def test_a_damaged_record_has_nothing_else_removed(copy, path):
    own = copy.parent / "own.txt"
    own.write_bytes(b"ours")
    with open(str(copy / "VENDORED"), "a") as file:
        file.write("%s  %s\n" % (hashlib.sha256(b"ours").hexdigest(), path))
    status, _, err = vendor(copy)
    assert status == 1 and "VENDORED is damaged" in err
    for head in "", "# pidwait\n", "# pidwait 1 2\n", "# another 1\n":
        copy.joinpath("VENDORED").write_bytes(head.encode())
        assert vendor("--check", copy)[0] == 1
    copy.joinpath("aio.py").write_bytes(b"# changed\n")
    assert vendor("--force", copy)[0] == vendor("--check", copy)[0] == 0
    assert own.exists()


@pytest.mark.parametrize("record", [None, b"", b"# another 1\n"], ids=str)
def test_a_copy_without_its_record_is_known_by_its_licence(copy, record):
    path = copy / "VENDORED"
    path.unlink() if record is None else path.write_bytes(record)
    assert vendor("--check", copy)[0] == 1
    assert vendor(copy)[0] == (0 if record is None else 1)
    copy.joinpath("LICENSE").write_bytes(b"of others\n")
    path.unlink()
    status, _, err = vendor("--force", copy)
    assert status == 1 and "%s exists, and is not a copy" % copy in err


@pytest.mark.skipif(WINDOWS, reason="Windows has no symbolic links for everybody")
def test_the_folder_may_be_a_symbolic_link(tmp_path, copy):
    link = tmp_path / "link"
    link.symlink_to(copy)
    copy.joinpath("aio.py").unlink()
    assert vendor("--force", link)[0] == vendor("--check", link)[0] == 0
    assert link.is_symlink()


@pytest.mark.skipif(WINDOWS, reason="Windows has no symbolic links for everybody")
@pytest.mark.parametrize("name", ["VENDORED", "VENDORED.part", "__init__.py"])
def test_a_link_that_somebody_else_has_prepared_is_not_followed(tmp_path, name):
    victim, dest = tmp_path / "victim", tmp_path / "dest"
    victim.write_bytes(b"precious")
    dest.mkdir()
    dest.joinpath(name).symlink_to(victim)
    assert (vendor(dest)[0] == 0) == name.startswith("VENDORED.")
    assert (vendor("--force", dest)[0] == 0) == name.startswith("VENDORED.")
    assert victim.read_bytes() == b"precious"
    assert not dest.joinpath("VENDORED").is_symlink() or name == "VENDORED"


@pytest.mark.parametrize(
    "args",
    [
        *("", "one two", "--check", "--check --force one", "--check --systems linux one"),
        *("--parts none one/two", "--systems plan9 one/two", "--single-file --parts none a.py"),
        "--single-file --parts trees a.py",
    ],
)
def test_wrong_arguments_change_nothing(tmp_path, monkeypatch, args):
    monkeypatch.chdir(str(tmp_path))
    status, out, err = vendor(*args.split())
    assert (status, out) == (2, "") and err.endswith(" vendor -h)\n")
    assert not list(tmp_path.iterdir())


TWO_COPIES = """if True:
    import os, subprocess, sys
    import one, two
    assert one.__version__ != two.__version__
    child = subprocess.Popen(sys.argv[1:])
    with one.Process(child.pid) as a, two.Process(child.pid) as b:
        assert a != b
        assert one.wait(b, 60) == two.wait(a, 60) == 3
        assert one.wait(child) == two.wait(child) == child.returncode == 3
    for copy, other in (one, two), (two, one):
        with copy.spawn(sys.argv[1:]) as child, other.WaitSet([child]) as waiting:
            assert waiting.wait(60) == [(child, 3)] and child.reaped
    try:
        one.wait(os.getpid(), 0)
    except two.TimeoutExpired:
        raise SystemExit("one copy's exception is the other's")
    except TimeoutError:
        print("good")
"""


def test_two_versions_live_in_one_process(tmp_path, contents):
    put(contents, tmp_path / "one")
    other = put(contents, tmp_path / "two") / "__init__.py"
    other.write_bytes(other.read_bytes().replace(VERSION.encode(), OTHER.encode()))
    assert run("-c", TWO_COPIES, *exiting(3), path=tmp_path) == (0, "good\n", "")


@pytest.mark.skipif(WINDOWS, reason="Windows has no such modes")
def test_an_update_keeps_the_modes_of_files(copy):
    path = copy / "aio.py"
    path.write_bytes(b"# changed\n")
    path.chmod(0o600)
    assert vendor("--force", copy)[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(WINDOWS, reason="Windows has no symbolic links for everybody")
@pytest.mark.parametrize("link", ["old", "old/deep", "cli"])
def test_what_is_behind_a_link_in_a_copy_stays(copy, tmp_path, link):
    """Also if the record of the copy has it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    victim.joinpath("data.txt").write_bytes(b"precious\n")
    place = copy / link
    if place.exists():
        shutil.rmtree(str(place))
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(victim)
    digest = hashlib.sha256(b"precious\n").hexdigest()
    with copy.joinpath("VENDORED").open("a") as file:
        file.write("%s  %s/data.txt\n" % (digest, link))
    for force in [], ["--force"]:
        status, out, err = vendor(*force, copy)
        assert (status, out) == (1, "") and "%s is a symbolic link" % place in err
    assert os.listdir(str(victim)) == ["data.txt"]


@pytest.mark.skipif(WINDOWS, reason="Windows can't lock a folder")
@pytest.mark.parametrize("args", [["a/b/copy"], ["--single-file", "copy.py"]], ids=" ".join)
def test_of_several_at_once_each_succeeds(tmp_path, start, args):
    code = "import %s.cli as cli; cli.main()" % pidwait.__name__
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = sys.executable, "-c", code, "vendor", *args
    options = {"cwd": str(tmp_path), "env": env, "stdout": subprocess.DEVNULL}
    started = [start(*command, **options) for _ in range(4)]
    assert [one.wait() for one in started] == [0] * 4
    assert vendor("--check", tmp_path / args[-1])[0] == 0


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="there is no sha256sum")
def test_sha256sum_verifies_a_copy(copy):
    command = ["sha256sum", "--quiet", "-c", "VENDORED"]
    assert subprocess.call(command, cwd=str(copy)) == 0
    with copy.joinpath("aio.py").open("ab") as file:
        file.write(b"# changed\\n")
    assert subprocess.call(command, cwd=str(copy), stderr=subprocess.DEVNULL) == 1


# Names that each part has, and a use of it.
PARTS = {
    "wait": ("wait Process TimeoutExpired Usage", "it.wait(popen, 60)"),
    "many": ("WaitSet as_completed wait_procs", "it.wait_procs([popen], 60)[0][0][1]"),
    "watch": ("Watch watch watch_parent", "it.watch(popen, lambda *_: None) and popen.wait()"),
    "spawn": ("Child spawn", "it.spawn(sys.argv[1:]).wait()"),
    "find": ("ProcessInfo process_iter", "it.ProcessInfo(popen.pid).wait(60)"),
    "end": ("end_procs", "popen.wait() if it.end_procs([]) else None"),
    "trees": ("end_procs watch_parent", "subprocess.run(sys.argv[1:], tree=True).returncode"),
    "aio": ("end_procs", "loop.run_until_complete(aio.wait(popen, 60))"),
    "probe": ("probe", "popen.wait() if it.probe()['calls'] else None"),
    "cli": ("", "cli.main(['run', '--tree', *sys.argv[1:]])"),
}
USES = """if True:
    import importlib, pkgutil, sys
    import part as it
    modules = "{2}".split()
    for module in pkgutil.walk_packages(it.__path__, "part."):
        if module.name not in ("part._types", "part._trees.keeper"):
            importlib.import_module(module.name)
    assert set("{0}".split()) <= set(it.__all__) <= set(dir(it)), it.__all__
    import asyncio, subprocess
    popen, loop = subprocess.Popen(sys.argv[1:]), asyncio.new_event_loop()
    if "aio" in modules:
        from part import aio
    if "cli" in modules:
        from part import cli
    if "subprocess" in modules:
        from part import subprocess
    found = {1}
    popen.wait()
    loop.close()
    assert found == 3, found
    print(*it.__all__)
"""


@pytest.mark.parametrize("part", list(PARTS))
def test_a_copy_of_a_part_works_and_has_no_more(tmp_path, part):
    dest = tmp_path / "part"
    assert vendor("--parts", part, "--systems", HERE, dest)[0] == vendor("--check", dest)[0] == 0
    assert read(dest)["VENDORED"].decode().splitlines()[1:3] == [
        "# parts: " + ("wait" if part == "wait" else "wait," + part),
        "# systems: " + HERE,
    ]
    modules = " ".join(one.name.partition(".")[0] for one in dest.iterdir())
    status, out, err = run("-c", USES.format(*PARTS[part], modules), *exiting(3), path=tmp_path)
    assert (status, err) == (0, "")
    # Another part's names are there only if it needs that part.
    needs = {"end": {"many", "find"}, "probe": {"spawn"}}
    needs["trees"] = {"many", "watch", "spawn", "find", "end"}
    needs.update(aio=needs["trees"], cli={*needs["trees"], "probe"})
    there = {"wait", part, *needs.get(part, ())}
    names = {name for one in there for name in PARTS[one][0].split()}
    assert set(out.split()) - {"has_exited", "pid_exists"} == names
    assert ("aio" in modules) == (part == "aio")
    assert ("subprocess" in modules) == (part in ("trees", "aio", "cli"))
    assert ("__main__" in modules) == (part == "cli")


def test_all_parts_are_the_whole_package(tmp_path, contents):
    dest = tmp_path / "dest"
    assert vendor("--parts", ",".join(PARTS), dest)[0] == 0
    files = read(dest)
    assert files.pop("VENDORED").count(b"\n") == len(contents) + 1 and files == contents
    code = "import dest; print(*dest.__all__)"
    assert run("-c", code, path=tmp_path)[1].split() == sorted(pidwait.__all__)


def test_an_update_keeps_the_parts_and_systems_that_were_chosen(tmp_path, old):
    dest, again = tmp_path / "dest", tmp_path / "again"
    chosen = "--parts", "spawn,many", "--systems", "bsd,linux"
    assert run("-m", "other", "vendor", *chosen, dest, path=old)[0] == 0
    assert not dest.joinpath("_systems", "windows").exists()
    assert vendor("--check", dest) == (3, "%s: %s; this is %s\n" % (dest, OTHER, VERSION), "")
    assert vendor(dest)[0] == vendor("--check", dest)[0] == vendor(*chosen, again)[0] == 0
    assert read(dest) == read(again)
    assert b"\n# parts: wait,many,spawn\n# systems: linux,bsd\n" in read(dest)["VENDORED"]
    put({"own.txt": b"ours"}, dest)
    assert vendor("--parts", "wait", dest)[1].endswith(": 1 written, 11 removed\n")
    assert "_sets.py" not in read(dest) and "own.txt" in read(dest)
    assert b"\n# parts: wait\n# systems: linux,bsd\n" in read(dest)["VENDORED"]
    assert vendor("--check", dest)[0] == 0


def test_a_part_can_not_make_a_whole_copy(tmp_path):
    dest, again = tmp_path / "part", tmp_path / "again"
    assert vendor("--parts", "cli", "--systems", HERE, dest)[0] == 0
    status, out, err = run("-m", "part", "vendor", again, path=tmp_path)
    assert (status, out) == (1, "") and "this copy has no aio: copy from a whole one" in err
    assert not again.exists()
    args = "--parts", "wait", "--systems", HERE, again
    assert run("-m", "part", "vendor", *args, path=tmp_path)[0] == vendor("--check", again)[0] == 0


def test_elsewhere_a_copy_says_what_it_is_for(tmp_path):
    others = sorted({"linux", "bsd", "windows"} - {HERE})
    assert vendor("--systems", ",".join(others), tmp_path / "dest")[0] == 0
    status, _, err = run("-c", "import dest", path=tmp_path)
    assert status == 1 and "ImportError: this copy is for %s and %s alone" % (*others,) in err


def test_readme_says_how_many_lines_the_usual_choices_have(tmp_path):
    text = ROOT.joinpath("README.md").read_text("utf-8")
    found = re.findall(r"`(--parts [^`]*)`(?: copies)? ([\d,]+)", text)
    assert len(found) == 2
    for number, (options, said) in enumerate(found):
        dest = tmp_path / str(number)
        assert vendor(*options.split(), dest / "copy")[0] == 0
        lines = sum(data.count(b"\n") for path, data in read(dest).items() if path[-3:] == ".py")
        assert abs(int(said.replace(",", "")) / lines - 1) < 0.05, (options, lines)
