# SPDX-License-Identifier: BSD-3-Clause
import pidwait

__all__ = ["pidwait"]
