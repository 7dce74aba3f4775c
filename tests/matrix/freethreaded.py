# SPDX-License-Identifier: BSD-3-Clause
"""Build the CPython that no package has: 3.13 without a GIL, from the sources in Debian trixie.

It takes two minutes of two cores, and has what the tests need: no OpenSSL, no sqlite.
"""

import os
import shutil
import subprocess
import sys
import tarfile

NAME = "python3.13t"
SOURCE = "python3.13"
OPTIONS = "--disable-gil --disable-test-modules --without-doc-strings --without-ensurepip".split()
LEFT_OUT = """*disabled*
_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _curses _curses_panel
_dbm _decimal _gdbm _hashlib _lzma _multibytecodec _sqlite3 _ssl _tkinter _uuid _zoneinfo readline
"""
CHECK = "import ctypes, sys, zlib; sys.exit(sys._is_gil_enabled())"


def apt(folder, line, *more):
    """The options that give apt-get lists of its own, from this line of a sources.list."""
    for name in "state/lists/partial", "cache/archives/partial":
        folder.joinpath(name).mkdir(parents=True)
    folder.joinpath("list").write_text(line + "\n")
    options = [
        "Dir::State={}/state".format(folder),
        "Dir::State::status=/dev/null",
        "Dir::Cache={}/cache".format(folder),
        "Dir::Etc::sourcelist={}/list".format(folder),
        "Dir::Etc::sourceparts=/dev/null",
        "Acquire::Check-Valid-Until=false",
        "Acquire::Languages=none",
        "APT::Sandbox::User=root",
        *more,
    ]
    return ["-qq"] + [word for option in options for word in ("-o", option)]


def sources(repository, folder):
    """Unpack the sources: from the mirror of a line of apt's, which names another suite."""
    words = ["deb-src"] + repository.split()[1:]
    get = ["apt-get", *apt(folder, " ".join(words).replace(" sid ", " trixie "))]
    subprocess.check_call(get + ["update"])
    subprocess.check_call(
        get + ["source", "--download-only", "--tar-only", SOURCE], cwd=str(folder)
    )
    (packed,) = folder.glob("*.orig.tar.*")
    with tarfile.open(str(packed)) as tar:
        tar.extractall(str(folder))
    (configure,) = folder.glob("[Pp]ython*/configure")
    return configure.parent


def run(command, folder):
    with folder.joinpath("log").open("w+") as log:
        if subprocess.call(command, cwd=str(folder), stdout=log, stderr=subprocess.STDOUT):
            log.seek(0)
            sys.exit("".join(log.readlines()[-30:]) + "failed: " + " ".join(command))


def build(repository, prefix):
    """Install it there, as bin/python3.13t."""
    folder = prefix.with_suffix(".build")
    for old in folder, prefix:
        shutil.rmtree(str(old), ignore_errors=True)
    folder.mkdir(parents=True)
    tree = sources(repository, folder)
    tree.joinpath("Modules/Setup.local").write_text(LEFT_OUT)
    # -O1 takes two thirds of -O2's time.
    run(["./configure", "--prefix=" + str(prefix), "OPT=-O1 -DNDEBUG", *OPTIONS], tree)
    run(["make", "-s", "-j{}".format(os.cpu_count())], tree)
    run(["make", "-s", "altinstall"], tree)
    shutil.rmtree(str(folder))


def runs(python):
    try:
        return subprocess.call([str(python), "-c", CHECK]) == 0
    except OSError:
        return False
