# SPDX-License-Identifier: BSD-3-Clause
"""One file with what is needed of this package: its modules, joined as they are.

A module follows those that it imports names from. Nothing is renamed, as no two modules have
one name for two things; what goes is the lines that import from this package, and the lines
that each module begins with. What a function imports is joined only if the system of the file
needs it. So a function that imports a part that was left out gets an ImportError, and says so.
"""

import ast
import hashlib
import os
import pkgutil
import re
import sys
import zipimport
from errno import ENOENT
from importlib.util import find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Iterable, Iterator

_PACKAGE_NAME = __name__.rsplit(".", 2)[0]
# In two parts, as a copy of the package under another name has no string with this one.
NAME = "pid" + "wait"
LICENSE = """\
BSD 3-Clause License

Copyright (c) 2026, the {name} developers

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this
   list of conditions and the following disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice,
   this list of conditions and the following disclaimer in the documentation
   and/or other materials provided with the distribution.

3. Neither the name of the copyright holder nor the names of its
   contributors may be used to endorse or promote products derived from
   this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
""".replace("{name}", NAME)


# The modules of each part, with the public names that are in them.
PARTS = {
    "wait": {
        "_base.errors": "TimeoutExpired",
        "_systems": "probe",
        "_process": "Process pid_exists wait",
    },
    "many": {"_sets": "WaitSet as_completed wait_procs", "_watching": "Watch watch"},
    "spawn": {"_spawning": "Child spawn"},
    "cli": {"cli": "main", "cli.wait": ""},
}
# What the names of the modules of one system begin with.
SYSTEMS: "dict[str, tuple[str, ...]]" = {
    "linux": ("linux", "procfs", "pidfd", "epoll"),
    "bsd": ("kqueue", "ps", "bsd"),
    "windows": ("windows",),
}
_BY_SYSTEM = ("_systems", "_systems.sleepers")  # their functions import what their system needs
_NEEDS = {"cli": ["many"], "many": ["wait"], "spawn": ["wait"]}
_PLATFORMS = {
    "linux": "linux android",
    "bsd": "darwin freebsd netbsd openbsd dragonfly",
    "windows": "win32",
}
# The names of its types are not in the file.
_UNCHECKED = (
    "ArgumentType AttributeAccessIssue CallIssue GeneralTypeIssues IncompatibleMethodOverride"
    " IncompatibleVariableOverride InvalidTypeArguments MissingImports PossiblyUnbound"
    " ReturnType UndefinedVariable"
).split()
_HEAD = '''\
# SPDX-License-Identifier: BSD-3-Clause
# mypy: ignore-errors
%s
"""%s %s in one file: waits for processes to exit, without polling.

parts:   %s
systems: %s
sha256 of what follows the licence:
    %s
"""
%s'''
_FORM = re.compile(
    r'"""%s (\S+) in one file.*\n\nparts:   ([\w,]*)\nsystems: ([\w,]*)\n.*\n    (\w{64})\n' % NAME
)


class Module:
    """A module of the package: its lines, and its imports from the package."""

    def __init__(self, name: str, is_package: bool, text: str) -> None:
        self.name = name
        self.lines: "list[str]" = text.splitlines()
        self._parts = name.split(".") if name else []
        self._is_package = is_package
        # Each import from the package: from where, its lines, and where it stands itself: in a
        # "function", for "types", or at the "top".
        self.imports: "list[tuple[str, range, str]]" = []
        self._read(ast.parse(text).body, "top")

    def _read(self, statements: "Iterable[ast.AST]", where: str) -> None:
        for one in statements:
            if isinstance(one, ast.ImportFrom) and one.level:
                self._add(one, where)
            elif isinstance(one, ast.If) and getattr(one.test, "id", "") == "TYPE_CHECKING":
                self._read(one.body, "types")
                self._read(one.orelse, where)
            else:
                is_function = isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
                self._read(ast.iter_child_nodes(one), "function" if is_function else where)

    def _add(self, statement: ast.ImportFrom, where: str) -> None:
        end = statement.lineno
        if "(" in self.lines[end - 1]:
            while ")" not in self.lines[end - 1]:
                end += 1
        lines = range(statement.lineno - 1, end)
        up = statement.level - self._is_package
        base = self._parts[: len(self._parts) - up]
        whole = ".".join(base + (statement.module or "").split(".")).strip(".")
        self.imports.append((whole, lines, where))

    def text(self, joined: "dict[str, Module]") -> "Iterator[str]":
        """Its lines without what imports from modules that are joined, or from _types."""
        gone = {0}  # the licence
        for name, lines, where in self.imports:
            if where != "function" or name in joined:
                gone.update(lines)
        for number, line in enumerate(self.lines):
            if number not in gone and line != "TYPE_CHECKING = False":
                yield line
            elif number in gone and line[:1] == " " and self._is_alone(number, gone):
                yield re.match(" *", line).group() + "pass"  # type: ignore[union-attr]

    def _is_alone(self, number: int, gone: "set[int]") -> bool:
        """Whether a block would be empty without this line, the last one of an import."""
        if number + 1 in gone:
            return False
        first = number
        while first - 1 in gone:
            first -= 1
        indent = len(self.lines[first]) - len(self.lines[first].lstrip())
        above = self.lines[first - 1]
        below = next((line for line in self.lines[number + 1 :] if line.strip()), "")
        return above.endswith(":") and len(below) - len(below.lstrip()) < indent


