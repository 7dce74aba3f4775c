# SPDX-License-Identifier: BSD-3-Clause
"""Leave out what only a type checker reads, and put on one line what then fits on one."""

import ast
import keyword
import re
import tokenize

from .source import Source, suites, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    Span = Tuple[Tuple[int, int], Tuple[int, int]]

WIDTH = 100
_REMARK = re.compile(r"  # (?:type: ignore|novm|noqa).*$")
_QUIET = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


def shortened(text: str) -> str:
    """The text without annotations, and with each statement on one line if that has room."""
    source = Source(text)
    text = source.without(
        one
        for suite in suites(source.tree)
        for one in suite
        if (isinstance(one, ast.AnnAssign) and one.value is None) or _is_overload(one)
    )
    source = Source(text)
    lines = list(source.lines)
    for (row, start), (_, end) in sorted(_annotations(source), reverse=True):
        lines[row] = lines[row][:start] + lines[row][end:]
    return _joined(Source("\n".join(_REMARK.sub("", line) for line in lines[1:])))


def _is_overload(statement: ast.stmt) -> bool:
    decorators = getattr(statement, "decorator_list", [])
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in decorators)


def _annotations(source: Source) -> "Iterator[Span]":
    """What stands for annotations, each on one line, and the spaces around a default's "="."""
    headers: "set[int]" = set()
    assignments: "set[int]" = set()
    for node in walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # With decorators, it begins at the first of them, for Python 3.6.
            headers.update(range(node.lineno, source.rows(node.body[0])[0]))
        elif isinstance(node, ast.AnnAssign):
            assignments.add(node.lineno)
    for line in _statements(source):
        row = line[0].start[0]
        if line[0].string in ("def", "async") and row in headers:
            yield from _in_header(line)
        elif row in assignments:
            yield _in_assignment(line)


def _statements(source: Source) -> "Iterator[list[tokenize.TokenInfo]]":
    """The tokens of each logical line."""
    line: "list[tokenize.TokenInfo]" = []
    for token in source.tokens:
        if token.type == tokenize.NEWLINE:
            yield line
            line = []
        elif token.type not in _QUIET:
            line.append(token)


def _in_header(line: "list[tokenize.TokenInfo]") -> "Iterator[Span]":
    depth, start = 0, None
    for at, token in enumerate(line):
        depth -= token.string in tuple(")]}")
        if start is not None and (
            (depth == 1 and token.string in tuple(",=")) or (depth == 0 and token.string in ("):"))
        ):
            yield start, line[at - 1].end
            start = None
            if token.string == "=":
                yield line[at - 1].end, token.start
                yield token.end, line[at + 1].start
        elif depth == 1 and token.string == ":":
            start = token.start
        elif depth == 0 and token.string == "->":
            start = line[at - 1].end
        depth += token.string in tuple("([{")


def _in_assignment(line: "list[tokenize.TokenInfo]") -> "Span":
    at = next(at for at, token in enumerate(line) if token.string == ":")
    end = next(end for end in range(at, len(line)) if line[end].string == "=")
    return line[at].start, line[end - 1].end


def _joined(source: Source) -> str:
    lines: "list[str | None]" = list(source.lines)
    comments = {one.start[0] for one in source.tokens if one.type == tokenize.COMMENT}
    for line in _statements(source):
        first, last = line[0].start[0], line[-1].end[0]
        rows = range(first, last + 1)
        if first == last or comments.intersection(rows):
            continue
        if any(token.start[0] != token.end[0] for token in line):  # a string of several lines
            continue
        text = " " * line[0].start[1] + "".join(_spaced(source, line))
        if len(text) <= WIDTH:
            lines[first : last + 1] = [text] + [None] * (last - first)
    return "\n".join(line for line in lines[1:] if line is not None)


def _spaced(source: Source, line: "list[tokenize.TokenInfo]") -> "Iterator[str]":
    """The tokens with the spaces between them, as they stand on one line."""
    before = line[0]
    yield before.string
    for at, token in enumerate(line[1:], 1):
        after = line[at + 1].string if at + 1 < len(line) else ""
        if token.start[0] == before.end[0]:
            yield " " * (token.start[1] - before.end[1])
        elif before.string not in tuple("([{") and token.string not in tuple(")]}"):
            yield " "
        ends_a_row = after in tuple(")]}") and line[at + 1].start[0] > token.end[0]
        if token.string != "," or not ends_a_row or _is_tuple_of_one(line, at):
            yield token.string
        before = token


def _is_tuple_of_one(line: "list[tokenize.TokenInfo]", comma: int) -> bool:
    """Whether the comma before a closing bracket makes the tuple."""
    depth, at = 0, comma
    while depth >= 0:
        at -= 1
        depth += line[at].string in tuple(")]}")
        depth -= line[at].string in tuple("([{")
        if depth == 0 and line[at].string == ",":
            return False
    is_call = at > 0 and _can_be_called(line[at - 1])
    return line[at].string == "(" and not is_call


def _can_be_called(token: "tokenize.TokenInfo") -> bool:
    """Whether a bracket behind it holds arguments."""
    if token.type == tokenize.NAME:
        return not keyword.iskeyword(token.string)
    return token.string in tuple(")]")
