# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait patch: a script or a module runs as python itself runs it, but patched."""

import os
import signal
import subprocess
import sys
import zipfile

import pytest

from .. import pidwait
from ..processes import exiting, not_on_windows
from .command_line import COMMAND, PROG, run

PROGRAM = """if True:
    import os, sys
    print(__name__, sys.modules[__name__].__dict__ is globals(), sys.argv)
    print([os.path.abspath(folder) for folder in sys.path], "__file__" in globals())
    import subprocess
    print(subprocess.call(%r, timeout=30))
    sys.exit(5)
""" % (exiting(3),)


@pytest.fixture(params=["script", "module"])
def program(request, tmp_path):
    """program(text) puts it into a file, and is what patch and python take for it."""

    def program(text):
        path = tmp_path.resolve() / "a_program.py"
        path.write_text(text)
        return [str(path)] if request.param == "script" else ["-m", "a_program"]

    return program


@pytest.fixture
def env(tmp_path):
    paths = [str(tmp_path.resolve())] + list(map(os.path.abspath, sys.path))
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths))


@pytest.mark.windows
def test_a_program_is_run_as_python_runs_it(program, env):
    command = program(PROGRAM) + ["-x", "--", "-t"]
    alone = subprocess.run(
        [sys.executable] + command, env=env, stdout=subprocess.PIPE, universal_newlines=True
    )
    done = run("patch", *command, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (5, alone.stdout, "")
    assert done.stdout.startswith("__main__ True [") and done.stdout.endswith("True\n3\n")


PATCHED = """if True:
    import subprocess
    from {} import subprocess as ours
    popen = dict(vars(subprocess.Popen))
    ours.unpatch()
    # Python 3.15's own waits by events: nothing is replaced.
    is_left_alone = hasattr(subprocess.Popen, "_wait_pidfd")
    print(is_left_alone or popen != dict(vars(subprocess.Popen)), ours.Popen(["true"]).wait(50))
""".format(pidwait.__name__)


def test_subprocess_is_patched_before_it_runs(program, env):
    assert run("patch", *program(PATCHED), env=env).stdout == "True 0\n"


@pytest.mark.windows
def test_a_script_that_is_not_there(tmp_path):
    path = str(tmp_path / "nonesuch.py")
    done = run("patch", path)
    message = "%s patch: %s: No such file or directory\n" % (PROG, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == message


@not_on_windows("SIGINT")
@pytest.mark.parametrize(
    "action, printed", [(signal.SIG_DFL, b"caught\n"), (signal.SIG_IGN, b"goes on\n")]
)
def test_a_program_gets_ctrl_c_as_from_python(program, env, action, printed):
    """An exception; in the background of a shell, nothing."""
    if action == signal.SIG_IGN and sys.implementation.name == "pypy":
        pytest.skip("PyPy catches SIGINT that is to be ignored, too")
    text = (
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.01)\n    print('goes on')\n"
        "except KeyboardInterrupt:\n    print('caught')\n"
    )
    done = subprocess.run(
        COMMAND + ["patch"] + program(text),
        env=env,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, action),
    )
    assert (done.returncode, done.stdout) == (0, printed)


# A script that is not a text file of Python, or not where it was


@pytest.fixture
def same(tmp_path, env):
    """same(arguments…): what they print and exit with, which is the same as under python alone."""

    def same(*command, **options):
        done = [
            subprocess.run(
                [sys.executable, *start, *command],
                cwd=str(tmp_path),
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                **options,
            )
            for start in ([], COMMAND[1:] + ["patch"])
        ]
        assert done[0].stdout == done[1].stdout and done[0].returncode == done[1].returncode
        return done

    return same


SHOWS_ITSELF = """if True:
    import os, sys
    print(__file__, __name__, sys.argv, os.path.abspath(sys.path[0]), type(__loader__).__name__)
    sys.exit(7)
"""


