# SPDX-License-Identifier: BSD-3-Clause
"""Run pytest on this interpreter as it is where libffi was missing when it was built.

What such a build lacks is the file of the extension module _ctypes. So this is a folder with a
copy of the interpreter's binary, and links to all the rest. With --without-cffi, _cffi_backend is
missing as well. All other arguments are pytest's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CHECK = """
import importlib, sys
for name, there in zip(("_ctypes", "_cffi_backend", "pytest"), (False, {cffi}, True)):
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert not there and error.name == name, error
    else:
        assert there, name + " is there"
"""


def link(folder, entries, but=()):
    folder.mkdir(parents=True)
    for entry in entries:
        if not entry.name.startswith(tuple(but)):
            folder.joinpath(entry.name).symlink_to(entry)


def make(prefix, without):
    """Make the interpreter, without what has these names; return its path."""
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    library = library.resolve()
    new = prefix / "lib" / library.name
    link(new, library.iterdir(), ["lib-dynload", "site-packages", "__pycache__"])
    link(new / "lib-dynload", library.joinpath("lib-dynload").iterdir(), without)
    link(new / "site-packages", Path(sysconfig.get_path("purelib")).iterdir(), without)
    python = prefix / "bin" / "python3"
    python.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), str(python))
    return str(python)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--without-cffi", action="store_true")
    options, args = parser.parse_known_args()
    without = ["_ctypes"] + ["_cffi_backend"] * options.without_cffi
    with tempfile.TemporaryDirectory() as tmp:
        python = make(Path(tmp, "python"), without)
        subprocess.check_call([python, "-Ic", CHECK.format(cffi=not options.without_cffi)])
        return subprocess.call([python, "-m", "pytest"] + args)


if __name__ == "__main__":
    sys.exit(main())
