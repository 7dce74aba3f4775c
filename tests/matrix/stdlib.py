# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of subprocess, with the standard Popen patched by patch().

python -m tests.matrix.stdlib [TEST...]: in the interpreter that runs it. A test that fails must be
listed below with its reason, or fail without patch(), too. To show that posix_spawn was tested at
all, its starts are counted, and each Python has its minimum.
"""

import faulthandler
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from .. import pidwait

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900  # seconds
MODULES = ("test.test_subprocess", "test.test_asyncio.test_subprocess")

# {end of a test's name: why it can't pass where the start goes through posix_spawn}
_ERRPIPE = "replaces os.read, which reads from a forked child why it did not start"
EXPECTED = {
    "test_exception_errpipe_normal": _ERRPIPE,
    "test_exception_errpipe_bad_data": _ERRPIPE,
    # Python 3.6
    "test_wait_endtime": "the warning names our method, which calls the standard one",
}
EXPECTED_FORCED = dict(EXPECTED, test__use_vfork="replaces the interpreter's own start by vfork")

# Starts by posix_spawn. From 3.10 on the interpreter starts by vfork, and there need be none until
# posix_spawn is forced.
MINIMUM = {(3, 6): 300, (3, 7): 300, (3, 8): 350, (3, 9): 375}
MINIMUM_FORCED = {(3, 10): 250, (3, 11): 250, (3, 12): 250, (3, 13): 250}


def run(way, tests):
    """Run the tests, in a process that exists only for this, and print the outcome as JSON."""
    faulthandler.enable()
    starts = []
    if way != "alone":
        core = importlib.import_module(pidwait.__name__ + "._posix_spawn")
        start = core.start

        def counted(request):
            pid = start(request)
            if pid is not None:
                starts.append(pid)
            return pid

        core.start = counted
        ours = importlib.import_module(pidwait.__name__ + ".subprocess")
        if way == "forced":
            ours._would_fork = lambda: True
        ours.patch()
    loader = unittest.TestLoader()
    # The report needs an fd of its own: the tests may do with stdout what they like.
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


def outcome(way, tests):
    # Several tests make a folder with the same name in the current one.
    folder = tempfile.TemporaryDirectory()
    with folder, tempfile.TemporaryFile("w+") as file, tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", __spec__.name, "--run", way]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT)] + sys.path[1:]))
        process = subprocess.Popen(
            command + list(tests), stdout=file, stderr=errors, cwd=folder.name, env=env
        )
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            code = process.wait()
        file.seek(0)
        errors.seek(0)
        last = file.read().splitlines()[-1:]
        try:
            return json.loads(last[0])
        except (IndexError, ValueError):
            sys.exit("exit status {}: {}".format(code, errors.read()))


def check(way, tests, minimum):
    answer = outcome(way, tests)
    form = "{way}: {run} tests run, {skipped} skipped, {starts} starts by posix_spawn"
    print(form.format(way=way, **answer))
    failed = answer["failed"]
    for name in list(failed):
        expected = EXPECTED_FORCED if way == "forced" else EXPECTED
        reason = expected.get(name.rpartition(".")[2])
        if reason:
            print("expected to fail: {}: {}".format(name, reason))
            del failed[name]
    own = outcome("alone", sorted(failed))["failed"] if failed else {}
    for name in sorted(failed):
        if name in own:
            print("fails without us, too: " + name)
        else:
            print("FAILS: {}\n{}".format(name, failed[name]))
    if answer["starts"] < minimum:
        print("too few starts by posix_spawn: at least {} are required".format(minimum))
    return not set(failed) - set(own) and answer["starts"] >= minimum


def main():
    try:
        importlib.import_module(MODULES[0])
    except ImportError as error:
        sys.exit("this interpreter does not ship its tests: {}".format(error))
    tests, version = sys.argv[1:], sys.version_info[:2]
    ways = {"patched": MINIMUM.get(version, 0)}
    if version in MINIMUM_FORCED:
        ways["forced"] = MINIMUM_FORCED[version]
    results = [check(way, tests or MODULES, 0 if tests else ways[way]) for way in ways]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
