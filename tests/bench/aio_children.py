# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's own subprocesses: our ChildWatcher against the default one

A child is /bin/true, started and waited for; microseconds of CPU time of the process that starts,
all its threads together. Each interpreter measures in processes of its own, the watchers in turns.

python -m tests.bench.aio_children JSON: what one interpreter measures.
"""

import asyncio
import importlib
import json
import sys
import time
from functools import partial

from .. import pidwait
from . import core

TRUE = "/bin/true"
# version, whether patch() starts the children, too, the bound. By itself, Python 3.8 forks: that
# takes three quarters of the time, with whichever watcher.
CASES = (
    ("3.8", False, 0.85),
    ("3.8", True, None),
    ("3.11", False, 0.7),
)
WIDTHS = {"one after the other": 1, "20 at a time": 20}


def run(coroutine):
    """asyncio.run(), which Python 3.6 lacks."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def children(count, width):
    async def one():
        process = await asyncio.create_subprocess_exec(TRUE)
        assert await process.wait() == 0

    for _ in range(0, count, width):
        if width == 1:
            await one()
        else:
            await asyncio.gather(*[one() for _ in range(width)])


def measure(width, count, rounds, patched):
    """{"ours" or "default": microseconds of CPU per child, of each round}."""
    if patched:
        importlib.import_module(pidwait.__name__ + ".subprocess").patch()
    aio = importlib.import_module(pidwait.__name__ + ".aio")
    policy = asyncio.get_event_loop_policy()
    loop = asyncio.new_event_loop()  # which some of the default watchers want to exist
    asyncio.set_event_loop(loop)
    watchers = {"ours": aio.ChildWatcher(), "default": policy.get_child_watcher()}

    def one(name):
        policy.set_child_watcher(watchers[name])
        begin = time.process_time()
        run(children(count, width))
        return (time.process_time() - begin) / count * 1e6

    try:
        return core.in_turns({name: partial(one, name) for name in watchers}, rounds)
    finally:
        loop.close()


def ask(python, **options):
    command = [python, "-m", __name__, json.dumps(options)]
    return json.loads(core.output(command, cwd=str(core.ROOT)))


def rows(rounds):
    """1,000 children of each watcher, in each of the two ways, on each interpreter."""
    found = []
    for version, patched, bound in CASES:
        python = core.find(version)
        for way, width in WIDTHS.items():
            start = "patched, " if patched else ""
            title = "{}: ChildWatcher, {}{}, CPU".format(version, start, way)
            if python is None:
                found.append(core.Row(title, None, bound=bound, lacks="no python" + version))
                continue
            answer = ask(python, width=width, count=40, rounds=rounds or 25, patched=patched)
            found.append(core.paired_row(title, answer["ours"], answer["default"], bound))
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
