# SPDX-License-Identifier: BSD-3-Clause
"""What makes the package fit to be vendored: see "Vendoring" in the README."""

import ast
import importlib
import logging
import os
import subprocess
import sys
import zipfile

import pytest

from . import pidwait
from .copies import SOURCES
from .processes import run_python

NAME = pidwait.__name__.rpartition(".")[2]


@pytest.fixture(params=sorted(SOURCES))
def source(request):
    return SOURCES[request.param]


def test_imports_of_itself_are_relative(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.startswith(NAME)]
        elif isinstance(node, ast.ImportFrom):
            assert node.level or not node.module.startswith(NAME)


def strings(tree):
    for node in ast.walk(tree):
        value = getattr(node, "s", None) if type(node).__name__ in ("Str", "Constant") else None
        if isinstance(value, str):
            yield value


@pytest.mark.filterwarnings("ignore:Attribute s is deprecated:DeprecationWarning")
def test_its_name_is_in_no_string(source):
    assert [text for text in strings(ast.parse(source)) if "pidwait" in text] == []


def test_every_file_has_its_licence(source):
    assert source.startswith("# SPDX-License-Identifier: BSD-3-Clause\n")


def test_no_file_of_its_own_is_read(source):
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert "__file__" not in names


def test_import_loads_nothing_heavy():
    code = """if True:
        import sys
        before = set(sys.modules)
        import {}
        heavy = "ctypes cffi _cffi_backend typing subprocess asyncio logging threading signal"
        print(sorted(set(heavy.split()) & (set(sys.modules) - before)))
    """
    done = run_python(code.format(pidwait.__name__))
    assert done.stdout == "[]\n", done.stderr


def test_classes_and_messages_are_the_packages(caplog):
    """What a traceback, a pickle and the logging configuration name."""
    classes = [one for one in map(pidwait.__dict__.get, pidwait.__all__) if isinstance(one, type)]
    assert classes and {one.__module__ for one in classes} == {pidwait.__name__}
    with caplog.at_level(logging.INFO):
        importlib.import_module(pidwait.__name__ + "._errors").log("%s", "a message")
    assert caplog.record_tuples == [(pidwait.__name__, logging.INFO, "a message")]


def test_main_module_can_be_imported():
    importlib.import_module(pidwait.__name__ + ".__main__")


