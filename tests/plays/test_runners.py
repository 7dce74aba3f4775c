# SPDX-License-Identifier: BSD-3-Clause
"""Scripts that name their requirements, run by uv on the oldest and the newest Python."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..bench.core import find
from ..package.recipes import RECIPES, SHELL, Folder
from ..processes import exiting, state
from .remote import single_file

ROOT = Path(__file__).resolve().parents[2]
TITLE = "In a script that names its requirements"
pytestmark = pytest.mark.skipif(
    find_spec("uv") is None and "CI" not in os.environ, reason="uv is not installed"
)


@pytest.fixture(params=["3.6", "3.15"])
def folder(request, tmp_path):
    """In which uv takes this Python, and nothing but this machine's."""
    python = find(request.param)
    assert python, request.param
    folder = Folder(tmp_path)
    folder.env.update(
        UV_PYTHON=python,
        UV_PYTHON_DOWNLOADS="never",
        UV_CACHE_DIR=str(tmp_path / "cache"),
        UV_NO_PROGRESS="1",
        UV_OFFLINE="1",
    )
    folder.path.joinpath("bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    return folder


def test_requirement(folder, start):
    """Of a wheel; flit_core, which makes it, is there already."""
    clone = folder.path / "clone"
    hidden = shutil.ignore_patterns(".*", "__pycache__", "tests")
    shutil.copytree(str(ROOT), str(clone), ignore=hidden)
    shutil.rmtree(str(folder.path / "pidwait"))
    folder.write("wait.py", RECIPES[TITLE][0])
    child = start(*exiting(0, 0.5))
    folder.env["PIP_NO_BUILD_ISOLATION"] = "false"
    folder.env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    status, out, err = folder.shell(SHELL[TITLE][0], CLONE=str(clone), PID=str(child.pid))
    assert (status, out.split()[1:3]) == (0, ["exited", "with"]), err
    assert state(child.pid) == "Z"


def test_single_file(folder, start):
    folder.write("wait.py", RECIPES[TITLE][1])
    clone = folder.path / "clone"
    clone.mkdir()
    folder.path.joinpath("pidwait").rename(clone / "pidwait")
    child = start(*exiting(0, 0.5))
    status, out, err = folder.shell(SHELL[TITLE][1], CLONE=str(clone), PID=str(child.pid))
    assert status == 0 and out.startswith("%d (sh): exited" % child.pid), err
    assert folder.path.joinpath("pidwait.py").read_bytes() == single_file()
