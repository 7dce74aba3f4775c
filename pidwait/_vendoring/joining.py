# SPDX-License-Identifier: BSD-3-Clause
"""Several modules become one: what is used is kept, and each name means one thing."""

import ast
import builtins
import keyword
import re
import textwrap

from .scopes import Module
from .shorten import WIDTH
from .source import suites, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, Mapping, Sequence

    from .scopes import Key, Scope


class Unit:
    """A statement at the top of a module: what it binds, and where it stands."""

    def __init__(self, module: Module, statement: ast.stmt) -> None:
        self.module = module
        self.statement = statement
        self.first, self.last = module.source.with_comments(statement)
        self.is_import = isinstance(statement, (ast.Import, ast.ImportFrom))
        self.is_definition = isinstance(
            statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        )
        self.uses = [use for use in module.uses if self.first <= use.row <= self.last]
        self.imports = [
            (one, *module.imports[id(one)])
            for one in walk(statement)
            if isinstance(one, ast.stmt) and id(one) in module.imports
        ]
        self.binds = set(self._bound())

    def _bound(self) -> "Iterator[str]":
        if self.is_definition:
            yield self.statement.name  # type: ignore[attr-defined]
            return
        for one in walk(self.statement):
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                if one.id in self.module.top.bound:
                    yield one.id
            elif isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                yield one.name
        for _, scope, pairs in self.imports:
            for name, _ in pairs:
                if scope is self.module.top and self.module.is_one_of_several(scope, name):
                    yield name


