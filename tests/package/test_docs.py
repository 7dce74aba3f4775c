# SPDX-License-Identifier: BSD-3-Clause
"""What the README and the docstrings show and say, as it stands there."""

import asyncio
import code
import configparser
import importlib
import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from .. import docs, pidwait
from ..processes import WINDOWS, run_python
from .recipes import with_our_name

ROOT = Path(__file__).resolve().parents[2]
README, API = ROOT / "README.md", ROOT / "tests" / "API.md"
WORKFLOWS = ROOT / ".github" / "workflows"
TEXT = README.read_text(encoding="utf-8")

drop_in = importlib.import_module(pidwait.__name__ + ".subprocess")
aio = importlib.import_module(pidwait.__name__ + ".aio")
PLACES = [(pidwait, name) for name in pidwait.__all__] + [(drop_in, "patch"), (drop_in, "unpatch")]
PLACES += [
    (aio, name) for name in ("wait", "wait_procs", "as_completed", "end_procs", "run", "spawn")
]

without_docstrings = pytest.mark.skipif(sys.flags.optimize > 1, reason="-OO takes them away")
sh_and_sleep = pytest.mark.skipif(WINDOWS, reason="Windows has no sh and sleep")


def describe(place):
    return place.__name__.rpartition(".")[2] if inspect.ismodule(place) else place


@without_docstrings
@pytest.mark.parametrize("module, name", PLACES, ids=describe)
def test_each_name_has_an_example_and_a_short_text(module, name):
    docstring = getattr(module, name).__doc__
    assert ">>> " in docstring
    assert 6 <= len(docstring.splitlines()) <= 25 or module is drop_in


