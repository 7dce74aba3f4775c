# SPDX-License-Identifier: BSD-3-Clause
from .loops import loop, run  # noqa: F401
