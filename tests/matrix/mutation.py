# SPDX-License-Identifier: BSD-3-Clause
"""The small changes of a module's code that ought to turn a test red, by its syntax tree.

Code that does not run on Linux is left alone, and so is what nobody relies on: the logged lines,
the messages of errors, __repr__, annotations.
"""

import ast
import difflib
import re
from collections import namedtuple
from pathlib import PurePosixPath

# A module is another system's if one of the words of its path is here.
OTHER_SYSTEMS = set(
    "bsd darwin kqueue kqueues macos ps "
    "console kernel32 toolhelp win32 winapi windows winset".split()
)
# What a test of the system is on Linux.
ON_LINUX = {
    "os.name == 'nt'": False,
    "os.name != 'nt'": True,
    "sys.platform == 'win32'": False,
    "sys.platform != 'win32'": True,
    "sys.platform == 'linux'": True,
    "sys.platform.startswith(('linux', 'android'))": True,
    "WINDOWS": False,
    "_WINDOWS": False,
    "TYPE_CHECKING": False,
}
SWAPPED = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
UNREAD = {"__all__", "__slots__", "__version__"}


class Mutation(namedtuple("Mutation", "file start end by source")):
    """In ``source``, that of ``file``, the bytes from ``start`` to ``end`` become ``by``."""

    @property
    def result(self):
        return self.source[: self.start] + self.by + self.source[self.end :]

    @property
    def line(self):
        return self.source.count(b"\n", 0, self.start) + 1

    @property
    def change(self):
        """The lines before and after, by which it is known wherever they move in the file."""
        first = self.source.rfind(b"\n", 0, self.start) + 1
        last = self.source.find(b"\n", self.end)
        last = len(self.source) if last < 0 else last
        new = self.source[first : self.start] + self.by + self.source[self.end : last]
        return self.source[first:last].decode().strip(), new.decode().strip()

    @property
    def diff(self):
        old, new = self.source.decode().splitlines(), self.result.decode().splitlines()
        lines = list(difflib.unified_diff(old, new, lineterm="", n=2))
        return "\n".join(lines[2:])  # without the names of the files


def on_linux(test):
    """What a condition is on every Linux, or None if that depends."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = on_linux(test.operand)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.Or)
        return decides if decides in map(on_linux, test.values) else None
    return ON_LINUX.get(ast.unparse(test))


def is_log(call):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("log", "_log")


def is_constant(node):
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


class Finder(ast.NodeVisitor):
    def __init__(self, source):
        self.source = source
        self.lines = [0]
        for line in source.splitlines(True):
            self.lines.append(self.lines[-1] + len(line))
        self.in_handler = False
        self.found = []  # (start, end, by)

    def start(self, node):
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node):
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def replace(self, node, by):
        self.found.append((self.start(node), self.end(node), by.encode()))

    def replace_operator(self, left, operator, right):
        """The operator is all that stands between its operands, but for parentheses."""
        pattern, by = SWAPPED[type(operator)]
        begin = self.end(left)
        between = self.source[begin : self.start(right)].decode()
        match = re.search(r"(?<!\w){}(?!\w)".format(pattern), between)
        self.found.append((begin + match.start(), begin + match.end(), by.encode()))

    def replace_guard(self, test, *values):
        if not isinstance(test, ast.Constant):
            for value in values:
                self.replace(test, value)

    def generic_visit(self, node):
        for _, value in ast.iter_fields(node):
            self.visit_all(value if isinstance(value, list) else [value])

    def visit_all(self, nodes):
        for node in nodes:
            if isinstance(node, ast.AST):
                self.visit(node)
            if (
                isinstance(node, ast.If)
                and on_linux(node.test)
                and isinstance(node.body[-1], (ast.Return, ast.Raise))
            ):
                break  # the rest is other systems'

    def visit_FunctionDef(self, node):
        if node.name == "__repr__":
            return
        self.visit_all(node.args.defaults + node.args.kw_defaults)
        outer, self.in_handler = self.in_handler, False
        self.visit_all(node.body)
        self.in_handler = outer

    def visit_ClassDef(self, node):
        self.visit_all(node.body)

    def visit_AnnAssign(self, node):
        self.visit_all([node.value])

    def visit_Assign(self, node):
        if not any(getattr(target, "id", None) in UNREAD for target in node.targets):
            self.generic_visit(node)

    def visit_If(self, node):
        value = on_linux(node.test)
        if value is None:
            self.replace_guard(node.test, "True", "False")
            self.visit(node.test)
        # Of an IfExp these are no lists.
        for branch in [node.body, node.orelse][value is False : 1 if value else 2]:
            self.visit_all(branch if isinstance(branch, list) else [branch])

    visit_IfExp = visit_If

    def visit_While(self, node):
        self.replace_guard(node.test, "False")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node):
        outer, self.in_handler = self.in_handler, True
        self.visit_all(node.body)
        self.in_handler = outer

    def visit_Raise(self, node):
        if self.in_handler:
            self.replace(node, "pass")

    def visit_Return(self, node):
        if node.value is not None and ast.unparse(node.value) != "None":
            self.replace(node.value, "None")
            self.visit(node.value)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call) and not is_log(node.value):
            self.replace(node, "pass")
        self.visit(node.value)

    def visit_Call(self, node):
        if not is_log(node):
            self.generic_visit(node)

    def visit_Compare(self, node):
        left = node.left
        self.visit(left)
        for operator, right in zip(node.ops, node.comparators):
            self.replace_operator(left, operator, right)
            # `is 0` would be a SyntaxWarning.
            if not (isinstance(operator, (ast.Is, ast.IsNot)) and is_constant(right)):
                self.visit(right)
            left = right

    def visit_BoolOp(self, node):
        for left, right in zip(node.values, node.values[1:]):
            self.replace_operator(left, node.op, right)
        self.visit_all(node.values)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            start = self.start(node)
            end = re.compile(rb"not[ \t]*").match(self.source, start).end()
            self.found.append((start, end, b""))
        self.visit(node.operand)

    def visit_Constant(self, node):
        value = node.value
        if value is None:
            self.replace(node, "0")
        elif isinstance(value, bool):
            self.replace(node, str(not value))
        elif isinstance(value, (int, float)):
            for other in value + 1, value - 1:
                self.replace(node, "({})".format(other) if other < 0 else str(other))

    def visit_JoinedStr(self, node):
        """Before 3.12, what is in it has no place of its own."""


def words(file):
    """Those that the path of a module is made of."""
    return re.findall("[a-z0-9]+", str(PurePosixPath(file).with_suffix("")).lower())


def mutations(file, source):
    """All of one module, in its order."""
    finder = Finder(source)
    finder.visit(ast.parse(source))
    return [Mutation(file, *found, source) for found in sorted(finder.found)]


def linux_mutations(package):
    """All of the folder ``package``, but for the modules of other systems."""
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        if not OTHER_SYSTEMS.intersection(words(file)):
            found += mutations(file, path.read_bytes())
    return found
