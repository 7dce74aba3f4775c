# SPDX-License-Identifier: BSD-3-Clause
"""What the benches share: rows, the table, turns, processes."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from ..matrix import interpreters

ROOT = Path(__file__).resolve().parents[2]

try:
    import psutil

    NO_PSUTIL = None
except ImportError as error:
    psutil = None
    NO_PSUTIL = "psutil is not installed: {}".format(error)


class Unavailable(Exception):
    """The bench can't run here; the message says why."""


class Row:
    """One line of a table: our number beside a peer's, the figure made of both, and its bound.

    kind: "ratio" is ours / peer, "more" is ours - peer, "count" is ours, whatever the peer's.
    `ratio` replaces ours / peer if a better one is known, such as the median of rounds' ratios.
    `lacks` says why a number is missing; `notes` stand below the line.
    """

    def __init__(
        self, name, ours, peer=None, kind="ratio", bound=None, lacks=None, notes=(), ratio=None
    ):
        self.name = name
        self.ours = ours
        self.peer = peer
        self.kind = kind
        self.bound = bound
        self.lacks = lacks
        self.notes = list(notes)
        if kind == "count" or ours is None or peer is None:
            self.figure = ours if kind == "count" else None
        else:
            self.figure = ours - peer if kind == "more" else ratio or ours / peer
        # Without the peer's number no bound is exceeded.
        self.ok = bound is None or self.figure is None or self.figure <= bound

    def cells(self):
        sign = "+" if self.kind == "more" else ""
        measured = self.bound is not None and self.figure is not None
        return (
            self.name,
            show(self.ours),
            show(self.peer),
            show(self.figure, sign),
            "" if self.bound is None else "<= " + show(self.bound, sign),
            ("ok" if self.ok else "OVER") if measured else "",
            self.lacks or "",
        )


def show(number, sign=""):
    """Three digits or so of a float, the whole of an int."""
    if number is None:
        return "-"
    if isinstance(number, int):
        return "%{}d".format(sign) % number
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 0.1 else 3
    return "%{}.{}f".format(sign, decimals) % number


def print_table(rows):
    lines = [("", "ours", "peer", "figure", "bound", "", "")] + [row.cells() for row in rows]
    name, *widths = [max(map(len, column)) for column in zip(*lines)]
    form = "  {:%d}  {:>%d}  {:>%d}  {:>%d}  {:>%d}  {:%d}  {}" % tuple([name] + widths[:-1])
    for line, row in zip(lines, [None] + rows):
        print(form.format(*line).rstrip())
        for note in row.notes if row else ():
            print("      " + note)


def in_turns(variants, rounds, warm_up=1):
    """Call every variant once a round, in random order: {name: [result, ...]}."""
    results = {name: [] for name in variants}
    names = list(variants)
    for number in range(-warm_up, rounds):
        random.shuffle(names)
        for name in names:
            result = variants[name]()
            if number >= 0:
                results[name].append(result)
    return results


def percentile(numbers, percent):
    return sorted(numbers)[min(len(numbers) - 1, len(numbers) * percent // 100)]


def median(numbers):
    return percentile(numbers, 50)


def paired_row(title, ours, peer, bound=None, notes=()):
    """A Row for two that were measured in the same rounds: the median of the rounds' ratios."""
    ratio = median([one / other for one, other in zip(ours, peer)])
    return Row(title, median(ours), median(peer), bound=bound, notes=notes, ratio=ratio)


def build(source, path, *flags):
    """Compile the text of a C program."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler: neither cc nor gcc is on PATH")
    command = [compiler, "-w", "-x", "c", "-o", path, "-"]
    try:
        subprocess.run(command + list(flags), input=source, check=True, stderr=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        errors = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise Unavailable("{}: {} {}".format(command[0], error, errors)) from error
    return path


def script(module, *arguments):
    """The command that runs a module of this package in an interpreter of the same kind."""
    return [sys.executable, "-m", module] + [str(argument) for argument in arguments]


def find(version):
    """The interpreter of that version, or None."""
    for folder in interpreters.search_path().split(os.pathsep):
        path = os.path.join(folder, "python" + version)
        # pyenv has shims even for versions that can't be run.
        if os.access(path, os.X_OK) and "shims" not in folder:
            return path
    return None


def output(command, **options):
    """What a command prints; if it fails, Unavailable with all of its stderr."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **options
    )
    out, err = process.communicate()
    if process.returncode:
        raise Unavailable("{} exited with {}: {}".format(command[0], process.returncode, err))
    return out
