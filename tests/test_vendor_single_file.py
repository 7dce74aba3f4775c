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
single_file = importlib.import_module(pidwait.__name__ + "._vendoring.single_file")

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
    # A file for all systems refuses none.
    assert ("this file is for" in text) == (len(systems) < len(single_file.SYSTEMS))
    # A name that has got its module's before it is longer than it was.
    assert max(map(len, text.splitlines())) <= 130


BY_NAME = {
    'os.name == "nt"',
    'os.name != "nt"',
    'sys.platform == "win32"',
    'sys.platform != "win32"',
}
BY_BSD = {"bsd.system() is None", "bsd.system() is not None"}
ON_LINUX = '_ffi.PLATFORM in ("linux", "android")'
BY_BACKEND = {
    system: 'name == "%s"' % name for system, name in zip(ALL, ["pidfd", "kqueue", "win32"])
}


DECIDED = {
    ("linux",): {*BY_NAME, *BY_BSD, ON_LINUX},
    ("bsd",): {*BY_NAME, ON_LINUX},
    ("windows",): {*BY_NAME, *BY_BSD, ON_LINUX},
    ("linux", "bsd"): BY_NAME,
    ("linux", "windows"): {*BY_BSD, ON_LINUX},
    ("bsd", "windows"): {ON_LINUX},
    ALL: set(),
}


@pytest.mark.parametrize("systems", sorted(DECIDED), ids=",".join)
def test_questions_that_are_decided(systems):
    one = object.__new__(single_file.SingleFile)
    one.systems, one.parts = list(systems), ["wait", "spawn"]
    facts = one._facts()
    parts = {name: facts.pop("_parts." + name) for name in "SPAWN LISTING COMMANDS".split()}
    assert parts == {"SPAWN": True, "LISTING": False, "COMMANDS": False}
    assert facts.pop("_parts.SINGLE_FILE") and not facts.pop("TYPE_CHECKING")
    left_out = {BY_BACKEND[system]: False for system in ALL if system not in systems}
    assert {question: facts.pop(question) for question in left_out} == left_out
    assert set(facts) == DECIDED[systems]
    for system in systems:
        is_windows, bsd = system == "windows", "freebsd" if system == "bsd" else None
        world = {
            "os": types.SimpleNamespace(name="nt" if is_windows else "posix"),
            "sys": types.SimpleNamespace(platform="win32" if is_windows else system),
            "bsd": types.SimpleNamespace(system=lambda bsd=bsd: bsd),
            "_ffi": types.SimpleNamespace(PLATFORM=system),
        }
        asked = set(facts) - ({ON_LINUX} if is_windows else set())  # where Windows is ruled out
        for question in asked:
            assert eval(question, world) is facts[question], question


def test_what_is_not_asked_for_is_left_out():
    text = text_of(("linux",), ())
    others = "EV_ONESHOT NOTE_EXITSTATUS WaitForMultipleObjects"  # only other systems have these
    for absent in (others + " posix_spawn asyncio. TYPE_CHECKING SimpleNamespace").split():
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
    for args, message in (["run", "true"], 'no command "run"'), (["--name", "x"], "--name"):
        done = command(folder, path, *args)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
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


@pytest.mark.parametrize(
    "args, systems, parts",
    [
        ([], ALL, []),
        (["--systems", "bsd,"], ["bsd"], []),
        (["--systems", "linux,bsd", "--with", "watch,aio"], ["linux", "bsd"], ["watch", "aio"]),
    ],
)
def test_what_is_asked_for(monkeypatch, capsys, args, systems, parts):
    class Asked:
        def __init__(self, systems, extras):
            self.asked = [*systems, "with", *extras]

        def text(self):
            return " ".join(self.asked)

    monkeypatch.setattr(single_file, "SingleFile", Asked)
    assert vendor(*args) == 0
    assert capsys.readouterr().out == " ".join([*systems, "with", *parts])


def test_caches_that_have_been_emptied():
    """pkgutil needs that of zipimport."""
    importlib.invalidate_caches()
    assert copies.sources.read() == copies.FILES


def test_file_that_can_not_be_written(tmp_path, capsys):
    assert vendor(tmp_path / "no" / "file.py") == 1
    assert "file.py: " in capsys.readouterr().err


def test_same_file_without_docstrings(folder, tmp_path):
    """python -OO drops the vendoring code's own, not those that it reads."""
    path = tmp_path / "waits.py"
    command = (sys.executable, "-OO") + VENDOR[1:] + ("--single-file", "--systems", HERE)
    subprocess.check_call(command + (str(path),))
    assert path.read_bytes() == (folder / "waits.py").read_bytes()


def test_docstrings_that_are_left_out():
    """Those of modules, and of what is private."""
    text = (
        '"""Module."""\n\n\ndef shown():\n    """Public."""\n\n\n'
        'def hidden():\n    """Private."""\n    return 1\n\n\n'
        "def without():\n    hidden()\n"
    )
    left = single_file._without_docstrings("m", text, [("m", "shown"), ("other", "hidden")])
    assert [word for word in ("Module", "Public", "Private") if word in left] == ["Public"]
    assert left.endswith("def without():\n    hidden()\n")


def test_headings():
    """What a module is for, in lines that a narrow window shows."""
    about = "%s\n%s %s %s\n\nAnd what is not shown." % ("a" * 70, "b" * 6, "c" * 70, "d" * 7)
    one = object.__new__(single_file.SingleFile)
    one._about = {"_ffi.calls": single_file._first_words('"""%s"""\nx = 1\n' % about)}
    assert list(one._heading("_ffi.calls")) == [
        "",
        "",
        "# " + "=" * 33 + " _ffi/calls " + "=" * 32,
        "# " + "a" * 70 + " " + "b" * 6,  # 79 columns
        "# " + "c" * 70,  # there would be 80
        "# " + "d" * 7,
    ]
    assert single_file._first_words("x = 1\n") == ""
