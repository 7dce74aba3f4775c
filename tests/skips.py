# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: tells at the end what was skipped, and why, the most frequent reason first.

In a tox environment it fails the run that skips more tests than skips.ini grants it.
"""

import collections
import configparser
import os
from pathlib import Path


def granted(env):
    ini = configparser.ConfigParser()
    ini.read(str(Path(__file__).with_name("skips.ini")))
    return ini.getint("skips", env, fallback=0)


def reason(report):
    if hasattr(report, "wasxfail"):
        return "xfail: " + report.wasxfail
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text[len("Skipped: ") :] if text.startswith("Skipped: ") else text


class Skips:
    def __init__(self):
        self.reports = []

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.reports.append(report)

    pytest_collectreport = pytest_runtest_logreport

    def pytest_terminal_summary(self, terminalreporter):
        if self.reports:
            terminalreporter.section("skipped, and why")
        # tests.matrix.everything reads these lines.
        for text, count in collections.Counter(map(reason, self.reports)).most_common():
            terminalreporter.line("SKIPPED [{}] {}".format(count, text))


class Granted:
    def __init__(self, env, skips):
        self.env = env
        self.granted = granted(env)
        self.reports = skips.reports

    def pytest_sessionfinish(self, session):
        if len(self.reports) > self.granted and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter):
        count = len(self.reports)
        if count == self.granted:
            return
        terminalreporter.section("skips")
        terminalreporter.line(
            "{}: {} skipped, tests/skips.ini grants {}".format(self.env, count, self.granted)
        )
        if count > self.granted:
            for report in self.reports:
                terminalreporter.line("{}: {}".format(report.nodeid, reason(report)))


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return
    skips = Skips()
    config.pluginmanager.register(skips)
    env = os.environ.get("TOX_ENV_NAME")
    if env:
        config.pluginmanager.register(Granted(env, skips))
