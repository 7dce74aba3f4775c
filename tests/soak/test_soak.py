# SPDX-License-Identifier: BSD-3-Clause
"""Long runs: nothing is left, nothing is mixed up."""

import os
import subprocess
import sys
import threading

import pytest

from .. import pidwait
from .waits import fork_that_exits


@pytest.mark.timeout(300)
def test_ten_thousand_waits(variant):
    """In a small process of its own, where a fork costs little."""
    subprocess.check_call([sys.executable, "-m", __package__ + ".waits", "10000"])


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_threads_on_shared_handles(variant):
    """Eight threads wait on each process, while others close the handle."""
    wrong = []
    for number in range(200):
        code = number % 256
        pid = fork_that_exits(code, after=0.01)
        process = pidwait.Process(pid)

        def wait(process=process, code=code):
            try:
                got = process.wait(60)
            except ValueError:  # closed before this one came
                return
            if got != code:
                wrong.append((got, code))

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        process.close()
        for thread in threads:
            thread.join()
        os.waitpid(pid, 0)
    assert wrong == []