def join(
    files: "dict[str, bytes]", version: str, parts: "Iterable[str]", systems: "Iterable[str]"
) -> str:
    """The file, of the sources of the package by their paths."""
    asked, chosen = set(parts), [one for one in SYSTEMS if one in set(systems)]
    for part in ("cli", "many", "spawn"):
        asked.update(_NEEDS[part] if part in asked else ())
    asked.add("wait")
    wanted = [part for part in PARTS if part in asked]
    left_out = tuple(name for one in SYSTEMS if one not in chosen for name in SYSTEMS[one])
    modules = {}
    for path, data in files.items():
        if path.endswith(".py"):
            name = re.sub(r"(/|^)__init__$", "", path[: -len(".py")]).replace("/", ".")
            if not name.rpartition(".")[2].startswith(left_out):
                modules[name] = (path, data)
    joined: "dict[str, Module]" = {}
    public = []
    for part in wanted:
        for name, names in PARTS[part].items():
            _add(name, modules, joined)
            public += names.split()
    lines = ["import sys", "", "TYPE_CHECKING = False", '__version__ = "%s"' % version]
    lines += ["__all__ = %r" % sorted(set(public) - {"main"})]
    if len(chosen) < len(SYSTEMS):
        names = " ".join(_PLATFORMS[one] for one in chosen)
        lines += ['if not sys.platform.startswith(tuple("%s".split())):' % names]
        lines += ['    raise ImportError("this file is for %s alone")' % " and ".join(chosen)]
    for name, module in joined.items():
        lines += ["", "", "# " + (" %s " % name).center(77, "="), *module.text(joined)]
    if "cli" in wanted:
        lines += ["", "", 'if __name__ == "__main__":', "    main()"]
    body = "\n".join(lines) + "\n"
    licence = "".join(("# " + line).rstrip() + "\n" for line in LICENSE.splitlines())
    digest = hashlib.sha256(body.encode()).hexdigest()
    found = ",".join(wanted), ",".join(chosen)
    unchecked = "\n".join("# pyright: report%s=false" % rule for rule in _UNCHECKED)
    return _HEAD % (unchecked, NAME, version, *found, digest, licence) + body


def _add(name: str, modules: "dict[str, tuple[str, bytes]]", joined: "dict[str, Module]") -> None:
    """Join a module, after those that it imports."""
    if name in joined or name not in modules:
        return
    path, data = modules[name]
    module = Module(name, path.endswith("__init__.py"), data.decode())
    for needed, _, where in module.imports:
        if needed and (where == "top" or (where == "function" and name in _BY_SYSTEM)):
            _add(needed, modules, joined)
    joined[name] = module


def look(text: str) -> "tuple[str, list[str], list[str], bool] | None":
    """The version, parts and systems of such a file, and whether it is as it was made.

    None if it is none.
    """
    found = _FORM.search(text)
    if found is None:
        return None
    version, parts, systems, digest = found.groups()
    body = text.partition("OF SUCH DAMAGE.\n")[2]
    is_whole = hashlib.sha256(body.encode()).hexdigest() == digest
    return version, parts.split(","), systems.split(","), is_whole


def own_folder() -> str:
    """Where it is, maybe in a zip."""
    (path,) = sys.modules[_PACKAGE_NAME].__path__
    return path


def own_sources() -> "dict[str, bytes]":
    """The contents of each file, by its path from the package's folder on, with slashes.

    OSError: a file can't be read, as where only compiled files were installed.
    """
    top = own_folder()
    spec = find_spec(_PACKAGE_NAME)
    archive = spec and getattr(spec.loader, "archive", None)
    if archive:
        # pkgutil looks into a cache that importlib.invalidate_caches() has emptied perhaps: seen
        # on Python 3.15.
        zipimport.zipimporter(archive)
    names = [_PACKAGE_NAME]
    names += [one.name for one in pkgutil.walk_packages([top], _PACKAGE_NAME + ".")]
    found = {"py.typed": _data(_PACKAGE_NAME, os.path.join(top, "py.typed"))}
    for name in names:
        spec = find_spec(name)
        path = spec.origin if spec else None
        if path is None or not path.endswith(".py"):
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT) + ": its source", name)
        found[os.path.relpath(path, top).replace(os.sep, "/")] = _data(name, path)
    return dict(sorted(found.items()))


def _data(name: str, path: str) -> bytes:
    spec = find_spec(name)
    data: bytes = spec.loader.get_data(path)  # type: ignore[union-attr]
    return data