@pytest.mark.windows
@pytest.mark.parametrize("path", ["script.py", "./script.py", "below/../script.py", "-m script"])
def test_file_is_what_python_has(tmp_path, same, path):
    if "." in path[:-3] and sys.implementation.name == "pypy":
        pytest.skip("PyPy leaves out the dots")
    tmp_path.joinpath("below").mkdir()
    tmp_path.joinpath("script.py").write_text(SHOWS_ITSELF)
    done = same(*path.split(), "x")
    assert done[1].returncode == 7 and "script.py __main__ [" in done[1].stdout


@pytest.mark.windows
@pytest.mark.parametrize("kind", ["folder", "zip", "zip.py"])
def test_what_else_python_runs(tmp_path, same, kind):
    source = tmp_path / "source"
    source.mkdir()
    source.joinpath("__main__.py").write_text("import beside\n" + SHOWS_ITSELF)
    source.joinpath("beside.py").write_text("print('beside')\n")
    path = source
    if kind.startswith("zip"):
        path = tmp_path / ("program." + kind)
        with zipfile.ZipFile(str(path), "w") as file:
            for one in source.iterdir():
                file.write(str(one), one.name)
    done = same(path.relative_to(tmp_path).as_posix(), "x", "y")
    assert done[1].returncode == 7 and done[1].stdout.startswith("beside\n")
    assert done[1].stderr == ""


@pytest.mark.windows
@pytest.mark.parametrize("name", ["script.py", "folder", "-m script"])
def test_isolated_python_adds_no_folder_that_python_would_not(tmp_path, name):
    """With -I, or -P, what is first in sys.path is not the folder of the program that runs."""
    tmp_path.joinpath("folder").mkdir()
    for path in "script.py", "folder/__main__.py":
        tmp_path.joinpath(path).write_text("import sys\nprint(sys.path)\n")
    main = "sys.path += %r; from %s.cli import main; sys.exit(main())"
    main = "import sys; " + main % (list(map(os.path.abspath, sys.path)), pidwait.__name__)
    alone, done = (
        subprocess.run(
            [sys.executable, "-I", *start, *name.split()],
            cwd=str(tmp_path),
            stdout=subprocess.PIPE,
            universal_newlines=True,
        ).stdout
        for start in ([], ["-c", main, "patch"])
    )
    if name == "-m script":  # python does not find it
        assert alone == done == ""
    else:
        assert done.startswith(alone.rstrip("]\n"))


@pytest.mark.windows
@pytest.mark.parametrize(
    "args", [["-m", "nonesuch"], ["-m", "nonesuch.more"], ["-m", "email"], ["empty"]], ids=" ".join
)
def test_what_is_no_program_is_one_line(tmp_path, same, args):
    tmp_path.joinpath("empty").mkdir()
    alone, done = same(*args)
    assert done.returncode == 1 and done.stderr == alone.stderr and done.stderr.count("\n") == 1


FAILS = {
    "an error": "def fails():\n    1 / 0\n\nfails()\n",
    "a cause": "try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise OSError from error\n",
    "syntax": "1 +\n",
    "a hook": "import sys\nsys.excepthook = lambda *args: print(args[:2])\n1 / 0\n",
    "ctrl-c": "raise KeyboardInterrupt\n",
    "a message": "raise SystemExit('a message')\n",
}


@pytest.mark.parametrize("name", sorted(FAILS))
def test_a_traceback_begins_in_the_script(tmp_path, same, name):
    tmp_path.joinpath("script.py").write_text(FAILS[name])
    alone, done = same("script.py")
    assert done.stderr == alone.stderr and done.returncode != 0


@pytest.mark.parametrize("args", [["-m", "program"], ["folder"]], ids=" ".join)
def test_a_traceback_begins_in_the_program(tmp_path, same, args):
    """Except two lines of runpy, which Python itself also shows."""
    tmp_path.joinpath("folder").mkdir()
    for path in "program.py", "folder/__main__.py":
        tmp_path.joinpath(path).write_text(FAILS["an error"])
    alone, done = same(*args)
    lines, expected = (
        [one for one in text.stderr.splitlines() if one.startswith("  File ")]
        for text in (done, alone)
    )
    assert lines == expected and len(lines) == 4
