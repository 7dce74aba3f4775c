# SPDX-License-Identifier: BSD-3-Clause
"""One file with the needed modules of this package, joined unchanged.

Each module follows the modules that it imports. Nothing is renamed, as names at the top of modules
are unique. Removed are the imports of modules that are in the file, and the blocks for type
checkers. Imports within functions of the command line do not add modules to the file: there they
would raise ImportError.
"""

import hashlib
import pkgutil
import re
import sys

from .._base.errors import PACKAGE

# In two parts: a copy of the package under another name must not contain this name.
NAME = "pid" + "wait"
# The modules of each part, with their public names.
PARTS = {
    "wait": {"_base/errors": "TimeoutExpired", "_process": "Process has_exited pid_exists wait"},
    "many": {"_sets": "WaitSet as_completed wait_procs", "_watching": "Watch watch"},
    "spawn": {"_starting/spawn": "Child spawn"},
    "probe": {"_probe": "probe"},
    "cli": {"cli/wait": "", "cli": ""},
}
# Each system's names in sys.platform. The system's modules are in the folder _systems/<system>.
SYSTEMS = {
    "linux": "linux android",
    "bsd": "darwin freebsd netbsd openbsd dragonfly",
    "windows": "win32",
}
# An import of ours; with the ``if`` above it, if it is the only statement there.
_IMPORT = re.compile(r"^(?:if .*:\n)?( *)from (\.+)([\w.]*) import (?:\([^)]*\))?.*\n", re.M)
_FOR_TYPES = re.compile(
    r"^TYPE_CHECKING = False\n|^if TYPE_CHECKING:\n(?:    .*\n|\n(?=    ))+", re.M
)
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
FORM = re.compile(
    r'"""%s (\S+) in one file.*\n\nparts:   ([\w,]*)\nsystems: ([\w,]*)\n.*\n    (\w{64})\n' % NAME
)


def join(files: "dict[str, bytes]", version: str, parts: "list[str]", systems: "list[str]") -> str:
    """The text of the single file; ``files`` are the package's sources by path."""
    asked, chosen = {"wait", *parts}, [one for one in SYSTEMS if one in set(systems)]
    wanted = [one for one in PARTS if one in asked or (one in ("many", "probe") and "cli" in asked)]
    left_out = tuple("_systems/%s/" % one for one in SYSTEMS if one not in chosen)
    kept = {path: files[path] for path in files if not path.startswith(left_out)}
    modules: "dict[str, str]" = {}
    public: "list[str]" = []
    for part in wanted:
        for module, names in PARTS[part].items():
            _add(module, kept, modules)
            public += names.split()
    body = 'REQUIRES = f"Python {3.6} or newer"  # an older one stops here\nimport sys\n\n'
    body += 'TYPE_CHECKING = False\n__version__ = "%s"\n' % version
    body += "__all__ = %r\n" % sorted(public)
    if len(chosen) < len(SYSTEMS):
        platforms = " ".join(SYSTEMS[one] for one in chosen)
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
    head = _HEAD % (NAME, version, ",".join(wanted), ",".join(chosen), digest, licence)
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
    modules[module] = _IMPORT.sub(follow, _FOR_TYPES.sub("", text))


def own_files() -> "dict[str, bytes]":
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
