# SPDX-License-Identifier: BSD-3-Clause
"""The code in RECIPES.md, by the titles of its sections."""

import re
from pathlib import Path

TEXT = Path(__file__).resolve().parents[1].joinpath("RECIPES.md").read_text(encoding="utf-8")
SECTIONS = [section.partition("\n") for section in TEXT.split("\n## ")[1:]]


def code(language):
    return {
        name: re.findall("```%s\n(.*?)```" % language, text, re.S) for name, _, text in SECTIONS
    }


RECIPES = code("python")
# What a shell runs.
SHELL = code("sh")
# Run by test_recipes_shell.py, plays/test_remote.py and plays/test_runners.py.
IN_SHELL = {
    "In a zipapp",
    "In a script that names its requirements",
    "On another machine",
    "On a hundred machines",
}
# Run where they are installed; the tox environment `plays` has all of them.
NEEDS = {"From psutil.wait_procs": "psutil", "With pexpect": "pexpect"}
# Run by plays/test_event_loops.py, and what they need.
IN_LOOPS = {
    "In other event loops": (),
    "In trio and anyio": ("trio", "anyio"),
    "In gevent and eventlet": ("gevent", "eventlet"),
    "In tornado": ("tornado",),
    "In Qt": ("PyQt5",),
    "In GLib": (),  # Debian's: see there
}
