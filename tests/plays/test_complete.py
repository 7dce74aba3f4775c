# SPDX-License-Identifier: BSD-3-Clause
"""Nothing that this environment is for is left out."""

from importlib.util import find_spec

from ..test_recipes import NEEDS


def test_libraries_of_the_recipes_are_there():
    assert [name for name in NEEDS.values() if find_spec(name) is None] == []
