# SPDX-License-Identifier: BSD-3-Clause
"""The command ``vendor``: copy this package into another project, as a folder or as one file.

A folder has a record of its files, with their hashes. The record shows which files were changed by
hand since, and which files an update may remove. The record is written last, so an interrupted
update can be repeated: a file that equals the new version does not count as changed by hand.

The single file has the needed modules, joined unchanged: each follows the modules that it imports.
Nothing is renamed, as names at the top of modules are unique. Removed are the imports of modules
that are in the file, and the blocks for type checkers. Imports within functions of the command
line do not add modules to the file: there they would raise ImportError.
"""

import contextlib
import hashlib
import keyword
import os
import pkgutil
import re
import sys
from pathlib import Path

from .. import __version__
from .._base.errors import PACKAGE
from .shared import Command, CommandError, UsageError, say

# In two parts: a copy of the package under another name must not contain this name.
_NAME = "pid" + "wait"
_RECORD = "VENDORED"
_PART = ".part"  # ends the name under which a file is written, and which an interrupted run leaves
# The modules of each part, with their public names.
_PARTS = {
    "wait": {"_base/errors": "TimeoutExpired", "_process": "Process has_exited pid_exists wait"},
    "many": {"_sets": "WaitSet as_completed wait_procs", "_watching": "Watch watch"},
    "spawn": {"_starting/spawn": "Child spawn"},
    "probe": {"_probe": "probe"},
    "cli": {"cli/wait": "", "cli": ""},
}
# Each system's names in sys.platform. The system's modules are in the folder _systems/<system>.
_SYSTEMS = {
    "linux": "linux android",
    "bsd": "darwin freebsd netbsd openbsd dragonfly",
    "windows": "win32",
}
# An import of ours; with the ``if`` above it, if it is the only statement there.
_IMPORT = re.compile(r"^(?:if .*:\n)?( *)from (\.+)([\w.]*) import (?:\([^)]*\))?.*\n", re.M)
_TYPING = re.compile(r"^TYPE_CHECKING = False\n|^if TYPE_CHECKING:\n(?:    .*\n|\n(?=    ))+", re.M)
# Type checkers ignore errors in the file: it lacks the names of types.
_HEAD = '''\
# SPDX-License-Identifier: BSD-3-Clause
# mypy: ignore-errors
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIncompatibleVariableOverride=false
# pyright: reportInvalidTypeArguments=false, reportMissingImports=false
# pyright: reportPossiblyUnboundVariable=false, reportRedeclaration=false
# pyright: reportOptionalMemberAccess=false, reportUndefinedVariable=false
"""%s %s in one file: waits for processes to exit, without polling.

parts:   %s
systems: %s
sha256 of what follows the licence:
    %s
"""
%s'''
_FORM = re.compile(
    r'"""%s (\S+) in one file.*\n\nparts:   ([\w,]*)\nsystems: ([\w,]*)\n.*\n    (\w{64})\n' % _NAME
)

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
                          (default: those in FILE, else many,cli); for aio and
                          subprocess, copy the folder
      --systems SYSTEM,...  only for these systems: linux, bsd, windows
  -V, --version           show the version
  -h, --help              show this

exit status:
  0  success; with --check: the copy is current
  1  failure
  2  the arguments are wrong
  3  with --check: it differs from this version
  4  with --check: files were changed or removed by hand
