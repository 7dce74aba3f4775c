# SPDX-License-Identifier: BSD-3-Clause
"""One module that has in it what waiting needs of this package, and more if it is asked for.

The sources are joined, not translated. Each ``if`` on the system, or on a part that is left out,
is decided, and what nothing uses then is dropped. Annotations go, and so do the docstrings of
what is private. Imports from the package go, too; a name that occurs twice gets that of its
module before it.
"""

import ast
import hashlib
import textwrap
from functools import lru_cache

from .. import __version__
from . import license, sources
from .joining import Joined
from .scopes import imported
from .shorten import shortened
from .source import Source, fold, parse, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, Sequence

    from .scopes import Key

SYSTEMS = ("linux", "bsd", "windows")
# The public names of each part, by the modules that they come from.
PARTS = {
    "wait": {
        "_base.errors": "TimeoutExpired",
        "_systems": "probe",
        "_process": "Process pid_exists wait",
        "_sets": "WaitSet as_completed wait_procs",
    },
    "watch": {"_watching": "Watch watch"},
    "spawn": {"_child": "Child", "spawning": "spawn"},
    "aio": {"aio": "*"},
    "subprocess": {"subprocess": "**_offered"},
}
EXTRAS = tuple(PARTS)[1:]
# What sys.platform starts with.
_PLATFORMS = {
    "linux": ["linux", "android"],
    "bsd": ["darwin", "freebsd", "netbsd", "openbsd", "dragonfly"],
    "windows": ["win32"],
}
_NEEDS = {"subprocess": ["spawn"], "aio": ["spawn"]}
_WIDTH = 79


