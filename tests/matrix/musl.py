# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite on a CPython whose C library is musl: python -m tests.matrix.musl [ARGUMENT...].

It is built once, into a folder of the user's cache, from the sources of CPython 3.13 in Debian
trixie. This needs musl-tools, gcc, make, linux-libc-dev and libffi-dev, whose archive calls nothing
that musl lacks. The wheels of the tools are those for musl. Arguments are pytest's.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import freethreaded, interpreters
from .interpreters import CACHE
from .tools import check_tools, locked
from .windows import fetch_wheels

ROOT = Path(__file__).resolve().parents[2]
FOLDER = CACHE / "musl"
PYTHON = FOLDER / "python" / "bin" / "python3.13"
MULTIARCH = "x86_64-linux-musl"
SYSTEM = Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")
ARCHIVE = Path("/usr/lib/x86_64-linux-gnu/libffi_pic.a")
COMPILER = """#!/bin/sh
case " $* " in
*" --print-multiarch "*) echo {};;
*) exec musl-gcc "$@";;
esac
""".format(MULTIARCH)
OPTIONS = "--disable-test-modules --without-doc-strings --without-ensurepip".split()
WHEELS = "pytest pytest-timeout pytest-xdist cffi psutil".split()
CHECK = """
import _cffi_backend, ctypes, psutil, pytest, sys, xdist
assert sys.implementation._multiarch == {!r}
""".format(MULTIARCH)


def headers(folder):
    """The kernel's headers and libffi's alone: all others there are glibc's."""
    folder.mkdir()
    for name in "linux", "asm", "asm-generic", "ffi.h", "ffitarget.h":
        (found,) = [one / name for one in SYSTEM if one.joinpath(name).exists()]
        folder.joinpath(name).symlink_to(found)


def build(prefix):
    with tempfile.TemporaryDirectory(dir=str(prefix.parent)) as tmp:
        folder = Path(tmp)
        interpreters.main()  # fetches sid, whose mirror has trixie, too
        repository = CACHE.joinpath("sid/etc/apt/sources.list").read_text().splitlines()[0]
        tree = freethreaded.sources(repository, folder)
        tree.joinpath("Modules/Setup.local").write_text(freethreaded.LEFT_OUT + "zlib\n")
        headers(folder / "include")
        folder.joinpath("libffi.a").symlink_to(ARCHIVE)
        compiler = folder / "cc"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        settings = [
            "CC={}".format(compiler),
            "OPT=-O1 -DNDEBUG",
            "CPPFLAGS=-idirafter {}/include".format(folder),
            "LIBFFI_CFLAGS=-I{}/include".format(folder),
            "LIBFFI_LIBS=-L{} -lffi".format(folder),
            "PKG_CONFIG=false",  # it would find what is glibc's
        ]
        freethreaded.run(["./configure", "--prefix={}".format(prefix), *OPTIONS, *settings], tree)
        freethreaded.run(["make", "-s", "-j{}".format(os.cpu_count())], tree)
        # Installed there, and moved from here when all is done.
        into = "DESTDIR={}/new".format(folder)
        # -l: hardly any module is compiled before its first import.
        freethreaded.run(["make", "-s", "altinstall", into, "COMPILEALL_OPTS=-l"], tree)
        shutil.rmtree(str(prefix), ignore_errors=True)
        Path(tmp + "/new" + str(prefix)).rename(prefix)


def runs():
    try:
        env = dict(os.environ, PYTHONPATH=str(FOLDER / "wheels"))
        return subprocess.call([str(PYTHON), "-c", CHECK], env=env) == 0
    except OSError:
        return False


def fetch():
    with locked(FOLDER):
        if runs():
            return
        build(FOLDER / "python")
        platforms = ["musllinux_1_{}_x86_64".format(minor) for minor in (2, 1)]
        fetch_wheels(FOLDER / "pip", FOLDER / "wheels", "3.13", platforms, WHEELS)
        if not runs():
            sys.exit("built, but not running: CPython on musl")


def main(args):
    if not runs():
        check_tools("musl-gcc", "make", "apt-get", str(ARCHIVE))
        fetch()
    path = os.pathsep.join(map(str, (ROOT, FOLDER / "wheels")))
    # The usual limit of file descriptors: without closefrom, a start closes each one below it.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    env = dict(os.environ, PYTHONPATH=path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    pytest = ["-m", "pytest"]
    return subprocess.call([str(PYTHON)] + pytest + args, cwd=str(ROOT), env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
