# SPDX-License-Identifier: BSD-3-Clause
"""The command ``vendor``: copy this package into another project.

A folder has a record of the files that it consists of, with their hashes. It tells what has been
changed by hand since, and what an update may take away. It is written last: an update that was
interrupted can be repeated, as what is like the new version is no change by hand.
"""

import contextlib
import hashlib
import keyword
import os
import re
from errno import ENOENT, ENOTDIR
from pathlib import Path

from .. import __version__
from .shared import Command, CommandError, Usage, say
from .single_file import FORM, NAME, PARTS, SYSTEMS, join, own_files, own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Iterable, Iterator

_OTHER, _BY_HAND = 3, 4  # exit statuses of --check
_RECORD = "VENDORED"
_PART = _RECORD + "."  # how the name of a file begins that is being written

_VENDOR_USAGE = """\
{prog} vendor [--force] DEST
       {prog} vendor --single-file [--force] [--parts PART,...]
                     [--systems SYSTEM,...] [FILE]
       {prog} vendor --check DEST|FILE"""
_VENDOR_TEXT = """\
Copy this package into another project, under any name. DEST is the folder of
the copy: acme/_vendor/NAME, say. If DEST is a copy already, it is updated.

      --force             overwrite changes that were made by hand
      --check             do not copy; show whether the copy is current
      --single-file       make one module; print it, or write it to FILE
      --parts PART,...    include only these: wait, many, spawn, probe, cli
                          (default many,cli); for aio and subprocess, copy the
                          folder
      --systems SYSTEM,...  only for these systems: linux, bsd, windows
  -V, --version           show the version
  -h, --help              show this

exit status: 0 success, or the copy is current; 1 failure; 2 wrong arguments;
with --check 3 the copy has another version, or a part of one; 4 files were
changed, removed or added by hand
"""
VENDOR = Command(" vendor", _VENDOR_USAGE, _VENDOR_TEXT, "force check single-file parts: systems:")


def vendor(options: "dict[str, str]", operands: "list[str]") -> int:
    actions = [one for one in ("check", "force", "single-file") if one in options]
    if "check" in actions and len(actions) > 1:
        raise Usage("--check can't be combined with --%s" % actions[1])
    work = {"check": _check, "single-file": _make_file}.get("".join(actions[-1:]), _copy)
    if len(operands) != 1 and (operands or work != _make_file):
        raise Usage("give one " + ("FILE, or none to print it" if work == _make_file else "DEST"))
    if work != _make_file and ("parts" in options or "systems" in options):
        raise Usage("--parts and --systems are for --single-file")
    return work(options, *operands)


def _make_file(options: "dict[str, str]", dest: str = "") -> int:
    parts = _words(options, "parts", PARTS) or ["many", "cli"]
    text = join(own_files(), __version__, parts, _words(options, "systems", SYSTEMS) or SYSTEMS)
    if dest:
        path = Path(os.path.abspath(dest))
        if path.exists() and not path.is_file():  # root would replace /dev/null
            raise CommandError("%s is not a regular file" % dest)
        if path.exists() and path.stat().st_size and _single(path)[-1] and "force" not in options:
            raise CommandError("%s: changed by hand (--force overwrites the changes)" % dest)
        if not path.parent.is_dir():  # _put() would make it
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), dest)
        _put(path.parent, path.name, text.encode())
    else:
        say(text)
    return 0


def _single(path: Path) -> "tuple[str, str, str, str, bool]":
    """Of a single file: its text, version, parts, systems, and whether it was changed by hand."""
    text = path.read_text("utf-8", "replace")
    found = FORM.search(text)
    if found is None:
        raise CommandError("%s is not a copy of this package" % path)
    version, parts, systems, digest = found.groups()
    body = text.partition("OF SUCH DAMAGE.\n")[2]
    return text, version, parts, systems, hashlib.sha256(body.encode()).hexdigest() != digest


def _words(options: "dict[str, str]", name: str, known: "Iterable[str]") -> "list[str]":
    words = [word for word in options.get(name, "").split(",") if word]
    for word in words:
        if word not in known:
            raise Usage("--%s: %r is not one of %s" % (name, word, ", ".join(known)))
    return words


def _by_hand(
    old: "dict[str, str]", new: "dict[str, str]", found: "dict[str, str]"
) -> "Iterator[tuple[str, str]]":
    """What was done to files, by their hashes; one that is as in the new version is updated."""
    for path in sorted({*old, *found}):
        if found.get(path) not in (old.get(path), new.get(path)):
            yield "added" if path not in old else "changed" if path in found else "removed", path


