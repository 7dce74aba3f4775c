# SPDX-License-Identifier: BSD-3-Clause
"""The command ``vendor``: copy this package into another project.

A folder has a record of what it consists of, with the hash of each file. The record tells what
has been changed by hand since, and what an update may take away. While files are being written
it grants what was there before and what will be there, so an update that was interrupted can be
repeated.
"""

import hashlib
import keyword
import os
import tempfile
from errno import ENOTDIR
from pathlib import Path

from .. import __version__
from .options import Command, CommandError, Usage
from .report import say
from .single_file import LICENSE, NAME, PARTS, SYSTEMS, join, look, own_folder, own_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Iterable, Iterator, Sequence

_OTHER, _BY_HAND = 3, 4  # exit statuses of --check
_RECORD = "VENDORED"
_PART = _RECORD + "."  # how the name of a file begins that is being written
_UNFINISHED = "# unfinished"

_VENDOR_USAGE = """\
{prog} vendor [--force] DEST
       {prog} vendor --single-file [--parts PART,...] [--systems SYSTEM,...] [FILE]
       {prog} vendor --check DEST|FILE"""
_VENDOR_TEXT = """\
Copy this package into another project, where it works under any name. DEST is
the folder that the copy becomes, as acme/_vendor/NAME; if it is a copy already,
it is updated.

      --force             update even what has been changed by hand
      --check             do not copy; tell whether the copy is current
      --single-file       make one module; print it, or write it to FILE
      --parts PART,...    of that: wait, many, spawn, cli (without it many,cli);
                          aio and subprocess are for copies of the folder
      --systems SYSTEM,...  for these systems alone: linux, bsd, windows
  -V, --version           show the version
  -h, --help              show this

exit status: 0 it is done, or the copy is current; 1 it can't be done; 2 wrong
arguments; with --check 3 the copy is of another version, or its update was
interrupted; 4 it was changed by hand: files were changed, removed or added
"""

_VENDOR = Command(" vendor", _VENDOR_USAGE, _VENDOR_TEXT, "force check single-file parts: systems:")
_VENDOR.lists = ("parts", "systems")


def vendor_command(argv: "Sequence[str]") -> int:
    return _VENDOR.run(_vendor, argv)


def _vendor(options: "dict[str, str]", operands: "list[str]") -> int:
    for one, other in (
        ("check", "force"),
        ("check", "single-file"),
        ("force", "single-file"),
    ):
        if one in options and other in options:
            raise Usage("--%s and --%s do not go together" % (one, other))
    if "single-file" in options:
        if len(operands) > 1:
            raise Usage("give one FILE, or none to print it")
        function, args = _make_file, (options, operands)
    else:
        if len(operands) != 1:
            raise Usage("give one DEST")
        if "parts" in options or "systems" in options:
            raise Usage("--parts and --systems are for --single-file")
        function, args = (_check if "check" in options else _copy), (options, operands)
    try:
        return function(*args)
    except OSError as error:
        text = "%s: %s" % (error.filename or " ".join(operands), error.strerror)
        raise CommandError(text) from None


# One file


def _make_file(options: "dict[str, str]", operands: "list[str]") -> int:
    parts = _words(options, "parts", PARTS) or ["many", "cli"]
    text = join(own_sources(), __version__, parts, _words(options, "systems", SYSTEMS) or SYSTEMS)
    if operands:
        Path(operands[0]).write_bytes(text.encode())
    else:
        say(text)
    return 0


def _words(options: "dict[str, str]", name: str, known: "Iterable[str]") -> "list[str]":
    words = [word for word in options.get(name, "").split(",") if word]
    for word in words:
        if word not in known:
            raise Usage("--%s: %r is none of %s" % (name, word, ", ".join(known)))
    return words


