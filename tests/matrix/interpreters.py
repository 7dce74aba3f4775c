# SPDX-License-Identifier: BSD-3-Clause
"""Fetch the interpreters that Debian 12 and pyenv lack: CPython 3.14, 3.15 and PyPy 3.11.

They come from Debian sid, unpacked into a folder of the user's cache. No chroot: each binary is
patched to use the loader and the libraries it came with. And build CPython 3.13 without a GIL: see
freethreaded.py. Needs mmdebstrap and patchelf, for the last gcc, make, libffi-dev and zlib1g-dev;
not root. With --path, only print the PATH on which tox finds every interpreter of this machine.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

if __package__:
    from . import freethreaded
else:
    import freethreaded

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pidwait-matrix"
BIN = CACHE / "bin"
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
NAMES = "python3.14", "python3.15", "pypy3.11"
PACKAGES = "python3.14", "python3.14-venv", "python3.15", "python3.15-venv", "pypy3", "pypy3-venv"


def search_path():
    """PATH after the real bin folders of pyenv, whose shims fail for inactive versions."""
    bins = sorted(PYENV.glob("versions/*/bin"), key=lambda b: (b.parts[-2][:5] != "3.11.", b))
    return os.pathsep.join([*map(str, bins), str(BIN), os.environ.get("PATH", os.defpath)])


def runs(name):
    try:
        return subprocess.call([str(BIN / name), "-c", "import ctypes"]) == 0
    except OSError:
        return False


def fetch(root):
    new = root.with_suffix(".new")
    shutil.rmtree(str(new), ignore_errors=True)
    unpack = ["mmdebstrap", "--quiet", "--variant=extract", "--include=" + ",".join(PACKAGES)]
    # A mirror may lag behind sid's own expiry date.
    unpack += ['--aptopt=Acquire::Check-Valid-Until "false"', "sid", str(new)]
    subprocess.check_call(unpack)
    (loader,) = new.glob("usr/lib/*/ld-linux*.so.*")
    loader = root / loader.relative_to(new)
    patch = ["patchelf", "--set-interpreter", str(loader), "--force-rpath", "--set-rpath"]
    patch.append("{}:{}".format(loader.parent, root / "usr/lib"))
    subprocess.check_call(patch + [str(new / "usr/bin" / name) for name in NAMES])
    shutil.rmtree(str(root), ignore_errors=True)
    new.rename(root)


def link(name, binary):
    link = BIN / name
    if link.is_symlink():
        link.unlink()
    link.symlink_to(binary)


def main():
    import fcntl  # `python3 -m tests` imports this module on Windows, too

    BIN.mkdir(parents=True, exist_ok=True)
    with CACHE.joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = CACHE / "sid"
        if not all(map(runs, NAMES)):
            fetch(root)
            for name in NAMES:
                link(name, root / "usr/bin" / name)
        if not freethreaded.runs(BIN / freethreaded.NAME):
            prefix = CACHE / "freethreaded"
            freethreaded.build((root / "etc/apt/sources.list").read_text().splitlines()[0], prefix)
            link(freethreaded.NAME, prefix / "bin" / freethreaded.NAME)
    missing = [name for name in NAMES if not runs(name)]
    if not freethreaded.runs(BIN / freethreaded.NAME):
        missing.append(freethreaded.NAME)
    if missing:
        sys.exit("fetched, but not running: " + ", ".join(missing))


if __name__ == "__main__":
    if sys.argv[1:] == ["--path"]:
        print(search_path())
    else:
        main()
