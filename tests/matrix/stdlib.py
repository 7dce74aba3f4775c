# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of subprocess, on the standard Popen as patch() leaves it.

python -m tests.matrix.stdlib [TEST...]: in the interpreter that runs it. What fails must be listed
below with its reason, or fail without patch(), too. So that the run is not vacuous, the starts that
went through posix_spawn are counted, and each Python has its minimum.
"""

import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

from .. import pidwait

MODULES = ("test.test_subprocess", "test.test_asyncio.test_subprocess")

# The end of a test's name: why it can't pass where the start goes through posix_spawn.
_ERRPIPE = "replaces os.read, by which a forked child tells why it did not start"
EXPECTED = {
    "test_exception_errpipe_normal": _ERRPIPE,
    "test_exception_errpipe_bad_data": _ERRPIPE,
}

# Starts by posix_spawn; where the interpreter does not fork, there need not be one.
MINIMUM = {(3, 6): 1, (3, 7): 1, (3, 8): 1, (3, 9): 1}


def run(patched, tests):
    """In a process of its own: run the tests, and print what became of them."""
    starts = []
    if patched:
        core = importlib.import_module(pidwait.__name__ + "._spawn")
        start = core.start

        def counted(request):
            pid = start(request)
            starts.append(pid)
            return pid

        core.start = counted
        importlib.import_module(pidwait.__name__ + ".subprocess").patch()
    loader = unittest.TestLoader()
    # Their output belongs to them.
    report = os.fdopen(os.dup(1), "w")
    output = io.StringIO()
    result = unittest.TextTestRunner(stream=output, verbosity=0).run(
        loader.loadTestsFromNames(tests)
    )
    failed = result.failures + result.errors
    json.dump(
        {
            "run": result.testsRun,
            "skipped": len(result.skipped),
            "starts": len(starts),
            "failed": {test.id(): text for test, text in failed},
        },
        report,
    )
    report.close()


def outcome(patched, tests):
    with tempfile.TemporaryFile("w+") as file, tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", __spec__.name, "--run", str(int(patched))]
        code = subprocess.call(command + list(tests), stdout=file, stderr=errors)
        file.seek(0)
        errors.seek(0)
        last = file.read().splitlines()[-1:]
        try:
            return json.loads(last[0])
        except (IndexError, ValueError):
            sys.exit("exit status {}: {}".format(code, errors.read()))


def main():
    tests = sys.argv[1:] or MODULES
    answer = outcome(True, tests)
    print("{run} tests run, {skipped} skipped, {starts} starts by posix_spawn".format(**answer))
    failed = answer["failed"]
    for name in list(failed):
        reason = EXPECTED.get(name.rpartition(".")[2])
        if reason:
            print("expected to fail: {}: {}".format(name, reason))
            del failed[name]
    own = outcome(False, sorted(failed))["failed"] if failed else {}
    for name in sorted(failed):
        if name in own:
            print("fails without us, too: " + name)
        else:
            print("FAILS: {}\n{}".format(name, failed[name]))
    minimum = 0 if sys.argv[1:] else MINIMUM.get(sys.version_info[:2], 0)
    if answer["starts"] < minimum:
        print("too few starts by posix_spawn: at least {} are due".format(minimum))
    return 1 if set(failed) - set(own) or answer["starts"] < minimum else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2] == "1", sys.argv[3:])
    else:
        sys.exit(main())
