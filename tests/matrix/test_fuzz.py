# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the fuzzer, run by the tox environment `tools`: it finds the faults they put in."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from . import fuzz
from .fuzz_named import reason

ROOT = Path(__file__).resolve().parents[2]

# ``broken`` stands for our Popen in the workers.
CODE = """if True:
    import functools, os, subprocess, sys
    from tests.matrix import fuzz, fuzz_worker
    standard, ours = fuzz_worker.WAYS["Popen"]
    def broken(**options):
        {}
    fuzz_worker.WAYS["Popen"] = standard, broken
    fuzz_worker.WAYS["spawn"] = standard, standard
    sys.exit(fuzz.main(sys.argv[1:]))
"""


def fuzzed(broken, *arguments):
    """The exit status and the output of a run whose Popen has the body ``broken``."""
    code = CODE.format(broken.replace("\n", "\n        "))
    done = subprocess.run(
        fuzz.in_namespace(sys.executable, "-c", code, *map(str, arguments)),
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def found(output):
    """The cases that differ, each with the names of what differs."""
    cases = []
    for line in output.splitlines():
        if line.startswith("DIFFERS: "):
            cases.append((json.loads(shlex.split(line)[-1]), []))
        elif re.match("    [^ ]", line) and " named: " not in line:
            cases[-1][1].append(line.strip())
    return cases


CWD = """if isinstance(options.get('cwd'), (str, bytes)) and os.path.isdir(options['cwd']):
    options['cwd'] = '/'
return ours(**options)"""
LEAK = "options.update(close_fds=False, pass_fds=())\nreturn ours(**options)"
FILE = "os.open(os.devnull, os.O_RDONLY)\nreturn ours(**options)"
CHILD = "os.posix_spawn('/bin/true', ['true'], dict())\nreturn ours(**options)"
UMASK = "os.umask(0o27)\nreturn ours(**options)"
ERROR = (
    "try:\n    return ours(**options)\nexcept OSError as e:\n    raise OSError(e.errno, 'other')"
)
MASK = """import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
return ours(**options)"""


@pytest.mark.parametrize(
    "broken, name",
    [
        (CWD, "child.cwd"),
        (LEAK, "child.fds"),
        (FILE, "fds left"),
        (CHILD, "children left"),
        (UMASK, "child.Umask"),
        (MASK, "child.SigBlk"),
        (ERROR, "error.args"),
    ],
    ids="CWD LEAK FILE CHILD UMASK MASK ERROR".split(),
)
def test_finds(broken, name):
    status, output = fuzzed(broken, "--count", 100, "--seed", 1, "--most", 1)
    assert status == 1, output
    ((_, names),) = found(output)
    assert name in names, output


def test_shrinks_and_repeats():
    status, output = fuzzed(CWD, "--count", 60, "--seed", 1, "--most", 3)
    case = next(case for case, names in found(output) if "child.cwd" in names)
    assert (case["world"] + case["before"], sorted(case["options"])) == ([], ["args", "cwd"]), (
        output
    )
    status, output = fuzzed(CWD, "--case", json.dumps(case))
    assert (status, "child.cwd" in output) == (0, True)


def test_fails_when_too_few_are_started_by_posix_spawn():
    status, output = fuzzed("return standard(**options)", "--count", 20, "--seed", 1)
    assert status == 1
    assert " 0.0% by posix_spawn\ntoo few by posix_spawn" in output
    assert "0 differences without a reason" in output


def test_passes():
    command = [sys.executable, "-m", fuzz.__name__, "--count", "40", "--seed", "2"]
    done = subprocess.run(command, cwd=str(ROOT), stdout=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("--count 40 --seed 2\n")


@pytest.mark.parametrize(
    "name, theirs, ours, why",
    [
        ("child.SigIgn", "0", "180000000", "glibc"),
        ("child.SigIgn", "0", "180000001", None),
        ("child.SigBlk", "0", "180000000", None),
        ("child.environ", "b''", "b'UNSEEN=1'", None),
        ("events", "[('subprocess.Popen', '')]", "[]", None),
        ("exit code", "0", "7", None),
        ("child.fds", "{3: ''}", "{}", None),
        ("error", "OSError", "None", None),
    ],
)
def test_a_reason_explains_no_more_than_it_says(name, theirs, ours, why):
    case = {"way": "Popen", "options": {"args": "[PROBE]"}, "before": [], "world": []}
    same = {"error": "None", "events": "[]"}
    theirs = dict(same, **{name: theirs, "posix_spawn": 0})
    ours = dict(same, **{name: ours, "posix_spawn": 1})
    told = reason(case, name, theirs, ours)
    assert told is None if why is None else told.startswith(why)
