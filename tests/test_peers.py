# SPDX-License-Identifier: BSD-3-Clause
"""What the suites of psutil, libuv and CPython test of waiting, and where it is tested here."""

import importlib

import pytest

from . import pidwait
from .processes import become_zombie, exiting

EDGE_CASES = [
    ("exited, with each kind of code", "test_wait.test_exit_code_of_a_child"),
    ("killed by a signal", "test_wait.test_exit_code_of_a_child"),
    ("exit code 259", "test_wait.test_exit_code_of_a_child"),
    ("a zombie already", "test_wait.test_exit_code_of_a_zombie_child"),
    ("gone already", "test_wait.test_gone"),
    ("asked again once it is gone", "test_process.test_wait"),
    ("stopped and continued", "test_wait.test_stopped_and_continued_is_not_exited"),
    ("not a child", "test_wait.test_not_a_child"),
    ("a child's child", "test_wait.test_not_a_child"),
    ("time-out of zero, again and again", "test_peers.test_looks_until_it_has_exited"),
    ("infinite and huge time-outs", "test_wait.test_long_time_outs"),
    ("negative time-outs", "test_wait.test_no_time_looks_once"),
    ("NaN", "test_input.test_timeout_nan"),
    ("time-outs below a millisecond", "test_wait.test_shortest_time_out"),
    ("storms of signals, setitimer", "faults.test_storms.in_a_storm"),
    ("a signal handler that raises", "faults.test_storms.stopped_by_a_storm"),
    ("reaped between open and wait", "faults.test_lost.reaped_at_any_line"),
    ("reaped between poll and waitid", "faults.test_lost.stolen_between_poll_and_waitid"),
    ("exit seen before it can be reaped", "faults.test_tracer.reaped"),
    ("SIGCHLD ignored", "faults.test_lost.ignored"),
    ("reaped by a SIGCHLD handler", "faults.test_storms.reaped_by_the_handler"),
    ("waitpid of a Popen elsewhere", "test_owners.test_popen_beside_a_handle"),
    ("no fds while probing", "test_probe.test_no_file_descriptor_left_while_probing"),
    ("no fds: EMFILE", "faults.test_fds.test_before"),
    ("no fds while polling", "faults.test_fds.test_limit_falls_at_any_line"),
    ("pidfd_open forbidden", "faults.test_policy.test_one_call"),
    ("two threads in one wait", "test_wait.test_two_threads_wait_for_one_process"),
    ("handle closed under a waiter", "faults.test_threads.all_wait"),
    ("handle used after a fork", "faults.test_threads.forked_copies"),
    ("pid of another process", "faults.test_reuse.handle"),
    ("leaks over thousands of waits", "test_peers.test_nothing_is_left_of_thousands"),
]


@pytest.mark.parametrize("name", sorted({name for _, name in EDGE_CASES}))
def test_is_there(name):
    module, _, function = name.rpartition(".")
    if module.startswith("faults"):
        pytest.importorskip("resource", reason="Windows has no such faults")
    assert callable(getattr(importlib.import_module("." + module, __package__), function))


def test_looks_until_it_has_exited(variant, start_told):
    child = start_told(3)
    looks = 0
    while True:
        looks += 1
        try:
            code = pidwait.wait(child.pid, 0)
        except pidwait.TimeoutExpired:
            child.stdin.close()
            continue
        break
    assert (code, looks > 1) == (3, True)


def test_nothing_is_left_of_thousands(variant, start, sleeper):
    """No fd, no handle: see conftest.nothing_left."""
    zombie = start(*exiting(3))
    become_zombie(zombie.pid)
    for _ in range(1000):
        assert pidwait.wait(zombie.pid) == 3
        with pidwait.Process(zombie.pid) as process:
            assert process.wait() == 3
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(sleeper.pid, 0)
