# SPDX-License-Identifier: BSD-3-Clause
"""The code in RECIPES.md, by the titles of its sections."""

import re
from pathlib import Path

TEXT = Path(__file__).with_name("RECIPES.md").read_text(encoding="utf-8")
RECIPES = {
    section.partition("\n")[0]: re.findall("```python\n(.*?)```", section, re.S)
    for section in TEXT.split("\n## ")[1:]
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
