# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait vendor DEST: a copy in another project, and what becomes of it."""

import contextlib
import hashlib
import importlib.util
import io
import marshal
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from . import pidwait
from .copies import FILES, put
from .processes import WINDOWS

cli = importlib.import_module(pidwait.__name__ + ".cli")
folder = importlib.import_module(pidwait.__name__ + "._vendoring.folder")
sources = importlib.import_module(pidwait.__name__ + "._vendoring.sources")

VERSION = pidwait.__version__
RECORD = "VENDORED"


def vendor(*args):
    """Run the command; return its status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(["vendor"] + [str(arg) for arg in args])
    return status, out.getvalue(), err.getvalue()


def vendor_from(package, *args, **kwargs):
    """The same in a process of its own, and maybe with another copy of the package."""
    done = subprocess.run(
        [sys.executable, "-m", package, "vendor"] + [str(arg) for arg in args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )
    return done.returncode, done.stdout, done.stderr


def files(top):
    found = (path for path in top.rglob("*") if path.is_file())
    return {
        path.relative_to(top).as_posix(): path.read_bytes()
        for path in found
        if path.parent.name != "__pycache__"
    }


def on_path(top, **more):
    paths = os.pathsep.join([str(top)] + sys.path)
    return dict(os.environ, PYTHONPATH=paths, PYTHONDONTWRITEBYTECODE="1", **more)


@pytest.fixture
def copy(tmp_path):
    """A new copy, called another._vendor.renamed."""
    dest = tmp_path / "another" / "_vendor" / "renamed"
    folder.write(dest)
    return dest


@pytest.fixture
def old(tmp_path):
    """Where another version of the package is, called old.other; it has one folder more."""
    top = tmp_path / "from" / "old"
    top.mkdir(parents=True)
    top.joinpath("__init__.py").touch()
    put(FILES, top / "other")
    init = top / "other" / "__init__.py"
    init.write_bytes(init.read_bytes().replace(VERSION.encode(), b"0.0.1"))
    more = top / "other" / "_more"
    more.mkdir()
    for name in "__init__", "module":
        more.joinpath(name + ".py").write_bytes(b"# of the other version alone\n")
    return top.parent


def test_copies(tmp_path):
    dest = tmp_path / "another" / "_vendor" / "renamed"
    status, out, err = vendor(dest)
    assert (status, err) == (0, "")
    got = files(dest)
    assert out.startswith("%s: %s: %d written" % (dest, VERSION, len(got) - 1))
    root = Path(__file__).resolve().parent.parent
    # Git on Windows may have changed the ends of its lines.
    assert got.pop("LICENSE").split() == root.joinpath("LICENSE").read_bytes().split()
    lines = got.pop(RECORD).decode().splitlines()
    assert got == sources.read() and len(got) > 50
    assert lines[0] == "# pidwait " + VERSION
    for line in lines[1:]:
        digest, name = line.split("  ")
        assert hashlib.sha256(dest.joinpath(name).read_bytes()).hexdigest() == digest
    assert len(lines) == 1 + len(got) + 1
    status, out, err = vendor_from("another._vendor.renamed", "-V", env=on_path(tmp_path))
    assert (status, out, err) == (0, "python -m another._vendor.renamed %s\n" % VERSION, "")


def test_copies_are_the_same_wherever_they_come_from(tmp_path, copy):
    again = tmp_path / "again"
    env = on_path(tmp_path)
    assert vendor_from("another._vendor.renamed", again, env=env)[0] == 0
    assert files(again) == files(copy)
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(str(archive), "w") as opened:
        opened.writestr("zipped/__init__.py", "")
        for name, data in files(copy).items():
            opened.writestr("zipped/inside/" + name, data)
    zipped = tmp_path / "from_zip"
    status, _, err = vendor_from("zipped.inside", zipped, env=on_path(archive))
    assert status == 0, err
    assert files(zipped) == files(copy)
    assert vendor_from("zipped.inside", "--check", zipped, env=on_path(archive))[0] == 0
    # Also where the cache that pkgutil looks into is empty. That of PyPy can't be cleared.
    code = """if True:
        import importlib, zipimport
        sources = importlib.import_module("zipped.inside._vendoring.sources")
        found = sources.read()
        getattr(zipimport._zip_directory_cache, "clear", importlib.invalidate_caches)()
        assert sources.read() == found and len(found) > 50
    """
    subprocess.check_call([sys.executable, "-c", code], env=on_path(archive))


def test_compiled_files_alone_are_no_source(tmp_path, copy):
    for path in list(copy.rglob("*.py")):
        code = compile(path.read_bytes(), str(path), "exec")
        head = importlib.util.MAGIC_NUMBER + b"\0" * (12 if sys.version_info >= (3, 7) else 8)
        path.with_suffix(".pyc").write_bytes(head + marshal.dumps(code))
        path.unlink()
    dest = tmp_path / "dest"
    status, _, err = vendor_from("another._vendor.renamed", dest, env=on_path(tmp_path))
    assert status == 1
    assert "its source" in err and not dest.exists()


@pytest.mark.parametrize(
    "packages, where, dest, line",
    [
        (
            ["another", "another/_vendor"],
            ".",
            "another/_vendor/one",
            "from another._vendor import one",
        ),
        (
            ["src/another", "src/another/_vendor"],
            ".",
            "src/another/_vendor/one",
            "from another._vendor imp",
        ),
        (["src/another"], ".", "src/another/_vendor/one", "from another._vendor import one"),
        (
            ["another", "another/_vendor"],
            "another",
            "_vendor/one",
            "from another._vendor import one",
        ),
        (
            ["another", "another/_vendor"],
            "another/_vendor",
            "one/",
            "from another._vendor import one",
        ),
        ([], ".", "another/_vendor/one", "from another._vendor import one"),
        (["with-dash/another"], ".", "with-dash/another/one", "from another import one"),
        ([], ".", "with-dash/one", "import one"),
        ([], ".", "one", "import one"),
        ([], "another", "../one", "import one"),
        (["outer"], "outer/scripts", "one", "import one"),
        (["outer", "outer/src/another"], "outer", "src/another/one", "from another import one"),
    ],
)
def test_says_how_to_import_it(tmp_path, packages, where, dest, line):
    # A folder whose name is no module's, so that nothing above it counts.
    top = tmp_path / "the-project"
    for package in packages:
        top.joinpath(package).mkdir(parents=True, exist_ok=True)
        top.joinpath(package, "__init__.py").touch()
    top.joinpath(where).mkdir(parents=True, exist_ok=True)
    status, out, err = vendor_from(pidwait.__name__, dest, cwd=str(top / where), env=on_path(top))
    assert (status, err) == (0, "")
    said = out.splitlines()[1]
    assert said.startswith("import it so: " + line)
    if where == "." and "-" not in dest:
        root = top / "src" if dest.startswith("src") else top
        code = said.partition(": ")[2] + "; print(one.__version__)"
        done = subprocess.check_output([sys.executable, "-c", code], env=on_path(root))
        assert done.decode().strip() == VERSION


@pytest.mark.parametrize("name", ["with-dash", "class", "1st"])
def test_a_name_that_cannot_be_imported(tmp_path, name):
    status, _, err = vendor(tmp_path / name)
    assert status == 2
    assert err.endswith("%r is no name that Python can import\n" % name)
    assert not list(tmp_path.iterdir())


def test_updates(tmp_path, old):
    dest = tmp_path / "dest"
    env = on_path(old)
    assert vendor_from("old.other", dest, env=env)[0] == 0
    assert dest.joinpath("_more", "module.py").exists()
    own = dest / "own.txt"
    assert vendor("--check", dest) == (3, "%s: 0.0.1; this is %s\n" % (dest, VERSION), "")
    status, out, err = vendor(dest)
    assert (status, err) == (0, "")
    assert out.startswith("%s: 0.0.1 to %s: 1 written, 2 removed\n" % (dest, VERSION))
    assert not dest.joinpath("_more").exists()
    assert vendor("--check", dest) == (0, "%s: %s, current\n" % (dest, VERSION), "")
    # And back, beside what others have put there.
    own.write_bytes(b"ours")
    dest.joinpath("_more").mkdir()
    dest.joinpath("_more", "own.txt").write_bytes(b"ours")
    assert vendor_from("old.other", dest, env=env)[0] == 0
    assert vendor("--check", dest)[0] == 4
    assert vendor(dest)[0] == 0
    assert own.exists() and files(dest / "_more") == {"own.txt": b"ours"}


def test_nothing_to_do(copy):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    status, out, _ = vendor(copy)
    assert status == 0 and ": 0 written, 0 removed\n" in out
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_remarks_in_the_record(copy):
    with open(str(copy / RECORD), "ab") as file:
        file.write(b"\nours\n# a remark  of ours\n")
    assert vendor("--check", copy) == (0, "%s: %s, current\n" % (copy, VERSION), "")


def change(copy):
    with open(str(copy / "aio.py"), "ab") as file:
        file.write(b"# changed\n")


def remove(copy):
    copy.joinpath("cli", "run.py").unlink()


def add(copy):
    copy.joinpath("cli", "more.py").write_bytes(b"# more\n")


@pytest.mark.parametrize(
    "hand, said", [(change, "changed: aio.py"), (remove, "missing: cli/run.py")]
)
def test_what_was_changed_by_hand_is_kept(copy, hand, said):
    hand(copy)
    before = files(copy)
    status, out, err = vendor("--check", copy)
    assert (status, err) == (4, "")
    assert out == "%s: %s, current\n%s\n" % (copy, VERSION, said.replace(":", " by hand:"))
    status, out, err = vendor(copy)
    assert (status, out) == (1, "")
    assert err.endswith("%s: changed by hand: %s\n" % (copy, said.split()[1]))
    with pytest.raises(folder.Refused, match=said.split()[1]):
        folder.write(copy)
    assert files(copy) == before
    assert vendor("--force", copy)[0] == 0
    assert vendor("--check", copy)[0] == 0
    assert files(copy).items() >= sources.read().items()


def test_what_was_added_stays(copy):
    add(copy)
    out = "%s: %s, current\nadded by hand: cli/more.py\n" % (copy, VERSION)
    assert vendor("--check", copy) == (4, out, "")
    assert vendor(copy)[0] == vendor("--force", copy)[0] == 0
    cache = copy / "__pycache__"
    cache.mkdir(exist_ok=True)
    cache.joinpath("wait.cpython-311.pyc.139746").touch()  # an interpreter is about to rename it
    assert vendor("--check", copy) == (4, out, "")


def test_what_was_added_is_not_written_over(tmp_path, copy, old):
    copy.joinpath("_more").mkdir()
    module = copy / "_more" / "module.py"
    module.write_bytes(b"# ours\n")
    before = files(copy)
    status, _, err = vendor_from("old.other", copy, env=on_path(old))
    assert status == 1 and "_more/module.py" in err
    assert files(copy) == before
    # But if it is what would be written.
    module.write_bytes(b"# of the other version alone\n")
    assert vendor_from("old.other", copy, env=on_path(old))[0] == 0


def test_the_same_version_with_other_contents(copy, old):
    init = old / "old" / "other" / "__init__.py"
    init.write_bytes(init.read_bytes().replace(b"0.0.1", VERSION.encode()))
    status, out, _ = vendor_from("old.other", "--check", copy, env=on_path(old))
    assert (status, out) == (3, "%s: %s, but not as it is here\n" % (copy, VERSION))


def test_what_is_compiled_and_ends_of_lines_are_no_change(tmp_path, copy):
    env = dict(on_path(tmp_path), PYTHONDONTWRITEBYTECODE="")
    assert vendor_from("another._vendor.renamed", "--check", copy, env=env)[0] == 0
    assert copy.joinpath("__pycache__").exists()
    for name, data in files(copy).items():
        copy.joinpath(name).write_bytes(data.replace(b"\n", b"\r\n"))
    assert vendor("--check", copy)[0] == 0


def test_a_copy_does_not_update_itself(tmp_path, copy):
    change(copy)
    env = on_path(tmp_path)
    assert vendor_from("another._vendor.renamed", "--check", copy, env=env)[0] == 4
    status, _, err = vendor_from("another._vendor.renamed", "--force", copy, env=env)
    assert status == 1 and "by itself" in err


@pytest.mark.parametrize("point", [0, 1, 2, 10, -2, -1])
@pytest.mark.parametrize("update", [False, True], ids=["new", "update"])
def test_interrupted_at_any_point_it_can_be_done_again(tmp_path, old, monkeypatch, point, update):
    dest = tmp_path / "dest"
    want = set(sources.read()) | {"LICENSE", RECORD}
    if update:
        other = dict(sources.read(), **{"_more/module.py": b"# of the other alone\n"})
        for path in "aio.py", "process.py", "waiting.py", "cli/run.py":
            other[path] += b"# of the other\n"
        monkeypatch.setattr(sources, "read", lambda: other)
        folder.write(dest)
        monkeypatch.undo()
    steps = []
    real = os.replace
    total = 2 + (4 if update else len(want) - 1)

    def replace(source, target):
        if len(steps) == point % total:
            raise KeyboardInterrupt
        steps.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        folder.write(dest)
    monkeypatch.undo()
    status, out, _ = vendor("--check", dest)
    assert status == (3 if steps or update else 1)
    assert ("was interrupted" in out) == bool(steps)
    assert vendor(dest)[0] == 0
    assert vendor("--check", dest)[0] == 0
    assert set(files(dest)) == want


def test_changes_in_an_interrupted_update_are_found(tmp_path, old, monkeypatch):
    dest = tmp_path / "dest"
    assert vendor_from("old.other", dest, env=on_path(old))[0] == 0
    monkeypatch.setattr(folder, "_remove", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        folder.write(dest)
    change(dest)
    assert vendor("--check", dest)[0] == 4
    assert vendor(dest)[0] == 1


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_something_else_is_there(tmp_path, force):
    dest = tmp_path / "dest"
    dest.mkdir()
    assert vendor("--check", dest)[0] == 1
    dest.joinpath("own.txt").write_bytes(b"ours")
    status, out, err = vendor(dest, *force)
    assert (status, out) == (1, "")
    assert err.endswith("%s: it is there, and no copy of this package\n" % dest)
    assert files(dest) == {"own.txt": b"ours"}
    dest.joinpath("own.txt").unlink()
    assert vendor(dest)[0] == 0
    shutil.rmtree(str(dest))
    dest.write_bytes(b"a file")
    assert vendor(dest, *force)[0] == 1
    assert dest.read_bytes() == b"a file"


@pytest.mark.parametrize("path", ["../own.txt", "/own.txt", "cli/../../own.txt"])
def test_a_record_cannot_have_other_files_removed(tmp_path, copy, path):
    own = copy.parent / "own.txt"
    own.write_bytes(b"ours")
    line = "%s  %s\n" % (hashlib.sha256(b"ours").hexdigest(), path)
    with open(str(copy / RECORD), "a") as file:
        file.write(line)
    status, _, err = vendor(copy)
    assert status == 1 and "VENDORED is damaged" in err
    for head in "", "# pidwait\n", "# pidwait 1 2\n", "# another 1\n":
        copy.joinpath(RECORD).write_bytes(head.encode())
        assert vendor("--check", copy)[0] == 1
    assert own.exists()


NOT_TO_BE_WRITTEN = ["file/dest"] + ["/proc/dest"] * (not WINDOWS)


@pytest.mark.parametrize("dest", NOT_TO_BE_WRITTEN)
def test_it_cannot_be_written(tmp_path, dest):
    tmp_path.joinpath("file").write_bytes(b"")
    for force in [], ["--force"]:
        status, out, err = vendor(tmp_path / dest, *force)
        assert (status, out) == (1, "")
        assert str((tmp_path / dest).parent) in err and "Traceback" not in err


def test_a_folder_is_in_the_way(copy):
    copy.joinpath("aio.py").unlink()
    copy.joinpath("aio.py").mkdir()
    assert vendor("--check", copy)[0] == 4
    status, _, err = vendor("--force", copy)
    assert status == 1 and "Traceback" not in err
    copy.joinpath("aio.py").rmdir()
    assert vendor(copy)[0] == 0


if not WINDOWS:

    def test_symbolic_links_lead_nowhere(tmp_path, copy):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        shutil.rmtree(str(copy / "cli"))
        copy.joinpath("cli").symlink_to(elsewhere)
        status, out, _ = vendor("--check", copy)
        assert status == 4
        assert "missing by hand: cli/run.py" in out and "added by hand: cli\n" in out
        assert vendor("--force", copy)[0] == 1
        assert not list(elsewhere.iterdir())
        # The folder itself may be one.
        copy.joinpath("cli").unlink()
        link = tmp_path / "link"
        link.symlink_to(copy)
        assert vendor("--force", link)[0] == vendor("--check", link)[0] == 0
        assert link.is_symlink()


@pytest.mark.parametrize(
    "args",
    ["", "one two", "--check", "--check --force one", "--systems linux one", "--with aio one"],
)
def test_wrong_arguments(tmp_path, args):
    status, out, err = vendor_from(
        pidwait.__name__, *args.split(), cwd=str(tmp_path), env=on_path(tmp_path)
    )
    assert (status, out) == (2, "")
    assert err.startswith("usage: ")
    assert not list(tmp_path.iterdir())
