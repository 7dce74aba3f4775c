# SPDX-License-Identifier: BSD-3-Clause
"""The docstrings of the public names: what pydoc shows of them, and their examples."""

import asyncio
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import types

import pytest

from . import pidwait
from .processes import run_python

drop_in = importlib.import_module(pidwait.__name__ + ".subprocess")
aio = importlib.import_module(pidwait.__name__ + ".aio")
PLACES = [(pidwait, name) for name in pidwait.__all__] + [(drop_in, "patch"), (drop_in, "unpatch")]
PLACES += [(aio, name) for name in ("wait", "wait_procs", "as_completed", "spawn")]


def describe(place):
    return place.__name__.rpartition(".")[2] if inspect.ismodule(place) else place


def run(coroutine):
    """asyncio.run(), which is in Python from 3.7 on."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.mark.parametrize("module, name", PLACES, ids=describe)
def test_examples(module, name):
    docstring = getattr(module, name).__doc__
    lines = docstring.splitlines()
    assert 6 <= len(lines) <= 25 or module is drop_in, len(lines)
    # As after `from ... import *`: no example names the package, which may be a vendored copy.
    names = {name: getattr(module, name) for name in module.__all__}
    if module is aio:
        names["asyncio"] = types.SimpleNamespace(run=run, wait_for=asyncio.wait_for)
    test = doctest.DocTestParser().get_doctest(docstring, names, name, None, None)
    assert test.examples
    runner = doctest.DocTestRunner(verbose=False)
    output = []
    runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)


def pydoc(name):
    done = run_python("import pydoc, sys; pydoc.cli()", name)
    assert done.stderr == ""
    return done.stdout


def sections(text):
    """heading: what stands below it."""
    parts = re.split(r"(?m)^([A-Z]+(?: [A-Z]+)*)$\n", text)
    return dict(zip(parts[1::2], parts[2::2]))


def test_pydoc_shows_public_names_only():
    text = pydoc(pidwait.__name__).replace(pidwait.__name__, "package")
    shown = sections(text)
    classes = re.findall(r"(?m)^    class (\w+)", shown["CLASSES"])
    functions = re.findall(r"(?m)^    (\w+)\(", shown["FUNCTIONS"])
    data = re.findall(r"(?m)^    (\w+) = ", shown["DATA"])
    assert sorted(classes + functions) == sorted(pidwait.__all__)
    assert data == ["__all__"]
    # Modules with leading underscores are among the contents, as in every package.
    del shown["PACKAGE CONTENTS"], shown["FILE"]
    private = {name for part in shown.values() for name in re.findall(r"\b_[A-Za-z]\w*", part)}
    assert private == set()


def test_pydoc_of_each_name():
    names = [pidwait.__name__ + "." + name for name in pidwait.__all__]
    done = run_python("import pydoc, sys; print(*map(pydoc.render_doc, sys.argv[1:]))", *names)
    assert done.stderr == ""
    for name in pidwait.__all__:
        first = getattr(pidwait, name).__doc__.splitlines()[0]
        assert first in done.stdout


def test_public_classes_belong_to_the_package():
    # So they are called in tracebacks and by pickle.
    classes = [getattr(pidwait, name) for name in pidwait.__all__]
    classes = [cls for cls in classes if isinstance(cls, type)]
    assert {cls.__module__ for cls in classes} == {pidwait.__name__}
    code = "from {0} import TimeoutExpired as E; raise E(7, 1)".format(pidwait.__name__)
    done = run_python(code)
    last = "{}.TimeoutExpired: process 7 was still running after 1 seconds\n"
    assert done.stderr.endswith(last.format(pidwait.__name__))


def test_dir_shows_no_private_names():
    names = [name for name in dir(pidwait) if not re.match(r"__\w+__$", name)]
    assert not [name for name in names if name.startswith("_")]
    assert not {"TYPE_CHECKING", "sys"} & set(names)
    assert set(pidwait.__all__) <= set(names)


def test_classes_take_types():
    if sys.version_info >= (3, 7):
        assert pidwait.WaitSet[int] is pidwait.WaitSet
        assert pidwait.Watch[subprocess.Popen] is pidwait.Watch
