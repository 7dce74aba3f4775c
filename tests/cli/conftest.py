# SPDX-License-Identifier: BSD-3-Clause
import collections
import importlib
import os
import shutil
import tempfile

import pytest

from .. import pidwait
from ..processes import PYTHON, WINDOWS, command_line, eventually, state

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
    """As it is, once the system shows its command line."""

    def start(*words):
        child = worker(*words)
        if not WINDOWS:
            last = os.fsencode((PYTHON + words)[-1])
            eventually(lambda: command_line(child.pid).rstrip(b"\0").endswith(last))
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
        # Popen returns when exec closes its pipe. The kernel shows the name a little later, and
        # the arguments last: fs/binfmt_elf.c.
        start_of_it = os.fsencode(folder)  # ps shows an odd name in its own way
        eventually(
            lambda: command_line(child.pid).startswith(start_of_it) or state(child.pid) == "Z"
        )
        return child

    yield named
    for folder in folders:
        shutil.rmtree(folder)
