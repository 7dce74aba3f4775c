# SPDX-License-Identifier: BSD-3-Clause
"""Starts of random programs with random arguments: the standard library's and ours, compared.

python -m tests.matrix.fuzz [--count N] [--seed S]: as root, in the interpreter that runs it, which
needs hypothesis; and a C compiler. Each case is started twice, in two forked processes that are
alike: by the standard Popen, and by our Popen (through posix_spawn). What can be seen of the two
must be the same, or reason() has to name the difference. The smallest case that differs is printed.
"""

import argparse
import collections
import os
import sys
import tempfile
from errno import EMFILE

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir

from .fuzz_cases import CASES
from .fuzz_worker import build, run

# A share of our starts that succeed: the rest is what only the standard code can do.
LEAST_BY_POSIX_SPAWN = 0.7
GLIBC_OWN = 0x180000000
IGNORES_SIGCHLD = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
# Without a shell the fuzzer would be process 1, which inherits orphans.
NAMESPACE += ["sh", "-c", '"$@"; exit $?', "init"]
INSIDE = "FUZZ_IS_INSIDE"


def reason(options, world, name, theirs, ours):
    """Why what was found under ``name`` may differ, or None. It explains as little as possible."""
    their, our = theirs.get(name), ours.get(name)
    if theirs.get("error.errno") == str(EMFILE) != ours.get("error.errno"):
        return "the standard code needs two more file descriptors, for a pipe that tells failures"
    if (
        options.get("pass_fds", "").startswith("([20][n]")  # it raises
        and None not in (theirs["error"], ours["error"])
        and (name.startswith("error") or (name == "events" and our == [] and len(their) == 1))
    ):
        return "pass_fds is read before all else, since an iterator is not read twice"
    if their is None or our is None:
        return None
    if name == "child.SigIgn" and int(their, 16) | GLIBC_OWN == int(our, 16):
        return "glibc's posix_spawn has its children ignore glibc's own signals, 32 and 33"
    if name in ("exit code", "waited") and IGNORES_SIGCHLD in world and their == "0":
        return "only a pidfd may see the exit code; the standard Popen makes up a 0"
    return None


def check(case, folder, count):
    """Compare the starts of one case; count them, and the reasons of what differs."""
    for options, theirs, ours in zip(case["starts"], *(run(case, side, folder) for side in (0, 1))):
        found = []
        for name in sorted(set(theirs) | set(ours)):
            if name != "posix_spawn" and theirs.get(name) != ours.get(name):
                why = reason(options, case["world"], name, theirs, ours)
                count[why] += 1
                if why is None:
                    found.append((name, theirs.get(name), ours.get(name)))
        assert not found, "".join(map("\n{0[0]}\n  {0[1]}\n  {0[2]}".format, found))
        if ours["error"] is None:
            count["starts"] += 1
            count["starts by posix_spawn"] += ours["posix_spawn"]


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.fuzz")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    os.closerange(3, 1024)  # those of the program that started us, which children might inherit
    count = collections.Counter()
    quiet = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        build(folder)

        @seed(options.seed)
        @settings(max_examples=options.count, **quiet)
        @given(CASES)
        def compare(case):
            check(case, folder, count)

        compare()
    for why, times in count.items():
        print("{:6} {}".format(times, why))
    if count["starts by posix_spawn"] < LEAST_BY_POSIX_SPAWN * count["starts"]:
        sys.exit("too few by posix_spawn: less than {:.0%}".format(LEAST_BY_POSIX_SPAWN))


if __name__ == "__main__":
    if INSIDE in os.environ:
        sys.exit(main())
    # In a PID namespace, so that no start can harm other processes.
    line = [*NAMESPACE, sys.executable, "-m", __spec__.name, *sys.argv[1:]]
    os.execvpe(line[0], line, dict(os.environ, **{INSIDE: "1"}))
