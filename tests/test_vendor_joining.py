# SPDX-License-Identifier: BSD-3-Clause
"""How modules are joined to a single file, and what of their text is left."""

import importlib

import pytest

from . import pidwait

joining = importlib.import_module(pidwait.__name__ + "._vendoring.joining")
shorten = importlib.import_module(pidwait.__name__ + "._vendoring.shorten")
source = importlib.import_module(pidwait.__name__ + "._vendoring.source")


def test_rows_of_strings():
    text = 'x = """\n1\n"""\ny = 1\nz = ["""\n""", 2]\n'
    assert source.Source(text).rows_of_strings() == {2, 3, 6}


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
        ("class A:\n    x: int\n    y = 1\n", "class A:\n    y = 1\n"),
        ("f(\n    1,\n    2,\n)\n", "f(1, 2)\n"),
        ("f(\n    1, )\n", "f(1, )\n"),
        ("x = (\n    1,\n)\n", "x = (1,)\n"),
        ("x = (\n    1,\n    2,\n)\n", "x = (1, 2)\n"),
        ("x = (\n    (1, 2),\n)\n", "x = ((1, 2),)\n"),
        ("x = f(a)(\n    [1],\n)\n", "x = f(a)([1])\n"),
        ("f(\n    # why\n    1,\n)\n", "f(\n    # why\n    1,\n)\n"),
        ("f(1)  # type: ignore[call]\n", "f(1)\n"),
        ("@overload\ndef f(): ...\n", ""),
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


def joined(**texts):
    texts = {name.replace("__", "."): text for name, text in texts.items()}
    return joining.Joined(texts, [], [("top", "main")], {"main": ("top", "main")})


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


def test_one_name_for_several_imports():
    made = joined(
        top="def main(a=True):\n    if a:\n        # Why a.\n        from .a import f\n    else:\n"
        "        from .b import f\n    return f()\n",
        a="def f():\n    return 1\n",
        b="def f():\n    return 2\n",
    )
    text, answer = run(made)
    assert answer == 1
    assert "# Why a.\n        f = a_f" in text and "f = b_f" in text


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
        "    sleep(0)\n    return f() and os is system and monotonic() > 0\n",
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
        top="import os\n\nfrom .a import f\n\n\ndef main():\n    return f()\n",
        a="import sys\n\nUNUSED = sys.path\n\n\n"
        "def f():\n    from .a import g\n\n    return g()\n\n\n"
        "def g():\n    return 5\n\n\ndef unused():\n    from . import gone\n",
    )
    text, answer = run(made)
    assert answer == 5
    for absent in "import", "UNUSED", "unused":
        assert absent not in text


def test_what_is_kept_stays_as_it_is():
    made = joined(top=TOP, other=OTHER)
    assert list(made.sections()) == [("other", NEW_OTHER), ("top", NEW_TOP)]
    assert run(made)[1] == 38


def test_imports_that_are_all_that_an_if_has():
    made = joined(
        top="import os\n\nif os.name:\n    from .a import f\n    from .b import g\n\n\n"
        "def main():\n    if os.sep:\n        from .a import h\n        from .b import k\n"
        "    return f() + g() + h() + k()\n",
        a="def f():\n    return 1\n\n\ndef h():\n    return 2\n",
        b="def g():\n    return 3\n\n\ndef k():\n    return 4\n",
    )
    text, answer = run(made)
    assert answer == 10
    assert text.count("pass") == 2


def test_what_is_needed_and_not_there():
    with pytest.raises(LookupError, match="gone"):
        joined(top="def main():\n    from .gone import f\n\n    return f()\n")
    with pytest.raises(LookupError, match="a has no g"):
        joined(
            top="def main():\n    from .a import g\n\n    return g()\n", a="def f():\n    pass\n"
        )
