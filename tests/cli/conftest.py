# SPDX-License-Identifier: BSD-3-Clause
import collections
import importlib
import os
import shutil
import tempfile

import pytest

from .. import pidwait
from ..processes import WINDOWS, eventually

Done = collections.namedtuple("Done", "returncode stdout stderr")


@pytest.fixture
def main(capsys):
    """main(args...) has the command line run in this process, as a program that calls it does."""
    cli = importlib.import_module(pidwait.__name__ + ".cli")

    def main(*args):
        capsys.readouterr()
        status = cli.main([str(arg) for arg in args])
        return Done(status, *capsys.readouterr())

    return main


@pytest.fixture
def worker(worker):
    """As it is, with its command line in /proc, which is empty for a moment."""

    def start(*words):
        child = worker(*words)
        if not WINDOWS:
            with open("/proc/%d/cmdline" % child.pid) as file:
                eventually(lambda: file.seek(0) == 0 and file.read())
        return child

    return start


@pytest.fixture
def named(start):
    """named(name, ...) starts a process of that name, which sleeps for a minute."""
    folders = []

    def named(name, seconds=60, **options):
        folder = tempfile.mkdtemp()
        folders.append(folder)
        os.chmod(folder, 0o755)  # for other users, too
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.symlink("/bin/sleep", path)
        child = start(path, str(seconds), **options)
        with open("/proc/%d/comm" % child.pid, "rb") as comm:
            shown = os.fsencode(name)[:15]
            eventually(lambda: comm.seek(0) == 0 and comm.read()[:-1] == shown)
        return child

    yield named
    for folder in folders:
        shutil.rmtree(folder)
