# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: fails the run that skips more tests than skips.ini grants its environment."""

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
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return str(report.longrepr)


class Counter:
    def __init__(self, env):
        self.env = env
        self.granted = granted(env)
        self.reports = []

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.reports.append(report)

    pytest_collectreport = pytest_runtest_logreport

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
    env = os.environ.get("TOX_ENV_NAME")
    if env and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counter(env))
