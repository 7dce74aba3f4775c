# SPDX-License-Identifier: BSD-3-Clause
"""Starts of random programs with random arguments: the standard library's and ours, compared.

python -m tests.matrix.fuzz [--count N] [--seed S]: in the interpreter that runs it. Each case is
started twice, in two forked processes that are alike: by the standard Popen, and by our Popen
(through posix_spawn). What can be seen of the two must be the same, or fuzz_named.py has to name
the difference with its reason. A difference is printed as a command that repeats it, with
the arguments that matter.

python -m tests.matrix.fuzz --case CASE: repeat one case, and print all that was seen.
"""

import argparse
import collections
import json
import os
import random
import shlex
import sys
import tempfile
from pathlib import Path

from . import fuzz_world
from .fuzz_cases import draw
from .fuzz_named import reason
from .fuzz_worker import run, warm_up

# A share of our starts that succeed: the rest is what only the standard code can do.
LEAST_BY_POSIX_SPAWN = 0.7
# What an earlier start may have changed, and the reason to name then.
LATER = {"err", "out", "fds left", "children left", "warnings"}
AFTER_ANOTHER = "an earlier start differs, for a reason of its own, in what it has left"
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
# Without it the fuzzer would be process 1, which inherits orphans.
INIT = ["sh", "-c", '"$@"; exit $?', "init"]
INSIDE = "FUZZ_IS_INSIDE"


class Fuzzer:
    def __init__(self, folder):
        self.folder = folder
        self.starts = self.by_posix_spawn = 0
        self.named = collections.Counter()

    def both(self, case):
        pair = [run(case, side, self.folder) for side in (0, 1)]
        for found in pair:
            if "harness" in found:
                raise RuntimeError("{}\n{}".format(command(case), found["harness"]))
        return pair

    def differences(self, case, count=False):
        """{name: (theirs, ours)} of all that differs without a reason."""
        theirs, ours = self.both(case)
        if count and ours.get("error") == "None":
            self.starts += 1
            self.by_posix_spawn += ours["posix_spawn"]
        found, named = {}, set()
        for name in sorted(set(theirs) | set(ours)):
            if name != "posix_spawn" and theirs.get(name) != ours.get(name):
                why = reason(case, name, theirs, ours)
                if why is None:
                    found[name] = (theirs.get(name), ours.get(name))
                else:
                    named.add(why)
        if found and self.follows_from_one_before(case, found):
            found, named = {}, named | {AFTER_ANOTHER}
        if count:
            self.named.update(named)
        return found

    def follows_from_one_before(self, case, found):
        """Whether an earlier start differs for a reason of its own, which still shows."""
        if not case["before"] or not set(found) <= LATER:
            return False
        alone = [dict(case, options=options, before=[]) for options in case["before"]]
        if self.differences(dict(case, before=[])) or any(map(self.differences, alone)):
            return False
        for theirs, ours in map(self.both, alone):
            if any(theirs.get(name) != ours.get(name) for name in LATER | {"error"}):
                return True
        return False

    def shrink(self, case, differences):
        """The smallest part of the case that still differs, and its differences."""
        smaller = True
        while smaller:
            smaller = False
            for candidate in simpler(case):
                found = self.differences(candidate)
                if found:
                    case, differences, smaller = candidate, found, True
                    break
        return case, differences


def simpler(case):
    if case.get("before"):
        yield dict(case, before=[])
    for position in range(len(case["world"])):
        yield dict(case, world=case["world"][:position] + case["world"][position + 1 :])
    for name in case["options"]:
        options = dict(case["options"])
        del options[name]
        if name == "args":
            options["args"] = "[PROBE]"
        if options != case["options"]:
            yield dict(case, options=options)
    if case["wait"] != "timeout":
        yield dict(case, wait="timeout")


def command(case):
    return "python -m tests.matrix.fuzz --case " + shlex.quote(json.dumps(case))


def show(differences):
    names = list(differences)
    if "error" in names and "None" in differences["error"]:  # the other differences follow from it
        names = [name for name in names if name in ("error", "error.text", "exit code")]
    for name in names:
        theirs, ours = differences[name]
        print("    {}\n        standard: {}\n        ours:     {}".format(name, theirs, ours))


def fuzz(fuzzer, count, seed, most):
    """Compare so many cases, at most until ``most`` differ; return how many did."""
    print("--count {} --seed {}".format(count, seed), flush=True)
    chance = random.Random(seed)
    seen = set()
    for done in range(count):
        case = draw(chance)
        differences = fuzzer.differences(case, count=True)
        if not differences:
            continue
        small, differences = fuzzer.shrink(case, differences)
        line = command(small)
        if line in seen:
            continue
        seen.add(line)
        print("DIFFERS: " + line)
        show(differences)
        sys.stdout.flush()
        if len(seen) >= most:
            print("that is enough, after {} cases".format(done + 1))
            break
    for why, times in sorted(fuzzer.named.items()):
        print("{:6} named: {}".format(times, why))
    return len(seen)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.fuzz")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--most", type=int, default=20, help="differences, then it gives up")
    parser.add_argument("--case", type=json.loads, default=None)
    options = parser.parse_args(arguments)
    os.closerange(3, 1024)  # those of the program that started us, which children might inherit
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        fuzz_world.build(folder)
        fuzzer = Fuzzer(folder)
        warm_up()
        if options.case is not None:
            theirs, ours = fuzzer.both(options.case)
            for name in sorted(set(theirs) | set(ours)):
                show({name: (theirs.get(name), ours.get(name))})
            return 0
        seed = random.randrange(10**9) if options.seed is None else options.seed
        count = fuzz(fuzzer, options.count, seed, options.most)
    share = fuzzer.by_posix_spawn / max(1, fuzzer.starts)
    form = "{} differences without a reason; {} of {} cases started, {:.1%} by posix_spawn"
    print(form.format(count, fuzzer.starts, options.count, share))
    if share < LEAST_BY_POSIX_SPAWN:
        print("too few by posix_spawn: at least {:.0%} are required".format(LEAST_BY_POSIX_SPAWN))
    return 0 if not count and share >= LEAST_BY_POSIX_SPAWN else 1


def in_namespace(*command):
    """The command in a PID namespace, so that no start can harm other processes."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [*NAMESPACE, *user, *INIT, *command]


if __name__ == "__main__":
    if INSIDE in os.environ:
        sys.exit(main(sys.argv[1:]))
    line = in_namespace(sys.executable, "-m", __spec__.name, *sys.argv[1:])
    os.execvpe(line[0], line, dict(os.environ, **{INSIDE: "1"}))
