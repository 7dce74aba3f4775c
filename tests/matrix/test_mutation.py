# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the tool that makes random mutants, run by the tox environment `mutants`."""

import fcntl
import shutil
import sys
import textwrap
import time

import pytest

from ..mutants import equivalent
from ..mutants.equivalent import EQUIVALENT, Equivalent
from . import random_mutants
from . import trees as trees_module
from .lines import Lines, environment
from .mutation import linux_mutations, mutations
from .random_mutants import QUICK, Result, killer, report, run_all, sample, stages
from .trees import ROOT, Trees, run

PACKAGE = ROOT / "pidwait"

TOY = """
    def later(a, b):
        if a is None:
            return 3
        return a > b and not b
"""
TOY_TESTS = """
    from pidwait import later

    def test_later():
        assert later(None, 1) == 3
        assert later(2, 0)
        assert not later(0, 1)
"""
TOY_FAULTS = """
    from pidwait import later

    def test_fault():
        assert not later(2, 1)
"""
RECORDED = """
    A = 1
    def later(a):
        if a:
            return A
        return 2
"""[1:]
RECORDED_TESTS = """
    import subprocess, sys
    from pidwait import later

    def test_one():
        assert later(1) == 1

    def test_other():
        assert later(0) == 2

    def test_child():
        subprocess.check_call([sys.executable, "-c", "import pidwait; pidwait.later(1)"])
"""


def changes(source, file="toy.py"):
    source = textwrap.dedent(source).strip() + "\n"
    return {each.change for each in mutations(file, source.encode())}


@pytest.fixture(scope="module")
def ours():
    return linux_mutations(PACKAGE)


@pytest.fixture
def toy(tmp_path):
    """toy(source, tests) makes a tree of a package and a test module with these texts."""

    def make(source, tests):
        for folder in "pidwait", "tests":
            tmp_path.joinpath(folder).mkdir()
        tmp_path.joinpath("pidwait/__init__.py").write_text(textwrap.dedent(source))
        tmp_path.joinpath("tests/__init__.py").touch()
        tmp_path.joinpath("tests/test_toy.py").write_text(textwrap.dedent(tests))
        tmp_path.joinpath("tests/matrix").mkdir()
        for name in "skips.py", "matrix/__init__.py", "matrix/lines.py":
            shutil.copy(str(ROOT / "tests" / name), str(tmp_path / "tests" / name))
        shutil.copy(str(ROOT / "pyproject.toml"), str(tmp_path))
        return tmp_path

    return make


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a == b", {"a != b"}),
        ("a < b <= c", {"a <= b <= c", "a < b < c"}),
        ("(a) is not (b)", {"(a) is (b)"}),
        ("a not in b", {"a in b"}),
        ("a is None", {"a is not None"}),
        ("a and b and c", {"a or b and c", "a and b or c"}),
        ("a = not b", {"a = b"}),
        ("a = not(b)", {"a = (b)"}),
        ("a = 0", {"a = 1", "a = (-1)"}),
        ("a = True", {"a = False"}),
        ("a = None", {"a = 0"}),
        ("a = b if c else d", {"a = b if True else d", "a = b if False else d"}),
        (
            "def f(a: 'int' = 1) -> 'int': ...",
            {"def f(a: 'int' = 2) -> 'int': ...", "def f(a: 'int' = 0) -> 'int': ..."},
        ),
        ("while a: b = c", {"while False: b = c"}),
        ("def f(): return a", {"def f(): return None"}),
        ("close(fd)", {"pass"}),
        ("a.pop(b, None)", {"pass"}),
        ("a = b.pop(c, None)", {"a = b.pop(c, 0)"}),
        ("def f() -> bool: return False", {"def f() -> bool: return True"}),
        (
            "def f() -> 'bool | None': return False",
            {"def f() -> 'bool | None': return True", "def f() -> 'bool | None': return None"},
        ),
        ("é == b", {"é != b"}),
    ],
)
def test_changes(source, expected):
    assert {new for _, new in changes(source)} == expected


