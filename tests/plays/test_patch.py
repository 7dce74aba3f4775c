# SPDX-License-Identifier: BSD-3-Clause
"""Programs do the same under patch(): a recipe runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..package.recipes import RECIPES, with_our_name
from .programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent.parent

_, MODULE = RECIPES["A script that you can't change"]
# Each interpreter notes each of its starts, and whether it has been patched.
SITE = """
import os, sys


def note(event, arguments):
    if event == "subprocess.Popen":
        module = sys.modules["subprocess"]
        is_its_own = module.Popen._wait.__code__.co_filename == module.__file__
        with open(os.environ["WITNESS"], "a") as file:
            print("its own" if is_its_own else "patched", file=file)


sys.addaudithook(note)
"""


def run(program, folder, *start):
    """Exit status, the lines of the output, all files; and for each start, by which Popen."""
    files = folder / "files"
    site = folder / "site"
    witness = folder / "witness"
    files.mkdir(parents=True)
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    for name, text in program.files.items():
        (files / name).write_text(text, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    env.pop("PYTEST_ADDOPTS", None)  # it may say to run only what has failed
    env.update(
        PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]),
        WITNESS=str(witness),
        TMPDIR=str(folder),
        PYTHONDONTWRITEBYTECODE="1",
    )
    done = subprocess.run(
        [sys.executable, *start, *program.arguments],
        cwd=str(files),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    found = {str(path.relative_to(files)) for path in files.rglob("*")}
    starts = witness.read_text().splitlines()
    return (done.returncode, lines(done.stdout, folder), found), starts


def lines(text, folder):
    """Without what differs from run to run; parallel programs print in any order."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\d+:\d+:\d+|\d+\.\d+ ?s(econds)?\b", "TIME", text)
    text = re.sub(r"pid[= ]\d+|sha256=\w+|size=\d+|\bgw\d\b|\bpip-\S+", "ID", text)
    # pytest's letters, one for each test.
    text = re.sub(r"^[.F]+(?= )", lambda found: "".join(sorted(found.group())), text, flags=re.M)
    return sorted(text.splitlines())


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name, tmp_path):
    program = PROGRAMS[name]
    did, starts = run(program, tmp_path / "plain", "-m")
    patched, starts_patched = run(program, tmp_path / "patched", "-c", with_our_name(MODULE))
    assert did[0] == program.status, "\n".join(did[1])
    assert patched == did
    assert len(starts_patched) == len(starts)
    assert set(starts) == {"its own"}
    assert "patched" in starts_patched
