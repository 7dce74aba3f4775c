# SPDX-License-Identifier: BSD-3-Clause
"""Which names of a module mean something at the top of a module: its own, or another's.

A thing at the top of a module is told by a Key: the module's name and the thing's, or the
module's name and "" for the module itself. Modules of this package go by their paths in it, such
as "_ffi.calls"; others have a colon before their names.
"""

import ast
from functools import partial

from .source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, Tuple

    Key = Tuple[str, str]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = _FUNCTIONS + _COMPREHENSIONS + (ast.ClassDef,)


class Use:
    """A place in the text that names a Key; ``locals`` are the local names that are seen there."""

    def __init__(self, row: int, column: int, text: str, key: "Key", locals_: "set[str]") -> None:
        self.row = row
        self.column = column
        self.text = text
        self.key = key
        self.locals = locals_


class Scope:
    """What a function, a class, a comprehension or the module binds."""

    def __init__(self, node: ast.AST, outer: "Scope | None") -> None:
        self.node = node
        self.outer = outer
        self.bound: "set[str]" = set()
        self.aliases: "dict[str, set[Key]]" = {}
        self.globals: "set[str]" = set()

    def seen(self) -> "Iterator[Scope]":
        """The scopes that a name in this one is looked up in, from here to the module."""
        scope: "Scope | None" = self
        while scope is not None:
            if scope is self or not isinstance(scope.node, ast.ClassDef):
                yield scope
            scope = scope.outer


def imported(
    name: str, is_package: bool, modules: "Iterable[str]", statement: ast.ImportFrom
) -> "Iterator[tuple[str, Key]]":
    """What an import of the module of that name, from this package, binds to which Key."""
    folder = name.split(".") if name else []
    folder = folder[: len(folder) - statement.level + is_package]
    base = ".".join(folder + (statement.module.split(".") if statement.module else []))
    for alias in statement.names:
        module = (base + "." + alias.name).lstrip(".")
        is_module = module in modules
        yield alias.asname or alias.name, (module, "") if is_module else (base, alias.name)


class Module:
    """A module of the package: the uses of Keys in it, and what it imports from the package.

    ``imports`` has, by the id of its statement, what each import binds, and in which scope.
    """

    def __init__(self, name: str, is_package: bool, text: str, modules: "Iterable[str]") -> None:
        self.name = name
        self.source = Source(text)
        self.uses: "list[Use]" = []
        self.imports: "dict[int, tuple[Scope, list[tuple[str, Key]]]]" = {}
        self.top = Scope(self.source.tree, None)
        self._imported = partial(imported, name, is_package, modules)
        self._scopes: "dict[ast.AST, Scope]" = {self.source.tree: self.top}
        self._bind(self.source.tree, self.top)
        self._find(self.source.tree, self.top)

    def is_one_of_several(self, scope: Scope, name: str) -> bool:
        """Whether several imports bind the name, as an ``if`` decides."""
        return len(scope.aliases[name]) > 1

    def _bind(self, outer: ast.AST, scope: Scope) -> None:
        """Note what each scope binds."""
        for node in ast.iter_child_nodes(outer):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                scope.bound.add(node.name)
            elif isinstance(node, ast.arg):
                scope.bound.add(node.arg)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                scope.bound.add(node.id)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                scope.bound.add(node.name)
            elif isinstance(node, ast.Global):
                scope.globals.update(node.names)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._bind_other(scope, name, (":" + alias.name, ""))
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    key = (":%s" % node.module, alias.name)
                    self._bind_other(scope, alias.asname or alias.name, key)
            elif isinstance(node, ast.ImportFrom):
                pairs = list(self._imported(node))
                self.imports[id(node)] = scope, pairs
                for name, own in pairs:
                    scope.aliases.setdefault(name, set()).add(own)
            inner = scope
            if isinstance(node, _SCOPES):
                inner = self._scopes[node] = Scope(node, scope)
            self._bind(node, inner)

    def _bind_other(self, scope: Scope, name: str, key: "Key") -> None:
        if scope is self.top:
            scope.aliases.setdefault(name, set()).add(key)
        else:
            scope.bound.add(name)

    def _find(self, node: ast.AST, scope: Scope) -> None:
        """Note the uses in a node of that scope."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            key = self._key(node.value.id, scope)
            if key is not None and not key[1] and not key[0].startswith(":"):
                text = node.value.id + "." + node.attr
                self._use(node.value, (key[0], node.attr), text, scope)
                return
        elif isinstance(node, ast.Name):
            key = self._key(node.id, scope)
            if key is not None:
                self._use(node, key, node.id, scope)
        elif isinstance(node, _FUNCTIONS):
            # These are not in its scope.
            for one in getattr(node, "decorator_list", []):
                self._find(one, scope)
            self._find(node.args, scope)
            body = node.body if isinstance(node.body, list) else [node.body]
            for one in body:
                self._find(one, self._scopes[node])
            return
        inner = self._scopes.get(node, scope)
        for one in ast.iter_child_nodes(node):
            self._find(one, inner)

    def _use(self, name: ast.Name, key: "Key", text: str, scope: Scope) -> None:
        line = self.source.lines[name.lineno]
        column = len(line.encode()[: name.col_offset].decode())
        if not line[column:].startswith(text):
            raise ValueError("%s, row %d: %s is not there" % (self.name, name.lineno, text))
        seen: "set[str]" = set()
        for one in scope.seen():
            if one is not self.top:
                seen |= one.bound - one.globals
        self.uses.append(Use(name.lineno, column, text, key, seen))

    def _key(self, name: str, scope: Scope) -> "Key | None":
        """What a name means there; None if it is local or a built-in."""
        for one in scope.seen():
            if one is self.top or name in one.globals:
                break
            if name in one.bound:
                return None
            if name in one.aliases:
                return self._alias(one, name)
        if name in self.top.bound:
            return self.name, name
        return self._alias(self.top, name) if name in self.top.aliases else None

    def _alias(self, scope: Scope, name: str) -> "Key | None":
        if self.is_one_of_several(scope, name):  # it stays a name of its own, which is assigned
            return (self.name, name) if scope is self.top else None
        return next(iter(scope.aliases[name]))
