# SPDX-License-Identifier: BSD-3-Clause
"""The environments of tox.ini, by tox: see tests/__main__.py."""

import argparse
import collections
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time

from .. import venvs
from . import interpreters

# The start of environments' names: what each of them takes. All others download 220 MB together.
LARGE = {
    "kernels": "downloads 100 MB, fills 150 MB, needs qemu-system-x86",
    "architectures": "downloads 60 MB, needs mmdebstrap and qemu-user-static",
    "headers": "downloads 100 MB, fills 400 MB",
    "musl": "downloads 25 MB, builds a CPython, needs musl-tools and libffi-dev",
    "win": "downloads 50 MB, fills 700 MB while it runs, needs wine and mvn",
}
RUN, PARALLEL = "run r".split(), "run-parallel p".split()
# pytest's last line, and what tests/skips.py adds.
TOTALS = re.compile(r"(?m)^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b")
SKIPPED = re.compile(r"(?m)^SKIPPED \[(\d+)\] (.*?)\r?$")
COLOURS = re.compile(r"\x1b\[[\d;]*m")


def make_tox():
    """A virtualenv with what tox.ini requires."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(str(venvs.ROOT / "tox.ini"))
    if sys.version_info < (3, 9):
        sys.exit("tox needs Python >= 3.9 to run it; this is {}".format(venvs.interpreter()))
    venv = venvs.Venv(".runner", tox["tox"]["requires"].split())
    if not venv.is_made():
        print("making .tox/.runner, with", " and ".join(venv.packages), flush=True)
    venv.make()
    return [venv.python, "-m", "tox"]


class Request:
    """What was asked of tox."""

    def __init__(self, args):
        end = args.index("--") if "--" in args else len(args)
        args, self.rest = args[:end], args[end:]
        self.command = args.pop(0) if args and not args[0].startswith("-") else None
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--large", action="store_true")
        parser.add_argument("--limit", type=float, metavar="MINUTES")
        parser.add_argument("-e", dest="names", default=os.environ.get("TOXENV"))
        parser.add_argument("-m", dest="labels", nargs="+", default=[])
        parser.add_argument("-f", dest="factors", nargs="+", action="append", default=[])
        self.options, self.args = parser.parse_known_args(args)
        self.by_name = bool(self.options.names) and self.options.names != "ALL"

    def is_run(self):
        return self.command is None or self.command in RUN + PARALLEL

    def names(self, tox, env):
        options = self.options
        if self.by_name:
            return [name for name in re.split(r"[,\s]+", options.names) if name]
        chosen = [] if options.names else ["-d"]
        if options.labels:
            chosen = ["-m"] + options.labels
        for factors in options.factors:
            chosen = [one for one in chosen if one != "-d"] + ["-f"] + factors
        command = tox + ["list", "--no-desc", "-q"] + chosen
        return subprocess.check_output(command, env=env, universal_newlines=True).split()


def large(names):
    """name: what it takes."""
    takes = {}
    for name in names:
        for start, what in LARGE.items():
            if name.startswith(start):
                takes[name] = what
    return takes


def version(command, path):
    """Of an interpreter on this path, as environments are named for it: py311; else None."""
    code = "import sys; print(sys.implementation.name + '%d%d' % sys.version_info[:2])"
    whole = shutil.which(command, path=path)
    try:
        answer = whole and subprocess.check_output([whole, "-Ic", code], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):  # one of pyenv's shims
        answer = None
    return answer and answer.decode().strip().replace("cpython", "py")


def without_interpreter(names, path):
    """Those that are named for a version that is not on this path."""
    there = {version(command, path) for command in ("python3", "python", "pypy3", "pypy")}
    without = []
    for name in names:
        match = re.match(r"(py|pypy)3(\d+)(-|$)", name)
        if not match:
            continue
        wanted = name[: match.end(2)]
        command = {"py": "python", "pypy": "pypy"}[match.group(1)] + "3." + match.group(2)
        if wanted not in there and version(command, path) == wanted:
            there.add(wanted)
        if wanted not in there:
            without.append(name)
    return without


def show(title, words):
    if words:
        first = "  {:<8}".format(title)
        print(textwrap.fill(" ".join(words), 100, initial_indent=first, subsequent_indent=" " * 10))


def tell_plan(names, left_out, env, parallel):
    how = "in parallel, by tox" if parallel else "one after the other, by tox"
    print("environments: {}, {}".format(len(names), how))
    print("  venvs   in .tox, made once: packages of 220 MB for all that are not large")
    without = without_interpreter(names, env["PATH"])
    show("runs", [name for name in names if name not in without])
    show("missing", without + ["(no interpreter)"] if without else [])
    for takes, title, more in (
        (large(names), "large", ""),
        (left_out, "not run", "; --large or -e runs them"),
    ):
        for what in sorted(set(takes.values())):
            those = [name for name in takes if takes[name] == what]
            show(title, those + ["(each {}{})".format(what, more)])
    sys.stdout.flush()


class Outcome:
    """What tox has written down of one environment."""

    def __init__(self, report):
        result = report.get("result") or {}
        self.seconds = result.get("duration")
        text = "\n".join(COLOURS.sub("", one["output"]) for one in report.get("test", []))
        self.totals = collections.Counter()
        for line in TOTALS.findall(text):
            for part in line.split(", "):
                count, kind = part.split()
                self.totals[kind] += int(count)
        self.skipped = collections.Counter()
        for count, reason in SKIPPED.findall(text):
            self.skipped[reason] += int(count)
        if result.get("skipped"):
            self.word = "left out"
        elif not result:
            self.word = "not run"
        else:
            self.word = "ok" if result["success"] else "failed"


def told(totals):
    """As pytest says it: failures first."""
    first = ["failed", "passed", "skipped"]
    kinds = [kind for kind in first if kind in totals]
    kinds += sorted(kind for kind in totals if kind not in first)
    return ", ".join("{} {}".format(totals[kind], kind) for kind in kinds)


def tell_outcome(names, left_out, path, seconds):
    try:
        reports = json.loads(path.read_text(encoding="utf-8"))["testenvs"]
    except (OSError, ValueError, KeyError) as error:
        print("tox left no report: {}".format(error))
        return
    outcomes = {name: Outcome(reports.get(name, {})) for name in names}
    skipped = collections.defaultdict(collections.Counter)
    totals = collections.Counter()
    row = "  {:<15} {:<9} {:>6}  {}".format
    print("\n" + row("environment", "", "", "").rstrip())
    for name, outcome in outcomes.items():
        took = "" if outcome.seconds is None else "%.0f s" % outcome.seconds
        why = "no interpreter" if outcome.word == "left out" else told(outcome.totals)
        print(row(name, outcome.word, took, why).rstrip())
        totals.update(outcome.totals)
        # Of a mutant that survives, say, or of what could not be installed.
        if outcome.word == "failed" and not outcome.totals["failed"]:
            totals["error"] += 1
        for reason, count in outcome.skipped.items():
            skipped[reason][name] += count
    for name, reason in left_out.items():
        print(row(name, "left out", "", reason))
    if skipped:
        print("\n  skipped, and why")
    for reason, counts in sorted(skipped.items(), key=lambda item: -sum(item[1].values())):
        print("  {:>6}  {}: {}".format(sum(counts.values()), reason, " ".join(counts)))
    words = collections.Counter(outcome.word for outcome in outcomes.values())
    words["left out"] += len(left_out)
    parts = ["{} {}".format(words[word], word) for word in ("ok", "failed", "not run", "left out")]
    print("\nenvironments: " + ", ".join(part for part in parts if part[0] != "0"))
    print("===== {} in {:.2f}s =====".format(told(totals) or "no tests ran", seconds), flush=True)


def main(args):
    tox = make_tox()
    env = dict(os.environ, PATH=interpreters.search_path(), UV_PYTHON_DOWNLOADS="never")
    request = Request(args)
    if not request.is_run():
        return venvs.call(tox + args, env)
    names = request.names(tox, env)
    asked = request.by_name or request.options.large or os.environ.get("CI")
    left_out = {} if asked else large(names)
    names = [name for name in names if name not in left_out]
    command = request.command or (PARALLEL[0] if len(names) > 1 else RUN[0])
    tell_plan(names, left_out, env, command in PARALLEL)
    if not names:
        return 0
    if not sys.stdout.isatty():
        env["TOX_PARALLEL_NO_SPINNER"] = "1"
    started = time.time()
    report = venvs.FOLDER / "report.json"
    if report.exists():
        report.unlink()
    chosen = [command, "-e", ",".join(names), "--result-json", str(report)]
    command = tox + chosen + request.args + request.rest
    limit = request.options.limit
    if limit is None:
        code = venvs.call(command, env)
    else:
        from . import overdue  # not on Windows

        code = venvs.call(command, env, lambda pid: overdue.Watch(pid, limit * 60))
    tell_outcome(names, left_out, report, time.time() - started)
    return code
