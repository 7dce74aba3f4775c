# SPDX-License-Identifier: BSD-3-Clause
"""How modules are joined to a single file, and what of their text is left."""

import ast
import errno
import importlib
import os
import time

import pytest

from . import pidwait

joining = importlib.import_module(pidwait.__name__ + "._vendoring.joining")
scopes = importlib.import_module(pidwait.__name__ + "._vendoring.scopes")
shorten = importlib.import_module(pidwait.__name__ + "._vendoring.shorten")
source = importlib.import_module(pidwait.__name__ + "._vendoring.source")


def test_rows_of_strings():
    text = 'x = """\n1\n"""\ny = 1\nz = ["""\n""", 2]\nx = y + \\\n    1\n'
    assert source.Source(text).rows_of_strings() == {2, 3, 6}


@pytest.mark.parametrize(
    "text, rows, with_comments",
    [
        ("x = 1\ny = 2\n", (2, 2), (2, 2)),
        ("x = 1\n# why\ny = 2\n# more\n", (3, 3), (2, 3)),
        ("# no more\n\n# why\n# and how\ny = 2\n", (5, 5), (3, 5)),
        ("x = 1\ny = [\n    2,\n    # why\n\n    (\n        3\n    ),\n]\n", (2, 9), (2, 9)),
        ("x = 1\ny = x + \\\n    2\n", (2, 3), (2, 3)),
        ('x = 1\ny = f("#(", """\n(\n""")\n', (2, 4), (2, 4)),
        ("# why\n@f(\n    1\n)\ndef y():\n    return g(\n        1\n    )\n", (2, 8), (1, 8)),
    ],
)
def test_rows_of_the_last_statement(text, rows, with_comments):
    read = source.Source(text)
    assert read.rows(read.tree.body[-1]) == rows
    assert read.with_comments(read.tree.body[-1]) == with_comments


@pytest.mark.parametrize(
    "before, after",
    [
        ("if A:\n    x = 1\n", "x = 1\n"),
        ("if not A:\n    x = 1\ny = 2\n", "y = 2\n"),
        ("if B:\n    x = 1\nelse:\n    # why\n    x = 2\n", "# why\nx = 2\n"),
        ("if B:\n    x = 1\nelif c:\n    x = 2\n", "if c:\n    x = 2\n"),
        ("if B:\n    x = 1\nelif c == 'elif':\n    x = 2\n", "if c == 'elif':\n    x = 2\n"),
        (
            "if c:\n    x = 1\nelif A:\n    x = 2\nelse:\n    x = 3\n",
            "if c:\n    x = 1\nelse:\n    x = 2\n",
        ),
        (
            "if c:\n    x = 1\nelif B:\n    x = 2\nelse:\n    x = 3\n",
            "if c:\n    x = 1\nelse:\n    x = 3\n",
        ),
        ('if A:\n    x = """\nsome text\n"""\n', 'x = """\nsome text\n"""\n'),
        ("if A and c:\n    x = 1\n", "if c:\n    x = 1\n"),
        ("if c and B:\n    x = 1\nx = 3\n", "x = 3\n"),
        ("if c or B:\n    x = 1\n", "if c or B:\n    x = 1\n"),
        ("if c or d and B:\n    x = 1\n", "if c or d and B:\n    x = 1\n"),
        ("if A:\n    x = 1\n    y = 2\n", "x = 1\ny = 2\n"),
        ("if B:\n    x = 1\n# why not\nelse:\n    x = 2\n", "x = 2\n"),
        (
            "if B:\n    x = 1\n    if c:\n        x = 2\n    else:\n        x = 3\n"
            "else:\n    x = 4\n",
            "x = 4\n",
        ),
        ("# why\nif B:\n    x = 1\ny = 2\n", "y = 2\n"),
        ("# why\nif A:\n    x = 1\ny = 2\n", "# why\nx = 1\ny = 2\n"),
        ("# why\nif B:\n    x = 1\nelse:\n    x = 2\n", "# why\nx = 2\n"),
        ("def f():\n    if B:\n        return 1\n", "def f():\n    pass\n"),
        ("def f():\n    if A:\n        return 1\n    x()\n", "def f():\n    return 1\n"),
    ],
)
def test_fold(before, after):
    assert source.fold(before, {"A": True, "B": False}) == after