class Joined:
    """The modules as one text: see single_file.py.

    ``texts`` are sources by the modules' names, ``roots`` what has to be in, and ``public`` names
    that stay as they are, and what they mean.
    """

    def __init__(
        self,
        texts: "Mapping[str, str]",
        packages: "Iterable[str]",
        roots: "Iterable[Key]",
        public: "Mapping[str, Key]",
        given: "Iterable[str]" = (),
    ) -> None:
        self.modules = {
            name: Module(name, name in packages, text, texts) for name, text in texts.items()
        }
        self._given = set(given)
        self._units = {
            name: [Unit(module, one) for one in module.source.tree.body]
            for name, module in self.modules.items()
        }
        self._kept: "set[int]" = set()
        self._used: "set[Key]" = set()
        self._order: "list[str]" = []
        for key in roots:
            self._keep(self.resolved(key))
        self.names = self._named(public)

    # What is used

    def resolved(self, key: "Key") -> "Key":
        """Where the thing is at home."""
        module = self.modules.get(key[0])
        if module is None or not key[1]:
            return key
        if key[1] in module.top.bound or key[1] not in module.top.aliases:
            return key
        if module.is_one_of_several(module.top, key[1]):
            return key
        return self.resolved(next(iter(module.top.aliases[key[1]])))

    def _keep(self, key: "Key") -> None:
        if key in self._used:
            return
        self._used.add(key)
        if key[0].startswith(":") or key in self._built_in():
            return
        module = self.modules.get(key[0])
        if module is None or not key[1]:
            raise LookupError("what the file needs is not in it: %s %s" % key)
        units = [one for one in self._units[key[0]] if key[1] in one.binds]
        if not units:
            raise LookupError("%s has no %s" % key)
        for unit in units:
            self._keep_unit(unit)
        for unit in self._units[key[0]]:
            is_docstring = isinstance(unit.statement, ast.Expr) and not unit.uses
            if not unit.binds and not unit.is_import and not is_docstring:
                self._keep_unit(unit)
        if key[0] not in self._order:
            self._order.append(key[0])

    def _built_in(self) -> "set[Key]":
        return {("", name) for name in self._given}

    def _keep_unit(self, unit: Unit) -> None:
        if id(unit) in self._kept:
            return
        self._kept.add(id(unit))
        for use in unit.uses:
            self._keep(self.resolved(use.key))
        for _, scope, pairs in unit.imports:
            for name, key in pairs:
                if unit.module.is_one_of_several(scope, name):
                    self._keep(self.resolved(key))

    def _kept_units(self, name: str) -> "list[Unit]":
        return [one for one in self._units[name] if id(one) in self._kept]

    # What it is called

    def _named(self, public: "Mapping[str, Key]") -> "dict[Key, str]":
        """A name for each thing: its own if that is free, else with its module's before it."""
        homes = {self.resolved(key): name for name, key in public.items()}
        plain: "dict[str, list[Key]]" = {}
        for key in sorted(self._used):
            plain.setdefault(self._plain(key), []).append(key)
        taken = set(dir(builtins)) | set(keyword.kwlist)
        hidden: "dict[Key, set[str]]" = {}
        for name in self._order:
            for unit in self._kept_units(name):
                for use in unit.uses:
                    hidden.setdefault(self.resolved(use.key), set()).update(use.locals)
        names = {}
        for name, keys in plain.items():
            for key in keys:
                is_alone = len(keys) == 1 and name not in taken and name not in public
                if key in homes:
                    names[key] = homes[key]
                elif key in self._built_in():
                    names[key] = name
                elif key[0].startswith(":") and not key[1]:
                    names[key] = "standard_" + name if name in public else name
                elif is_alone and name not in hidden.get(key, ()):
                    names[key] = name
                else:
                    names[key] = _prefixed(key)
        twice = [key for key in names if list(names.values()).count(names[key]) > 1]
        if twice:
            raise ValueError("these have one name: %s" % sorted(twice))
        for key, name in names.items():
            if name in hidden.get(key, ()):
                raise ValueError("a local name hides %s" % name)
        return names

    def _plain(self, key: "Key") -> str:
        return key[1] or key[0].lstrip(":")

    # What is written

    def imports(self) -> "list[str]":
        """The imports of other modules, sorted."""
        whole, parts = [], []
        for key, name in self.names.items():
            module = key[0].lstrip(":")
            if not key[0].startswith(":"):
                continue
            if not key[1]:
                whole.append("import " + module + ("" if name == module else " as " + name))
            else:
                renamed = "" if name == key[1] else " as " + name
                parts.append("from %s import %s%s" % (module, key[1], renamed))
        return sorted(whole) + _merged(sorted(parts))

    def sections(self) -> "Iterator[tuple[str, str]]":
        """The name and the text of each module of which something is kept, callees first."""
        for name in self._sorted():
            yield name, self._text(self.modules[name], self._kept_units(name))

    def _sorted(self) -> "list[str]":
        done: "list[str]" = []

        def visit(name: str, path: "tuple[str, ...]") -> None:
            if name in done or name in path or name not in self._order:
                return
            for is_at_import in (True, False):
                for unit in self._kept_units(name):
                    for _, scope, pairs in unit.imports:
                        for bound, key in pairs:
                            if unit.module.is_one_of_several(scope, bound):
                                visit(self.resolved(key)[0], path + (name,))
                    for use in unit.uses:
                        if (use.row <= unit.last and not unit.is_definition) is is_at_import:
                            visit(self.resolved(use.key)[0], path + (name,))
            done.append(name)

        for name in self._order:
            visit(name, ())
        return done

    def _text(self, module: Module, units: "list[Unit]") -> str:
        lines: "list[str | None]" = list(module.source.lines)
        strings = module.source.rows_of_strings()
        for unit in units:
            self._rename(module, unit, lines)
        written: "list[str]" = []
        before = None
        for unit in units:
            if before is not None:
                has_gap = not module.source.lines[unit.first - 1].strip()
                if has_gap or unit.is_definition or before.is_definition:
                    written.append("")
            written += _without_gaps(lines, unit, strings)
            before = unit
        return "\n".join(written)

    def _rename(self, module: Module, unit: Unit, lines: "list[str | None]") -> None:
        for use in sorted(unit.uses, key=lambda use: (use.row, use.column), reverse=True):
            new = self.names[self.resolved(use.key)]
            line = lines[use.row] or ""
            end = use.column + len(use.text)
            lines[use.row] = line[: use.column] + new + line[end:]
        if unit.is_definition:
            (name,) = unit.binds
            self._rename_definition(module, unit, name, lines)
        for one in walk(unit.statement):
            if isinstance(one, ast.Global):
                names = [self.names[module.name, name] for name in one.names]
                indent = " " * one.col_offset
                lines[one.lineno] = indent + "global " + ", ".join(names)
        for statement, scope, pairs in unit.imports:
            self._replace_import(module, statement, scope, pairs, lines)

    def _rename_definition(
        self, module: Module, unit: Unit, name: str, lines: "list[str | None]"
    ) -> None:
        pattern = re.compile(r"^((?:async )?(?:def|class) )%s\b" % name)
        for row in range(unit.first, unit.last + 1):
            changed, count = pattern.subn(
                r"\g<1>" + self.names[module.name, name], lines[row] or ""
            )
            if count:
                lines[row] = changed
                return

    def _replace_import(
        self,
        module: Module,
        statement: ast.stmt,
        scope: "Scope",
        pairs: "list[tuple[str, Key]]",
        lines: "list[str | None]",
    ) -> None:
        """Take it out; what several imports bind is assigned."""
        new = []
        for name, key in pairs:
            if module.is_one_of_several(scope, name):
                own = self.names[module.name, name] if scope is module.top else name
                new.append("%s = %s" % (own, self.names[self.resolved(key)]))
        first, last = module.source.rows(statement)
        if not new:
            first = module.source.with_comments(statement)[0]
            suite = next(one for one in suites(module.source.tree) if statement in one)
            if statement is suite[0] and all(_goes(module, one) for one in suite):
                new = ["pass"]
        indent = " " * statement.col_offset
        lines[first : last + 1] = [None] * (last - first + 1)
        if new:
            lines[first] = indent + ("\n" + indent).join(new)


