# SPDX-License-Identifier: BSD-3-Clause
"""What type checkers need at run time. tox's environment `types` checks what they report."""

import re
import types
from pathlib import Path

import pytest

from . import pidwait

EXAMPLES = Path(__file__).resolve().parent / "types" / "right.py"


def test_examples_have_all_that_is_public():
    text = EXAMPLES.read_text(encoding="utf-8")
    used = set(re.findall(r"\bpidwait\.(\w+)", text))
    assert used == set(pidwait.__all__) | {"__version__"}


@pytest.mark.parametrize("generic", [pidwait.WaitSet, pidwait.Watch])
def test_subscripts(generic):
    if hasattr(types, "resolve_bases"):  # Python 3.7, PEP 560
        assert generic[int] is generic
    else:
        with pytest.raises(TypeError):
            generic[int]


def test_watches_have_no_dict():
    assert not hasattr(pidwait.Watch.__new__(pidwait.Watch), "__dict__")
