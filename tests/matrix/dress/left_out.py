# SPDX-License-Identifier: BSD-3-Clause
"""A plugin of pytest: why tests were left out, and how many for each reason."""

import collections

import pytest

# What runs on the system itself, and what this Linux can't show of it. The keys are parts of names.
NOT_SHOWN = {
    "test_polled_members_take_a_small_share_of_a_core": "the stand-in's ps is slow",
    "test_hundreds_of_exits_come_in_their_order": "the stand-in's ps is slow",
    "test_hundreds_of_objects_for_one_process[polling": "the stand-in's ps is slow",
    "test_a_time_out_is_not_waited_for_twice[polling": "the stand-in's ps is slow",
    "test_fds_that_other_threads_open_meanwhile": "glibc has no POSIX_SPAWN_CLOEXEC_DEFAULT",
    "original[pass_fds 1]": "glibc has no POSIX_SPAWN_CLOEXEC_DEFAULT",
    "original[mix 40]": "glibc has no POSIX_SPAWN_CLOEXEC_DEFAULT",
    "original[mix 71]": "glibc has no POSIX_SPAWN_CLOEXEC_DEFAULT",
    "package/test_copies": "the stand-in serves one copy of the package",
    "package/test_single_file": "the stand-in serves one copy of the package",
    "starting/test_hooks": "the stand-in serves one copy of the package",
    "test_the_root_and_the_user_may_change": "in another root the stand-in has no /proc",
    "test_an_ancestor_that_exits_at_any_line": "the stand-in's ps is slow",
    "reaped_at_any_line]": "the stand-in's ps is slow",
    "test_a_wait_calls_no_poll_that_calls_wait[tree]": "the stand-in's ps is slow",
    "test_whom_we_may_not_signal_stays_alive": "the stand-in's ps needs root's rights",
    "comes_through_from_wait[polling": "exceptions come in the middle of the stand-in",
    "trouble/test_interruptions": "exceptions come in the middle of the stand-in",
    "trouble/test_no_memory": "exceptions come in the middle of the stand-in",
    "trouble/test_no_descriptors": "the stand-in needs file descriptors",
}


def pytest_collection_modifyitems(items):
    for item in items:
        reasons = [reason for part, reason in NOT_SHOWN.items() if part in item.nodeid]
        if item.get_closest_marker("peers"):
            reasons.append("psutil and the like are Linux's here")
        if reasons:
            item.add_marker(pytest.mark.skip(reason="dressed up: " + reasons[0]))


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("skipped", ())
    reasons = [report.longrepr[2].replace("Skipped: ", "", 1) for report in reports]
    terminalreporter.section("left out")
    for reason, count in collections.Counter(reasons).most_common():
        terminalreporter.line("%5d  %s" % (count, reason))
