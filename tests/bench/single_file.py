# SPDX-License-Identifier: BSD-3-Clause
"""The single file for Linux: its lines by parts, and its import from source : `import subprocess`

Neither import has bytecode, not of the standard library's modules either. CPU time in
microseconds, in fresh interpreters (-S -E), the median of the rounds' ratios.
"""

import ast
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from .. import pidwait
from . import core

PARTS = ("3.6", "3.8", "3.11", "3.13")
LINES = {"wait": 2200, "many": 3200, "many,cli": 4000}
CODE = """
import sys, time
import importlib._bootstrap_external as external

def no_bytecode(*args, **kwargs):
    raise NotImplementedError

external.cache_from_source = no_bytecode
start = time.process_time()
import {}
print(time.process_time() - start)
"""


def fresh(python, folder, name):
    return float(core.output([python, "-ESB", "-c", CODE.format(name)], cwd=folder)) * 1e6


def part(version, rounds, folder):
    title = "{}: import from source : subprocess, p50".format(version)
    python = core.find(version)
    if python is None:
        return core.Row(title, None, bound=1.0, lacks="no python" + version)
    variants = {name: partial(fresh, python, folder, name) for name in ("waits", "subprocess")}
    times = core.in_turns(variants, rounds)
    return core.paired_row(title, times["waits"], times["subprocess"], 1.0)


def of_code(text):
    """The number of lines that are neither blank, nor a comment, nor in a docstring."""
    lines = text.splitlines()
    code = {row for row, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            code -= set(range(first.lineno, first.end_lineno + 1))
    return len(code)


def run(options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "waits.py")
        command = [sys.executable, "-m", pidwait.__name__, "vendor", "--single-file"]
        command += ["--systems", "linux", str(path), "--parts"]
        rows = []
        for parts, bound in LINES.items():
            subprocess.check_call(command + [parts], stdout=subprocess.DEVNULL)
            text = path.read_text(encoding="utf-8")
            note = "{} of them code".format(of_code(text))
            count = len(text.splitlines())
            rows.append(core.Row("lines, " + parts, count, kind="count", bound=bound, notes=[note]))
        for version in options.part or PARTS:
            rows.append(part(version, options.rounds or 20, folder))
        return rows
