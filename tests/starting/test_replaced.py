# SPDX-License-Identifier: BSD-3-Clause
"""Popen, run() and their like that a program has replaced, as tests do with mocks."""

import asyncio
import functools
import importlib
import inspect
import logging
import subprocess
import sys
from unittest import mock

import pytest

from .. import pidwait
from ..processes import WINDOWS, eventually, exiting, sleeping
from .conftest import ours

CALLS = {
    "run": exiting(3),
    "call": exiting(3),
    "check_call": exiting(0),
    "check_output": exiting(0),
    "getoutput": "exit 3",
    "getstatusoutput": "exit 3",
}
pytestmark = pytest.mark.windows


def subclass(Popen, seen, then=bool):
    class Mine(Popen):
        def __init__(self, *args, **options):
            seen.append(options)
            super().__init__(*args, **options)
            then()

    return Mine


def function(Popen, seen, then=bool):
    def start(*args, **options):
        seen.append(options)
        popen = Popen(*args, **options)
        then()
        return popen

    return start


def partial(Popen, seen, then=bool):
    return functools.partial(function(Popen, seen, then), close_fds=True)


def outcome(module, name):
    try:
        done = getattr(module, name)(CALLS[name])
    except Exception as error:
        return repr(error)
    return getattr(done, "returncode", done)


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("replace", [subclass, function, partial])
def test_functions_start_by_what_has_replaced_popen(name, replace, monkeypatch):
    told = []
    for module in subprocess, ours:
        seen = []
        monkeypatch.setattr(module, "Popen", replace(module.Popen, seen))
        told.append((outcome(module, name), seen))
    assert told[0] == told[1] and len(told[1][1]) == 1
    with ours.Popen(exiting(4)) as child:
        assert child.wait(60) == child.returncode == 4


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("options", [{}, {"autospec": True}, {"spec_set": subprocess.Popen}])
def test_functions_start_nothing_if_popen_is_a_mock(name, options):
    told = []
    for module in subprocess, ours:
        with mock.patch.object(module, "Popen", **options) as Popen:
            child = Popen.return_value
            for one in child, child.__enter__.return_value:
                one.communicate.return_value = "out", "err"
                one.wait.return_value = one.poll.return_value = 0
            told.append((outcome(module, name), Popen.call_args))
    assert told[0] == told[1]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_functions_call_each_other_by_their_names_in_the_module(name):
    others = [other for other in CALLS if other != name]
    for other in others:
        called = []
        for module in subprocess, ours:
            with mock.patch.object(module, other, side_effect=LookupError("on purpose")) as fake:
                outcome(module, name)
                called.append(fake.call_args)
        assert called[0] == called[1]


@pytest.mark.parametrize("replace", [subclass, function, partial])
def test_tree_of_what_has_replaced_popen_is_ended_as_ever(replace, monkeypatch, tmp_path):
    ready, seen = tmp_path / "ready", []
    command, options = sleeping(60), {}
    if not WINDOWS:
        script = "trap 'echo term; exit 5' TERM; : > \"$0\"; while :; do sleep 0.01; done"
        command, options = ["sh", "-c", script, str(ready)], {"grace": 60}
    then = bool if WINDOWS else lambda: eventually(ready.exists)
    monkeypatch.setattr(ours, "Popen", replace(ours.Popen, seen, then))
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        ours.run(command, timeout=0.1, tree=True, stdout=subprocess.PIPE, **options)
    assert WINDOWS or caught.value.output == b"term\n"
    assert len(seen) == 1
    with ours.Popen(command, tree=True, **options) as child:
        child.kill()  # outside of run() it has no grace
        assert child.wait(60) == (1 if WINDOWS else -9)


def test_asyncio_run_calls_the_run_and_the_popen_that_are_there(monkeypatch):
    aio = importlib.import_module(pidwait.__name__ + ".aio")

    def run():
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(aio.run(exiting(3)))
        finally:
            loop.close()

    seen = []
    monkeypatch.setattr(ours, "Popen", subclass(ours.Popen, seen))
    assert run().returncode == 3 and seen == [{}]
    monkeypatch.setattr(ours, "run", lambda args: args)  # it takes nothing of ours
    assert run() == exiting(3)


@pytest.fixture
def fake():
    """As pytest-subprocess does: fake() replaces Popen under each of its names, in all modules."""
    standard, places = subprocess.Popen, []

    class Fake:
        def __new__(cls, *args, **options):
            raise AssertionError("nothing is to be started")

    def fake():
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is standard:
                    places.append((module, name))
                    setattr(module, name, Fake)

    yield fake
    for module, name in places:
        setattr(module, name, standard)


def test_patch_leaves_alone_what_has_replaced_popen(fake, caplog):
    caplog.set_level(logging.INFO, pidwait.__name__)
    Standard = subprocess.Popen
    before = dict(vars(Standard))
    fake()
    with ours.patch():
        assert dict(vars(Standard)) == before
        assert caplog.text.count("other code has replaced Popen") == 1
        assert inspect.isclass(subprocess.Popen) and subprocess.Popen.__name__ == "Fake"
    with ours.Popen(exiting(3)) as child:  # it is not that name
        assert child.wait(60) == 3
    assert dict(vars(Standard)) == before


def test_unpatch_restores_what_has_been_replaced_meanwhile(fake):
    Standard = subprocess.Popen
    before = dict(vars(Standard))
    with ours.patch():
        assert dict(vars(Standard)) != before
        fake()
        with ours.patch():
            pass
    assert dict(vars(Standard)) == before


def test_patch_changes_the_popen_that_a_subclass_has_replaced(monkeypatch):
    Standard, seen = subprocess.Popen, []
    before = dict(vars(Standard))
    monkeypatch.setattr(subprocess, "Popen", subclass(Standard, seen))
    with ours.patch():
        assert dict(vars(Standard)) != before
        assert subprocess.call(exiting(3), timeout=60) == 3 and seen == [{}]
    assert dict(vars(Standard)) == before