@pytest.mark.parametrize(
    "before, after",
    [
        (
            'def f(a: "int", *b: int, c: "dict[str, int]" = 3) -> "None":\n    pass\n',
            "def f(a, *b, c=3):\n    pass\n",
        ),
        ("x: int = 3\n", "x = 3\n"),
        ('self.x: "dict[str, int]" = {1: 2}\n', "self.x = {1: 2}\n"),
        ("def f(a, b=1):\n    pass\n", "def f(a, b=1):\n    pass\n"),
        (
            "async def f():\n    async for x in g(lambda: 1, h):\n        pass\n    x()\n",
            "async def f():\n    async for x in g(lambda: 1, h):\n        pass\n    x()\n",
        ),
        ("x: int = [\n    3,  # why\n]\n", "x = [\n    3,  # why\n]\n"),
        ("class A:\n    x: int\n    y = 1\n", "class A:\n    y = 1\n"),
        ("class A:\n    x: int\n", "class A:\n    pass\n"),
        ("class A:\n    x: int\n\n    y: int\n", "class A:\n    pass\n\n"),
        ("f(\n    1,\n)\n", "f(1)\n"),
        ("f(\n    1,\n    2,\n)\n", "f(1, 2)\n"),
        ("f(\n    1, )\n", "f(1, )\n"),
        ("def f():\n    return (\n        1,\n    )\n", "def f():\n    return (1,)\n"),
        ("for x in (\n    1,\n):\n    pass\n", "for x in (1,):\n    pass\n"),
        ("x = (\n    1,\n)\n", "x = (1,)\n"),
        ("(\n    1,\n)\n", "(1,)\n"),
        ("x = (\n    -1,\n)\n", "x = (-1,)\n"),
        ("x = (\n    1,\n    2,\n)\n", "x = (1, 2)\n"),
        ("x = (\n    (1, 2),\n)\n", "x = ((1, 2),)\n"),
        ("x = f(a)(\n    [1],\n)\n", "x = f(a)([1])\n"),
        ("f(\n    # why\n    1,\n)\n", "f(\n    # why\n    1,\n)\n"),
        ("f(\n    1,  # why\n)\n", "f(\n    1,  # why\n)\n"),
        ("f(\n    1,\n)  # why\n", "f(\n    1,\n)  # why\n"),
        ("f(\n    1,\n)\n# why\n", "f(1)\n# why\n"),
        ('f(\n    """1\n2""",\n)\n', 'f(\n    """1\n2""",\n)\n'),
        ("f(\n    %s,\n)\n" % ("x" * 97), "f(%s)\n" % ("x" * 97)),
        ("f(\n    %s,\n)\n" % ("x" * 98), "f(\n    %s,\n)\n" % ("x" * 98)),
        ("f(1)  # type: ignore[call]\n", "f(1)\n"),
        ("@overload\ndef f(): ...\n", ""),
        ("@other\ndef f():\n    pass\n", "@other\ndef f():\n    pass\n"),
        (
            "@overload\ndef f(): ...\nx = 1\n@overload\ndef f(): ...\ny = 2\n",
            "x = 1\ny = 2\n",
        ),
    ],
)
def test_shortened(before, after):
    assert shorten.shortened(before) == after


TOP = '''"""About it."""

# Why there are constants.
# In two lines.
A = 1
B = 2  # at the end

C = """first

# no comment
last"""


def unused():
    """Not kept."""


# About the decorator.
@staticmethod
# About the function.
def f(a, b=(1,
            2)):
    """What it does.

    And more.
    """
    # First step.
    a = a + B

    # Second step.
    return a + len(C)  # returned


# About what is not kept.
GONE = 5


class Thing:
    """A thing."""

    # About x.
    x = A

    def get(self):
        return self.x


    # At the end of the class.


def main():
    from .other import g

    return f.__func__(1) + Thing().get() + g()


# After it all.
'''
OTHER = '''"""Another one."""
A = 10  # the same name


def g():
    # Only a comment before it.
    return A


def h(): return 3
'''
NEW_OTHER = """\
OTHER_A = 10  # the same name

def g():
    # Only a comment before it.
    return OTHER_A"""
