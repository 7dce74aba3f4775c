# SPDX-License-Identifier: BSD-3-Clause
"""A keeper starts where its program runs: with PYTHONHOME, from .pyc files, after an upgrade."""

import compileall
import importlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from .. import pidwait
from ..needs import needs
from ..processes import need_program, run_python

pytestmark = needs("keeper of trees")
if not os.path.isdir(getattr(pidwait, "__path__", [""])[0]):
    pytest.skip("a folder is needed, to copy it", allow_module_level=True)
Popen = importlib.import_module(pidwait.__name__ + ".subprocess").Popen

PROGRAM = """if True:
    import os, shutil, sys
    sys.path.insert(0, {folder!r})
    from copied import subprocess
    {before}
    command = "echo $PYTHONHOME:$PYTHONHASHSEED; exit 3"
    with subprocess.Popen(["sh", "-c", command], stdout=-1, tree=True) as tree:
        print(tree.mechanism, tree.stdout.read().decode().strip())
    print(tree.returncode)
"""


@pytest.fixture
def copied(tmp_path):
    """A copy of the package, in a folder of its own."""
    shutil.copytree(pidwait.__path__[0], str(tmp_path / "copied"))
    return tmp_path


def told(folder, before="", **variables):
    code = PROGRAM.format(folder=str(folder), before=before)
    env = dict(os.environ, PYTHONHASHSEED="7", **variables)
    done = subprocess.run([sys.executable, "-c", code], stdout=-1, env=env, check=True)
    return done.stdout.decode().split()


def test_with_pythonhome_its_interpreter_starts_and_the_command_has_the_same_environment(copied):
    home = sys.base_prefix
    assert told(copied, PYTHONHOME=home) == ["reaper", home + ":7", "3"]
    assert told(copied) == ["reaper", os.environ.get("PYTHONHOME", "") + ":7", "3"]


def test_its_text_is_there_from_pyc_files_alone(copied):
    assert compileall.compile_dir(str(copied), quiet=1, legacy=True)
    for path in copied.rglob("*.py"):
        path.unlink()
    assert told(copied) == ["reaper", os.environ.get("PYTHONHOME", "") + ":7", "3"]


@pytest.mark.parametrize("text", [None, "an upgrade"])
def test_its_text_is_read_once(copied, text):
    path = str(copied / "copied" / "_trees" / "keeper.py")
    before = "shutil.rmtree(%r)" % str(copied)
    if text is not None:
        before = "open(%r, 'w').write(%r)" % (path, text)
    assert told(copied, before)[::2] == ["reaper", "3"]


BROKEN = """if True:
    import logging, os, sys
    import {0} as pidwait
    from {0} import subprocess
    sys.executable = {1!r}
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    command = ["sh", "-c", "echo told >&2; exit 3"]
    print(pidwait.probe()["calls"]["keeper of trees"]["reason"] if {2} else None)
    for _ in range(2):
        with subprocess.Popen(command, tree=True) as tree:
            assert (tree.mechanism, tree.wait()) == ("group", 3)
    print(pidwait.probe()["calls"]["keeper of trees"]["reason"])
    os.environ["PIDWAIT_TREE"] = "reaper"
    try:
        subprocess.Popen(["true"], tree=True)
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(
    "text, reason",
    [
        (None, "No such file or directory"),
        ("no program", "Exec format error"),
        ("#!/bin/sh\necho an error here >&2\nexit 1\n", "an error here"),
    ],
)
def test_without_an_interpreter_that_starts_a_tree_is_a_group_and_says_so(
    tmp_path, monkeypatch, text, reason, asks
):
    path = tmp_path / "python3"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.delenv("PIDWAIT_TREE", raising=False)
    done = run_python(BROKEN.format(pidwait.__name__, str(path), asks))
    before, warning, found, refusal = done.stdout.splitlines()
    assert before == (found if asks else "None") and reason in found and str(path) in found
    assert warning.endswith(found) and refusal.endswith("is reaper: " + found)
    assert done.stderr == "told\ntold\n"


ELSEWHERE = """if True:
    import logging, os, sys
    from {0} import subprocess
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    if {2}:
        subprocess.check_call(["true"], tree=True)
    os.chroot({1!r})
    os.chdir("/")
    for _ in range(2):
        with subprocess.Popen(["/program"], tree=True) as tree:
            print(tree.mechanism, tree.wait())
"""


@pytest.mark.root
# Before Python 3.9, threads need a library that the new root lacks: see LIMITS.
@pytest.mark.parametrize("starts", [False] * (sys.version_info >= (3, 9)) + [True])
def test_where_the_programs_new_root_has_no_python_a_tree_is_a_group(tmp_path, monkeypatch, starts):
    monkeypatch.delenv("PIDWAIT_TREE", raising=False)
    command = need_program("cc"), "-static", "-o", "program", "-x", "c", "-"
    subprocess.run(command, input=b"int main() { return 3; }", cwd=str(tmp_path), check=True)
    done = run_python(ELSEWHERE.format(pidwait.__name__, str(tmp_path), starts))
    warning, *lines = done.stdout.splitlines()
    assert "a tree is a process group" in warning and lines == ["group 3"] * 2, done


def test_who_only_looks_like_a_keeper_is_ended_as_all_others(tmp_path):
    pid = tmp_path / "pid"
    mark = "# keeper of a process tree\nimport sys"
    script = "setsid sh -c 'trap \"\" TERM; echo $$ > {}; sleep 60; :' '{}' & cat"
    script = script.format(pid, mark)
    with Popen(["sh", "-c", script], stdin=-1, tree=True) as tree:
        while not pid.exists() or not pid.read_text():
            assert tree.poll() is None
        assert tree.end(0.1) < 0
    assert not pathlib.Path("/proc", pid.read_text().strip()).exists()
