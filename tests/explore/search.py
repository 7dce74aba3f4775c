# SPDX-License-Identifier: BSD-3-Clause
"""Finds the plans for a scenario: all with one entry, and samples of those with more."""

import gc
import os
import random
import sys
import time

from .schedule import CLASSES, Run, explored, place, raised_by

FAULTS = 3  # enough of one scenario


class Search:
    """``classes``: what handlers raise. ``samples``: how many plans with 2, 3, … entries to try.

    ``least``: try all switches of pairs of a set's steps, and of all else that many plans.
    """

    def __init__(
        self, scenario, classes=CLASSES, samples=(), seconds=None, seed=1, opcodes=False, least=None
    ):
        self.scenario, self.samples, self.least = scenario, samples, least
        self.classes = [one for one in scenario.classes if one in classes]
        self.end = None if seconds is None else time.monotonic() + seconds
        self.random, self.opcodes = random.Random(seed), opcodes
        self.faults = {}  # what is wrong: the first plan, and where its entries are
        self.ran, self.plans = [0], [0]  # by the number of entries
        self.is_cut = False

    def go(self):
        self.run([])  # now all that is loaded on first need is there
        self.faults.clear()
        known = []
        for first in range(self.scenario.count):
            known.append(self.run([(0, first)]))
        self.ran, self.plans = [len(known)], [len(known)]
        following = [plan for one in known for plan in self.follow(*one)]
        known = self.run_all(self.some_of(following), len(following))
        for sample in self.samples:
            # Of all plans that follow those that have been run.
            counts = [len(self.follow(*one)) for one in known]
            chosen = self.random.choices(known, counts, k=sample) if any(counts) else []
            following = [self.random.choice(self.follow(*one)) for one in chosen]
            known = self.run_all(following, sum(counts))
        return self

    def some_of(self, plans):
        if self.least is None:
            return plans
        is_pair = self.scenario.name.startswith("set_") and self.scenario.count == 2
        kept = [plan for plan in plans if is_pair and type(plan[-1][1]) is int]
        rest = [plan for plan in plans if not is_pair or type(plan[-1][1]) is not int]
        return kept + self.random.sample(rest, min(self.least, len(rest)))

    def run_all(self, plans, count):
        self.ran.append(0)
        self.plans.append(count)
        known = []
        for plan in plans:
            if (self.end is not None and time.monotonic() > self.end) or len(self.faults) >= FAULTS:
                self.is_cut = True
                break
            known.append(self.run(plan))
            self.ran[-1] += 1
        return known

    def run(self, plan):
        """The plan, and whose step each was."""
        said, run = try_plan(self.scenario, plan, self.opcodes)
        if said and said not in self.faults:
            self.faults[said] = plan, [place(*run.where[n][1:]) for n, _ in plan if n in run.where]
        return plan, [run.where[step][0] for step in sorted(run.where)]

    def follow(self, plan, whose):
        """All plans with one entry more, behind the last one."""
        whats = [what for _, what in plan]
        if "fork" in whats:
            return []
        classes = self.classes if not set(whats).intersection(CLASSES) else ()
        forks = ["fork"] if self.scenario.in_child else []
        return [
            [*plan, (step, what)]
            for step in range(plan[-1][0] + 1, len(whose) + 1)
            for what in [i for i in range(self.scenario.count) if i != whose[step - 1]]
            + list(classes if whose[step - 1] < self.scenario.count else ())
            + forks
        ]

    def line(self):
        counts = ", ".join("%d of %d" % pair for pair in zip(self.ran, self.plans))
        word = "FAULT" if self.faults else "cut" if self.is_cut else "right"
        word = "part" if word == "right" and self.ran[1] < self.plans[1] else word
        lines = ["%-28s %-5s plans: %s" % (self.scenario.name, word, counts)]
        for said, (plan, where) in self.faults.items():
            lines += [
                "    " + said,
                "        --plan %s %s  %s" % (shown(plan), self.scenario.name, where),
            ]
        return "\n".join(lines)


def shown(plan):
    return ",".join("%d:%s" % entry for entry in plan)


def parsed(text):
    entries = [entry.split(":") for entry in text.split(",")]
    return [(int(step), int(what) if what.isdigit() else what) for step, what in entries]


def open_fds():
    return sorted(os.listdir("/proc/self/fd"))


def try_plan(scenario, plan, opcodes=False):
    """What is wrong, or None; and the run."""
    before = open_fds()
    made = scenario.make()
    explored.enter()
    try:
        run = Run(made.actions, plan, made.in_child, scenario.outside, opcodes).go()
    finally:
        explored.leave()
    said = run.fault
    if not said:
        came = [error for error in run.results.values() if raised_by(error)]
        run.raised -= len(came) + made.came_through
        said = "what a handler raised was swallowed" if run.raised > 0 else made.check(run.results)
    made.end()
    made = run.results = None
    if not said and set(open_fds()) - set(before):
        gc.collect()
        left = set(open_fds()) - set(before)
        if left:
            said = "file descriptors are left: %s" % sorted(left)
    return said, run


def main_of(scenario, plan):
    """Run one plan, and print its steps."""
    said, run = try_plan(scenario, plan)
    entries = dict(plan)
    for step, (me, code, line) in sorted(run.where.items()):
        print(step, "thread %d" % me, place(code, line), entries.get(step, ""))
    print(said or "right")
    sys.stdout.flush()
    os._exit(bool(said))
