# SPDX-License-Identifier: BSD-3-Clause
"""Records which lines of the package run, for tests/matrix/lines.py.

Each interpreter with this folder on its path imports it when it starts, so those that a test
starts record, too. It imports no other module of the tests, to be ready before them.
"""

import os
import sys

# To be kept, as a test may patch them.
_open, _write, _close, _environ = os.open, os.write, os.close, os.environ
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def record(file, package):
    """Append "test, module, line" to ``file`` for each line that runs in the folder ``package``."""
    monitoring = sys.monitoring
    start = len(package) + 1

    def on_line(code, line):
        path = code.co_filename
        if path.startswith(package):
            test = _environ.get("RECORDED_TEST", "")
            try:
                fd = _open(file, _FLAGS, 0o666)
                try:
                    _write(fd, "{}\t{}\t{}\n".format(test, path[start:], line).encode())
                finally:
                    _close(fd)
            except OSError:
                return None  # out of file descriptors, or another user: the next time, perhaps
        return monitoring.DISABLE  # until the next test

    monitoring.use_tool_id(monitoring.PROFILER_ID, "lines")
    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.LINE, on_line)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.LINE)


if "RECORD_LINES" in os.environ and hasattr(sys, "monitoring"):
    record(*os.environ["RECORD_LINES"].split(os.pathsep))
