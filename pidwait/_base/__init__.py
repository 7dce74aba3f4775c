# SPDX-License-Identifier: BSD-3-Clause
"""What all else agrees on: deadlines, errors, handles, the probe. It knows no system."""