def test_guards():
    assert {new for _, new in changes("if a:\n    b = c")} == {"if True:", "if False:"}


def test_only_the_raise_of_an_except_body_is_dropped():
    source = """
        try:
            raise ValueError(1)
        except ValueError:
            def later():
                raise OSError(2)
            raise
    """
    assert changes(source) == {("raise", "pass")}


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring with 1 == 1."""',
        "__all__ = ['a', 1][0]",
        "TYPE_CHECKING = False",
        "class A:\n    __slots__ = (1,)[0]",
        "class A:\n    def __repr__(self):\n        return 1 == 1",
        "log('%d', 1)",
        "errors.log('%d', not a)",
        "raise ValueError('%d' % 1)",
        "a: 'int | None'",
        "async def f() -> 'None': pass",
        "if TYPE_CHECKING:\n    a = 1",
        "if os.name == 'nt':\n    a = 1",
        "if not _WINDOWS:\n    pass\nelse:\n    a = 1",
        "a = b if os.name != 'nt' else 1",
        "if _WINDOWS and a == 1:\n    b()",
        "def f():\n    if os.name != 'nt':\n        return\n    a = 1",
        "def _kqueue():\n    return 1",
        "class KqueueTimer:\n    a = 1",
        "_BSD = {'a': 1}",
        "a = {'darwin': 1}",
        "def f():\n    if bsd.system() is None:\n        return\n    a = 1",
        "if sys.platform == 'win32':\n    a = 1\nelif not sys.platform == 'linux':\n    a = 2",
    ],
)
def test_left_alone(source):
    assert changes(source) == set()


@pytest.mark.timeout(600)  # there are 7,000
def test_every_mutant_compiles(ours):
    for each in ours:
        compile(each.result, each.file, "exec")
        assert each.result != each.source
        old, new = each.change
        assert old != new and old in each.source.decode()


def test_only_linux(ours):
    files = {each.file for each in ours}
    others = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - files
    words = "kqueue /queue.py win32 toolhelp kernel32 console bsd /ps.".split()
    for word in words:
        assert any(word in file for file in others), word
        assert not any(word in file for file in files), word
    for word in "pidfd", "polling", "procfs", "linux", "process":
        assert any(word in file for file in files), word


def test_a_seed_makes_the_same_mutants(ours):
    first, again = (sample(linux_mutations(PACKAGE), 20, 7) for _ in range(2))
    assert first == again
    assert len(set(first)) == 20
    assert sample(ours, 20, 8) != first


def test_equivalents_are_left_out(ours, monkeypatch):
    one = ours[len(ours) // 2]
    monkeypatch.setattr(random_mutants, "EQUIVALENT", [Equivalent(one.file, *one.change, "")])
    left = sample(ours, len(ours), 0)
    assert one not in left
    assert len(left) >= len(ours) - 5


def test_every_equivalent_is_one_of_the_mutants(ours):
    possible = {(each.file, *each.change) for each in ours}
    named = [(each.file, each.old, each.new) for each in EQUIVALENT]
    assert set(named) <= possible
    assert len(set(named)) == len(named)
    assert all(each.reason for each in EQUIVALENT)


def test_text_of_equivalents():
    text = "[a.py]\n# same\n- b\n+ c\n+ d\n\n# less\n- e\n+ f\n[g.py]\n# h\n- i\n+ j\n"
    assert equivalent.read(text) == [
        ("a.py", "b", "c", "same"),
        ("a.py", "b", "d", "same"),
        ("a.py", "e", "f", "less"),
        ("g.py", "i", "j", "h"),
    ]
    with pytest.raises(ValueError, match="-b"):
        equivalent.read("[a.py]\n-b")


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="records with sys.monitoring")
def test_tests_that_run_a_line(toy, tmp_path):
    tree = toy(RECORDED, RECORDED_TESTS)
    file = tmp_path / "lines"
    code, output = run(tree, ["-p", "tests.matrix.lines", "tests"], more=environment(file, tree))
    assert code == 0, output
    lines = Lines(file)
    one, other, child = map("tests/test_toy.py::test_{}".format, ("one", "other", "child"))
    assert lines.tests("__init__.py", 4) == [one, child]
    assert lines.tests("__init__.py", 5) == [other]
    for at_import_or_never in 1, 6:
        found = lines.tests("__init__.py", at_import_or_never)
        assert sorted(found) == sorted([one, other, child])
        assert found[-1] == child  # it runs the import, too
    assert lines.tests("elsewhere.py", 1) == []


def test_order():
    tests = ["a test", "another"]
    assert stages(tests, ["tests"]) == [
        [*trees_module.HANGS, *tests],
        [*trees_module.HANGS, "tests", "--deselect=a test", "--deselect=another"],
    ]
    many = list(map(str, range(QUICK + 1)))
    assert stages(many, [])[1] == [*trees_module.HANGS, many[-1]]
    assert stages([], ["tests"]) == [[*trees_module.HANGS, "tests"]]


def test_toys_are_killed_or_survive(toy, capfd):
    tree = toy(TOY, TOY_TESTS)
    tree.joinpath("tests/faults").mkdir()
    tree.joinpath("tests/faults/__init__.py").touch()
    tree.joinpath("tests/faults/test_fault.py").write_text(textwrap.dedent(TOY_FAULTS))
    found = linux_mutations(tree / "pidwait")
    with Trees(2, tree) as trees:
        results = run_all(found, trees)
    killers = {result.mutation.change[1]: result.by for result in results}
    assert killers.pop("return a >= b and not b") is None
    assert killers.pop("return a > b or not b") == "tests/faults/test_fault.py::test_fault"
    assert killers["return 4"] == "tests/test_toy.py::test_later"
    assert set(killers.values()) <= {killers["return 4"], "tests/faults/test_fault.py::test_fault"}
    assert report(results) == 1
    output = capfd.readouterr().out
    assert "__init__.py:5 survives" in output
    assert "+    return a >= b and not b" in output
    assert report([Result(results[0].mutation, "a test")]) == 0


def test_a_hang_is_ended_with_all_its_processes(toy, tmp_path):
    lock = tmp_path / "lock"
    source = """
        import fcntl, os, time

        file = open({!r}, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fork() == 0:
            os.setsid()
        time.sleep(600)
    """
    tree = toy("", source.format(str(lock)))
    with Trees(1, tree) as trees, trees.one() as copy:
        code, _ = run(copy, ["tests"], limit=3)
    assert code is None
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # pytest's time limit, if a process still has it


def test_a_hang_that_no_exception_ends(toy):
    source = """
        import threading, time

        def test():
            threading.Thread(target=time.sleep, args=(600,)).start()
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    continue
    """
    with Trees(1, toy("", source)) as trees, trees.one() as copy:
        code, output = run(copy, [*trees_module.HANGS, "--timeout=1", "tests"], limit=60)
    assert code == 1 and killer(code, output) == "a hang"


def test_nobody_outside_can_be_signalled(toy):
    source = """
        import os, pytest

        def test():
            with pytest.raises(ProcessLookupError):
                os.kill(-1, 0)
    """
    with Trees(1, toy("", source)) as trees, trees.one() as copy:
        code, output = run(copy, ["tests"])
    assert code == 0, output


def test_an_interrupted_run_ends_what_it_started(toy):
    tree = toy("", "import time\n\ndef test():\n    time.sleep(600)\n")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Trees(1, tree) as trees:
        trees.map(lambda _, copy: run(copy, ["tests"]), [None, None])
        while not trees_module._running:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - started < 15  # the toy's time limit is 20
    assert not trees_module._running
