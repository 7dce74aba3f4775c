# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests` and `python -m tests all`, in copies of the tree that have only toys to run."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from .. import venvs
from .everything import Request, without_interpreter
from .interpreters import search_path
from .trees import IGNORED, ROOT

pytestmark = pytest.mark.timeout(300)  # they install packages

TOY = """
import pytest

def test_passes():
    pass

def test_skipped():
    pytest.skip("not on this system")

def test_fails():
    assert False
"""
TOX = """
[tox]
requires =
    tox>=4.23
    tox-uv>=1.16
env_list = good, bad, py399, headers15, win37
skip_missing_interpreters = true

[testenv]
package = skip

[testenv:{good,headers15}]
commands =
    python -c "print('SKIPPED [2] not here'); print('= 3 passed, 2 skipped in 0.01s =')"
    python -c "print('1 failed, 1 passed in 61.01s (0:01:01)')"

[testenv:bad]
commands = python -c "raise SystemExit(3)"

[testenv:{slow,slower}]
commands = python slow.py
"""
SLOW = """
import faulthandler, os, signal, time

faulthandler.enable()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
else:
    with open(os.environ["TOX_ENV_NAME"] + ".child", "w") as file:
        file.write(str(child))
time.sleep(120)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what runs tests."""
    tree = tmp_path_factory.mktemp("tree")
    for name in "pidwait", "tests":
        shutil.copytree(str(ROOT / name), str(tree / name), ignore=IGNORED)
    shutil.copy(str(ROOT / "pyproject.toml"), str(tree))
    tree.joinpath("tests/test_toy.py").write_text(TOY)
    tree.joinpath("tox.ini").write_text(TOX)
    tree.joinpath("slow.py").write_text(SLOW)
    return tree


def run(tree, *args, **more):
    """The exit status and the output, as outside of tox."""
    env = {k: v for k, v in os.environ.items() if not re.match("CI$|TOX|PYTEST|PYTHONPATH", k)}
    env.update(more, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, "-m", "tests"] + list(args),
        cwd=str(tree),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return done.returncode, done.stdout


def test_one_interpreter(tree):
    code, out = run(tree, "tests/test_toy.py", "-k", "not fails")
    assert code == 0, out
    assert out.startswith(venvs.interpreter())
    assert "made now" in out
    assert "SKIPPED [1] not on this system" in out
    assert re.search(r"= 1 passed, 1 skipped in .*\n\d+ s in all, \d+ s of them to set up\n$", out)
    code, out = run(tree, "tests/test_toy.py")
    assert code == 1
    assert "made now" not in out
    assert "1 failed, 1 passed, 1 skipped" in out


def test_nothing_to_install_from(tree):
    shutil.rmtree(str(tree / ".tox"), ignore_errors=True)
    code, out = run(tree, "tests/test_toy.py", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tree))
    assert code == 1
    assert len(re.findall("is there a network, and a package registry", out)) == 1
    assert out.splitlines()[-1].startswith("pip could not install"), out
    assert "Traceback" not in out


def test_no_ensurepip(monkeypatch, tmp_path):
    monkeypatch.setattr(venvs, "FOLDER", tmp_path)
    monkeypatch.setattr(venvs, "find_spec", {"venv": True}.get)
    with pytest.raises(SystemExit, match="has no module ensurepip: install it .*python3-venv"):
        venvs.Venv("toy", ["pytest"]).make()
    assert list(tmp_path.iterdir()) == []


def test_extras_without_a_wheel_are_done_without(monkeypatch, tmp_path):
    monkeypatch.setattr(venvs, "FOLDER", tmp_path)
    venv = venvs.Venv("toy", ["pluggy"], ["no-such-package-of-anybody"])
    venv.make()
    assert venv.is_made()
    assert venv.lacks() == ["no-such-package-of-anybody"]
    assert not venvs.Venv("toy", ["pluggy", "tox"]).is_made()


def test_everything(tree):
    code, out = run(tree, "all")
    assert code != 0
    plan, _, rest = out.partition("good: ")
    assert "environments: 3, in parallel" in plan
    assert re.search("(?m)^  runs +good bad$", plan)
    assert re.search("(?m)^  missing +py399 .no interpreter.$", plan)
    assert re.search("(?m)^  not run +headers15 .each downloads 100 MB", plan)
    assert re.search("(?m)^  not run +win37 ", plan)
    table = rest[rest.index("  environment\n") :]
    table = re.sub(r"\d+ s\b|in [\d.]+s", "_", table)
    assert re.sub("  +", "  ", table) == textwrap.dedent(
        """\
          environment
          good  ok  _  1 failed, 4 passed, 2 skipped
          bad  failed  _
          py399  left out  _  no interpreter
          headers15  left out  downloads 100 MB, fills 400 MB
          win37  left out  downloads 50 MB, fills 700 MB while it runs, needs wine and mvn

          skipped, and why
          2  not here: good

        environments: 1 ok, 1 failed, 3 left out
        ===== 1 failed, 4 passed, 2 skipped, 1 error _ =====
        """
    )


@pytest.mark.parametrize(
    "args, more",
    [(["--large"], {}), (["--skip-missing-interpreters", "true"], {"CI": "1"})],
)
def test_large_ones_run_if_asked(tree, args, more):
    _, out = run(tree, "all", "run", *args, **more)
    assert "environments: 5, one after the other" in out
    assert re.search("(?m)^  large +headers15 .each downloads 100 MB", out)
    assert "not run" not in out
    assert re.search("(?m)^  headers15 +ok ", out)


def test_large_ones_run_if_named(tree):
    code, out = run(tree, "all", "-e", "headers15")
    assert code == 0
    assert "environments: 1, one after the other" in out
    assert re.search("(?m)^environments: 1 ok$", out)


def test_interpreters_that_must_be_there_fail(tree):
    code, out = run(tree, "all", "-e", "py399,good", "--skip-missing-interpreters", "false")
    assert code != 0
    assert re.search("(?m)^  py399 +failed ", out)


def test_what_hangs_is_stopped_and_says_where(tree):
    code, out = run(tree, "all", "-e", "slow,slower,good", "--limit", "0.1")
    assert code != 0
    assert len(re.findall(r"(?m)^OVERDUE, 6 s: .*python slow\.py$", out)) == 2
    assert len(re.findall(r'(?m)slow\.py", line 11 in <module>$', out)) == 2
    assert re.search("(?m)^environments: 1 ok, 2 failed$", out)
    for name in "slow", "slower":
        assert not is_running(int(tree.joinpath(name + ".child").read_text()))


def is_running(pid):
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("args", [["-h"], ["--help"], ["all", "--help"]])
def test_help(tree, args):
    code, out = run(tree, *args)
    assert code == 0
    assert "python3 -m tests all [--large] [--limit MINUTES]" in out


def test_other_commands_of_tox(tree):
    code, out = run(tree, "all", "list", "--no-desc", "-q", "-d")
    assert code == 0
    assert out.split()[-5:] == ["good", "bad", "py399", "headers15", "win37"]


def test_what_is_for_tox_and_what_is_for_pytest():
    request = Request(["run", "-e", "py36,lint", "--fail-fast", "--", "-k", "x", "-e"])
    assert request.command == "run"
    assert request.names(None, None) == ["py36", "lint"]
    assert request.args == ["--fail-fast"]
    assert request.rest == ["--", "-k", "x", "-e"]


def test_interpreters_are_found():
    here = "py%d%d" % sys.version_info[:2]
    names = [here, here + "-faults", "py399", "pypy399-faults", "lint", "win37"]
    assert without_interpreter(names, search_path()) == ["py399", "pypy399-faults"]