class SingleFile:
    """What is asked for: the systems, and the parts beside waiting."""

    def __init__(self, systems: "Iterable[str]" = SYSTEMS, extras: "Iterable[str]" = ()) -> None:
        self.systems = [one for one in SYSTEMS if one in set(systems)]
        needed = {need for one in extras for need in [one, *_NEEDS.get(one, [])]}
        self.parts = [one for one in PARTS if one == "wait" or one in needed]
        self.public: "dict[str, Key]" = {"main": ("cli", "main")}
        self.namespaces: "dict[str, dict[str, Key]]" = {}
        self.joined = self._join()

    def _join(self) -> Joined:
        texts, packages = self._texts()
        for part in self.parts:
            for module, names in PARTS[part].items():
                if names.startswith("*"):
                    found = [names] if names != "*" else _public_names(texts[module])
                    self.namespaces[module] = {name: (module, name.strip("*")) for name in found}
                else:
                    self.public.update({name: (module, name) for name in names.split()})
        self._about = {name: _first_words(text) for name, text in texts.items()}
        roots = list(self.public.values())
        roots += [key for names in self.namespaces.values() for key in names.values()]
        texts = {name: _without_docstrings(name, text, roots) for name, text in texts.items()}
        public = dict(self.public, **{name: (name, "") for name in self.namespaces})
        return Joined(texts, packages, roots, public, given=["__version__"])

    def _texts(self) -> "tuple[dict[str, str], list[str]]":
        """The modules that the parts import, and those of them that are packages."""
        files, all_facts = sources.read(), self._facts().items()
        paths = {_module_name(path): path for path in files}
        packages = [name for name, path in paths.items() if path.endswith("__init__.py")]
        texts: "dict[str, str]" = {}
        left = ["cli", *(module for part in self.parts for module in PARTS[part])]
        while left:
            name = left.pop()
            if name in texts or name not in paths:
                continue
            text = files[paths[name]].decode("utf-8")
            facts = {one: is_so for one, is_so in all_facts if one in text}
            texts[name] = text = _prepared(text, tuple(sorted(facts.items())))
            for statement in walk(parse(text)):
                if isinstance(statement, ast.ImportFrom) and statement.level:
                    found = imported(name, name in packages, paths, statement)
                    left += [key[0] for _, key in found]
        return texts, packages

    def _facts(self) -> "dict[str, bool]":
        facts = {
            "TYPE_CHECKING": False,
            "_parts.SPAWN": "spawn" in self.parts,
            "_parts.LISTING": False,
            "_parts.COMMANDS": False,
            "_parts.SINGLE_FILE": True,
        }
        on = set(self.systems)
        if "windows" not in on or len(on) == 1:
            is_windows = on == {"windows"}
            facts.update({'os.name == "nt"': is_windows, 'os.name != "nt"': not is_windows})
            facts.update({'sys.platform == "win32"': is_windows})
            facts.update({'sys.platform != "win32"': not is_windows})
        if len(on) == 1 or "linux" not in on:
            facts['calls.PLATFORM in ("linux", "android")'] = "linux" in on
        if len(on) == 1 or "bsd" not in on:
            names = ", ".join('"%s"' % name for name in _PLATFORMS["bsd"])
            facts["calls.PLATFORM in (%s)" % names] = "bsd" in on
        return facts

    def text(self) -> str:
        body = "\n".join(self._body())
        return self._head(hashlib.sha256(body.encode()).hexdigest()) + body

    def _body(self) -> "Iterator[str]":
        joined = self.joined
        more = ["from types import SimpleNamespace"] if self.namespaces else []
        if len(self.systems) < len(SYSTEMS):
            yield from ["", "import sys", "", *self._refusal()]
        yield from ["", *joined.imports(), *more, ""]
        yield '__version__ = "%s"' % __version__
        yield "__all__ = ["
        for name in sorted([*self.public, *self.namespaces]):
            if name != "main":
                yield '    "%s",' % name
        yield "]"
        for name, text in joined.sections():
            yield from self._heading(name)
            yield from ["", text]
        for name, keys in self.namespaces.items():
            yield from self._namespace(name, keys)
        yield from ["", "", 'if __name__ == "__main__":', "    main()", ""]

    def _refusal(self) -> "Iterator[str]":
        starts = tuple(name for one in self.systems for name in _PLATFORMS[one])
        yield "_SYSTEMS = " + " ".join(starts).join('""') + ".split()"
        yield "if not sys.platform.startswith(tuple(_SYSTEMS)):"
        yield '    raise ImportError("this file is for %s alone")' % " and ".join(self.systems)

    def _heading(self, name: str) -> "Iterator[str]":
        yield from ["", "", "# " + (" %s " % name.replace(".", "/")).center(_WIDTH - 2, "=")]
        yield from textwrap.wrap(
            self._about[name], _WIDTH, initial_indent="# ", subsequent_indent="# "
        )

    def _namespace(self, name: str, keys: "dict[str, Key]") -> "Iterator[str]":
        yield from ["", "", "# What the package has as the module %s." % name]
        yield "%s = SimpleNamespace(" % name
        for own, key in keys.items():
            final = self.joined.names[self.joined.resolved(key)]
            yield "    **%s()," % final if own.startswith("**") else "    %s=%s," % (own, final)
        yield ")"

    def _head(self, digest: str) -> str:
        lines = [
            "# SPDX-License-Identifier: BSD-3-Clause",
            '"""%s %s in one file: waits for processes to exit, without polling.'
            % (license.NAME, __version__),
            "",
            "On a command line: python FILE -h.",
            "",
            "systems: %s" % ", ".join(self.systems),
            "parts:   %s" % ", ".join(self.parts),
            "sha256 of what follows the licence:",
            "    " + digest,
            '"""',
        ]
        lines += [("# " + line).rstrip() for line in license.TEXT.splitlines()]
        return "\n".join(lines) + "\n"


@lru_cache(maxsize=None)
def _prepared(text: str, facts: "tuple[tuple[str, bool], ...]") -> str:
    return shortened(fold(text, dict(facts)))


def _module_name(path: str) -> str:
    name = path[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


def _public_names(text: str) -> "list[str]":
    for statement in parse(text).body:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            if isinstance(target, ast.Name) and target.id == "__all__":
                return list(ast.literal_eval(statement.value))
    raise LookupError("no __all__")


def _first_words(text: str) -> str:
    """The first paragraph of a module's docstring, on one line."""
    about = ast.get_docstring(parse(text)) or ""
    return " ".join(about.partition("\n\n")[0].split())


def _without_docstrings(name: str, text: str, public: "Sequence[Key]") -> str:
    """Without the docstrings of modules, and of what is private."""
    source = Source(text)
    kept = {key[1] for key in public if key[0] == name}
    gone = []
    for node in walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            if node in source.tree.body and getattr(node, "name", "") in kept:
                continue
            first = node.body[0]
            if isinstance(first, ast.Expr) and ast.get_docstring(node, False) is not None:
                gone.append(first)
    return source.without(gone)
