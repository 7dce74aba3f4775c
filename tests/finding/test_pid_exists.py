# SPDX-License-Identifier: BSD-3-Clause
"""pid_exists(): whether a process, running or a zombie, has the pid."""

import errno
import os

import pytest

from .. import pidwait
from ..conftest import another_thread
from ..processes import Pid, become_gone, become_zombie, exiting, gone_pid, not_on_windows, sleeping


@pytest.mark.windows
@pytest.mark.kqueue
def test_it_exists_while_it_runs_and_as_a_zombie_and_not_once_it_is_gone(variant, keeper):
    for pid in os.getpid(), Pid(os.getpid()), keeper.start(*sleeping(60)):
        assert pidwait.pid_exists(pid) is True
    pid = keeper.start(*exiting(0))
    become_zombie(pid)
    assert pidwait.pid_exists(pid) is True
    keeper.reap(pid)
    become_gone(pid)
    assert pidwait.pid_exists(pid) is False
    assert pidwait.pid_exists(gone_pid()) is False
    assert pidwait.pid_exists(2**31 - 1) is False


@not_on_windows("thread IDs that are like pids")
def test_a_thread_id_is_not_a_process(variant):
    with another_thread() as tid:
        assert pidwait.pid_exists(tid) is False
        with pytest.raises(ProcessLookupError):
            pidwait.ProcessInfo(tid)


@pytest.mark.windows
@pytest.mark.parametrize(
    "pid, error",
    [(0, ValueError), (-5, ValueError), (2**31, ValueError), (2**64 + 5, ValueError)]
    + [(pid, TypeError) for pid in (True, 1.0, "1", b"1", None)],
)
def test_what_can_not_be_a_pid_is_refused(pid, error):
    for function in pidwait.pid_exists, pidwait.ProcessInfo:
        with pytest.raises(error, match="^pid must be"):
            function(pid)


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM, errno.EACCES, errno.ENOSYS]
)
def test_a_system_that_gives_no_pidfd_does_not_matter(seam, sleeper, code):
    gone = gone_pid()
    assert pidwait.pid_exists(sleeper.pid)
    seam.refuse("pidfd_open", code)
    assert pidwait.pid_exists(sleeper.pid) is True
    assert pidwait.pid_exists(gone) is False
