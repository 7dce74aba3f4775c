# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that sentry_sdk and wrapt install: see hooked.py."""

import pytest

from .processes import skip_module_without
from .test_hooks import ORDERS, PRIVATE, asked

skip_module_without("sentry_sdk", "wrapt")


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_proxies(order, tmp_path):
    assert asked(order, "proxies", tmp_path) == ORDERS[order]


@pytest.mark.parametrize("order", sorted(PRIVATE))
def test_private_proxies(order, tmp_path):
    assert asked(order, "private_proxies", tmp_path) == PRIVATE[order]


@pytest.mark.parametrize("order", ["hpupu", "phupu", "phPuU"])
def test_sentry(order, tmp_path):
    # sentry_sdk tries to import eventlet, which warns.
    assert asked(order, "sentry", tmp_path, "-W", "ignore") == ORDERS[order]