def _check_file(path: Path) -> int:
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    found = look(text)
    if found is None:
        raise CommandError("%s: it is no copy of this package" % path)
    version, parts, systems, is_whole = found
    if not is_whole:
        say("%s: %s, changed by hand\n" % (path, version))
        return _BY_HAND
    return _tell(str(path), version, text == join(own_sources(), __version__, parts, systems))


def _tell(name: str, version: str, is_current: bool) -> int:
    if is_current:
        text = "%s, current" % version
    elif version == __version__:
        text = "%s, but not as it is here" % version
    else:
        text = "%s; this is %s" % (version, __version__)
    say("%s: %s\n" % (name, text))
    return 0 if is_current else _OTHER


# A folder


class Record:
    """What was written into a copy: the path of each file, and the hashes that it may have."""

    def __init__(self, version: str, hashes: "dict[str, set[str]]", finished: bool = True) -> None:
        self.version: str = version
        self.hashes: "dict[str, set[str]]" = hashes
        self.finished: bool = finished

    def text(self) -> str:
        lines = ["# %s %s" % (NAME, self.version)]
        if not self.finished:
            lines.append(_UNFINISHED)
        # As sha256sum(1) writes and reads them.
        for path, hashes in sorted(self.hashes.items()):
            lines += ["%s  %s" % (one, path) for one in sorted(hashes)]
        return "\n".join(lines) + "\n"

    def by_hand(self, found: "dict[str, str]") -> "Iterator[tuple[str, str]]":
        """How files with these hashes differ: what was done, and to which path."""
        for path, hashes in sorted(self.hashes.items()):
            if path in found and found[path] not in hashes:
                yield "changed", path
            elif path not in found and self.finished:
                yield "removed", path
        for path in sorted(set(found) - set(self.hashes)):
            yield "added", path


def _check(options: "dict[str, str]", operands: "list[str]") -> int:
    dest = Path(os.path.abspath(operands[0]))
    if dest.is_file():
        return _check_file(Path(operands[0]))
    record = _read_record(dest)
    if record is None:
        raise CommandError("%s: no copy is there" % operands[0])
    by_hand = list(record.by_hand(_found(dest)))
    if by_hand:
        say("%s: %s, changed by hand:\n" % (operands[0], record.version))
        say("".join("%s: %s\n" % one for one in by_hand))
        return _BY_HAND
    if not record.finished:
        text = "an update to %s was interrupted: do it again"
        say("%s: %s\n" % (operands[0], text % record.version))
        return _OTHER
    return _tell(operands[0], record.version, record.text() == _record_of(_contents()).text())


def _copy(options: "dict[str, str]", operands: "list[str]") -> int:
    dest = Path(os.path.abspath(operands[0]))
    if not _can_be_imported(dest.name):
        raise Usage("%r is no name that Python can import" % dest.name)
    files = _contents()
    if os.path.realpath(str(dest)) == os.path.realpath(own_folder()):
        raise CommandError("%s: this copy can't be updated by itself" % operands[0])
    new, before = _record_of(files), _read_record(dest)
    old = before or Record(__version__, {})
    found = _found(dest) if before else {}
    if before and "force" not in options:
        touched = [
            "%s was %s" % (path, what)
            for what, path in before.by_hand(found)
            if what != "added" or (path in files and {found[path]} != new.hashes[path])
        ]
        if touched:
            text = "changed by hand (--force overwrites the changes): %s"
            raise CommandError("%s: %s" % (operands[0], text % ", ".join(touched)))
    written = [path for path in files if {found.get(path)} != new.hashes[path]]
    gone = [path for path in old.hashes if path not in files and path in found]
    if written or gone or not before or old.text() != new.text():
        _write(dest, files, old, new, written, gone)
    text = "%d written, %d removed" % (len(written), len(gone))
    versions = (
        __version__ if old.version == __version__ else "%s to %s" % (old.version, __version__)
    )
    say("%s: %s: %s\nimport it so: %s\n" % (operands[0], versions, text, _import_line(dest)))
    return 0


