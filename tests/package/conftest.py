# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import importlib
import io
import os
import subprocess
import sys

import pytest

from .. import pidwait

cli = importlib.import_module(pidwait.__name__ + ".cli")


def vendor(*args):
    """Run the command `vendor`; return its status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(["vendor"] + [str(arg) for arg in args])
    return status, out.getvalue(), err.getvalue()


def run(*args, path=(), **kwargs):
    """Run this interpreter; its status, stdout and stderr. ``path`` comes first in sys.path."""
    paths = os.pathsep.join([str(path)] * bool(path) + sys.path)
    done = subprocess.run(
        [sys.executable] + [str(arg) for arg in args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=dict(os.environ, PYTHONPATH=paths, PYTHONDONTWRITEBYTECODE="1"),
        **kwargs,
    )
    return done.returncode, done.stdout, done.stderr


HEAVY = """if True:
    import sys
    before = set(sys.modules)
    import {}
    heavy = "ctypes cffi _cffi_backend typing subprocess asyncio logging threading signal"
    print(sorted(set(heavy.split()) & (set(sys.modules) - before)))
"""


def heavy_modules(name, path=()):
    """What run() returns of an import of that module: it prints the heavy modules loaded by it."""
    return run("-c", HEAVY.format(name), path=path)


def read(top):
    """{path: contents} of the files below a folder, but for what Python has compiled."""
    return {
        path.relative_to(str(top)).as_posix(): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def put(files, folder):
    for path, data in files.items():
        whole = folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(data)
    return folder


@pytest.fixture(scope="session")
def contents(tmp_path_factory):
    """{path: contents} of the package, also where it is in a zip."""
    copy = tmp_path_factory.mktemp("contents") / "copy"
    assert vendor(copy)[0] == 0
    files = read(copy)
    del files["VENDORED"]
    return files


@pytest.fixture(scope="session")
def sources(contents):
    """{path: text} of its modules, without what a copy has to silence other people's checks."""
    silence = contents["aio.py"].partition(b'"""')[0].split(b"\n", 1)[1]
    return {
        path: data.replace(silence, b"", 1).decode()
        for path, data in contents.items()
        if path.endswith(".py")
    }
