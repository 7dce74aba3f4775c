# SPDX-License-Identifier: BSD-3-Clause
"""A Python source as text that statements can be taken out of, with all else left as it is.

Positions come from ast and tokenize as Python 3.6 has them: it does not tell where a statement
ends. So the result is the same on every Python.
"""

import ast
import io
import re
import tokenize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

INDENT = 4
# What a logical line may go on in, and the end of one.
_PIECE = re.compile(
    r"""\#[^\n]*
    | \"{3} (?: [^"\\] | \\. | "(?!"") )* \"{3}
    | '{3} (?: [^'\\] | \\. | '(?!'') )* '{3}
    | " (?: [^"\\\n] | \\. )* "
    | ' (?: [^'\\\n] | \\. )* '
    | \\\n | [][(){}\n]
    """,
    re.DOTALL | re.VERBOSE,
)


def parse(text: str) -> ast.Module:
    """As ast.parse(), which leaves out the docstrings in Python 3.14 with -OO."""
    tree: "Any" = compile(text, "<source>", "exec", ast.PyCF_ONLY_AST, True, 0)
    module: ast.Module = tree
    return module


class Source:
    """Rows are counted from 1, as ast does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [""] + text.split("\n")
        self.tree = parse(text)
        self._tokens: "list[tokenize.TokenInfo]" = []
        # The first and the last row of the logical line that each row belongs to.
        self._ends: "dict[int, tuple[int, int]]" = {}
        self._inside: "set[int]" = set()

    @property
    def tokens(self) -> "list[tokenize.TokenInfo]":
        if not self._tokens:  # it takes most of the time
            self._tokens += tokenize.generate_tokens(io.StringIO(self.text).readline)
        return self._tokens

    def _scan(self) -> None:
        """Find logical lines, and strings of several lines; tokenize takes ten times as long."""
        row, depth, start = 1, 0, None
        for match in _PIECE.finditer(self.text + "\n"):
            piece = match.group()
            if piece == "\n":
                line = self.lines[row].strip()
                if not depth and (start or (line and not line.startswith("#"))):
                    rows = start or row, row
                    self._ends.update(dict.fromkeys(range(rows[0], row + 1), rows))
                    start = None
                row += 1
            elif piece in tuple(")]}"):
                depth -= 1
            elif piece in tuple("([{") or "\n" in piece:
                start = start or row
                depth += piece in tuple("([{")
                if piece[0] in tuple("\"'"):
                    self._inside.update(range(row + 1, row + 1 + piece.count("\n")))
                row += piece.count("\n")

    def rows_of_strings(self) -> "set[int]":
        """The rows that strings of several lines go on in."""
        if not self._ends:
            self._scan()
        return self._inside

    def rows(self, statement: ast.stmt) -> "tuple[int, int]":
        """The first and the last row of a statement, with its decorators."""
        if not self._ends:
            self._scan()
        rows = [node.lineno for node in walk(statement) if hasattr(node, "lineno")]
        # Before Python 3.8, a string of several lines is said to be where it ends.
        return self._ends[min(rows)][0], self._ends[max(rows)][1]

    def with_comments(self, statement: ast.stmt) -> "tuple[int, int]":
        """The rows of a statement and of the comments right above it."""
        first, last = self.rows(statement)
        while self.lines[first - 1].strip().startswith("#"):
            first -= 1
        return first, last

    def without(self, statements: "Iterable[ast.stmt]") -> str:
        """The text without these statements; where nothing is left in a suite, ``pass``."""
        gone = set(map(id, statements))
        if not gone:
            return self.text
        lines: "list[str | None]" = list(self.lines)
        for suite in suites(self.tree):
            left = [one for one in suite if id(one) not in gone]
            for one in suite:
                if id(one) in gone:
                    first, last = self.with_comments(one)
                    lines[first : last + 1] = [None] * (last + 1 - first)
            if not left and suite and suite is not self.tree.body:
                first = self.rows(suite[0])[0]
                lines[first] = " " * suite[0].col_offset + "pass"
        return "\n".join(line for line in lines[1:] if line is not None)


def walk(tree: ast.AST) -> "Iterator[ast.AST]":
    """As ast.walk(), but for contexts, and in a third of its time."""
    nodes = [tree]
    for node in nodes:
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                if name != "ctx":
                    nodes.append(value)
            elif isinstance(value, list):
                nodes += [one for one in value if isinstance(one, ast.AST)]


def suites(tree: ast.AST) -> "Iterator[list[ast.stmt]]":
    """The list of statements of each body, ``else`` and so on, the outer ones first."""
    nodes = [tree]
    for node in nodes:
        nodes += getattr(node, "handlers", ())
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, ())
            if suite:
                yield suite
                nodes += suite


def fold(text: str, facts: "dict[str, bool]") -> str:
    """Decide each ``if`` on one of the facts, or on several things of which some are facts."""
    facts = dict({"not " + one: not is_so for one, is_so in facts.items()}, **facts)
    while True:
        source = Source(text)
        ifs = (node for node in walk(source.tree) if isinstance(node, ast.If))
        folded = next(filter(None, (_fold_one(source, node, facts) for node in ifs)), None)
        if folded is None:
            return _without_unreachable(source)
        text = folded


def _fold_one(source: Source, node: ast.If, facts: "dict[str, bool]") -> "str | None":
    """The text with this ``if`` decided, or without the facts that are true; None: it has none."""
    line = source.lines[node.lineno]
    condition = line.strip().partition("if ")[2].rpartition(":")[0]
    parts = condition.split(" and ") if " or " not in condition else [condition]
    known = {facts[one] for one in parts if one in facts}
    left = [one for one in parts if one not in facts]
    if not known:
        return None
    if not left or False in known:
        return _decide(source, node, False not in known)
    source.lines[node.lineno] = line.replace(condition, " and ".join(left))
    return "\n".join(source.lines[1:])


def _decide(source: Source, node: ast.If, known: bool) -> str:
    """Put what runs in the place of an ``if`` whose condition is known."""
    first, last = source.rows(node)
    is_elif = source.lines[first].lstrip().startswith("elif")
    body = _block(source, node.body)
    rest = source.lines[source.rows(node.body[-1])[1] + 1 : last + 1] if node.orelse else []
    # What follows begins with "elif" or "else:", after comments perhaps.
    start = next((at for at, one in enumerate(rest) if one.lstrip()[:4] in ("elif", "else")), 0)
    rest = rest[start:]
    # Before Python 3.8, an ``elif`` is said to be where its condition is.
    indent = " " * (len(source.lines[first]) - len(source.lines[first].lstrip()))
    if known:
        new = [indent + "else:"] + body if is_elif else _dedented(body)
    elif is_elif:
        new = rest
    elif rest and rest[0].lstrip().startswith("elif"):
        new = [rest[0].replace("elif", "if", 1)] + rest[1:]
    else:
        new = _dedented(rest[1:])
    if not new and not is_elif and _is_alone(source.tree, node):
        new = [indent + "pass"]
    if not known and not new:
        first = source.with_comments(node)[0]
    return "\n".join(source.lines[1:first] + new + source.lines[last + 1 :])


def _block(source: Source, suite: "list[ast.stmt]") -> "list[str]":
    first = source.with_comments(suite[0])[0]
    return source.lines[first : source.rows(suite[-1])[1] + 1]


def _dedented(lines: "list[str]") -> "list[str]":
    return [line[INDENT:] if line[:INDENT].isspace() else line for line in lines]


def _is_alone(tree: ast.AST, node: ast.stmt) -> bool:
    return any(suite == [node] for suite in suites(tree))


def _without_unreachable(source: Source) -> str:
    """The text without what follows a ``return`` or ``raise`` in its suite."""
    gone: "list[ast.stmt]" = []
    for suite in suites(source.tree):
        for at, one in enumerate(suite):
            if isinstance(one, (ast.Return, ast.Raise)):
                gone += suite[at + 1 :]
    return source.without(gone)
