# SPDX-License-Identifier: BSD-3-Clause
"""What each system tells about processes: for exit codes, for polling, for the command line.

    exitcodes   a pid, a child or a pidfd: kill(2), waitid(2), PIDFD_GET_INFO
    procfs      Linux: /proc
    ps          macOS and the BSDs: ps(1)
    toolhelp    Windows: a snapshot of all processes
    users       names of users

Each looks when it is asked, and remembers nothing. How often to ask is up to the caller.
"""
