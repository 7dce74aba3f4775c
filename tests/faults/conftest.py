# SPDX-License-Identifier: BSD-3-Clause
import pytest

from . import system


@pytest.fixture
def namespaces():
    try:
        return system.namespaces()
    except OSError as error:
        pytest.skip(str(error))
