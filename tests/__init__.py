# SPDX-License-Identifier: BSD-3-Clause
import sys

import pidwait

__all__ = ["LINUX", "pidwait"]

LINUX = sys.platform.startswith(("linux", "android"))