def _check(options: "dict[str, str]", dest: str) -> int:
    if os.path.isfile(dest):
        text, version, parts, systems, is_changed = _single(Path(dest))
        by_hand = "\n" if is_changed else ""
        is_current = text == join(own_files(), __version__, parts.split(","), systems.split(","))
    else:
        version, old = _read_record(Path(dest))
        if not version:
            raise CommandError("%s: no copy of this package is there" % dest)
        new = _hashes(own_files())
        found = _found(Path(dest), {*old, *new})
        by_hand = "".join("%s: %s\n" % one for one in _by_hand(old, new, found))
        by_hand = by_hand and ":\n" + by_hand
        is_current = (version, old) == (__version__, new)
    if by_hand:
        how = ", changed by hand" + by_hand
    elif is_current:
        how = ", current\n"
    elif version == __version__:
        how = ", but not as it is here\n"
    else:
        how = "; this is %s\n" % __version__
    say("%s: %s%s" % (dest, version, how))
    return _BY_HAND if by_hand else 0 if is_current else _OTHER


def _copy(options: "dict[str, str]", name: str) -> int:
    dest = Path(os.path.abspath(name))
    if not _can_be_imported(dest.name):
        raise Usage("Python can't import a module with the name %r" % dest.name)
    if os.path.realpath(str(dest)) == os.path.realpath(own_folder()):
        raise CommandError("%s: a copy can't update itself" % name)
    files = own_files()
    new, (version, old) = _hashes(files), _read_record(dest)
    found = _found(dest, {*old, *new})
    if not version and any(new.get(path) != one for path, one in found.items()):
        raise CommandError("%s exists, and is no copy: name a new folder" % dest)
    touched = [
        "%s was %s" % (path, what)
        for what, path in _by_hand(old, new, found)
        if path in old or path in new
    ]
    if touched and "force" not in options:
        text = "changed by hand (--force overwrites the changes): %s"
        raise CommandError("%s: %s" % (name, text % ", ".join(touched)))
    written = [path for path in files if found.get(path) != new[path]]
    gone = [path for path in old if path in found and path not in files]
    if written or gone or (version, old) != (__version__, new):
        for path in written:
            _put(dest, path, files[path])
        for path in gone:
            dest.joinpath(path).unlink()
            with contextlib.suppress(OSError):  # there is more in the folder
                os.removedirs(str(dest.joinpath(path).parent))
        # As sha256sum(1) writes and reads them.
        lines = ["%s  %s\n" % (new[path], path) for path in sorted(new)]
        _put(dest, _RECORD, ("# %s %s\n%s" % (NAME, __version__, "".join(lines))).encode())
    versions = __version__ if version in ("", __version__) else version + " to " + __version__
    say("%s: %s: %d written, %d removed\n" % (name, versions, len(written), len(gone)))
    return 0


def _put(dest: Path, path: str, data: bytes) -> None:
    """Write a file; through no symbolic link, as somebody else may have made the folder."""
    whole, part = dest / path, dest / (_PART + os.urandom(8).hex())
    if whole.parent.resolve() != dest.resolve().joinpath(path).parent:
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(whole.parent))
    whole.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(str(part), "xb") as file:
            file.write(data)
        os.replace(str(part), str(whole))
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def _hashes(files: "dict[str, bytes]") -> "dict[str, str]":
    # Git on Windows may have made each end of line CRLF.
    return {
        path: hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()
        for path, data in files.items()
    }


def _read_record(dest: Path) -> "tuple[str, dict[str, str]]":
    """The version of a copy, and the hashes of what was written; empty if there is no record."""
    try:
        text = dest.joinpath(_RECORD).read_text("utf-8", "replace")
    except FileNotFoundError:
        return "", {}
    head = re.match(r"# %s (\S+)\n" % NAME, text)
    hashes = {path: one for one, path in re.findall(r"^(\w{64})  (.+)$", text, re.M)}
    is_inside = all(not Path(path).anchor and ".." not in Path(path).parts for path in hashes)
    if head is None or not is_inside:
        raise CommandError("%s: its file %s is damaged" % (dest, _RECORD))
    return head.group(1), hashes


def _found(dest: Path, known: "set[str]") -> "dict[str, str]":
    """The hashes of the files that are there, but for the record, and what Python compiled."""
    found = {}
    for whole in dest.rglob("*"):
        path = whole.relative_to(dest).as_posix()
        if path == _RECORD or path.startswith(_PART) or whole.suffix == ".pyc":
            continue
        # A folder that is a symbolic link is not ours, nor what is in it.
        if "__pycache__" not in path.split("/") and (whole.is_symlink() or not whole.is_dir()):
            # Others may be large, or unreadable.
            found[path] = whole.read_bytes() if path in known and whole.is_file() else b""
    return _hashes(found)


def _can_be_imported(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