def test_runs_from_a_zip(tmp_path):
    path = str(tmp_path / "app.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in SOURCES.items():
            archive.writestr("renamed/" + name, text)
        archive.writestr("__main__.py", "import renamed; print(renamed.wait(%d))" % os.getpid())
    env = dict(os.environ, PYTHONPATH=path)
    done = subprocess.run(
        [sys.executable, "-m", "renamed", "-v", "-t", "0", str(os.getpid())],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert done.returncode == 124, done
    assert "renamed: the time was up" in done.stderr
    assert "still running" in done.stdout


def test_version():
    major, minor, patch = pidwait.__version__.split(".")
    assert major.isdigit() and minor.isdigit() and patch.isdigit()
    with_all = {name for name in dir(pidwait) if not name.startswith("_")}
    assert set(pidwait.__all__) <= with_all


# Which module imports which


def modules():
    """(name, path, source) of each module; names are relative to the package."""
    for path, text in SOURCES.items():
        parts = path[: -len(".py")].split("/")
        yield ".".join(part for part in parts if part != "__init__"), path, text


MODULES = {name: text for name, _, text in modules()}
FOLDERS = {name for name, path, _ in modules() if path.endswith("__init__.py")}
PATHS = {name: path for name, path, _ in modules()}


def is_for_types(node):
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def nodes(tree):
    """All nodes that run, also those inside functions."""
    if not is_for_types(tree):
        yield tree
        for child in ast.iter_child_nodes(tree):
            for node in nodes(child):
                yield node
        return
    for child in tree.orelse:
        for node in nodes(child):
            yield node


def imports(name):
    """Two sets: modules of the package by their names, others by the first part of their names."""
    own, others = set(), set()
    for node in nodes(ast.parse(MODULES[name])):
        if isinstance(node, ast.Import):
            others |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            others.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".") if name else []
            up = node.level - (name in FOLDERS)
            base = parts[: len(parts) - up] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                whole = ".".join(base + [alias.name])
                own.add(whole if whole in MODULES else ".".join(base))
    return own, others


IMPORTS = {name: imports(name) for name in MODULES}


def test_imports_have_no_circle():
    # The package's __init__.py only shows names of its modules.
    left = {name: own - {"", name} for name, (own, _) in IMPORTS.items() if name}
    assert len(left) > 40
    while left:
        free = [name for name, own in left.items() if not own & set(left)]
        assert free, "a circle: %s" % {name: sorted(own & set(left)) for name, own in left.items()}
        for name in free:
            del left[name]


# Errors by which the system answers. A signal handler can raise any of them, at any line.
ANSWERS = """
OSError ProcessLookupError ChildProcessError FileNotFoundError PermissionError TimeoutError
InterruptedError Exception BaseException TimeoutExpired _TimeoutExpired
""".split()
# Each of them raises again what a signal handler has raised; or the error is passed on to it.
ASK = """
raise_of_handler _raise_of_handler pass_over is_of_signal_handler
_open_polled _why_not_opened without_waitid _after
""".split()
# Where no handler but Python's own runs, and it raises KeyboardInterrupt: in our own programs. And
# on Windows, where handlers run between two calls, but Ctrl-C's for the most part.
OTHERS = "cli/", "_vendoring/", "_backends/win32", "_backends/polled_win32"
# {file: the exceptions that are caught there on purpose}
CAUGHT = {"watching.py": ["BaseException"]}  # of a callback: it is shown, and the thread goes on


def caught(handler):
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {getattr(kind, "id", None) for kind in kinds}


def asks(handler):
    """Whether it asks if a signal handler has raised the error, or raises each one again."""
    last = handler.body[-1]
    return (isinstance(last, ast.Raise) and last.exc is None) or any(
        isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", None)) in ASK
        for node in ast.walk(handler)
    )


def test_no_error_of_a_signal_handler_is_taken_for_an_answer():
    wrong = []
    for file, text in SOURCES.items():
        if file.startswith(OTHERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and not asks(node):
                wrong += [
                    "%s:%d" % (file, node.lineno)
                    for name in caught(node) & set(ANSWERS)
                    if name not in CAUGHT.get(file, ())
                ]
    assert wrong == []


CORE = (
    "process waiting watching _engine _targets _checks _deadline _outcome _fork _fd _guard _errors "
    "_parts _config _highfds _combined _kinds _waitset _queue _handle _turn _generic"
).split()
CORE_FOLDERS = "_backends", "_sources", "_ffi"
OUTSIDE = set(
    "spawning _child _posix_spawn _spawn_actions _hooks _popen_start subprocess cli aio listing "
    "_probe __main__ _loops _child_watcher".split()
)
# On macOS and the BSDs it runs ps(1), which needs subprocess.
RUNS_PS = "_sources.ps"


def in_core(name):
    return name in CORE or name.partition(".")[0] in CORE_FOLDERS


def test_waiting_core_stands_alone():
    core = [name for name in MODULES if in_core(name)]
    assert set(CORE) <= set(core)
    wrong = {(name, one) for name in core for one in IMPORTS[name][0] if not in_core(one)}
    assert wrong == set()
    assert not {name for name in core if name.partition(".")[0] in OUTSIDE}


def test_backends_know_nothing_of_what_uses_them():
    below = [name for name in MODULES if name.partition(".")[0] in CORE_FOLDERS]
    above = set("process waiting watching _engine _targets _guard".split()) | OUTSIDE
    for name in below:
        own, others = IMPORTS[name]
        assert not {one.partition(".")[0] for one in own} & above, name
        forbidden = {"asyncio", "argparse", "subprocess", "concurrent", "multiprocessing"}
        assert others & forbidden <= ({"subprocess"} if name == RUNS_PS else set()), name


def test_no_public_name_is_that_of_a_module():
    """`from . import name` would give the module or the object, depending on what is loaded."""
    shown = {node.name for node in ast.parse(MODULES[""]).body if hasattr(node, "name")}
    for node in ast.parse(MODULES[""]).body:
        if isinstance(node, ast.ImportFrom):
            shown |= {alias.asname or alias.name for alias in node.names}
    assert shown and not shown & {name for name in MODULES if "." not in name}
    for folder in FOLDERS - {""}:
        defined = {getattr(node, "name", "") for node in ast.parse(MODULES[folder]).body}
        inside = {name[len(folder) + 1 :] for name in MODULES if name.startswith(folder + ".")}
        assert not defined & inside, folder


def test_files_are_short():
    long = {path: len(text.splitlines()) for path, text in SOURCES.items()}
    assert {path: lines for path, lines in long.items() if lines > 350} == {}