NEW_TOP = '''\
# Why there are constants.
# In two lines.
TOP_A = 1
B = 2  # at the end

C = """first

# no comment
last"""

# About the decorator.
@staticmethod
# About the function.
def f(a, b=(1,
            2)):
    """What it does.

    And more.
    """
    # First step.
    a = a + B

    # Second step.
    return a + len(C)  # returned

class Thing:
    """A thing."""
    # About x.
    x = TOP_A

    def get(self):
        return self.x

def main():
    return f.__func__(1) + Thing().get() + g()'''


def joined(given=(), public=(), **texts):
    public = dict(public, main=("top", "main"))
    return joining.Joined(texts, [], public.values(), public, given)


def run(made):
    text = "\n".join(made.imports() + [text for _, text in made.sections()])
    names = {}
    exec(text, names)
    return text, names["main"]()


def test_names_that_occur_twice():
    made = joined(
        top="from . import a, b\n\n\ndef main():\n    return a.value() + b.value() + a._X + b._X\n",
        a="_X = 1\n\n\ndef value():\n    return _X\n",
        b="_X = 10\n\n\ndef value():\n    return _X\n",
    )
    text, answer = run(made)
    assert answer == 22
    assert "def a_value():" in text and "_B_X = 10" in text


def test_names_that_are_local_where_they_are_used():
    made = joined(
        top="from . import a\n\n\n"
        "def main(value=2):\n    return [a.value(one) for one in [value]]\n",
        a="def value(one):\n    return one + 1\n",
    )
    text, answer = run(made)
    assert answer == [3]
    assert "a_value(one) for" in text


@pytest.mark.parametrize(
    "main, local",
    [
        ("def main(value=1):\n    return value, a.value()", 1),
        ("def main():\n    value = 1\n    return value, a.value()", 1),
        ("def main():\n    import errno as value\n    return value, a.value()", errno),
        ("def main():\n    import os.path, os as value\n    return value, a.value()", os),
        (
            "def main():\n    from errno import EPERM as value\n    return value, a.value()",
            errno.EPERM,
        ),
        ("def main():\n    for value in [1]:\n        return value, a.value()", 1),
        (
            "def main():\n    try:\n        raise LookupError(1)\n"
            "    except LookupError as value:\n        return value.args[0], a.value()",
            1,
        ),
        ("def main():\n    def value(): return 1\n    return value(), a.value()", 1),
        ("def main():\n    class value: x = 1\n    return value.x, a.value()", 1),
        ("def main():\n    return (lambda value: (value, a.value()))(1)", 1),
        ("def main():\n    return [(value, a.value()) for value in [1]][0]", 1),
        (
            "def main(value=1):\n    def inner():\n        return value, a.value()\n"
            "    return inner()",
            1,
        ),
    ],
)
def test_local_names_are_left_alone(main, local):
    made = joined(
        top="from . import a\nfrom .a import value\n\n\n" + main,
        a="def value():\n    return 11\n",
    )
    text, answer = run(made)
    assert answer == (local, 11)
    assert main.replace("a.value", "a_value") in text
    assert made.imports() == []


def test_names_of_a_class_are_local_to_its_body():
    made = joined(
        top="from .a import f\n\nvalue = 1\n\n\nclass Thing:\n    value = 5\n"
        "    twice = value * 2\n\n    def get(self):\n        return value\n\n\n"
        "def main():\n    return Thing.value, Thing.twice, Thing().get(), f()\n",
        a="value = 20\n\n\ndef f():\n    return value\n",
    )
    text, answer = run(made)
    assert answer == (5, 10, 1, 20)
    assert "    twice = value * 2\n" in text and "        return top_value\n" in text


