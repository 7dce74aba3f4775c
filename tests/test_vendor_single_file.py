# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait vendor --single-file: one module of what waiting needs."""

import ast
import builtins
import dis
import functools
import hashlib
import importlib
import os
import re
import subprocess
import sys
import types

import pytest

from . import copies, pidwait
from .processes import PYTHON, WINDOWS, exiting_when_told, run_python

cli = importlib.import_module(pidwait.__name__ + ".cli")
joining = importlib.import_module(pidwait.__name__ + "._vendoring.joining")
shorten = importlib.import_module(pidwait.__name__ + "._vendoring.shorten")
single_file = importlib.import_module(pidwait.__name__ + "._vendoring.single_file")
source = importlib.import_module(pidwait.__name__ + "._vendoring.source")

HERE = "windows" if WINDOWS else "linux"
VENDOR = (sys.executable, "-m", pidwait.__name__, "vendor")
ALL = single_file.SYSTEMS
CHOICES = [
    (ALL, single_file.EXTRAS),
    *(((system,), ()) for system in ALL),
    *((("linux",), (part,)) for part in single_file.EXTRAS[:-1]),
]


def vendor(*args):
    """Run the command here, where what it has read is known the next time."""
    return cli.main(["vendor", "--single-file", *map(str, args)])


def seeded(seed):
    return dict(os.environ, PYTHONHASHSEED=seed)