def _goes(module: Module, statement: ast.stmt) -> bool:
    """Whether it is an import that leaves nothing behind."""
    scope, pairs = module.imports.get(id(statement), (None, None))
    return scope is not None and not any(
        module.is_one_of_several(scope, name) for name, _ in pairs or ()
    )


def _prefixed(key: "Key") -> str:
    """A name with its module's: a_b, _a_b, A_B or AB, as the name is written."""
    module, name = key[0].lstrip(":"), key[1]
    stem = (module.rpartition(".")[2] or module).strip("_")
    bare = name.lstrip("_")
    under = name[: len(name) - len(bare)]
    if bare.isupper():
        return "%s%s_%s" % (under, stem.upper(), bare)
    if bare[:1].isupper():
        return under + "".join(one.capitalize() for one in stem.split("_")) + bare
    return "%s%s_%s" % (under, stem, bare)


def _merged(lines: "list[str]") -> "list[str]":
    """One import for all names of a module."""
    merged: "dict[str, list[str]]" = {}
    for line in lines:
        module, _, name = line.partition(" import ")
        merged.setdefault(module, []).append(name)
    return [_wrapped(module + " import", ", ".join(names)) for module, names in merged.items()]


def _wrapped(start: str, names: str) -> str:
    if len(start) + len(names) < WIDTH:
        return "%s %s" % (start, names)
    lines = textwrap.wrap(names, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([start + " ("] + lines + [")"])


def _without_gaps(
    lines: "Sequence[str | None]", unit: Unit, strings: "set[int]"
) -> "Iterator[str]":
    """The unit's lines without those that are taken out, and without gaps where they have been."""
    before = ""
    for row in range(unit.first, unit.last + 1):
        line = lines[row]
        if line is None:
            continue
        is_gap = not line.strip() and row not in strings
        if is_gap and (not before.strip() or before.rstrip().endswith((":", '"""'))):
            continue
        yield line
        before = line
