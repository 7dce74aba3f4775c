# SPDX-License-Identifier: BSD-3-Clause
"""Run scenarios in all orders: see the package's docstring.

python3 -m tests.explore [--entries K] [--seconds S] [--seed N] [--sample N,N] [--opcodes]
                         [--classes NAME,…] [--only-switches] [--least N] [--python NAME]
                         [SCENARIO…]
    Of each scenario whose name begins so, all plans with one entry, and with --entries a sample of
    those with two and three. --seconds bounds each scenario. --least: of pairs in a set all
    switches, of all else N plans. NAME@VARIANT: with polling, or with the stand-in for the kqueue
    of a system. Exits with 1 if there is a fault.

python3 -m tests.explore --plan PLAN SCENARIO
    Run this plan, and print its steps.
"""

import argparse
import importlib
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing.pool import ThreadPool

from ..venvs import ROOT

AT_ONCE = 3
TOGETHER = 14  # in one process, if each takes a second
SAMPLES = 4000, 1000  # of plans with two, and with three entries


def parser():
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--entries", type=int, default=1)
    found.add_argument("--seconds", type=float)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--sample", type=int, nargs="*", default=SAMPLES)
    found.add_argument("--classes", default=None)
    found.add_argument("--opcodes", action="store_true")
    found.add_argument("--only-switches", action="store_true")
    found.add_argument("--python", default=sys.executable)
    found.add_argument("--least", type=int, metavar="N")
    found.add_argument("--plan")
    found.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    found.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    return found


def use_variant(variant):
    if variant == "polling":
        os.environ["PIDWAIT_BACKEND"] = "polling"
    elif variant:
        from ..systems import kqueue

        os.environ[kqueue.VARIABLE] = variant
        kqueue.install_in_child()


def here(options):
    """These scenarios, all of one variant, in this process."""
    use_variant(options.scenarios[0].partition("@")[2])
    from . import scenarios, schedule, search

    if "pypyjit" in sys.builtin_module_names:  # it compiles again and again what is traced
        importlib.import_module("pypyjit").set_param("off")
    sys.unraisablehook = lambda *error: None  # an exception in a __del__
    signal.signal(signal.SIGUSR1, schedule.handler)
    classes = schedule.CLASSES if options.classes is None else options.classes.split(",")
    classes = () if options.only_switches else classes
    samples = options.sample[: options.entries - 1]
    more = options.seconds, options.seed, options.opcodes, options.least
    is_bad = False
    for shown in options.scenarios:
        scenario = scenarios.Named(shown, scenarios.SCENARIOS[shown.partition("@")[0]])
        if options.plan:
            search.main_of(scenario, search.parsed(options.plan))
        found = search.Search(scenario, classes, samples, *more).go()
        print(found.line())
        sys.stdout.flush()
        is_bad = is_bad or bool(found.faults)
    os._exit(is_bad)  # threads that hang are left


def main(words):
    options = parser().parse_args(words)
    if options.here or options.plan:
        here(options)
    from . import scenarios

    groups = []
    for word in options.scenarios or [""]:
        begin, at, variant = word.partition("@")
        names = [name + at + variant for name in scenarios.SCENARIOS if name.startswith(begin)]
        size = 1 if options.least is None else TOGETHER
        groups += [names[i : i + size] for i in range(0, len(names), size)]
    if not groups:
        parser().error("no such scenario: %s" % " ".join(options.scenarios))
    rest = [word for word in words if word not in options.scenarios]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

    def run(names):
        command = [shutil.which(options.python), "-m", __package__, "--here", *rest, *names]
        env = dict(os.environ, PYTHONPATH=path)
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, universal_newlines=True)

    is_bad = False
    with ThreadPool(AT_ONCE) as pool:
        for names, done in zip(groups, pool.imap(run, groups)):
            lines = done.stdout.count(" plans: ")
            sys.stdout.write(done.stdout)
            if lines < len(names):
                print("%s: no answer, exit code %d" % (names[lines], done.returncode))
            sys.stdout.flush()
            is_bad = is_bad or done.returncode != 0
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
