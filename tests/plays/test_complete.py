# SPDX-License-Identifier: BSD-3-Clause
"""Nothing that this environment is for is left out."""

from importlib.util import find_spec

from ..package.recipes import IN_LOOPS, NEEDS


def test_libraries_of_the_recipes_are_there():
    needed = list(NEEDS.values()) + sum(map(list, IN_LOOPS.values()), [])
    assert [name for name in needed if find_spec(name) is None] == []
