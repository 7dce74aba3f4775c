# SPDX-License-Identifier: BSD-3-Clause
"""How each interpreter, kernel and system is had, and how far the tests reach."""
