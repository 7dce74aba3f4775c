# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2), ps(1)."""