def blocks(page, language):
    """(what comes before it, the block) of the page."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"(?ms)^```%s\n(.*?)^```" % language, text)
    return list(zip(parts[0::2], parts[1::2]))


def sessions():
    for page in README, API:
        for before, block in blocks(page, "pycon"):
            yield pytest.param(block, id=re.findall("#+ ([^(\n]+)", before)[-1])


@sh_and_sleep
@pytest.mark.parametrize("session", list(sessions()))
def test_an_example_runs_as_it_stands_when_it_is_pasted(session, capsys):
    if "# Python 3.7 or newer" in session and not hasattr(asyncio, "run"):
        pytest.skip("it says that it needs Python 3.7")
    interpreter, shown = code.InteractiveConsole({"__name__": "__main__"}), []
    for line in with_our_name(session).splitlines():
        if line[:3] in (">>>", "..."):
            interpreter.push(line[4:])
        else:
            shown.append(line + "\n")
    out, err = capsys.readouterr()
    assert (out, err) == ("".join(shown), "")


@without_docstrings
def test_pydoc_shows_the_public_names_only():
    if not hasattr(types, "resolve_bases") and not hasattr(pidwait.__spec__.loader, "path"):
        pytest.skip("before Python 3.7, inspect finds no source of classes in a zip")
    done = run_python("import pydoc; pydoc.cli()", pidwait.__name__)
    assert done.stderr == ""
    text = done.stdout.replace(pidwait.__name__, "package")
    parts = re.split(r"(?m)^([A-Z]+(?: [A-Z]+)*)$\n", text)
    shown = dict(zip(parts[1::2], parts[2::2]))
    classes = re.findall(r"(?m)^    class (\w+)", shown["CLASSES"])
    functions = re.findall(r"(?m)^    (\w+)\(", shown["FUNCTIONS"])
    assert sorted(classes + functions) == sorted(pidwait.__all__)
    assert re.findall(r"(?m)^    (\w+) = ", shown["DATA"]) == ["__all__"]
    # Modules with leading underscores are among the contents, as in every package.
    del shown["PACKAGE CONTENTS"], shown["FILE"]
    shown["CLASSES"] = re.sub(
        r" {4}class Usage.*?(?=\n {4}class )", "", shown["CLASSES"], flags=re.S
    )
    assert not [part for part in shown.values() if re.search(r"\b_[A-Za-z]\w*", part)]
    for name in pidwait.__all__:
        assert getattr(pidwait, name).__doc__.splitlines()[0] in text


def test_what_type_checkers_need_is_there_at_run_time():
    used = set(re.findall(r"\bpidwait\.(\w+)", ROOT.joinpath("tests/types/right.py").read_text()))
    assert used == set(pidwait.__all__) | {"__version__"}
    for generic in pidwait.WaitSet, pidwait.Watch:
        if hasattr(types, "resolve_bases"):  # Python 3.7, PEP 560
            assert generic[int] is generic


@sh_and_sleep
@pytest.mark.parametrize("before, block", blocks(README, "console"), ids=lambda block: block[2:9])
def test_the_commands_of_the_readme(before, block, tmp_path):
    if pidwait.probe()["backend"] != "pidfd":
        pytest.skip("it shows what Linux offers from 5.3 on")
    command, shown = block[len("$ ") :].split("\n", 1)
    (tmp_path / "python3").symlink_to(sys.executable)
    path = str(tmp_path) + os.pathsep + os.environ["PATH"]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PATH=path)
    for seconds in ("2", "10", "60"):  # on a busy machine our interpreter may start too late
        slower = with_our_name(command).replace("sleep 2", "sleep " + seconds)
        process = subprocess.Popen(["sh", "-c", slower], env=env, stdout=subprocess.PIPE)
        printed = process.communicate()[0].decode()
        if process.returncode == 0:
            break
    assert process.returncode == 0
    # A pid, a time and a binding can be others; … stands for what is left out.
    pattern = re.escape(shown.strip())
    for other, any_of_them in (
        (r"^\d{4}|\d+\\\.\d{3}", r"[\\d.]+"),
        (r"\\\((os|signal|fcntl)\\\)", r"\\(\\w+\\)"),
        (r"\\?…", ".*"),
    ):
        pattern = re.sub(other, any_of_them, pattern, flags=re.M)
    assert re.match(pattern + r"\Z", printed.strip(), re.S), printed


def test_each_name_that_the_readme_calls_is_there():
    names = set(re.findall(r"pidwait\.([A-Za-z_]+)[(`]", TEXT))
    assert {"wait", "wait_procs", "WaitSet", "watch", "spawn"} <= names
    assert names - {"subprocess"} <= set(pidwait.__all__)
    for name in re.findall(r"`[Pp]rocess\.([a-z_]+)", TEXT):
        assert hasattr(pidwait.Process, name)


@pytest.mark.parametrize("page", sorted(map(str, [README, *ROOT.joinpath("tests").glob("*.md")])))
def test_links_lead_to_files(page):
    page = Path(page)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_readme_can_be_read_in_a_few_minutes():
    assert len(TEXT.split()) <= 900


@without_docstrings
def test_the_page_of_the_api_is_that_of_the_docstrings():
    assert docs.main(["--check"]) == 0


def test_the_versions_that_are_tested_are_the_classifiers():
    pyproject, tox = (ROOT.joinpath(name).read_text() for name in ("pyproject.toml", "tox.ini"))
    tested = set(re.findall(r"(?m)^py3(\d+)[\w-]* = ", tox))
    classified = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', pyproject)
    assert classified == sorted(tested, key=int)
    (lowest,) = re.findall(r'(?m)^requires-python = ">=3\.(\d+)"$', pyproject)
    assert classified[0] == lowest
    workflow = WORKFLOWS.joinpath("tests.yml").read_text()
    assert set(re.findall(r'"3\.(\d+)"', workflow)) == tested


def test_the_workflows_run_what_contributing_says():
    """And commands that install an interpreter on a BSD. What `landing` runs, tox.ini has."""
    text = "".join(path.read_text() for path in WORKFLOWS.glob("*.yml"))
    lines = re.findall(r"(?m)^ +(?:- )?run: (?!sudo )(.+)$", text)
    page = WORKFLOWS.with_name("CONTRIBUTING.md").read_text(encoding="utf-8")
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(str(ROOT / "tox.ini"))
    assert len(lines) == 5
    for line in lines:
        command, landing, names = line.partition(" landing ")
        assert "`%s`" % (command + landing.rstrip()) in page
        assert set(names.split()) <= set(tox["landing"])
