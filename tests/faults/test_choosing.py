# SPDX-License-Identifier: BSD-3-Clause
"""Processes that the command line chooses, where pids are reused and processes hidden."""

import contextlib
import importlib
import io
import os

import pytest

from .. import faults, pidwait
from ..faults import Child
from . import system
from .test_reuse import Number
from .test_users import needs_root

pytest.importorskip("ctypes")

cli = importlib.import_module(pidwait.__name__ + ".cli")
select = importlib.import_module(pidwait.__name__ + ".cli._select")
waited = importlib.import_module(pidwait.__name__ + ".cli._waited")

NOBODY = 65534


def reused(backend):
    """Another process gets the pid after the choice, and before there is a handle."""
    number = Number()
    (info,) = select.Choice({"parent": str(os.getpid())}).processes()
    assert info.pid == number.pid
    same = waited.Waited(info.pid, info)
    assert same.open()
    same.process.close()
    number.end()
    number.pass_on()
    one = waited.Waited(info.pid, info)
    assert not one.open() and one.process is None and one.found
    number.finish()


def test_reused(namespaces):
    faults.run_on_each_backend(reused, within=namespaces)


def hidden(how):
    secret = Child()
    oldest = {"oldest": ""}
    (info,) = select.Choice(oldest).processes()  # what it loads, the other user may not read
    assert info.pid == secret.pid
    system.mount("proc", "/proc", how)
    system.become(NOBODY)
    system.prctl(system.PR_SET_DUMPABLE, 1)  # which setuid() has cleared
    child = Child()
    for options in {"parent": str(os.getpid())}, oldest, {"newest": ""}:
        assert [info.pid for info in select.Choice(options).processes()] == [child.pid]
    for each in secret, child:
        each.end(0)
        each.reap()


@needs_root
@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2"])
def test_hidden(real_root, how):
    faults.run(hidden, how, within=real_root)


def unlisted():
    system.mount("tmpfs", "/proc")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert cli.main(["--oldest"]) == 1
        assert cli.main(["--list", "--oldest"]) == 1
        assert cli.main(["--list", "--json", "1"]) == 1
    assert errors.getvalue().count(": processes can't be listed: ") == 3, errors.getvalue()


def test_no_proc(namespaces):
    faults.run(unlisted, within=namespaces)
