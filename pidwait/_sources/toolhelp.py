# SPDX-License-Identifier: BSD-3-Clause
"""What Windows tells about any process, whatever our rights on it: a snapshot of all processes.

See CreateToolhelp32Snapshot in its documentation.
"""

import os

from .._ffi import calls, win32
from .._handle import opened


class Entry:
    """The fields of a PROCESSENTRY32W that tell one process from another."""

    __slots__ = ("name", "parent", "pid", "threads")

    def __init__(self, entry: bytearray) -> None:
        def number(offset: int) -> int:
            return int.from_bytes(entry[offset : offset + 4], "little")

        self.pid = number(win32.PROCESSENTRY_PID)
        self.threads = number(win32.PROCESSENTRY_THREADS)
        self.parent = number(win32.PROCESSENTRY_THREADS + 4)
        name = entry[win32.PROCESSENTRY_NAME :].decode("utf-16-le", "replace")
        self.name = name.partition("\0")[0]


def find(pid: int) -> "Entry | None":
    return next((entry for entry in entries() if entry.pid == pid), None)


def entries() -> "list[Entry]":
    """All processes. The snapshot's HANDLE is closed when it returns."""
    snapshot = opened("CreateToolhelp32Snapshot", win32.TH32CS_SNAPPROCESS, 0)
    try:
        found: "list[Entry]" = []
        entry = bytearray(win32.PROCESSENTRY_SIZE)
        entry[:4] = len(entry).to_bytes(4, "little")
        name = "Process32FirstW"
        while True:
            try:
                calls.get(name)(snapshot.number, entry)
            except OSError as error:
                if win32.error_number(error) == win32.ERROR_NO_MORE_FILES:
                    return found
                raise
            found.append(Entry(entry))
            name = "Process32NextW"
    finally:
        snapshot.close()


def check() -> None:
    """Find our own process."""
    if find(os.getpid()) is None:
        raise OSError(0, "the snapshot lacks this process")
