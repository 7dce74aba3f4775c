# SPDX-License-Identifier: BSD-3-Clause
import pytest


@pytest.fixture
def no_events(seam):
    seam.without_hints()
