# SPDX-License-Identifier: BSD-3-Clause
"""A case of the fuzzer: which values are drawn together, and how often."""

import inspect
import re
import subprocess

from .fuzz_values import SHELL, VALUES, WORLD

ODD = 0.12  # a share of a case's values; with more, next to nothing would start
WAITS = "wait", "timeout", "timeout", "communicate"
CHANCE = {"args": 0.7, "env": 0.3, "cwd": 0.3, "stdin": 0.35, "stdout": 0.35, "stderr": 0.35}
CHANCE.update(pass_fds=0.25, close_fds=0.25, start_new_session=0.15, process_group=0.2, shell=0.15)
CHANCE.update(executable=0.15, restore_signals=0.15, nonesuch=0.005, patch=0.005)
OTHERS = 0.06
FOR_OTHER_CODE = 0.02  # what only the standard code can do would hide the rest
for _name in "preexec_fn user group extra_groups umask startupinfo creationflags".split():
    CHANCE[_name] = FOR_OTHER_CODE


def choices(text):
    return re.split("  |\n", text.strip()) if "\n" in text else text.split()


def has(name):
    parameters = inspect.signature(subprocess.Popen.__init__).parameters
    return name in parameters or name in ("nonesuch", "patch")


TABLE = {name: tuple(map(choices, VALUES[name])) for name in VALUES if has(name)}


def draw_options(random):
    options = {"args": "[PROBE]"}
    for name, (good, odd) in TABLE.items():
        if random.random() < CHANCE.get(name, OTHERS):
            values = odd if not good or random.random() < ODD else good
            options[name] = random.choice(values)
    if "shell" in options and random.random() < 0.9:
        options["args"] = random.choice(SHELL)
    return options


def draw(random):
    """A case: the arguments of a start, perhaps of one before it, and the world it starts in."""
    options = draw_options(random)
    before = [draw_options(random)] if random.random() < 0.1 else []
    world = set()
    while random.random() < 0.4:
        world.add(random.choice(WORLD))
    world = sorted(world, key=WORLD.index)
    wait = random.choice(WAITS)
    return {"before": before, "options": options, "world": world, "wait": wait}
