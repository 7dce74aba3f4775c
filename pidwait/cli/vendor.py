# SPDX-License-Identifier: BSD-3-Clause
"""The command ``vendor``: copy this package into another project, as a folder or as one file.

A copy has the chosen parts, and all that they import. A folder has a record of the choice, and of
its files with their hashes: it shows which were changed by hand since, and which an update may
remove. It is written last, so an interrupted update can be repeated: a file that equals the new
version does not count as changed by hand.

The single file has the modules joined: each follows those that it imports, without these imports
and the blocks for type checkers. Nothing is renamed: names at the top of modules are unique.
"""

import contextlib
import keyword
import os
import pkgutil
import re
import sys
import unicodedata
from hashlib import sha256
from pathlib import Path, PurePosixPath

from .. import __version__
from .._base.errors import PACKAGE
from .shared import Command, CommandError, UsageError, say

# In two parts: a copy of the package under another name must not contain this name.
_NAME = "pid" + "wait"
_RECORD = "VENDORED"
_PART = ".part"  # ends the name under which a file is written, and which an interrupted run leaves
# Each part's modules; what these import comes with them.
_PARTS = {
    "wait": "_process",
    "many": "_sets",
    "watch": "_watching",
    "spawn": "_starting/spawn",
    "find": "_finding",
    "end": "_ending",
    "trees": "subprocess",
    "aio": "aio",
    "probe": "_probe",
    "cli": "cli/wait __main__",
}
_FOLDERS_ONLY = ("trees", "aio")  # a single file can't have these: they use modules by name
# Each system's names in sys.platform, and what only that system needs.
_SYSTEMS = {
    "linux": ("linux android", "_systems/linux/"),
    "bsd": ("darwin freebsd netbsd openbsd dragonfly", "_systems/bsd/"),
    "windows": ("win32", "_systems/windows/", "_trees/job"),
}
_IMPORT = re.compile(r"^( *)from (\.+)([\w.]*) import (\([^)]*\)|[^#\n]*).*\n", re.M)  # of ours
_TYPING = re.compile(r"^TYPE_CHECKING = False\n|^if TYPE_CHECKING:\n(?:    .*\n|\n(?=    ))+", re.M)
# Other people's checks are silent about a copy; types are still read from it.
_RULES = """ArgumentType AttributeAccessIssue CallIssue GeneralTypeIssues InvalidTypeArguments
InvalidTypeForm MissingImports MissingModuleSource OptionalMemberAccess PossiblyUnboundVariable
Redeclaration ReturnType UndefinedVariable WildcardImportFromLibrary""".split()
_SILENCE = "# flake8: noqa\n# pylint: skip-file\n# fmt: off\n# mypy: ignore-errors\n"
_SILENCE += "# pyright: basic, %s\n" % ", ".join("report%s=false" % one for one in _RULES)
_FORM = re.compile(r'"""%s (\S+) in one file(?:.*\n)*?sha256 of (.+):\n    (\w{64})\n' % _NAME)
# What the __init__ of a folder, and a single file, begin with.
_OPENING = re.compile(r"__all__ .*\n|if not sys\.platform.*\n.*\n")
_CHOICE = re.compile(r"^(?:# )?(parts|systems): +([\w,]+)$", re.M)

_VENDOR_USAGE = """\
{prog} vendor [OPTION...] DEST
       {prog} vendor --single-file [OPTION...] [FILE]
       {prog} vendor --check DEST|FILE"""
_VENDOR_TEXT = """\
Copy this package into another project, under any name. DEST is the folder of
the copy: acme/_vendor/NAME, say. If DEST is a copy already, it is updated.

      --force             overwrite changes that were made by hand
      --check             do not copy; show whether the copy is current
      --single-file       make one module; print it, or write it to FILE
      --parts PART,...    include only these, and what they need: wait, many,
                          watch, spawn, find (process_iter), end (end_procs),
                          trees (subprocess, end, watch), aio, probe, cli; not
                          trees or aio in a single file, whose cli only waits
                          for PIDs (default: those of the copy, else all; for
                          a single file many,watch,cli)
      --systems SYSTEM,...  only for these systems: linux, bsd, windows
  -V, --version           show the version
  -h, --help              show this

exit status:
  0  success; with --check: the copy is current
  1  failure
  2  the arguments are wrong
  3  with --check: it differs from this version
  4  with --check: files were changed, removed or added by hand
"""
VENDOR = Command(" vendor", _VENDOR_USAGE, _VENDOR_TEXT)


