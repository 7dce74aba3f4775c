# SPDX-License-Identifier: BSD-3-Clause
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOY = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="no such backend")
def test_skipped():
    pass

def test_skips_itself():
    pytest.skip("not on this system")

@pytest.mark.xfail(reason="not yet")
def test_expected_to_fail():
    assert False
"""
TOY_MODULE = """
import pytest

pytest.skip("not on this system", allow_module_level=True)
"""
RUN = """
import os, pytest

for env in "three", "four", "five", "unlisted", "":
    os.environ["TOX_ENV_NAME"] = env
    code = pytest.main(["-p", "skips"])
    print("exit {} {:d}".format(env, code))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(exit code, output) of the toy suite, which skips four tests, by environment."""
    tmp = tmp_path_factory.mktemp("skips")
    shutil.copy(str(Path(__file__).with_name("skips.py")), str(tmp))
    tmp.joinpath("skips.ini").write_text("[skips]\nthree = 3\nfour = 4\nfive = 5\n")
    tmp.joinpath("test_toy.py").write_text(TOY)
    tmp.joinpath("test_toy_module.py").write_text(TOY_MODULE)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    out = subprocess.check_output(
        [sys.executable, "-c", RUN], cwd=str(tmp), env=env, universal_newlines=True
    )
    found = re.findall(r"(.*?)^exit (\w*) (\d+)$", out, re.DOTALL | re.MULTILINE)
    return {env: (int(code), out) for out, env, code in found}


def test_more_than_granted_fails_and_lists_them(runs):
    code, out = runs["three"]
    assert code == 1
    assert "three: 4 skipped, tests/skips.ini grants 3" in out
    assert "test_skipped: no such backend" in out
    assert "test_expected_to_fail: xfail: not yet" in out
    assert "test_toy_module.py: not on this system" in out


def test_as_many_as_granted_passes_silently(runs):
    code, out = runs["four"]
    assert code == 0
    assert "grants" not in out


def test_fewer_than_granted_passes_and_says_so(runs):
    code, out = runs["five"]
    assert code == 0
    assert "five: 4 skipped, tests/skips.ini grants 5" in out


def test_an_environment_not_listed_is_granted_none(runs):
    code, out = runs["unlisted"]
    assert code == 1
    assert "unlisted: 4 skipped, tests/skips.ini grants 0" in out


def test_outside_tox_nothing_is_counted(runs):
    code, out = runs[""]
    assert code == 0
    assert "grants" not in out


def test_reasons_are_told_the_most_frequent_first(runs):
    for _, out in runs.values():
        told = re.findall(r"(?m)^SKIPPED \[(\d+)\] (.*)$", out)
        assert told[0] == ("2", "not on this system")
        assert sorted(told[1:]) == [("1", "no such backend"), ("1", "xfail: not yet")]