def test_decorators_and_defaults_are_looked_up_outside():
    made = joined(
        top="from . import a\nfrom .a import value, f\n\n\n@f(value)\n"
        "def main(value=value, f=f):\n    return value, f is a.f, a.value\n",
        a="def f(number):\n    return lambda decorated: lambda: (number, decorated())\n\n\n"
        "value = 3\n",
    )
    text, answer = run(made)
    assert answer == (3, (3, True, 3))
    assert "def main(value=a_value, f=a_f)" in text


def test_names_declared_global():
    made = joined(
        top="from . import a, b\n\n\ndef main():\n    return a.count(), a.count(), b.count()\n",
        a="total = 0\n\n\ndef count():\n    def inner():\n        global total\n"
        "        total += 1\n        return total\n\n    return inner()\n",
        b="total = 10\nother = 1\n\n\ndef count():\n    global other, total\n"
        "    total += other\n    return total\n",
    )
    text, answer = run(made)
    assert answer == (1, 2, 11)
    assert "        global a_total\n" in text and "    global other, b_total\n" in text


@pytest.mark.parametrize(
    "name, is_package, statement, found",
    [
        ("a", False, "from .b import f", ("f", ("b", "f"))),
        ("a", False, "from .b import f as g", ("g", ("b", "f"))),
        ("a", False, "from . import b", ("b", ("b", ""))),
        ("a", False, "from . import f", ("f", ("", "f"))),
        ("sub.a", False, "from .b import f", ("f", ("sub.b", "f"))),
        ("sub.a", False, "from . import b", ("b", ("sub.b", ""))),
        ("sub.a", False, "from .. import b as c", ("c", ("b", ""))),
        ("sub.a", False, "from ..b import f", ("f", ("b", "f"))),
        ("sub", True, "from .b import f", ("f", ("sub.b", "f"))),
        ("sub", True, "from ..b import f", ("f", ("b", "f"))),
        ("sub", True, "from . import f", ("f", ("sub", "f"))),
    ],
)
def test_what_imports_mean(name, is_package, statement, found):
    (statement,) = ast.parse(statement).body
    modules = {"a", "b", "sub", "sub.a", "sub.b"}
    assert list(scopes.imported(name, is_package, modules, statement)) == [found]


def test_a_name_that_is_written_in_two_rows_is_refused():
    with pytest.raises(ValueError, match="top, row 5: a.f is not there"):
        joined(
            top="from . import a\n\n\ndef main():\n    return (a\n            .f())\n",
            a="def f():\n    return 1\n",
        )


def test_one_name_for_several_imports():
    made = joined(
        top="def main(a=True):\n    if a:\n        # Why a.\n        from .a import f\n    else:\n"
        "        from .a import g\n        from .b import f\n    return f()\n",
        a="def f():\n    return 1\n\n\ndef g():\n    pass\n",
        b="def f():\n    return 2\n",
    )
    text, answer = run(made)
    assert answer == 1
    assert "# Why a.\n        f = a_f" in text and "f = b_f" in text
    assert "pass" not in text and "g" not in made.names.values()


def test_imports_at_the_top_of_which_one_runs():
    """Their name can be imported from there, and what it means is defined before."""
    made = joined(
        top="from .x import f\n\n\ndef main():\n    from . import x\n\n"
        "    return x.first(), f(), x.f()\n",
        x="import os\n\nif os.name:\n    from .a import f\nelse:\n"
        "    from .b import f\n\n\ndef first():\n    return 0\n",
        a="def f():\n    return 1\n",
        b="def f():\n    return 2\n",
    )
    assert run(made)[1] == (0, 1, 1)


@pytest.mark.parametrize("length, lines", [(100, 1), (101, 3)])
def test_import_that_is_too_long_is_wrapped(length, lines):
    start, name = "from a import", ", b"
    names = "x" * (length - len(start + " " + name)) + name
    text = joining._wrapped(start, names)
    assert len(text.splitlines()) == lines
    assert all(len(line) <= 100 for line in text.splitlines())


