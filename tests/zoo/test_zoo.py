# SPDX-License-Identifier: BSD-3-Clause
"""A tree's end ends all of it, and nobody else. `python -m tests.zoo` tries it more often."""

import pytest

from .. import trouble
from ..processes import need_program
from ..trouble.conftest import namespaces  # noqa: F401
from . import strangers, tries
from .nest import INIT, compiled

pytest.importorskip("ctypes")
TRIES = 2
ANIMALS = [(name, animal) for name, animals in tries.MECHANISMS.items() for animal in animals]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_program("cc")
    return compiled(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def run(namespaces, program, monkeypatch):  # noqa: F811
    def run(function, mechanism, *args):
        monkeypatch.setenv("PIDWAIT_TREE", mechanism)
        trouble.run(function, program, *args, within=(*namespaces, *INIT))

    return run


@pytest.mark.parametrize("mechanism, animal", ANIMALS)
def test_nothing_outlives_the_end_of_a_tree(run, mechanism, animal):
    run(tries.check_young, mechanism, animal, TRIES)


@pytest.mark.parametrize("mechanism", tries.MECHANISMS)
def test_nothing_outlives_the_end_of_trees_that_are_older(run, mechanism):
    run(tries.check_old, mechanism, tries.MECHANISMS[mechanism])


@pytest.mark.parametrize("mechanism", tries.MECHANISMS)
def test_strangers_that_get_the_pids_at_once_are_not_hit(run, mechanism):
    run(strangers.check_strangers, mechanism, mechanism)


def test_without_a_tree_the_zoo_sees_who_has_escaped(run):
    run(tries.check_escape, "auto")
