# SPDX-License-Identifier: BSD-3-Clause
"""Programs that start processes: their input files, how they are called, and how they end."""

from collections import namedtuple

Program = namedtuple("Program", "files arguments status")

SUITE = """
import subprocess
import sys

import pytest


def test_output():
    assert subprocess.check_output(["echo", "hello"]) == b"hello\\n"


def test_input():
    done = subprocess.run(["cat"], input="é\\n" * 100000, stdout=subprocess.PIPE, encoding="utf-8")
    assert (done.stdout, done.returncode) == ("é\\n" * 100000, 0)


def test_time_out():
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=0.01)


def test_time_out_of_communicate():
    command = ["sh", "-c", "cat; sleep 1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        with pytest.raises(subprocess.TimeoutExpired):
            cat.communicate(b"hello", timeout=0.3)
        assert cat.communicate() == (b"hello", None)


def test_kill():
    sleeper = subprocess.Popen(["sleep", "60"])
    sleeper.kill()
    assert sleeper.wait(timeout=30) == -9


def test_fails():
    subprocess.check_call([sys.executable, "-c", "raise SystemExit(3)"])
"""

PYPROJECT = """
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"

[project]
name = "toy"
version = "1"
description = "A toy."
"""
PACKAGE = {"pyproject.toml": PYPROJECT, "toy.py": ""}

TASKS = """
from invoke import task
from invoke.exceptions import CommandTimedOut


@task
def outputs(c):
    c.run("echo out; echo err >&2")


@task(outputs)
def times_out(c):
    try:
        c.run("sleep 60", timeout=0.1, in_stream=False)
    except CommandTimedOut as error:
        print("timed out", error.result.exited)


@task(times_out)
def fails(c):
    c.run("exit 3", in_stream=False)
"""

SESSIONS = """
import nox

nox.options.default_venv_backend = "none"


@nox.session
def passes(session):
    print(session.run("echo", "hello", silent=True, external=True))


@nox.session
def fails(session):
    session.run("sh", "-c", "echo before; exit 3", external=True)
"""

ACTIONS = """
def task_outputs():
    return {"actions": ["echo hello > %(targets)s"], "targets": ["hello"]}


def task_copies():
    return {"actions": ["cat hello"], "file_dep": ["hello"], "verbosity": 2}


def task_fails():
    return {"actions": ["exit 3"], "task_dep": ["copies"]}
"""

PROCFILE = """
ends: read line; echo "got $line"; exit 3
stays: exec sleep 60
"""

PROGRAMS = {
    "pytest": Program({"test_toy.py": SUITE}, ["pytest", "-q", "test_toy.py"], 1),
    "pytest-xdist": Program(
        {"test_toy.py": SUITE}, ["pytest", "-q", "-p", "xdist", "-n", "2", "test_toy.py"], 1
    ),
    "pip": Program(
        PACKAGE,
        "pip wheel --no-index --no-deps --no-build-isolation --disable-pip-version-check "
        "--no-cache-dir --wheel-dir dist .".split(),
        0,
    ),
    "build": Program(PACKAGE, ["build", "--wheel", "--no-isolation"], 0),
    "invoke": Program({"tasks.py": TASKS}, ["invoke", "fails"], 3),
    "nox": Program({"noxfile.py": SESSIONS}, ["nox", "--no-error-on-missing-interpreters"], 1),
    "doit": Program({"dodo.py": ACTIONS}, ["doit", "-n", "2", "-P", "thread"], 1),
    "honcho": Program({"Procfile": PROCFILE}, ["honcho", "--no-colour", "start"], 3),
}
