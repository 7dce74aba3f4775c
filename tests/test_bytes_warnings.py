# SPDX-License-Identifier: BSD-3-Clause
"""python -bb, which makes it an error to compare str with bytes, in a dict's lookup, too."""

import importlib
import os
import subprocess
import sys

import pytest

from . import pidwait
from .processes import PYTHON
from .test_package import MODULES

bindings = importlib.import_module(pidwait.__name__ + "._ffi")

IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:  # it is another system's
        print(name, error)
"""

USE = """
import os, sys, threading
import {package} as pidwait
from {package} import subprocess
from {package}.cli import main
subprocess._would_fork = lambda: True
texts, raw = dict(A="1", PATH="/bin"), {{b"A": b"1", b"PATH": b"/bin"}}
for env in None, texts, raw, {{"A": b"2"}}, {{b"A": "1"}}:
    for args in ["sh", "-c", "exit 3"], [b"sh", "-c", b"exit 3"], ("/bin/sh", b"-c", "exit 3"):
        for cwd in None, "/", b"/", "", b"":
            try:
                assert subprocess.call(args, env=env, cwd=cwd) == 3
                with pidwait.spawn(args, env=env, cwd=cwd) as child:
                    assert pidwait.wait(child, 30) == 3
            except FileNotFoundError as error:
                assert not cwd and cwd is not None and error.filename == cwd
try:
    subprocess.call([b"/nonesuch"])
    raise AssertionError
except FileNotFoundError:
    pass
with subprocess.patch():
    child = subprocess.Popen("exit 4", shell=True, process_group=0)
    assert pidwait.wait_procs([child, os.getppid()], 0.05)[1] == [os.getppid()]
    assert child.wait(30) == 4
told = threading.Event()
pidwait.watch(pidwait.spawn(b"true"), lambda proc, code: told.set())
assert told.wait(30)
pidwait.probe()
sys.exit(main(["run", "--tree", "sh", "-c", "exit 5"]))
"""


def strictly(code, *args):
    return subprocess.run(
        (PYTHON[0], "-bb", "-c", code) + args,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def test_import():
    names = [pidwait.__name__ + "." * bool(name) + name for name in MODULES]
    done = strictly(IMPORT, *[name for name in names if not name.endswith("__main__")])
    assert (done.stderr, done.returncode) == ("", 0)
    assert len(done.stdout.splitlines()) < len(names) / 4, done.stdout


@pytest.mark.parametrize("ffi", ["auto", "cffi"])
@pytest.mark.parametrize("backend", ["auto", "polling"])
def test_use(monkeypatch, backend, ffi):
    missing = ffi == "cffi" and bindings.missing(ffi)
    if missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("PIDWAIT_BACKEND", backend)
    monkeypatch.setenv("PIDWAIT_FFI", ffi)
    done = strictly(USE.format(package=pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 5)
