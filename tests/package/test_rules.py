# SPDX-License-Identifier: BSD-3-Clause
"""What makes the package fit to be copied under any name, and small enough to be read before."""

import ast
import inspect
import re
import subprocess
from pathlib import Path

import pytest

from .. import pidwait

NAME = pidwait.__name__.rpartition(".")[2]
LONGEST = 380


def imports(tree):
    """What a module imports: (level, module, name), also inside functions; not for types alone."""
    if isinstance(tree, ast.If) and getattr(tree.test, "id", "") == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        for alias in tree.names:
            yield 0, alias.name, None
    elif isinstance(tree, ast.ImportFrom):
        for alias in tree.names:
            yield tree.level, tree.module or "", alias.name
    for child in ast.iter_child_nodes(tree):
        for found in imports(child):
            yield found


def test_it_imports_itself_by_relative_imports(sources):
    for path, text in sources.items():
        wrong = [name for level, name, _ in imports(ast.parse(text)) if not level and NAME in name]
        assert wrong == [], path


@pytest.mark.filterwarnings("ignore:Attribute s is deprecated:DeprecationWarning")
def test_its_own_name_is_in_no_string(sources):
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            value = getattr(node, "s", None) if type(node).__name__ in ("Str", "Constant") else None
            assert not isinstance(value, str) or "pidwait" not in value, (path, value)


def test_every_file_names_its_licence_and_reads_no_file_of_the_package(sources):
    for path, text in sources.items():
        assert text.startswith("# SPDX-License-Identifier: BSD-3-Clause\n"), path
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert "__file__" not in names, path


def test_no_file_is_too_long_to_be_read_at_once(sources):
    lengths = {path: text.count("\n") for path, text in sources.items()}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST} == {}


def test_imports_have_no_circle(sources):
    modules = {
        ".".join(part for part in path[: -len(".py")].split("/") if part != "__init__"): path
        for path in sources
    }
    left = {}
    for module, path in modules.items():
        left[module] = own = set()
        parts = module.split(".") if module else []
        for level, name, attribute in imports(ast.parse(sources[path])):
            if level:
                up = level - path.endswith("__init__.py")
                base = parts[: len(parts) - up] + (name.split(".") if name else [])
                whole = ".".join(base + [attribute])
                own.add(whole if whole in modules else ".".join(base))
    del left[""]  # its __init__.py shows names of all
    left = {module: own - {"", module} for module, own in left.items()}
    assert len(left) > 30
    while left:
        free = [module for module, own in left.items() if not own & set(left)]
        assert free, {module: sorted(own & set(left)) for module, own in left.items()}
        for module in free:
            del left[module]


@pytest.fixture
def methods(sources):
    """{class: names of its methods}, of handles and pollers."""
    nodes = [node for text in sources.values() for node in ast.parse(text).body]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    found = [one for one in classes if one.name.endswith(("Handle", "Poller"))]
    assert len(found) > 10
    return {one.name: [part.name for part in one.body if hasattr(part, "args")] for one in found}


def test_handles_and_pollers_have_their_methods_in_one_order(methods):
    for name, own in methods.items():
        order = methods[name[-6:]]
        assert [one for one in own if one in order] == [one for one in order if one in own], name


def test_no_test_but_their_suite_knows_them_by_name(methods):
    """And the stand-in for kqueue."""
    names = re.compile(r"\b(%s)\b" % "|".join(set(methods) - {"Handle", "Poller"}))
    files = Path(__file__).resolve().parents[1].rglob("*.py")
    users = [path.parent.name for path in files if names.search(path.read_text(encoding="utf-8"))]
    assert sorted(users) == ["kqueue", "systems"]


def test_type_checkers_know_all_arguments_of_popen(sources):
    nodes = {getattr(node, "name", ""): node for node in ast.parse(sources["_types.py"]).body}
    known = {one.target.id for one in nodes["Start"].body}
    taken = set(inspect.signature(subprocess.Popen.__init__).parameters)
    assert taken - known == {"self", "args", "bufsize", "executable"}


def bound(statements, module):
    """(name, what it stands for) of what statements at the top of a module bind."""
    for one in statements:
        kind = type(one).__name__
        if kind in ("FunctionDef", "ClassDef", "AsyncFunctionDef"):
            yield one.name, module
        elif kind == "Import":
            for alias in one.names:
                yield alias.asname or alias.name, alias.name
        elif kind == "ImportFrom":
            for alias in one.names:
                # A name of ours is the same in all modules.
                assert not (one.level and alias.asname), (module, alias.asname)
                if not one.level:
                    yield alias.asname or alias.name, (one.module, alias.name)
        elif kind in ("Assign", "AnnAssign"):
            for target in one.targets if kind == "Assign" else [one.target]:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        yield node.id, ast.dump(one.value) if kind == "Assign" else module
        elif kind == "If" and getattr(one.test, "id", "") == "TYPE_CHECKING":
            for found in bound(one.orelse, module):
                yield found
        elif kind in ("If", "Try"):
            for found in bound(one.body + one.orelse, module):
                yield found


def test_a_name_at_the_top_of_modules_stands_for_one_thing(sources):
    """So that they can be joined as they are: see the command vendor."""
    left_out = ("_types", "aio", "_loop", "subprocess", "_trees/", "__")
    left_out += ("cli/run", "cli/choose", "cli/vendor")
    meanings = {}
    for path, text in sources.items():
        if not path.startswith(left_out):
            for name, meaning in bound(ast.parse(text).body, path):
                meanings.setdefault(name, {}).setdefault(path, set()).add(meaning)
    assert len(meanings) > 300
    several = [name for name, found in meanings.items() if len(set(map(str, found.values()))) > 1]
    assert {name: meanings[name] for name in several} == {}


# Beside Failed, BaseException (for what is raised again) and not_by_handler(): an error of a C
# function, told by its traceback; what only asyncio raises; an import; in a thread of its own.
EXCEPTS = {
    "_base/errors.py": {"OSError"},
    "_systems/posix.py": {"OSError"},
    "_waiting/core.py": {"UnsupportedOperation"},
    "_starting/spawn.py": {"ImportError"},
    "_loop.py": {"StopIteration"},
    "aio.py": {"CancelledError"},
}


def test_no_except_takes_what_a_signal_handler_has_raised(sources):
    """But in the command line, whose only handlers are its own, and in the keeper."""
    found = {}
    for path, text in sources.items():
        if not path.startswith(("cli/", "_trees/keeper")):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ExceptHandler):
                    several = getattr(node.type, "elts", [node.type])
                    names = {getattr(one, "id", getattr(one, "attr", "a call")) for one in several}
                    function = getattr(node.type, "func", None)
                    if "not_by_handler" in (getattr(function, name, "") for name in ("id", "attr")):
                        continue
                    found.setdefault(path, set()).update(names - {"Failed", "BaseException"})
    assert {path: names for path, names in found.items() if names} == EXCEPTS