"""
VENDOR = Command(" vendor", _VENDOR_USAGE, _VENDOR_TEXT)


def vendor(options: "dict[str, str]", operands: "list[str]") -> int:
    is_file = "single-file" in options
    for one in "force", "single-file":
        if one in options and "check" in options:
            raise UsageError("--check can't be combined with --%s" % one)
    if len(operands) > 1 or "" in operands or not (operands or is_file):
        raise UsageError("give one " + ("FILE, or none to print it" if is_file else "DEST"))
    if not is_file and ("parts" in options or "systems" in options):
        raise UsageError("--parts and --systems are for --single-file")
    if "check" in options:
        return _check(*operands)
    return (_make_file if is_file else _copy)(options, *operands)


def _check(dest: str) -> int:
    if os.path.isfile(dest):
        text, version, parts, systems, is_changed = _single(dest)
        by_hand = "\n" if is_changed else ""
        is_current = text == _join(parts, systems)
    else:
        new, (version, old) = _hashes(_own_files()), _read_record(dest)
        if not version:
            raise CommandError("%s: no copy of %s found" % (dest, _NAME))
        lines = ["%s: %s\n" % one for one in _compare(dest, old, new)[1]]
        by_hand = "".join([":\n"] * bool(lines) + lines)
        is_current = (version, old) == (__version__, new)
    if by_hand:
        how = ", changed by hand" + by_hand
    elif version != __version__:
        how = "; this is %s\n" % __version__
    else:
        how = ", current\n" if is_current else ", but differs from this package\n"
    say("%s: %s%s" % (dest, version, how))
    return 4 if by_hand else 0 if is_current else 3


def _copy(options: "dict[str, str]", name: str) -> int:
    force, folder, part = "force" in options, os.path.abspath(name), Path(name, _RECORD + _PART)
    module = os.path.basename(folder)
    if not module.isidentifier() or keyword.iskeyword(module):
        raise UsageError("Python can't import a module with the name %r" % module)
    _check_place(name, folder)
    files, (version, old) = _own_files(), _read_record(name, force)
    new = _hashes(files)
    inner = {Path(name, one) for path in (*old, *new) for one in list(Path(path).parents)[:-1]}
    for one in sorted(inner):
        if one.is_symlink():  # what is behind it is not ours to write or to remove
            raise CommandError("%s: %s is a symbolic link, not a folder" % (name, one))
    found, by_hand = _compare(name, old, new)
    is_copy = version or found.get("LICENSE") == new["LICENSE"]
    if not is_copy and {*Path(name).glob("*")} - {part}:
        raise CommandError("%s exists, and is not a copy of %s; name a new folder" % (name, _NAME))
    if by_hand and not force:
        text = ", ".join("%s was %s" % one[::-1] for one in by_hand)
        raise CommandError("%s: changed by hand (--force overwrites it): %s" % (name, text))
    written = [path for path in files if found.get(path) != new[path]]
    gone = [path for path in old if path in found and path not in files]
    for path in written:
        whole = Path(name, path)
        whole.parent.mkdir(parents=True, exist_ok=True)
        _put(whole, files[path], part)
    for path in gone:
        Path(name, path).unlink()
    if (version, old) != (__version__, new):
        # As sha256sum(1) writes and reads them.
        lines = ["%s  %s\n" % (new[path], path) for path in sorted(new)]
        text = "# %s %s\n%s" % (_NAME, __version__, "".join(lines))
        _put(Path(name, _RECORD), text.encode(), part)
    versions = __version__ if version in ("", __version__) else version + " to " + __version__
    say("%s: %s: %d written, %d removed\n" % (name, versions, len(written), len(gone)))
    return 0


def _check_place(name: str, folder: str) -> None:
    """Refuse this package, and folders in it."""
    (package,) = sys.modules[PACKAGE].__path__
    own, real = (os.path.join(os.path.realpath(one), "") for one in (package, folder))
    if real.startswith(own):
        raise CommandError("%s: a copy can't update itself, or contain another copy" % name)


def _put(whole: Path, data: bytes, part: Path) -> None:
    """Write the file ``part``, then rename it; os.open() makes a script executable."""
    try:
        if os.path.lexists(part):
            part.unlink()  # it may be a link
        with open(part, "xb", opener=os.open if data[:2] == b"#!" else None) as file:
            file.write(data)
        if whole.is_file():
            part.chmod(whole.stat().st_mode & 0o7777)
        os.replace(part, whole)
    except OSError as error:
        raise CommandError("%s: %s" % (whole, error.strerror)) from None  # not the part
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _hashes(files: "dict[str, bytes]") -> "dict[str, str]":
    texts = {path: data.replace(b"\r\n", b"\n") for path, data in files.items()}
    return {path: hashlib.sha256(text).hexdigest() for path, text in texts.items()}


def _read_record(dest: str, force: bool = False) -> "tuple[str, dict[str, str]]":
    """The version of a copy, and the hashes of its files; both empty if there is no record."""
    record = Path(dest, _RECORD)
    text = record.read_text("utf-8", "replace") if os.path.isfile(record) else ""
    head = re.match(r"# %s (\S+)\n" % _NAME, text)
    hashes = {path: one for one, path in re.findall(r"^(\w{64})  (.+)$", text, re.M)}
    if head and all(not Path(path).anchor and ".." not in Path(path).parts for path in hashes):
        return head.group(1), hashes
    if os.path.lexists(record) and not force:
        raise CommandError("%s: its file %s is damaged" % (dest, _RECORD))
    return "", {}


def _compare(
    dest: str, old: "dict[str, str]", new: "dict[str, str]"
) -> "tuple[dict[str, str], list[tuple[str, str]]]":
    """The hashes of the files found; and the changes by hand: files neither old nor new."""
    paths = {path: Path(dest, path) for path in {*old, *new}}
    found = _hashes({path: one.read_bytes() for path, one in paths.items() if one.is_file()})
    return found, [
        ("changed" if path in found else "removed", path)
        for path in sorted({*old, *found})
        if found.get(path) not in (old.get(path), new.get(path))
    ]


def _own_files() -> "dict[str, bytes]":
    """The contents of each file of a copy, by its path relative to the package's folder."""
    paths = ["LICENSE", "py.typed", "__init__.py"]
    for module in pkgutil.walk_packages(sys.modules[PACKAGE].__path__, PACKAGE + "."):
        path = module.name[len(PACKAGE) + 1 :].replace(".", "/")
        paths.append(path + ("/__init__.py" if module.ispkg else ".py"))
    files = {}
    for path in paths:
        data = pkgutil.get_data(PACKAGE, path)
        # Git on Windows may have converted line ends to CRLF.
        files[path] = data.replace(b"\r\n", b"\n")  # type: ignore[union-attr]
    return files


