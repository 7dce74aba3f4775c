# SPDX-License-Identifier: BSD-3-Clause
"""Starts, those of trees above all, while others hook the standard Popen's start, or patch() it."""

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import pickle
import subprocess
import sys

import pytest

from .. import pidwait
from ..package.conftest import vendor
from ..processes import PYTHON, WINDOWS

pytestmark = pytest.mark.windows
FUNCTIONS = "run call check_call check_output getoutput getstatusoutput".split()
Standard, NAME = subprocess.Popen, "_execute_child"
# What happens before the starts, in its order. "import" is that of a copy of the package, whose
# Popen is used from then on; "copy" is the patch() of another copy.
ORDERS = "patch, copy, hook, proxy, hook patch, patch hook, proxy patch, patch proxy, hook proxy, "
ORDERS += "copy patch, patch copy, copy import, hook import, hook import patch, proxy import patch"
SAYING = PYTHON + ("-c", "import os; os.write(1, b'said'); os._exit(3)")
if not WINDOWS:
    SAYING = "sh", "-c", "kill -s 0 -- -$$ 2>&- && printf 'leads its group, '; printf said; exit 3"


def say():
    os.write(1, b"preexec_fn, ")


OPTIONS = [{}, {"process_group": 0}, {"preexec_fn": say, "process_group": 0}][: 2 + (not WINDOWS)]


def hook(beneath, seen):
    def hooked(self, *args, **kwargs):
        seen.append("hook")
        return beneath.__get__(self, type(self))(*args, **kwargs)

    return hooked


class Proxy:
    """As wrapt makes it: no function, but it has all attributes of what it wraps."""

    def __init__(self, beneath, seen):
        vars(self).update(__wrapped__=beneath, _seen=seen)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    @property
    def __class__(self):
        return type(self.__wrapped__)

    def __get__(self, instance, owner):
        return Proxy(self.__wrapped__.__get__(instance, owner), self._seen)

    def __call__(self, *args, **kwargs):
        self._seen.append("proxy")
        return self.__wrapped__(*args, **kwargs)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """load(name) imports a new copy of the package, of that name."""
    folder = tmp_path_factory.mktemp("copies")

    def forget(name):
        for module in [one for one in sys.modules if one.partition(".")[0] == name]:
            del sys.modules[module]

    def load(name):
        if not (folder / name).exists():
            assert vendor(folder / name)[0] == 0
            importlib.invalidate_caches()
        forget(name)
        return importlib.import_module(name + ".aio"), importlib.import_module(name + ".subprocess")

    sys.path.insert(0, str(folder))
    yield load
    sys.path.remove(str(folder))
    for name in "a_copy", "another":
        forget(name)


@pytest.fixture(scope="module")
def expected():
    """What there is without any hook."""
    return {}


def outcomes(aio, ours, options, seen=()):
    """What a caller sees of each way to start, and which hooks were called how often."""
    told = []
    options = dict(options, stdout=subprocess.PIPE)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        for way in ours.run, lambda *args, **more: loop.run_until_complete(aio.run(*args, **more)):
            done = way(SAYING, **options)
            told.append((done.returncode, done.stdout, list(seen)))
            del seen[:]
    with ours.Popen(SAYING, **options) as popen:
        told.append((popen.wait(60), popen.stdout.read(), list(seen)))
        mechanism = popen.mechanism
    del seen[:]
    return told, mechanism


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("order", ORDERS.split(", "))
def test_starts_under_hooks_and_patches(order, tree, copies, expected):
    used = [importlib.import_module(pidwait.__name__ + end) for end in (".aio", ".subprocess")]
    if tree not in expected:
        told = [outcomes(*used, dict(options, tree=tree), []) for options in OPTIONS[tree:]]
        expected[tree] = told
    before, seen, hooks = dict(vars(Standard)), [], []
    with contextlib.ExitStack() as undo:
        for step in order.split():
            if step == "import":
                used = copies("another")
            elif step in ("patch", "copy"):
                undo.enter_context((used if step == "patch" else copies("a_copy"))[1].patch())
            else:
                beneath = vars(Standard)[NAME]
                setattr(Standard, NAME, {"hook": hook, "proxy": Proxy}[step](beneath, seen))
                undo.callback(setattr, Standard, NAME, beneath)
                hooks.insert(0, step)
        for options, (told, mechanism) in zip(OPTIONS[tree:], expected[tree]):
            under, found = outcomes(*used, dict(options, tree=tree), seen)
            assert [one[:2] for one in under] == [one[:2] for one in told]
            assert found == mechanism
            for code, output, calls in under:
                assert code == 3 and output.endswith(b"said")
                assert (b"preexec_fn" in output) == ("preexec_fn" in options)
                # The start of a tree may be several; on Windows the hooks don't see it.
                assert calls == hooks or (tree and set(calls) == set(hooks if not WINDOWS else ""))
    assert dict(vars(Standard)) == before


@pytest.mark.parametrize("patched", [False, True])
def test_functions_go_to_other_processes(patched, copies):
    """By their names, as the standard ones do."""
    for name, module in (
        (pidwait.__name__, importlib.import_module(pidwait.__name__ + ".subprocess")),
        ("another", copies("another")[1]),
    ):
        for function in map(vars(module).get, FUNCTIONS):
            assert function.__module__ == name + ".subprocess"
            assert pickle.loads(pickle.dumps(function)) is function
        undo = module.patch() if patched else contextlib.ExitStack()
        with undo, multiprocessing.get_context("spawn" if WINDOWS else "fork").Pool(1) as pool:
            assert pool.map(module.call, [SAYING]) == [3]
            with pytest.raises(subprocess.CalledProcessError) as caught:
                pool.apply(module.check_output, [SAYING])
            assert (caught.value.returncode, caught.value.output) == (3, b"said")
            assert caught.value.usage is not None
