# SPDX-License-Identifier: BSD-3-Clause
"""patch() and unpatch(): the standard library's own Popen starts and waits as ours does."""

import functools
import importlib.util
import math
import os
import subprocess

import pytest

from .. import pidwait
from ..processes import exiting, run_python, sleeping
from .conftest import ours
from .test_popen import PARAMETERS, told_while_a_thread_waits

Standard = subprocess.Popen


@pytest.fixture(autouse=True)
def restored():
    """In the end, everything is as it was before."""
    before = dict(vars(Standard))
    yield
    assert subprocess.Popen is Standard and dict(vars(Standard)) == before


def start_in_a_group(Popen=Standard):
    """Start a process with the argument that patch() adds to Popen on old Pythons."""
    with Popen(sleeping(60), process_group=0) as child:
        group = os.getpgid(child.pid)
        child.kill()
    assert group == child.pid


@pytest.mark.windows
def test_patched_popen_waits_by_events(variant, no_sleep):
    with ours.patch():
        assert subprocess.call(exiting(3, after=0.02), timeout=30) == 3
        with subprocess.Popen(sleeping(60), process_group=0) as child:
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.01)
            child.kill()
            assert child.wait(30) == child.returncode != 0
        assert type(child) is Standard
        with ours.Popen(exiting(5)) as child:
            assert child.wait(30) == 5


def test_patched_popen_takes_what_the_original_takes_for_a_time():
    """NaN, say: before Python 3.15 it never comes. Our own Popen refuses it, as all that waits."""

    def outcome():
        with Standard(exiting(3, after=0.02)) as child:
            try:
                return child.wait(math.nan)
            except ValueError as error:
                return str(error)

    expected = outcome()
    with ours.patch():
        assert outcome() == expected
        with ours.Popen(exiting(3)) as child, pytest.raises(ValueError, match="timeout"):
            child.wait(math.nan)


@pytest.mark.parametrize("timeout", [None, 60])
def test_patched_popen_tells_the_exit_while_another_thread_waits(variant, timeout):
    with ours.patch():
        assert told_while_a_thread_waits(Standard, timeout) == [7] * 36


def test_patched_popen_starts_as_ours_does(forks, starts):
    class Before(subprocess.Popen):
        pass

    for patched in 1, 0:
        del starts[:]
        if patched:
            ours.patch()

        class Mine(Before):
            pass

        for Popen in Standard, Before, Mine:
            with Popen(exiting(3), cwd="/") as child:
                assert child.wait(30) == 3
        assert subprocess.run(exiting(4)).returncode == 4
        assert starts == [0] * 4 * patched
        ours.unpatch()


def test_each_patch_needs_its_own_unpatch(forks, starts):
    first = ours.patch()
    ours.patch()
    with ours.patch():
        start_in_a_group()
    ours.unpatch()
    start_in_a_group()
    assert starts == [0, 0]
    with first:
        pass
    ours.unpatch()  # one too many does nothing
    assert subprocess.call(exiting(3)) == 3
    assert starts == [0, 0]


def test_drop_in_is_as_ever_under_patch(forks, seam):
    refusals = []
    seam.put("posix_spawn", lambda *arguments: refusals.append(arguments) or 1)
    with ours.patch():
        start_in_a_group(ours.Popen)
        assert ours.call(exiting(3), timeout=30) == 3
    assert len(refusals) == 2  # it is asked once for each


def test_asyncio_starts_by_a_patched_popen_and_waits_by_itself(forks, starts):
    import asyncio

    async def main():
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "cat; exit 3", stdin=pipe, stdout=pipe, process_group=0
        )
        output, _ = await process.communicate(b"hello")
        return output, process.returncode

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # before Python 3.8, it alone waits for children
    with ours.patch():
        assert loop.run_until_complete(main()) == (b"hello", 3)
    asyncio.set_event_loop(None)
    loop.close()
    assert starts == [0]


def hook(name, seen):
    beneath = getattr(Standard, name)

    @functools.wraps(beneath)
    def hooked(self, *args, **kwargs):
        seen.add(name)
        return beneath(self, *args, **kwargs)

    setattr(Standard, name, hooked)