def _make_file(options: "dict[str, str]", dest: str = "") -> int:
    parts, systems = _words(options, "parts", [*_PARTS]), _words(options, "systems", [*_SYSTEMS])
    path = Path(os.path.realpath(dest))
    if os.path.lexists(dest) and not path.is_file():  # root would replace /dev/null
        raise CommandError("%s is not a regular file" % dest)
    if path.is_file() and path.stat().st_size:
        _, _, old_parts, old_systems, is_changed = _single(dest)
        if is_changed and "force" not in options:
            raise CommandError("%s: changed by hand (--force overwrites the changes)" % dest)
        parts, systems = parts or old_parts, systems or old_systems
    text = _join(parts or ["many", "cli"], systems or [*_SYSTEMS])
    if dest:
        _check_place(dest, os.path.dirname(os.path.abspath(dest)))
        _put(path, text.encode(), path.with_name(path.name + _PART))
    else:
        say(text)
    return 0


def _words(options: "dict[str, str]", name: str, known: "list[str]") -> "list[str]":
    words = [word for word in options.get(name, "").split(",") if word]
    for word in set(words).difference(known):
        raise UsageError("--%s: %r is not one of %s" % (name, word, ", ".join(known)))
    return words


def _single(dest: str) -> "tuple[str, str, list[str], list[str], bool]":
    """A single file's text, version, parts, systems, and whether it was changed by hand."""
    text = Path(dest).read_text("utf-8", "replace")
    found = _FORM.search(text)
    if found is None:
        raise CommandError("%s is not a copy of %s" % (dest, _NAME))
    version, parts, systems, digest = found.groups()
    body = text.partition("OF SUCH DAMAGE.\n")[2]
    is_changed = hashlib.sha256(body.encode()).hexdigest() != digest
    return text, version, parts.split(","), systems.split(","), is_changed


def _join(parts: "list[str]", systems: "list[str]") -> str:
    """The text of the single file."""
    needed = {"wait", *parts, *(["many", "probe"] if "cli" in parts else [])}
    wanted = [one for one in _PARTS if one in needed]
    chosen = [one for one in _SYSTEMS if one in systems]
    left_out = tuple("_systems/%s/" % one for one in _SYSTEMS if one not in chosen)
    files = {path: text for path, text in _own_files().items() if not path.startswith(left_out)}
    modules: "dict[str, str]" = {}
    public: "list[str]" = []
    for part in wanted:
        for module, names in _PARTS[part].items():
            _add(module, files, modules)
            public += names.split()
    body = 'REQUIRES = f"Python {3.6} or newer"  # an older one stops here\nimport sys\n\n'
    body += 'TYPE_CHECKING = False\n__version__ = "%s"\n' % __version__
    body += "__all__ = %r\n" % sorted(public)
    if len(chosen) < len(_SYSTEMS):
        platforms = " ".join(_SYSTEMS[one] for one in chosen)
        body += 'if not sys.platform.startswith(tuple("%s".split())):\n' % platforms
        body += '    raise ImportError("this file is for %s alone")\n' % " and ".join(chosen)
    for module, text in modules.items():
        body += "\n\n# %s\n%s" % ((" %s " % module).center(77, "="), text)
    if "cli" in wanted:
        body += '\n\nif __name__ == "__main__":\n    main()\n'
    body = re.sub("\n{4,}", "\n\n\n", body)
    digest = hashlib.sha256(body.encode()).hexdigest()
    lines = files["LICENSE"].decode().splitlines()
    licence = "".join(("# " + line).rstrip() + "\n" for line in lines)
    head = _HEAD % (_NAME, __version__, ",".join(wanted), ",".join(chosen), digest, licence)
    return "#!/usr/bin/env python3\n" * ("cli" in wanted) + head + body


def _add(module: str, files: "dict[str, bytes]", modules: "dict[str, str]") -> None:
    """Add a module, after the modules that it imports."""
    path = module + ".py" if module + ".py" in files else module + "/__init__.py"
    if module in modules or path not in files:
        return

    def follow(found: "re.Match[str]") -> str:
        indent, dots, name = found.groups()
        source = "/".join(path.split("/")[: -len(dots)] + name.split("."))
        if not indent or not module.startswith("cli"):
            _add(source, files, modules)
        return found.group() if indent and source not in modules else ""

    text = files[path].decode().partition("\n")[2]  # without the licence
    modules[module] = _IMPORT.sub(follow, _TYPING.sub("", text))