def vendor(options: "dict[str, str]", operands: "list[str]") -> int:
    is_file = "single-file" in options
    for one in options:
        if "check" in options and one != "check":
            raise UsageError("--check can't be combined with --%s" % one)
    if len(operands) > 1 or "" in operands or not (operands or is_file):
        raise UsageError("give one " + ("FILE, or none to print it" if is_file else "DEST"))
    _chosen("", options, is_file)  # wrong words are refused before a folder is made
    if not operands:
        say(_join(_chosen("", options, True)))
        return 0
    if "check" in options:
        return _check(*operands)
    whole, real = os.path.abspath(*operands), os.path.realpath(*operands)
    _check_place(whole, is_file)
    if not is_file:
        os.makedirs(os.path.dirname(whole), exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # Windows; some network file systems
            import fcntl

            descriptor = os.open(os.path.dirname(real), os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # another run may copy to the same place
        return (_make_file if is_file else _copy)(options, *operands)


def _chosen(record: str, options: "dict[str, str]", is_file: bool) -> "dict[str, list[str]]":
    """The parts and systems in the options, else in the record of a copy, else those by default."""
    given = dict(_CHOICE.findall(record), **options)
    chosen = {}
    for name, known in ("parts", [*_PARTS]), ("systems", [*_SYSTEMS]):
        words = [word for word in given.get(name, "").split(",") if word]
        for word in words:
            if word not in known:
                raise UsageError("--%s: %r is not one of %s" % (name, word, ", ".join(known)))
            if is_file and word in _FOLDERS_ONLY:
                raise UsageError("--parts: a single file can't have %s; copy a folder" % word)
        if is_file and name == "parts" and not words:
            words = ["many", "watch", "cli"]
        chosen[name] = [one for one in known if one in ("wait", *(words or known))]
    return chosen


def _check(dest: str) -> int:
    if os.path.isfile(dest):
        text, version, record, is_changed = _single(dest)
        changes = [("changed", dest)] * is_changed
        is_current = text == _join(_chosen(record, {}, True))
    else:
        version, record, old = _read_record(dest)
        if not version:
            raise CommandError("%s: no copy of %s found" % (dest, _NAME))
        new = _hashes(_folder(_chosen(record, {}, False)))
        changes = _compare(dest, old, new)[1]
        is_current = (version, old) == (__version__, new)
    if changes:
        how = ", changed by hand:\n" + "".join(["%s: %s\n" % one for one in changes])
    elif version != __version__:
        how = "; this is %s\n" % __version__
    else:
        how = ", current\n" if is_current else ", but differs from this package\n"
    say("%s: %s%s" % (dest, version, how))
    return 4 if changes else 0 if is_current else 3


def _copy(options: "dict[str, str]", name: str) -> int:
    force, part = "force" in options, Path(name, _RECORD + _PART)
    version, record, old = _read_record(name, force)
    chosen = _chosen(record, options, False)
    if not version:  # it may be what cp -r has made
        plain = _hashes({path: text.encode() for path, text in _own_files().items()})
        found, _ = _compare(name, plain, plain)
        old = {path: one for path, one in plain.items() if found.get(path) == one}
    files = _folder(chosen)
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
        Path(name, path).parent.mkdir(parents=True, exist_ok=True)
        _put(Path(name, path), files[path], part)
    for path in gone:
        Path(name, path).unlink()
    head = "# %s %s\n" % (_NAME, __version__)
    if chosen != _chosen("", {}, False):
        head += "".join(["# %s: %s\n" % (one, ",".join(chosen[one])) for one in chosen])
    if not record.startswith(head) or old != new:
        # As sha256sum(1) writes and reads them.
        hashes = "".join(["%s  %s\n" % (new[path], path) for path in sorted(new)])
        _put(Path(name, _RECORD), (head + hashes).encode(), part)
    versions = __version__ if version in ("", __version__) else version + " to " + __version__
    say("%s: %s: %d written, %d removed\n" % (name, versions, len(written), len(gone)))
    return 0


def _check_place(whole: str, is_file: bool) -> None:
    """Refuse names that import does not find, this package, and places in it."""
    module = os.path.basename(whole)
    is_keyword = keyword.iskeyword(module) or module in ("async", "await")  # from Python 3.7 on
    is_normal = unicodedata.normalize("NFKC", module) == module  # import looks for that form
    if not is_file and not (module.isidentifier() and is_normal and not is_keyword):
        raise UsageError("Python can't import a module with the name %r" % module)
    (package,) = sys.modules[PACKAGE].__path__
    own, real = (os.path.join(os.path.realpath(one), "") for one in (package, whole))
    if real.startswith(own):
        raise CommandError("%s: a copy can't update itself, or contain another copy" % whole)


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
    return {path: sha256(data.replace(b"\r\n", b"\n")).hexdigest() for path, data in files.items()}


def _read_record(dest: str, force: bool = False) -> "tuple[str, str, dict[str, str]]":
    """The version of a copy, its record, and the hashes of its files; all empty without one."""
    record = Path(dest, _RECORD)
    text = record.read_text("utf-8", "replace") if os.path.isfile(record) else ""
    head = re.match(r"# %s (\S+)\n" % _NAME, text)
    hashes = {path: one for one, path in re.findall(r"^(\w{64})  (.+)$", text, re.M)}
    if head and all(not Path(path).anchor and ".." not in Path(path).parts for path in hashes):
        return head.group(1), text, hashes
    if os.path.lexists(record) and not force:
        raise CommandError("%s: its file %s is damaged" % (dest, _RECORD))
    return "", "", {}


def _compare(
    dest: str, old: "dict[str, str]", new: "dict[str, str]"
) -> "tuple[dict[str, str], list[tuple[str, str]]]":
    """The hashes of the files found; and changes by hand, also files that import would prefer."""
    paths = {path: Path(dest, path) for path in {*old, *new}}
    found = _hashes({path: one.read_bytes() for path, one in paths.items() if one.is_file()})
    changes = [
        ("changed" if path in found else "removed", path)
        for path in sorted({*old, *found})
        if found.get(path) not in (old.get(path), new.get(path))
    ]
    for path in sorted(found):
        for pattern in "/__init__.*", ".*so", ".*pyd":
            more = [one.relative_to(dest) for one in Path(dest).glob(path[:-3] + pattern)]
            changes += [("added", one.as_posix()) for one in more if one.as_posix() not in paths]
    return found, changes


def _own_files() -> "dict[str, str]":
    """The text of each file of the package, without the head that a copy has, by its path."""
    paths = ["LICENSE", "py.typed", "__init__.py"]  # the first shows that a folder is a copy
    for module in pkgutil.walk_packages(sys.modules[PACKAGE].__path__, PACKAGE + "."):
        path = module.name[len(PACKAGE) + 1 :].replace(".", "/")
        paths.append(path + ("/__init__.py" if module.ispkg else ".py"))
    texts = {path: (pkgutil.get_data(PACKAGE, path) or b"").decode() for path in paths}
    # Git on Windows may have converted line ends to CRLF.
    texts = {path: text.replace("\r\n", "\n") for path, text in texts.items()}
    return {path: text.replace(_SILENCE, "", 1) for path, text in texts.items()}


def _folder(chosen: "dict[str, list[str]]") -> "dict[str, bytes]":
    """The contents of each file of a folder, by its path."""
    files, modules = _closure(chosen, False)
    is_whole = len(chosen["parts"]) == len(_PARTS)
    wanted = {*files} if is_whole else {"LICENSE", "py.typed", "__init__.py", "_types.py"}
    for module in map(PurePosixPath, modules):
        wanted.add("%s.py" % module)
        wanted.update((one / "__init__.py").as_posix() for one in (module, *module.parents))
    for path in [one for one in files if one.endswith(".py")]:  # after the licence
        files[path] = files[path].replace("\n", "\n" + _SILENCE, 1)
    return {path: text.encode() for path, text in files.items() if path in wanted}


def _make_file(options: "dict[str, str]", dest: str) -> int:
    record, path = "", Path(os.path.realpath(dest))
    if os.path.lexists(dest) and not path.is_file():  # root would replace /dev/null
        raise CommandError("%s is not a regular file" % dest)
    if path.is_file() and path.stat().st_size:
        _, _, record, is_changed = _single(dest)
        if is_changed and "force" not in options:
            raise CommandError("%s: changed by hand (--force overwrites the changes)" % dest)
    _put(path, _join(_chosen(record, options, True)).encode(), path.with_name(path.name + _PART))
    return 0


def _single(dest: str) -> "tuple[str, str, str, bool]":
    """A single file's text, version and record, and whether it was changed by hand."""
    text = Path(dest).read_text("utf-8", "replace")
    found = _FORM.search(text)
    if found is None:
        raise CommandError("%s is not a copy of %s" % (dest, _NAME))
    record, (version, of, digest) = found.group(), found.groups()
    hashed = text.replace(digest, "", 1)
    if of == "what follows the licence":  # an older version, whose part "many" included "watch"
        hashed = text.partition("OF SUCH DAMAGE.\n")[2]
        record = record.replace("many", "many,watch")
    return text, version, record, sha256(hashed.encode()).hexdigest() != digest


def _join(chosen: "dict[str, list[str]]") -> str:
    """The text of the single file."""
    files, modules = _closure(chosen, True)
    opening = "".join(_OPENING.findall(files["__init__.py"]))
    licence = "".join(("# " + line).rstrip() + "\n" for line in files["LICENSE"].splitlines())
    body = 'REQUIRES = f"Python {3.6} or newer"  # an older one stops here\nimport sys\n\n'
    body += 'TYPE_CHECKING = False\n__version__ = "%s"\n%s' % (__version__, opening)
    for module, text in modules.items():
        body += "\n\n# %s\n%s" % ((" %s " % module).center(77, "="), text)
    body = '\n"""\n%s%s' % (licence, re.sub("\n{4,}", "\n\n\n", body))
    head = "#!/usr/bin/env python3\n" * ("cli" in chosen["parts"])
    head += "# SPDX-License-Identifier: BSD-3-Clause\n" + _SILENCE
    head += '"""%s %s in one file: waits for processes, without polling.\n\n' % (_NAME, __version__)
    head += "parts:   %s\nsystems: %s\n" % tuple(map(",".join, chosen.values()))
    head += "sha256 of all but this number:\n    "
    return head + sha256((head + body).encode()).hexdigest() + body


def _closure(chosen: "dict[str, list[str]]", is_file: bool) -> "tuple[dict[str, str], ...]":
    """All files for these systems; and the modules, in order and as they are in a single file."""
    systems = chosen["systems"]
    left_out = tuple(path for one in _SYSTEMS if one not in systems for path in _SYSTEMS[one][1:])
    files = {path: text for path, text in _own_files().items() if not path.startswith(left_out)}
    modules: "dict[str, str]" = {}
    roots = " ".join(_PARTS[one] for one in chosen["parts"]).split()
    for module in [*roots, *["_systems/%s/system" % one for one in systems]]:
        if module + ".py" not in files:  # we are a copy of a part
            raise CommandError("this copy has no %s: copy from a whole one" % module)
        _add(module, files, modules, is_file)
    if "_trees/reaper" in modules:  # it starts this as a program
        _add("_trees/keeper", files, modules, is_file)
    init = _OPENING.sub("", files["__init__.py"])
    for found in _IMPORT.finditer(init):
        if found.group(3).replace(".", "/") not in modules:
            init = init.replace(found.group(), "")
    public = ", ".join(found.group(4) for found in _IMPORT.finditer(init)).split(", ")
    opening = "__all__ = %r\n" % sorted(public)
    if left_out:
        platforms = " ".join(_SYSTEMS[one][0] for one in systems)
        opening += 'if not sys.platform.startswith(tuple("%s".split())):\n' % platforms
        opening += '    raise ImportError("this copy is for %s alone")\n' % " and ".join(systems)
    files["__init__.py"] = init.replace("\nfrom .", "\n%sfrom ." % opening, 1)
    return files, modules


def _add(module: str, files: "dict[str, str]", modules: "dict[str, str]", is_file: bool) -> None:
    """Add a module, after the modules that it imports."""
    path = module + ".py" if module + ".py" in files else module + "/__init__.py"
    if module in modules or path not in files:
        return

    def follow(found: "re.Match[str]") -> str:
        indent, dots, name, names = found.groups()
        folders = path.split("/")[: -len(dots)] + [one for one in name.split(".") if one]
        source = "/".join(folders)
        if not (is_file and indent and module.startswith("cli")):  # else it is only for folders
            inner = ["/".join([*folders, one]) for one in re.findall(r"\w+", names)]
            for one in [one for one in inner if one + ".py" in files] or [source]:
                _add(one, files, modules, is_file)
        return indent and (indent + "pass\n" if source in modules else found.group())

    text = files[path].partition("\n")[2]  # without the licence
    text = _TYPING.sub("", text).replace("if not TYPE_CHECKING:", "if True:")
    modules[module] = _IMPORT.sub(follow, text)
