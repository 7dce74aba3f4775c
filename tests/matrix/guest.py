# SPDX-License-Identifier: BSD-3-Clause
"""What runs on other kernels, and inside their virtual machines runs it: see kernels.py.

Tests of what depends on the kernel, and none that needs a fast machine.
"""

import glob
import os
import sys

# Few, for CI; QUICK and MORE as a whole by command.
QUICK = {
    "what the kernel offers, and the probe says": "tests/matrix/kernel_facts.py",
    "states, links and exit codes in /proc": "tests/test_procfs.py",
    "every way to wait, each with its real calls": """
        tests/test_probe.py::test_what_it_tells
        tests/test_wait.py::test_exit_code_of_a_child
        tests/test_wait.py::test_not_a_child
        tests/test_wait.py::test_thread_id_is_no_process
        tests/test_process.py::test_signals
        tests/test_waiting.py::test_in_the_order_of_exit
    """,
    "the connector, and inotify": """
        tests/test_connector*.py
        tests/test_netlink.py
        tests/test_inotify*.py
        tests/test_events*.py
    """,
}
MORE = {
    "calls that some kernels lack": "tests/test_pidfd.py",
    "no file descriptor left": """
        tests/test_probe.py::test_no_file_descriptor_left_while_probing
        tests/test_probe.py::test_a_first_wait_without_file_descriptors
        tests/test_waiting.py::test_low_file_descriptors_are_left_alone
        tests/test_waiting.py::test_past_the_hard_limit
    """,
    "zombies, reaped by us, by others, by the kernel": """
        tests/test_wait.py::test_exit_code_of_a_zombie_child
        tests/test_wait.py::test_reap
        tests/test_wait.py::test_reap_of_somebody_elses_child_only_waits
        tests/test_wait.py::test_gone
        tests/test_wait.py::test_stopped_and_continued_is_not_exited
        tests/test_process.py::test_exited_finds_the_exit_code
        tests/test_process.py::test_survives_the_reaping
        tests/test_owners.py::test_popen_beside_a_handle
        tests/test_engine.py::test_reaping_within_the_grace
        tests/test_spawn.py::test_sigchld_ignored
    """,
    "identity of pidfds, by inode or start time": """
        tests/test_process.py::test_equal_by_process
        tests/test_process.py::test_forked_copy
    """,
    "sets: epoll, timerfd, files of their own": """
        tests/test_waiting.py::test_strangers
        tests/test_waiting.py::test_mixed
        tests/test_waitset.py::test_set
        tests/test_waitset.py::test_fileno_of_a_set
        tests/test_engine.py::test_fileno_with_a_member_that_is_polled
        tests/test_fd.py
    """,
    "starting by posix_spawn": """
        tests/test_posix_spawn.py::test_default
        tests/test_posix_spawn.py::test_process_group
        tests/test_posix_spawn.py::test_session
        tests/test_posix_spawn.py::test_close_fds
        tests/test_posix_spawn.py::test_closed_by_the_kernel
        tests/test_posix_spawn.py::test_fd_above_the_limit
        tests/test_posix_spawn.py::test_signals_are_restored
        tests/test_spawn.py::test_wait_reaps
    """,
}


def chosen(quick):
    groups = list(QUICK.values()) + ([] if quick else list(MORE.values()))
    for word in " ".join(groups).split():
        if "*" in word:
            yield from sorted(glob.glob(word))
        else:
            yield word


def main():
    series, *args = sys.argv[1:]
    quick = "--quick" in args
    args = [arg for arg in args if arg != "--quick"]
    if all(arg.startswith("-") for arg in args):
        args += chosen(quick)
        os.environ["TOX_ENV_NAME"] = "kernels" if quick else "linux-" + series  # for skips.ini
    os.execvp(sys.executable, [sys.executable, "-m", "pytest", "--color=no", *args])


if __name__ == "__main__":
    main()
