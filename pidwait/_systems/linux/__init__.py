# SPDX-License-Identifier: BSD-3-Clause
"""Linux: pidfds, epoll(7), /proc."""