def test_imports_are_written_once():
    """By their own names, but where two would have the same."""
    made = joined(
        top="import os\nimport os as system\nfrom time import monotonic, sleep\n\n\n"
        "def main():\n    from .a import f\n\n"
        "    sleep(0)\n    return f() and os.sep is system.sep and monotonic() > 0\n",
        a="import sys\nfrom os import sys as other\n\n\ndef f():\n    return sys is other\n",
    )
    assert made.imports() == [
        "import os",
        "import sys",
        "from os import sys as os_sys",
        "from time import monotonic, sleep",
    ]
    assert run(made)[1] is True


def test_what_nothing_uses_is_dropped():
    made = joined(
        top="import os\n\nfrom .a import f\n\n\ndef main():\n    x = 1\n"
        "    # Why it is imported here.\n    from .a import (\n        unused,\n    )\n"
        "    return f()\n",
        a="import sys\n\nUNUSED = sys.path\n\n\n"
        "def f():\n    from .a import g\n\n    return g()\n\n\n"
        "def g():\n    return 5\n\n\ndef unused():\n    from . import gone\n",
    )
    text, answer = run(made)
    assert answer == 5
    for absent in "import", "UNUSED", "unused":
        assert absent not in text
    assert text.endswith("def main():\n    x = 1\n    return f()")


def test_statements_that_have_an_effect_are_kept():
    made = joined(
        top="from . import a\n\n\ndef main():\n    return a.FOUND + [a.LAST, a.one, a.f()]\n",
        a='FOUND = []\nFOUND.extend(x for x in "ab")\nfor one in range(3):\n    LAST = -one\n'
        "if LAST:\n    def f():\n        unused = 1\n        return 4\n\n\nunused = 2\n",
    )
    text, answer = run(made)
    assert answer == ["a", "b", -2, 2, 4]
    assert "unused = 2" not in text


def test_names_that_come_through_another_module():
    made = joined(
        top="from .b import f, g\n\n\ndef main():\n    return f(), g\n",
        a="def f():\n    return 1\n\n\ndef g():\n    pass\n",
        b="from .a import f, g\n\ng = 2\n",
    )
    text, answer = run(made)
    assert answer == (1, 2)
    assert "pass" not in text


def test_a_function_with_the_name_of_a_module():
    made = joined(
        top="from . import b\nfrom .a import b as f\n\n\ndef main():\n    return b.f(), f()\n",
        a="def b():\n    return 1\n",
        b="def f():\n    return 2\n",
    )
    assert run(made)[1] == (2, 1)


def test_names_that_are_asked_for():
    """They stay as they are; what would have one of them is called otherwise."""
    made = joined(
        given=["__version__"],
        public={"time": ("a", "time")},
        top="import time\nfrom . import __version__, a\n\n\n"
        "def main():\n    return __version__, a.__version__, time.time, a.time()\n",
        a="__version__ = 3\n\n\ndef time():\n    return 5\n",
    )
    assert made.imports() == ["import time as standard_time"]
    text = "\n".join(made.imports() + [text for _, text in made.sections()])
    names = {"__version__": 2}
    exec(text, names)
    assert names["main"]()[:2] == (2, 3)
    assert names["main"]()[2] is time.time and names["main"]()[3] == 5


def test_names_for_which_nothing_free_is_found():
    a = "def f():\n    return 1\n"
    with pytest.raises(ValueError, match="have one name"):
        joined(
            top="from . import a, b\n\n\ndef main():\n    return a.f(), b.f(), a_f()\n\n\n"
            "def a_f():\n    return 2\n",
            a=a,
            b=a,
        )
    with pytest.raises(ValueError, match="a local name hides a_f"):
        joined(top="from . import a\n\n\ndef main(f, a_f):\n    return a.f()\n", a=a)


