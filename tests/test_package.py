# SPDX-License-Identifier: BSD-3-Clause
"""What makes the package fit to be vendored: see "Vendoring" in the README."""

import ast
import os
import subprocess
import sys
import zipfile

import pytest

from . import pidwait
from .processes import run_python

FOLDER = os.path.dirname(pidwait.__file__)
NAME = pidwait.__name__.rpartition(".")[2]


def sources():
    for folder, _, names in os.walk(FOLDER):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, FOLDER), file.read()


SOURCES = dict(sources())


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


def test_runs_from_a_zip(tmp_path):
    path = str(tmp_path / "app.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in SOURCES.items():
            archive.writestr("renamed/" + name.replace(os.sep, "/"), text)
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


def test_two_copies_in_one_process(tmp_path):
    for copy in ("one", "two"):
        for name, text in SOURCES.items():
            path = tmp_path / copy / "_vendor" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    code = """if True:
        import os, subprocess, sys
        import one._vendor as one, two._vendor as two
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        with one.Process(child.pid) as a, two.Process(child.pid) as b:
            assert a != b
            assert one.wait(b, 30) == two.wait(a, 30) == 3
            assert one.wait(child) == two.wait(child) == child.returncode == 3
        try:
            one.wait(os.getpid(), 0)
        except two.TimeoutExpired:
            raise SystemExit("one copy's exception is the other's")
        except TimeoutError:
            print("good")
    """
    done = run_python(code, env=dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert done.stdout == "good\n", done.stderr


def test_version():
    major, minor, patch = pidwait.__version__.split(".")
    assert major.isdigit() and minor.isdigit() and patch.isdigit()
    with_all = {name for name in dir(pidwait) if not name.startswith("_")}
    assert set(pidwait.__all__) <= with_all
