# SPDX-License-Identifier: BSD-3-Clause
"""A copy of this package as a folder of another project, with a record of what it consists of.

The record tells what has been changed by hand since, and what an update may take away. While
files are being written it grants what was there before and what will be there, so an update
that was interrupted can be repeated.
"""

import hashlib
import keyword
import os
from errno import ENOTDIR
from pathlib import Path

from .. import __version__
from . import license, sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

LICENSE = "LICENSE"
RECORD = "VENDORED"
PART = RECORD + ".part"  # a file that is being written
_UNFINISHED = "# unfinished"
_CACHE = "__pycache__"


class Refused(Exception):
    """What is there must not be written over."""


class Record:
    """What was written into a copy: the hashes of each file, of which it has one."""

    def __init__(self, version: str, hashes: "dict[str, set[str]]", finished: bool = True) -> None:
        self.version: str = version
        self.hashes: "dict[str, set[str]]" = hashes
        self.finished: bool = finished

    def text(self) -> str:
        lines = ["# %s %s" % (license.NAME, self.version)]
        if not self.finished:
            lines.append(_UNFINISHED)
        # As sha256sum(1) writes and reads them.
        for path, hashes in sorted(self.hashes.items()):
            lines += ["%s  %s" % (one, path) for one in sorted(hashes)]
        return "\n".join(lines) + "\n"


class Status:
    """How a copy differs from what its record says, and from this package."""

    def __init__(self, record: Record, found: "dict[str, str]") -> None:
        known = record.hashes
        self.record: Record = record
        self.changed: "list[str]" = [
            path for path in known if path in found and found[path] not in known[path]
        ]
        self.missing: "list[str]" = [
            path for path in known if path not in found and record.finished
        ]
        self.added: "list[str]" = [path for path in found if path not in known]

    def by_hand(self) -> "Iterator[tuple[str, str]]":
        for what, paths in (
            ("changed", self.changed),
            ("missing", self.missing),
            ("added", self.added),
        ):
            for path in sorted(paths):
                yield what, path


def contents() -> "dict[str, bytes]":
    """All files of a copy but its record. OSError: the package can't be read."""
    return dict(sources.read(), **{LICENSE: license.TEXT.encode()})


def record_of(files: "dict[str, bytes]", finished: bool = True) -> Record:
    return Record(__version__, {path: {_hash(data)} for path, data in files.items()}, finished)


def status(dest: Path) -> "Status | None":
    """What is at dest; None if there is nothing. Refused: it is something else than a copy."""
    record = _read_record(dest)
    return None if record is None else Status(record, _found(dest))


def write(dest: Path, force: bool = False) -> "tuple[list[str], list[str]]":
    """Make dest a copy of this package; return the paths written, and those removed.

    Refused: something else is there, or a copy that was changed, unless force is true.
    """
    if os.path.realpath(str(dest)) == os.path.realpath(sources.folder()):
        raise Refused("this copy can't be updated by itself")
    files = contents()
    new = record_of(files)
    before = status(dest)
    old = before.record if before else Record(__version__, {})
    found = _found(dest) if before else {}
    if before and not force:
        in_the_way = [
            path for path in before.added if path in files and {found[path]} != new.hashes[path]
        ]
        touched = sorted(before.changed + before.missing + in_the_way)
        if touched:
            raise Refused("changed by hand: " + ", ".join(touched))
    written = [path for path in files if {found.get(path)} != new.hashes[path]]
    gone = [path for path in old.hashes if path not in files and path in found]
    if written or gone or not before or old.text() != new.text():
        dest.mkdir(parents=True, exist_ok=True)
        both = {path: set(hashes) for path, hashes in old.hashes.items()}
        for path, hashes in new.hashes.items():
            both.setdefault(path, set()).update(hashes)
        _put(dest, RECORD, Record(__version__, both, False).text().encode())
        for path in written:
            _put(dest, path, files[path])
        for path in gone:
            _remove(dest, path)
        _put(dest, RECORD, new.text().encode())
    return written, gone


def import_line(dest: Path) -> str:
    """How to import what is at dest, as near as the folders around it tell."""
    here = Path(os.getcwd())
    parts = [dest.name]
    between: "list[str]" = []
    for folder in dest.parents:
        between.insert(0, folder.name)
        # A folder without an __init__.py can be part of a package all the same.
        in_package = folder.joinpath("__init__.py").exists()
        if folder == here and not in_package and len(parts) == 1:
            parts = between[1:] + parts
        if not can_be_imported(folder.name) or not in_package and (folder == here or parts[1:]):
            break
        if in_package:
            parts, between = between + parts, []
    package, _, name = ".".join(parts).rpartition(".")
    return "from %s import %s" % (package, name) if package else "import " + name


def can_be_imported(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _hash(data: bytes) -> str:
    # Git on Windows may have made each end of line CRLF.
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def _read_record(dest: Path) -> "Record | None":
    try:
        text = dest.joinpath(RECORD).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        if not dest.exists() or {path.name for path in dest.iterdir()} <= {PART}:
            return None
        raise Refused("it is there, and no copy of this package") from None
    lines = text.splitlines()
    hashes: "dict[str, set[str]]" = {}
    for line in lines:
        one, _, path = line.partition("  ")
        if path and not line.startswith("#"):
            hashes.setdefault(path, set()).add(one)
    head = lines[0].split() if lines else []
    inside = all(not Path(path).anchor and ".." not in Path(path).parts for path in hashes)
    if len(head) != 3 or head[:2] != ["#", license.NAME] or not inside:
        raise Refused("its file %s is damaged" % RECORD)
    return Record(head[2], hashes, _UNFINISHED not in lines)


def _found(dest: Path) -> "dict[str, str]":
    """The hashes of the files that are there, but for the record, and what Python compiled."""

    def fail(error: OSError) -> None:
        raise error

    found = {}
    for top, folders, names in os.walk(str(dest), onerror=fail):
        if _CACHE in folders:
            folders.remove(_CACHE)
        # A folder that is a symbolic link is not ours, nor what is in it.
        names += [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in names:
            whole = Path(top, name)
            path = whole.relative_to(dest).as_posix()
            if path in (RECORD, PART) or whole.suffix in (".pyc", ".pyo"):
                continue
            found[path] = _hash(whole.read_bytes()) if whole.is_file() else ""
    return found


def _put(dest: Path, path: str, data: bytes) -> None:
    whole, part = dest / path, dest / PART
    _is_ours(dest, whole.parent)
    whole.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(data)
    os.replace(str(part), str(whole))


def _remove(dest: Path, path: str) -> None:
    whole = dest / path
    whole.unlink()
    for folder in whole.parents:
        if folder == dest or any(folder.iterdir()):
            break
        folder.rmdir()


def _is_ours(dest: Path, folder: Path) -> None:
    while folder != dest:
        if folder.is_symlink():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))
        folder = folder.parent
