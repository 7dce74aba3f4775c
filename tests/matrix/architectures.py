# SPDX-License-Identifier: BSD-3-Clause
"""Run tests on Debian's Python for other processors: i386 on this one, the rest by qemu-user.

python -m tests.matrix.architectures s390x [pytest arguments]; `all` runs all. It needs mmdebstrap
and the package qemu-user-static; not root. Each Python is kept in a folder of the user's cache. The
tests run where they are, and the programs that they start are this system's; a script in the place
of the Python's binary starts it under the emulator, so that sys.executable does, too.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from .interpreters import CACHE
from .tools import check_tools, locked, run_each

ROOT = Path(__file__).resolve().parents[2]
# name: the emulator
ARCHITECTURES = {
    "i386": None,
    "s390x": "qemu-s390x-static",
    "arm64": "qemu-aarch64-static",
    "armhf": "qemu-arm-static",
    "ppc64el": "qemu-ppc64le-static",
    "mipsel": "qemu-mipsel-static",
    "mips64el": "qemu-mips64el-static",
}
PACKAGES = """
python3.11 python3.11-minimal libpython3.11-stdlib python3-pytest python3-pytest-timeout
python3-cffi-backend python3-psutil
""".split()
PYTHON = "usr/bin/python3.11"
BINARY = PYTHON + "-binary"
# All that the emulator finds there it takes for this system's: nothing but libraries.
KEPT = "lib", "lib64", "usr/lib"
TESTS = ["tests/waiting", "tests/starting", "tests/systems"]
CHECK = """
import _cffi_backend, ctypes, psutil, pytest, pytest_timeout, sys
assert sys.implementation._multiarch.startswith({!r}), sys.implementation._multiarch
"""
TRIPLETS = {"arm64": "aarch64", "armhf": "arm", "ppc64el": "powerpc64le"}


def unpack(name, folder):
    """Unpack the packages there, from the main archive alone: the others may be out of step."""
    subprocess.check_call(
        ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=" + name]
        + ["--include=" + ",".join(PACKAGES)]
        + ['--setup-hook=sed -i 1q "$1/etc/apt/sources.list"', "bookworm", str(folder)]
    )


def relative(folder):
    """Let no link lead to this system's own loader."""
    for path in folder.glob("lib*/ld*"):
        target = os.readlink(str(path)) if path.is_symlink() else ""
        if target.startswith("/"):
            path.unlink()
            path.symlink_to(os.path.relpath(str(folder) + target, str(path.parent)))


def starter(name, folder):
    """A shell script that runs Python, which takes itself for that script."""
    python, binary = str(folder / PYTHON), str(folder / BINARY)
    emulator = ARCHITECTURES[name]
    if emulator:
        command = [emulator, "-L", str(folder), "-0", python]
    else:
        libraries = [str(folder / one / "i386-linux-gnu") for one in ("lib", "usr/lib")]
        command = [str(folder / "lib/ld-linux.so.2"), "--library-path", ":".join(libraries)]
        command += ["--argv0", python]
    return '#!/bin/sh\nexec %s "$@"\n' % " ".join(map(shlex.quote, command + [binary]))


def runs(name, python):
    try:
        check = CHECK.format(TRIPLETS.get(name, name))
        return subprocess.call([str(python), "-c", check]) == 0
    except OSError:
        return False


def install(name, folder):
    everything, new = folder.with_name(name + ".all"), folder.with_name(name + ".new")
    for old in everything, new:
        shutil.rmtree(str(old), ignore_errors=True)
    unpack(name, everything)
    new.joinpath("usr/bin").mkdir(parents=True)
    for kept in KEPT:
        if everything.joinpath(kept).exists():
            everything.joinpath(kept).rename(new / kept)
    everything.joinpath(PYTHON).rename(new / BINARY)
    shutil.rmtree(str(everything))
    relative(new)
    python = new / PYTHON
    python.write_text(starter(name, folder))
    python.chmod(0o755)
    shutil.rmtree(str(folder), ignore_errors=True)
    new.rename(folder)


def fetch(name):
    """The Python of an architecture, fetched once."""
    folder = CACHE / "architectures" / name
    with locked(folder.parent):
        if not runs(name, folder / PYTHON):
            install(name, folder)
            if not runs(name, folder / PYTHON):
                sys.exit("fetched, but not running: Python for " + name)
    return folder / PYTHON


def run(name, args):
    python = str(fetch(name))
    env = dict(os.environ, PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    pytest = [python, "-m", "pytest", "--timeout", "300"]
    if not any(arg.startswith("tests/") for arg in args):
        args = TESTS + args
    return subprocess.call(pytest + args, cwd=str(ROOT), env=env)


def main(args):
    names = []
    while args and args[0] in ("all", *ARCHITECTURES):
        names += ARCHITECTURES if args[0] == "all" else [args[0]]
        del args[0]
    if not names:
        sys.exit("which one? all, " + ", ".join(ARCHITECTURES))
    check_tools("mmdebstrap", *filter(None, map(ARCHITECTURES.get, names)))
    run_each("Debian's Python for", names, lambda name: run(name, args))


if __name__ == "__main__":
    main(sys.argv[1:])