def _write(
    dest: Path,
    files: "dict[str, bytes]",
    old: Record,
    new: Record,
    written: "list[str]",
    gone: "list[str]",
) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    both = {path: set(hashes) for path, hashes in old.hashes.items()}
    for path, hashes in new.hashes.items():
        both.setdefault(path, set()).update(hashes)
    _put(dest, _RECORD, Record(__version__, both, False).text().encode())
    for path in written:
        _put(dest, path, files[path])
    for path in gone:
        whole = dest / path
        whole.unlink()
        for folder in whole.parents:
            if folder == dest or any(folder.iterdir()):
                break
            folder.rmdir()
    _put(dest, _RECORD, new.text().encode())


def _put(dest: Path, path: str, data: bytes) -> None:
    """Write a file; through no symbolic link, as somebody else may have made the folder."""
    whole = dest / path
    for folder in whole.parents:
        if folder == dest:
            break
        if folder.is_symlink():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))
    whole.parent.mkdir(parents=True, exist_ok=True)
    fd, part = tempfile.mkstemp(prefix=_PART, dir=str(dest))  # O_EXCL, O_NOFOLLOW, a new name
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, str(whole))
    except BaseException:
        os.unlink(part)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _contents() -> "dict[str, bytes]":
    """All files of a copy but its record."""
    return dict(own_sources(), LICENSE=LICENSE.encode())


def _record_of(files: "dict[str, bytes]") -> Record:
    return Record(__version__, {path: {_hash(data)} for path, data in files.items()})


def _hash(data: bytes) -> str:
    # Git on Windows may have made each end of line CRLF.
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def _read_record(dest: Path) -> "Record | None":
    """The record of a copy; None if nothing is there."""
    try:
        text = dest.joinpath(_RECORD).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        if not dest.exists() or all(path.name.startswith(_PART) for path in dest.iterdir()):
            return None
        raise CommandError("%s: it is there, and no copy of this package" % dest) from None
    lines = text.splitlines()
    hashes: "dict[str, set[str]]" = {}
    for line in lines:
        one, _, path = line.partition("  ")
        if path and not line.startswith("#"):
            hashes.setdefault(path, set()).add(one)
    head = lines[0].split() if lines else []
    inside = all(not Path(path).anchor and ".." not in Path(path).parts for path in hashes)
    if len(head) != 3 or head[:2] != ["#", NAME] or not inside:
        raise CommandError("%s: its file %s is damaged" % (dest, _RECORD))
    return Record(head[2], hashes, _UNFINISHED not in lines)


def _found(dest: Path) -> "dict[str, str]":
    """The hashes of the files that are there, but for the record, and what Python compiled."""

    def fail(error: OSError) -> None:
        raise error

    found = {}
    for top, folders, names in os.walk(str(dest), onerror=fail):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        # A folder that is a symbolic link is not ours, nor what is in it.
        names += [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in names:
            whole = Path(top, name)
            path = whole.relative_to(dest).as_posix()
            if path == _RECORD or path.startswith(_PART) or whole.suffix in (".pyc", ".pyo"):
                continue
            found[path] = _hash(whole.read_bytes()) if whole.is_file() else ""
    return found


def _import_line(dest: Path) -> str:
    """How to import what is at dest, as near as the folders around it tell."""
    here = Path(os.getcwd())
    parts = [dest.name]
    between: "list[str]" = []
    for folder in dest.parents:
        between.insert(0, folder.name)
        # A folder can be part of a package without an __init__.py.
        in_package = folder.joinpath("__init__.py").exists()
        if folder == here and not in_package and len(parts) == 1:
            parts = between[1:] + parts
        if not _can_be_imported(folder.name) or not in_package and (folder == here or parts[1:]):
            break
        if in_package:
            parts, between = between + parts, []
    package, _, name = ".".join(parts).rpartition(".")
    return "from %s import %s" % (package, name) if package else "import " + name


def _can_be_imported(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
