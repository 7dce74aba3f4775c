# SPDX-License-Identifier: BSD-3-Clause
"""pyproject.toml and tox.ini name the same versions."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8")
TOX = ROOT.joinpath("tox.ini").read_text(encoding="utf-8")


def test_each_python_that_is_tested_is_a_classifier():
    (minors,) = re.findall(r"(?m)^    py3\{([\d,]+)\}$", TOX)
    # One stands for its version: it has no GIL.
    tested = minors.split(",") + re.findall(r"(?m)^    py3(\d+)t$", TOX)
    classified = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', PYPROJECT)
    assert classified == sorted(tested, key=int)


def test_the_lowest_python_is_the_first_classifier():
    (lowest,) = re.findall(r'(?m)^requires-python = ">=([\d.]+)"$', PYPROJECT)
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)[0] == lowest


def test_the_licence_is_an_expression_and_no_classifier():
    assert '\nlicense = "BSD-3-Clause"\n' in PYPROJECT
    assert "License ::" not in PYPROJECT


def test_tox_builds_by_what_others_build_by():
    (requires,) = re.findall(r'(?m)^requires = \["flit_core (.*)"\]$', PYPROJECT)
    installed = re.findall(r"(?m)^    flit_core(.*)$", TOX)
    assert installed
    assert set(installed) == {requires}
