# SPDX-License-Identifier: BSD-3-Clause
"""Windows: HANDLEs, completion ports, snapshots."""
