# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of subprocess, with the standard Popen patched by patch().

They run once more with ours, each command being a tree.

python -m tests.matrix.stdlib [TEST...]: in the interpreter that runs it. A test that fails must be
listed below with its reason, or fail without us, too. To show that posix_spawn was tested at all,
its starts are counted, and each Python has its minimum.
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

from .. import pidwait, seam

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900  # seconds
MODULES = ("test.test_subprocess", "test.test_asyncio.test_subprocess")

# {end of a test's name: why it can't pass with a patched Popen}
_ERRPIPE = "replaces os.read, which reads from a forked child why it did not start"
EXPECTED_PATCHED = {
    "test_exception_errpipe_normal": _ERRPIPE,
    "test_exception_errpipe_bad_data": _ERRPIPE,
    "test_stopped": "replaces os.waitpid, after it has reaped the child: poll() says 0, too",
    # Python 3.6
    "test_wait_endtime": "the warning names our method, which calls the standard one",
}

# Starts by posix_spawn. From 3.10 on the interpreter starts by vfork, and there need be none until
# posix_spawn is forced.
MINIMUM = {(3, 6): 300, (3, 7): 300, (3, 8): 350, (3, 9): 375}
MINIMUM_FORCED = {(3, 10): 250, (3, 11): 250, (3, 12): 250, (3, 13): 250}
MINIMUM_TREES = 270

_CTRL_C = "expects a wait of 0.25 s after Ctrl-C: a tree's keeper gives it that time"
_REAPS = "reaps the command with os.waitpid(): it is the child of the keeper"
EXPECTED_TREE = {
    "test_call_keyboardinterrupt_no_kill": _CTRL_C,
    "test_run_keyboardinterrupt_no_kill": _CTRL_C,
    "test_context_manager_keyboardinterrupt_no_kill": _CTRL_C,
    "test_send_signal_race": _REAPS,
    "test_stopped": _REAPS,
    "test_wait_endtime": EXPECTED_PATCHED["test_wait_endtime"],
}

EXPECTED = {"patched": EXPECTED_PATCHED, "forced": EXPECTED_PATCHED, "tree": EXPECTED_TREE}


def run(way, tests):
    """Run the tests, in a process that exists only for this, and print the outcome as JSON."""
    faulthandler.enable()
    starts = []
    if way == "tree":
        seam.start_trees(starts.append)
    elif way != "alone":
        seam.count_starts(starts.append)
        if way == "forced":
            seam.start_by_posix_spawn()
        importlib.import_module(pidwait.__name__ + ".subprocess").patch()
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
    counted = "trees" if way == "tree" else "starts by posix_spawn"
    form = "{way}: {run} tests run, {skipped} skipped, {starts} {counted}"
    print(form.format(way=way, counted=counted, **answer))
    failed = answer["failed"]
    for name in list(failed):
        reason = EXPECTED[way].get(name.rpartition(".")[2])
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
        print("too few {}: at least {} are required".format(counted, minimum))
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
    ways["tree"] = MINIMUM_TREES
    results = [
        check(way, tests or MODULES[: 1 if way == "tree" else 2], 0 if tests else ways[way])
        for way in ways
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