@functools.lru_cache(maxsize=None)
def text_of(systems, parts):
    return single_file.SingleFile(systems, parts).text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With waits.py, which has what it needs on this system, and everything.py."""
    folder = tmp_path_factory.mktemp("single")
    command = VENDOR + ("--single-file", "--systems", HERE, str(folder / "waits.py"))
    subprocess.check_call(command, env=seeded("1"))
    assert vendor("--with", ",".join(single_file.EXTRAS), folder / "everything.py") == 0
    return folder


@pytest.fixture
def imported(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for name in "waits", "everything":
        sys.modules.pop(name, None)


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def global_names(text):
    """The names that the code looks up in its module, and those that it stores there."""
    used, stored = set(), set()
    top = compile(text, "file", "exec")
    for code in codes(top):
        for step in dis.get_instructions(code):
            if step.opname.startswith("LOAD_GLOBAL") or (
                code is top and step.opname.startswith("LOAD_NAME")
            ):
                used.add(step.argval)
            elif step.opname == "STORE_GLOBAL" or (code is top and step.opname == "STORE_NAME"):
                stored.add(step.argval)
    return used, stored


@pytest.mark.parametrize("systems, parts", CHOICES, ids=",".join)
def test_choices(systems, parts):
    text = text_of(systems, parts)
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [node.lineno for node in imports if node.level]
    used, stored = global_names(text)
    module_has = {"__name__", "__file__", "__doc__", "__package__"} | set(dir(builtins))
    if "windows" in systems:
        module_has.add("WindowsError")
    assert used - stored - module_has == set()
    for word in "exec", "eval", "compile", "__import__":
        assert (word in used) == (word == "__import__")  # which loads what Python has of its own
    for word in "base64", "b64decode", "b85decode":  # "b64" can be in the hash
        assert word not in text
    # A name that has got its module's before it is longer than it was.
    assert max(map(len, text.splitlines())) <= 130


def test_what_is_not_asked_for_is_left_out():
    text = text_of(("linux",), ())
    for absent in "EV_ONESHOT WaitForMultipleObjects posix_spawn asyncio. TYPE_CHECKING".split():
        assert absent not in text.replace("asyncio.Process", ""), absent
    assert "OpenProcess" in text_of(("windows",), ())
    assert "EV_ONESHOT" in text_of(("bsd",), ())


def test_head(folder):
    data = folder.joinpath("waits.py").read_bytes()
    assert b"\r" not in data
    text = data.decode()
    head, _, body = text.partition("OF SUCH DAMAGE.\n")
    assert " %s in one file" % pidwait.__version__ in head
    assert "systems: %s\n" % HERE in head and "parts:   wait\n" in head
    assert "Redistributions of source code must retain" in head
    (digest,) = re.findall(r"\n    ([0-9a-f]{64})\n", head)
    assert digest == hashlib.sha256(body.encode()).hexdigest()


def test_the_same_each_time_printed_or_written(folder):
    command = VENDOR + ("--single-file", "--systems", HERE)
    printed = subprocess.check_output(command, env=seeded("2"))
    assert printed.replace(b"\r\n", b"\n") == folder.joinpath("waits.py").read_bytes()


def test_waits(imported, start_told):
    waits = imported("waits")
    assert sorted(waits.__all__) == sorted(
        "Process TimeoutExpired WaitSet as_completed pid_exists probe wait wait_procs".split()
    )
    children = [start_told(code) for code in (3, 4)]
    with pytest.raises(waits.TimeoutExpired) as caught:
        waits.wait(children[0].pid, 0)
    assert caught.value.pid == children[0].pid
    assert waits.TimeoutExpired.__module__ == waits.Process.__module__ == "waits"
    with waits.WaitSet(children) as waiting, waits.Process(children[0].pid) as process:
        assert not process.has_exited()
        for child in children:
            child.stdin.close()
        assert process.wait(60) == 3
        found = []
        while waiting:
            found += waiting.wait(60)
    assert sorted(code for _, code in found) == [3, 4]
    assert waits.wait_procs(children, 60)[0] == [(children[0], 3), (children[1], 4)]
    assert waits.probe()["backend"] == pidwait.probe()["backend"]


def test_more_than_waiting(imported):
    everything = imported("everything")
    with everything.spawn(PYTHON + ("-c", "raise SystemExit(5)")) as child:
        assert everything.wait(child, 60) == 5
    ours = everything.subprocess
    assert ours.call(PYTHON + ("-c", "raise SystemExit(6)"), timeout=60) == 6
    assert issubclass(ours.Popen, subprocess.Popen)
    with ours.patch():
        assert subprocess.call(PYTHON + ("-c", "raise SystemExit(7)"), timeout=60) == 7
    for name in "wait", "wait_procs", "as_completed", "spawn", "ChildWatcher":
        assert callable(getattr(everything.aio, name))
    assert everything.TimeoutExpired is not subprocess.TimeoutExpired


def test_import_loads_nothing_heavy(folder):
    code = """if True:
        import sys
        before = set(sys.modules)
        import waits
        heavy = "ctypes cffi _cffi_backend typing subprocess asyncio logging threading signal"
        print(sorted(set(heavy.split()) & (set(sys.modules) - before)))
    """
    done = run_python(code, env=dict(os.environ, PYTHONPATH=str(folder)))
    assert done.stdout == "[]\n", done.stderr


def command(folder, *args, **kwargs):
    return subprocess.run(
        [sys.executable] + [str(arg) for arg in args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )


def test_command_line(folder, start):
    child = start(*exiting_when_told(7), stdin=subprocess.PIPE)
    path = folder / "waits.py"
    done = command(folder, path, "-t", "0", child.pid)
    assert done.returncode == 124, done
    assert done.stderr.startswith("python %s: the time was up" % path)
    child.stdin.close()
    done = command(folder, path, "--exit-code", "-v", child.pid, timeout=60)
    assert (done.returncode, done.stderr) == (7, "")
    assert "exited with 7" in done.stdout
    done = command(folder, path, "-h")
    assert done.returncode == 0 and "--name" not in done.stdout and " run " not in done.stdout
    for args in ["run", "true"], ["--name", "x"]:
        done = command(folder, path, *args)
        assert done.returncode == 2 and "Traceback" not in done.stderr
    done = command(folder, "-m", "waits", "--version", cwd=str(folder))
    assert done.stdout.endswith("waits.py %s\n" % pidwait.__version__)


def test_on_standard_input(folder, sleeper):
    with folder.joinpath("waits.py").open("rb") as file:
        done = command(folder, "-", "-t", "0.01", sleeper.pid, stdin=file)
    assert done.returncode == 124
    assert done.stderr.startswith("python -: the time was up; still running: %d" % sleeper.pid)


def test_elsewhere(tmp_path):
    other = "linux" if WINDOWS else "windows"
    path = tmp_path / "other.py"
    path.write_text(text_of((other,), ()))
    done = command(tmp_path, path)
    assert done.returncode == 1
    assert "ImportError: this file is for %s alone" % other in done.stderr


@pytest.mark.parametrize(
    "args, text",
    [
        (["--systems", "plan9"], "--systems: 'plan9' is none of linux, bsd, windows"),
        (["--with", "spawn,all"], "--with: 'all' is none of watch, spawn, aio, subprocess"),
        (["a", "b"], "give one FILE"),
        (["--check", "a"], "--check and --force are for a folder"),
    ],
)
def test_wrong_arguments(args, text):
    done = command(None, "-m", pidwait.__name__, "vendor", "--single-file", *args)
    assert done.returncode == 2
    assert text in done.stderr


def test_caches_that_have_been_emptied():
    """pkgutil needs that of zipimport."""
    importlib.invalidate_caches()
    assert copies.sources.read() == copies.FILES


def test_file_that_can_not_be_written(tmp_path, capsys):
    assert vendor(tmp_path / "no" / "file.py") == 1
    assert "file.py: " in capsys.readouterr().err


# The tools


@pytest.mark.parametrize(
    "before, after",
    [
        ("if A:\n    x = 1\n", "x = 1\n"),
        ("if not A:\n    x = 1\ny = 2\n", "y = 2\n"),
        ("if B:\n    x = 1\nelse:\n    # why\n    x = 2\n", "# why\nx = 2\n"),
        ("if B:\n    x = 1\nelif c:\n    x = 2\n", "if c:\n    x = 2\n"),
        (
            "if c:\n    x = 1\nelif A:\n    x = 2\nelse:\n    x = 3\n",
            "if c:\n    x = 1\nelse:\n    x = 2\n",
        ),
        (
            "if c:\n    x = 1\nelif B:\n    x = 2\nelse:\n    x = 3\n",
            "if c:\n    x = 1\nelse:\n    x = 3\n",
        ),
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
        top="def main(a=True):\n    if a:\n        from .a import f\n    else:\n"
        "        from .b import f\n    return f()\n",
        a="def f():\n    return 1\n",
        b="def f():\n    return 2\n",
    )
    text, answer = run(made)
    assert answer == 1
    assert "f = a_f" in text and "f = b_f" in text


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


def test_gaps():
    """As they were; and one around each definition."""
    made = joined(
        top="A = 1\nB = 2\n\nC = 3\n\n\ndef f():\n    return A\n\n\n"
        "def main():\n    return f() + B + C\n"
    )
    ((_, text),) = made.sections()
    assert text == (
        "A = 1\nB = 2\n\nC = 3\n\ndef f():\n    return A\n\ndef main():\n    return f() + B + C"
    )


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
