# SPDX-License-Identifier: BSD-3-Clause
"""Small changes of a module's code, found in its syntax tree, that ought to make a test fail.

Code and tables for other systems are left alone, and so is what nobody relies on: log lines,
messages of errors, __repr__, annotations.
"""

import ast
import difflib
import re
from collections import namedtuple
from pathlib import PurePosixPath

# What has one of these words in a module's path, in the name of a class, a function or a variable,
# or as a key, is another system's.
OTHER_SYSTEMS = set(
    "bsd darwin dragonfly freebsd kqueue kqueues macos netbsd openbsd ps "
    "advapi32 console kernel32 toolhelp win32 winapi windows winset".split()
)
OTHER_FILES = {"_backends/queue.py", "_ffi/advapi32.py", "_handle.py"}  # kqueue's, Windows'
# The value of conditions on the system, on Linux and a little-endian processor. A big-endian one
# has an environment of its own.
ON_LINUX = {
    "os.name == 'nt'": False,
    "os.name != 'nt'": True,
    "sys.platform == 'win32'": False,
    "sys.platform != 'win32'": True,
    "sys.platform == 'linux'": True,
    "sys.platform.startswith(('linux', 'android'))": True,
    "_ffi.PLATFORM in ('linux', 'android')": True,
    "bsd.system() is None": True,
    "bsd.system() is not None": False,
    "sys.byteorder == 'big'": False,
    "system is None": True,
    "system is not None": False,
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
UNREAD = {"TYPE_CHECKING", "__all__", "__slots__", "__version__"}


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
        """The old and the new line, which identify the mutation wherever it moves in the file."""
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
    """The value of a condition on every Linux, or None if it depends."""
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


def is_removal(call):
    """Whether it is x.pop(key, None): as a statement, only its key counts."""
    return getattr(call.func, "attr", "") == "pop" and len(call.args) == 2


def is_constant(node):
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


class Finder(ast.NodeVisitor):
    def __init__(self, source):
        self.source = source
        self.lines = [0]
        for line in source.splitlines(True):
            self.lines.append(self.lines[-1] + len(line))
        self.in_handler = False
        self.is_predicate = False  # a function that returns nothing but a bool
        self.found = []  # (start, end, by)

    def start(self, node):
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node):
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def replace(self, node, by):
        self.found.append((self.start(node), self.end(node), by.encode()))

    def replace_operator(self, left, operator, right):
        """Between the operands there is nothing but the operator and parentheses."""
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
                break  # the rest is for other systems

    def visit_FunctionDef(self, node):
        if node.name == "__repr__" or is_others(node.name):
            return
        self.visit_all(node.args.defaults + node.args.kw_defaults)
        outer = self.in_handler, self.is_predicate
        self.in_handler = False
        self.is_predicate = node.returns is not None and ast.unparse(node.returns) == "bool"
        self.visit_all(node.body)
        self.in_handler, self.is_predicate = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node):
        if not is_others(node.name):
            self.visit_all(node.body)

    def visit_AnnAssign(self, node):
        self.visit_all([node.value])

    def visit_Assign(self, node):
        names = [getattr(target, "id", "") for target in node.targets]
        if not any(name in UNREAD or is_others(name) for name in names):
            self.generic_visit(node)

    def visit_Dict(self, node):
        for key, value in zip(node.keys, node.values):
            if not is_others(getattr(key, "value", None)):
                self.visit_all([key, value])

    def visit_If(self, node):
        value = on_linux(node.test)
        if value is None:
            self.replace_guard(node.test, "True", "False")
            self.visit(node.test)
        # In an IfExp these are not lists.
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
        text = "None" if node.value is None else ast.unparse(node.value)
        if text != "None":
            if not (self.is_predicate and text == "False"):  # None is false, too
                self.replace(node.value, "None")
            self.visit(node.value)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call) and not is_log(node.value):
            self.replace(node, "pass")
            if is_removal(node.value):
                self.visit_all([node.value.func, node.value.args[0]])
                return
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
        """Before Python 3.12 what is inside it has no position of its own."""


def words(file):
    """The words in the path of a module."""
    return re.findall("[a-z0-9]+", str(PurePosixPath(file).with_suffix("")).lower())


def is_others(name):
    """Whether something of that name is for other systems."""
    parts = re.findall("[A-Z]*[a-z0-9]*", name) if isinstance(name, str) else ()
    return not OTHER_SYSTEMS.isdisjoint(part.lower() for part in parts)


def mutations(file, source):
    """All mutations of one module, in the order of its code."""
    finder = Finder(source)
    finder.visit(ast.parse(source))
    return [Mutation(file, *found, source) for found in sorted(finder.found)]


def linux_mutations(package):
    """All mutations of the folder ``package``, without the modules of other systems."""
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        if file not in OTHER_FILES and not OTHER_SYSTEMS.intersection(words(file)):
            found += mutations(file, path.read_bytes())
    return found
