# SPDX-License-Identifier: BSD-3-Clause
"""What all else agrees on: deadlines, errors, handles, checks. It knows no system."""
