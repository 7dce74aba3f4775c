# SPDX-License-Identifier: BSD-3-Clause
"""A tree's end ends all of it, and nobody else. `python -m tests.zoo` tries it more often."""

import os

import pytest

from .. import trouble
from ..processes import need_program
from ..trouble.conftest import namespaces, real_root  # noqa: F401
from ..waiting.crowd import room
from . import bombs, strangers, tries
from .nest import INIT, become, compiled

pytest.importorskip("ctypes")
TRIES = 2
ANIMALS = [(name, animal) for name, animals in tries.MECHANISMS.items() for animal in animals]


def fits(animal):
    """A storm's zombies, or a fountain, take all processes that a small system leaves to a user."""
    return not animal.startswith(("storm", "fountain")) or room(1000) == 1000


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
    if not fits(animal):
        pytest.skip("this user may have too few processes for it")
    run(tries.check_young, mechanism, animal, TRIES)


@pytest.mark.parametrize("mechanism", tries.MECHANISMS)
def test_nothing_outlives_the_end_of_trees_that_are_older(run, mechanism):
    run(tries.check_old, mechanism, [*filter(fits, tries.MECHANISMS[mechanism])])


@pytest.mark.parametrize("mechanism", tries.MECHANISMS)
def test_strangers_that_get_the_pids_at_once_are_not_hit(run, mechanism):
    if room(1000) < 1000:
        pytest.skip("strangers that fork all the time need more processes than this user may have")
    run(strangers.check_strangers, mechanism, mechanism)


def test_without_a_tree_the_zoo_sees_who_has_escaped(run):
    run(tries.check_escape, "auto")


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    need_program("cc")
    folder = tmp_path_factory.mktemp("bombs")
    folder.chmod(0o755)
    return compiled(folder, "bomb")


@pytest.mark.parametrize(
    "mechanism, kind",
    [
        ("reaper", "group"),
        ("reaper", "double"),
        ("reaper", "python"),
        ("group", "plain"),
        ("group", "group"),
    ],
)
def test_a_bomb_at_its_limit_of_processes_ends(request, bomb, monkeypatch, mechanism, kind):
    """`python -m tests.zoo` tries other kinds, with higher limits, and measures the time."""
    monkeypatch.setenv("PIDWAIT_TREE", mechanism)
    user = bombs.USER + os.getpid()  # each has a limit of its own
    within = (*request.getfixturevalue("real_root"), *INIT, *become(user))
    trouble.run(bombs.check_bomb, bomb, kind, 20, 30, within=within)