@pytest.mark.parametrize("first", ["hook", "patch"])
@pytest.mark.parametrize("names", [("__init__", "wait"), ("_execute_child",)], ids=repr)
def test_hooks_see_each_start_and_wait(names, first, forks, starts, forked):
    """Those under patch(), and those on top of it, which still work after unpatch()."""

    def check():
        seen, steps = set(), [ours.patch, lambda: [hook(name, seen) for name in names]]
        for step in steps if first == "patch" else steps[::-1]:
            step()
        # A hook on the start has to see each start, so patch() leaves it alone.
        is_ours = first == "patch" or "_execute_child" not in names
        for expected in [0] * is_ours, []:
            seen.clear()
            del starts[:]
            assert subprocess.call(["sh", "-c", "exit 3"], timeout=30) == 3
            assert (seen, starts) == (set(names), expected)
            ours.unpatch()
        seen.clear()
        with ours.patch():
            try:
                start_in_a_group()
                assert seen == set(names)
            except (TypeError, NotImplementedError) as error:
                # The start that the hook calls takes no group: it must not get lost.
                assert "process_group" in str(error) and "process_group" not in PARAMETERS
                assert names == ("_execute_child",)

    forked(check)


@pytest.mark.parametrize("name", ["fork_exec", "posix_spawn"])
def test_a_start_that_a_debugger_has_replaced_sees_each_child(name, forks, starts, monkeypatch):
    """By what the standard library starts processes, that is what starts ours."""
    seen = []

    def replace(module, name):
        beneath = getattr(module, name)

        @functools.wraps(beneath)
        def hooked(*args, **kwargs):
            if "/bin/ps" not in str(args[0]):  # of ours, where there is no /proc
                seen.append(name)
            return beneath(*args, **kwargs)

        monkeypatch.setattr(module, name, hooked)

    if name == "fork_exec":
        replace(importlib.import_module("_posixsubprocess"), name)
        if hasattr(subprocess, "_fork_exec"):  # Python 3.11
            replace(subprocess, "_fork_exec")
    elif hasattr(os, name):
        replace(os, name)
    else:
        pytest.skip("this Python has no os.posix_spawn")

    def seen_of(start, **options):
        del seen[:]
        with start(["/bin/sh", "-c", ""], **options) as child:
            assert child.wait(30) == 0
        return len(seen)

    for options in {}, {"close_fds": False}, {"process_group": 0}, {"start_new_session": True}:
        expected = seen_of(Standard, **options) if set(options) <= set(PARAMETERS) else None
        for start in pidwait.spawn, ours.Popen:
            found = seen_of(start, **options)
            assert found == (name == "fork_exec" if expected is None else expected)
        with ours.patch():
            assert seen_of(Standard, **options) == found
    assert starts == []


FOREIGN = """if True:
    import logging, subprocess, sys
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    Standard = subprocess.Popen

    class Foreign:  # such as gevent's
        def __init__(self, args, **options):
            self.args, self.returncode = args, None
            self._execute_child(None, args)

        def _execute_child(self, universal_newlines, args):
            self.pid = 1

        def wait(self, timeout=None):
            return 3

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            self.wait()

    def function(*args, **options):  # such as pytest-subprocess's
        return Standard(*args, **options)

    subprocess.Popen = Foreign if sys.argv[1] == "a class" else function
    from {package} import subprocess as ours
    for _ in range(2):
        with ours.patch():
            for module in subprocess, ours:
                assert module.Popen(["sh", "-c", "exit 3"]).wait() == 3
                assert module.call(["sh", "-c", "exit 3"], timeout=30) == 3
    ours.unpatch()
    assert ours.Popen is subprocess.Popen
"""


@pytest.mark.parametrize("replacement", ["a class", "a function"])
def test_replacement_by_others_is_left_alone(replacement):
    """Where it was there before us; the log tells it."""
    done = run_python(FOREIGN.replace("{package}", pidwait.__name__), replacement)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.count("does not change") == 2
