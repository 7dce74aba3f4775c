# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of subprocess, with the standard Popen patched by patch().

They run once more with ours, each command being a tree; and so do those of asyncio's subprocesses,
up to Python 3.13, with our ChildWatcher.

python -m tests.matrix.stdlib [TEST...]: in the interpreter that runs it. A test that fails must be
listed below with its reason, or fail without us, too. To show that posix_spawn was tested at all,
its starts are counted, as are the children watched, and each Python has its minimum.
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
import threading
import unittest
from pathlib import Path
from unittest import mock

from .. import pidwait, seam

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900  # seconds
MODULES = ("test.test_subprocess", "test.test_asyncio.test_subprocess")
# Of the classes that differ by asyncio's watcher two: we replace it in all of them.
WATCHED = (
    "SubprocessTransportTests",
    "SubprocessSafeWatcherTests",
    "SubprocessThreadedWatcherTests",
    "GenericWatcherTests",
)

# {end of a test's name: why it can't pass with a patched Popen}
_ERRPIPE = "replaces os.read, which reads from a forked child why it did not start"
EXPECTED_PATCHED = {
    "test_exception_errpipe_normal": _ERRPIPE,
    "test_exception_errpipe_bad_data": _ERRPIPE,
    "test_stopped": "replaces os.waitpid, after it has reaped the child: poll() says 0, too",
    # Python 3.6
    "test_wait_endtime": "the warning names our method, which calls the standard one",
}

_DEFAULT = "checks the class of asyncio's default watcher, which ours replaces"
EXPECTED_WATCHER = {
    "test_get_default_child_watcher": _DEFAULT,
    # Python 3.6 and 3.7
    "test_get_child_watcher": _DEFAULT,
    "test_get_child_watcher_with_mainloop_existing": _DEFAULT,
    "test_child_watcher_replace_mainloop_existing": "looks at an attribute of asyncio's watchers",
}

# Starts by posix_spawn. From 3.10 on the interpreter starts by vfork, and there need be none until
# posix_spawn is forced.
MINIMUM = {(3, 6): 300, (3, 7): 300, (3, 8): 350, (3, 9): 375}
MINIMUM_FORCED = {(3, 10): 250, (3, 11): 250, (3, 12): 250, (3, 13): 250}
# Children that our watcher has been given.
MINIMUM_WATCHED = {(3, 6): 15, (3, 7): 15, (3, 8): 30, (3, 9): 40, (3, 10): 40}
MINIMUM_WATCHED.update({(3, 11): 60, (3, 12): 70, (3, 13): 85})
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

EXPECTED = {"patched": EXPECTED_PATCHED, "forced": EXPECTED_PATCHED, "watcher": EXPECTED_WATCHER}
EXPECTED["tree"] = EXPECTED_TREE
COUNTED = {"watcher": "children watched", "tree": "trees"}


def watched():
    """The tests of asyncio's subprocesses, as far as this Python has them."""
    module = importlib.import_module(MODULES[1])
    classes = [
        name for name in WATCHED if issubclass(getattr(module, name, int), unittest.TestCase)
    ]
    assert len(classes) > 1
    names = [module.__name__ + "." + name for name in classes]
    return names + ["test.test_asyncio.test_unix_events"]


def use_watcher(pids):
    """Have ours used where the loop would use one of asyncio's own; a test's mock stays."""
    asyncio = importlib.import_module("asyncio")
    ours = importlib.import_module(pidwait.__name__ + ".aio").ChildWatcher
    add, get = ours.add_child_handler, asyncio.events.get_child_watcher
    watcher = ours()
    default = asyncio.unix_events._UnixDefaultEventLoopPolicy

    def counted(self, pid, callback, *args):
        pids.append(pid)
        loop, events = getattr(callback, "__self__", None), asyncio.events
        if isinstance(loop, events.AbstractEventLoop) and events._get_running_loop() is None:
            # Python 3.6's tests hide the running loop: test_utils, TestCase.setUp().
            with mock.patch.object(events, "_get_running_loop", lambda: loop):
                add(self, pid, callback, *args)
        else:
            add(self, pid, callback, *args)

    def init_watcher(policy):
        if policy._watcher is None:
            policy._watcher = ours()
            if threading.current_thread() is threading.main_thread():
                policy._watcher.attach_loop(policy._local._loop)

    def get_child_watcher():
        found = get()
        return watcher if type(found).__module__ == asyncio.unix_events.__name__ else found

    ours.add_child_handler = counted
    default._init_watcher = init_watcher
    asyncio.events.get_child_watcher = get_child_watcher


def run(way, tests):
    """Run the tests, in a process that exists only for this, and print the outcome as JSON."""
    faulthandler.enable()
    starts = []
    if way == "watcher":
        use_watcher(starts)
    elif way == "tree":
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
    counted = COUNTED.get(way, "starts by posix_spawn")
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
    if version in MINIMUM_WATCHED:
        ways["watcher"] = MINIMUM_WATCHED[version]
    ways["tree"] = MINIMUM_TREES
    chosen = {"watcher": watched, "tree": lambda: MODULES[:1]}
    results = [
        check(way, tests or chosen.get(way, lambda: MODULES)(), 0 if tests else ways[way])
        for way in ways
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
