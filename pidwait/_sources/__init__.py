# SPDX-License-Identifier: BSD-3-Clause
"""What each system shows of processes: for exit codes, for polling, for looking at them.

    exitcodes   a pid, a child or a pidfd: kill(2), waitid(2), PIDFD_GET_INFO
    procfs      Linux: /proc
    ps          macOS and the BSDs: ps(1)
    toolhelp    Windows: a snapshot of all processes

They answer what is asked now, and remember nothing. How often to ask is up to the caller.
"""
