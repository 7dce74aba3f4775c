# SPDX-License-Identifier: BSD-3-Clause
"""A plugin of pytest: why tests were left out, and how many for each reason."""

import collections


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("skipped", ())
    reasons = [report.longrepr[2].replace("Skipped: ", "", 1) for report in reports]
    terminalreporter.section("left out")
    for reason, count in collections.Counter(reasons).most_common():
        terminalreporter.line("%5d  %s" % (count, reason))