@pytest.mark.parametrize(
    "key, name",
    [
        (("_ffi.calls", "f"), "calls_f"),
        (("a", "_f"), "_a_f"),
        (("_a_b", "Thing"), "ABThing"),
        (("a", "_Thing"), "_AThing"),
        (("_a_b", "NAME"), "A_B_NAME"),
        (("a", "_NAME"), "_A_NAME"),
        ((":os.path", "join"), "path_join"),
    ],
)
def test_names_with_their_modules(key, name):
    assert joining._prefixed(key) == name


def test_definitions_that_are_renamed():
    """Decorated, on one line, or of a class or a coroutine."""
    texts = {
        name: "import functools\n\n\n# About f.\n@functools.lru_cache(None)\ndef f():\n"
        "    return %s\n\n\ndef g(): return %s\n\n\nclass Thing: x = %s\n\n\n"
        "async def run():\n    return %s\n" % ((number,) * 4)
        for name, number in [("a", 1), ("b", 2)]
    }
    made = joined(
        top="from . import a, b\n\n\ndef main():\n    found = [a.run(), b.run()]\n"
        "    for one in found:\n        one.close()\n"
        "    return a.f(), a.g(), a.Thing.x, b.f(), b.g(), b.Thing.x\n",
        **texts,
    )
    text, answer = run(made)
    assert answer == (1, 1, 1, 2, 2, 2)
    for name in "a", "b":
        assert "# About f.\n@functools.lru_cache(None)\ndef %s_f():\n" % name in text
        assert "async def %s_run():\n" % name in text


def test_modules_that_use_each_other():
    """What is used while a module is run is there before; functions can wait."""
    made = joined(
        top="from . import x\n\n\ndef main():\n    return x.first(), x.later(), x.X\n",
        x="from . import y, z\n\n\ndef first():\n    return 1\n\n\n"
        "def later():\n    return y.f()\n\n\nX = z.Z + 1\n",
        y="from . import z\n\n\ndef f(here=True):\n    return 2 if here else z.Z\n",
        z="from . import y\n\nZ = y.f() + 1\n",
    )
    assert [name for name, _ in made.sections()] == ["y", "z", "x", "top"]
    assert run(made)[1] == (1, 2, 4)


def test_an_import_that_nothing_uses_changes_no_order():
    made = joined(
        top="from . import x, y\n\n\ndef main():\n    return x.f() + y.Y\n",
        x="def f():\n    from .y import Y\n\n    return 1\n",
        y="from . import x\n\nY = x.f() + 1\n",
    )
    assert run(made)[1] == 3


def test_gaps():
    """Those that are there, and one on each side of a definition."""
    made = joined(top="A = 1\ndef main():\n    return A + B + C\nB = 2\n\n\nC = 3\nD = 4\n")
    text = "A = 1\n\ndef main():\n    return A + B + C\n\nB = 2\n\nC = 3"
    assert list(made.sections()) == [("top", text)]


def test_what_is_kept_stays_as_it_is():
    made = joined(top=TOP, other=OTHER)
    assert list(made.sections()) == [("other", NEW_OTHER), ("top", NEW_TOP)]
    assert run(made)[1] == 38


def test_imports_that_are_all_that_an_if_has():
    made = joined(
        top="import os\n\nif os.name:\n    from .a import f\n    from .b import g\n\n\n"
        "def main():\n    if os.sep:\n        from .a import h\n    if os.sep:\n"
        "        from .b import k\n    return f() + g() + h() + k()\n",
        a="def f():\n    return 1\n\n\ndef h():\n    return 2\n",
        b="def g():\n    return 3\n\n\ndef k():\n    return 4\n",
    )
    text, answer = run(made)
    assert answer == 10
    assert text.count("pass") == 3


def test_what_is_needed_and_not_there():
    with pytest.raises(LookupError, match="not in it: gone f"):
        joined(top="def main():\n    from .gone import f\n\n    return f()\n")
    with pytest.raises(LookupError, match="a has no g"):
        joined(
            top="def main():\n    from .a import g\n\n    return g()\n", a="def f():\n    pass\n"
        )
    with pytest.raises(LookupError, match="not in it: a "):  # a module, other than for its names
        joined(top="def main():\n    from . import a\n\n    return a\n", a="x = 1\n")
