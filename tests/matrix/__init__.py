# SPDX-License-Identifier: BSD-3-Clause
"""How to get each interpreter, kernel and system, and how to measure what the tests cover."""
