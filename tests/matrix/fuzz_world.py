# SPDX-License-Identifier: BSD-3-Clause
"""What the fuzzer's starts find: files, programs, file descriptors, and names for all of them."""

import io
import os
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path

# A program that stops itself, and exits with 7 once it is continued. It uses no library, which
# might do something itself: while it is stopped, /proc shows exactly what it was given.
CODE = {
    # getpid; kill(it, SIGSTOP); exit_group(7)
    "x86_64": "b827000000 0f05 89c7 be13000000 b83e000000 0f05 bf07000000 b8e7000000 0f05",
    "aarch64": "881580d2 010000d4 610280d2 281080d2 010000d4 e00080d2 c80b80d2 010000d4",
}
MACHINE = {"x86_64": 62, "aarch64": 183}
BASE, HEADERS = 0x400000, 64 + 56

SCRIPT = "kill -STOP $$; exit 8"
VARIABLES = {"PATH": "{0}/bin:/usr/bin:/bin", "HOME": "/root", "FUZZ": "x", "LANG": "C.UTF-8"}
RESULT_FD = 250  # where a worker writes what it found


def stopping_program():
    """The bytes of an ELF file."""
    name = platform.machine()
    if name not in CODE:
        sys.exit("there is no program to be started on {}".format(name))
    code = bytes.fromhex(CODE[name].replace(" ", ""))
    size = HEADERS + len(code)

    def numbers(*pairs):
        return b"".join(value.to_bytes(width, sys.byteorder) for value, width in pairs)

    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = ((2, 2), (MACHINE[name], 2), (1, 4), (BASE + HEADERS, 8), (64, 8), (0, 8))
    header += ((0, 4), (64, 2), (56, 2), (1, 2), (64, 2), (0, 2), (0, 2))
    segment = ((1, 4), (5, 4), (0, 8), (BASE, 8), (BASE, 8), (size, 8), (size, 8), (4096, 8))
    return ident + numbers(*header) + numbers(*segment) + code


def build(folder):
    """Fill the folder that every start finds."""
    folder.chmod(0o755)
    files = {
        "probe": (stopping_program(), 0o755),
        "bin/probe": (stopping_program(), 0o755),
        "script": ("#!/bin/sh\n" + SCRIPT, 0o755),
        "bin/noshebang": (SCRIPT, 0o755),
        "bin/notexec": (SCRIPT, 0o644),
        "bin/badshebang": ("#!/nonesuch/sh\n", 0o755),
        "bin/empty": ("", 0o755),
        "in": ("input\n", 0o644),
        "out": ("", 0o666),
        "err": ("", 0o666),
        "file": ("text", 0o666),
    }
    for name in "bin", "bin/folder", "sub", "closed":
        folder.joinpath(name).mkdir()
    for name, (content, mode) in files.items():
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
    (folder / "sub" / "inner").symlink_to("../probe")
    (folder / "bin" / "loop").symlink_to("loop")
    (folder / "bin" / "dangling").symlink_to("/nonesuch")
    folder.joinpath("closed").chmod(0)  # root may enter it, others may not
    os.environ.clear()
    os.environ.update({name: value.format(folder) for name, value in VARIABLES.items()})


def prepare(folder):
    """Set up, in a worker, the file descriptors and all else that the environment can change."""
    os.chdir(str(folder))
    os.umask(0o022)
    Path("file").write_text("text")  # an earlier child may have written to it
    append = os.O_RDWR | os.O_APPEND | os.O_TRUNC
    place(os.open("in", os.O_RDONLY), 0, True)
    place(os.open("out", append), 1, True)
    place(os.open("err", append), 2, True)
    place(os.open("file", os.O_RDWR), 20, False)
    place(os.open("file", os.O_RDWR), 21, True)
    for number, inheritable in ((22, False), (25, True)):
        reader, writer = os.pipe()
        place(reader, number, inheritable)
        place(writer, number + 1, inheritable)
    place(os.open("sub", os.O_RDONLY), 24, False)
    place(os.open("file", os.O_RDONLY), 200, True)
    place(os.open("file", os.O_RDONLY), 300, False)


def place(fd, number, inheritable):
    if fd == number:
        os.set_inheritable(fd, inheritable)
    else:
        os.dup2(fd, number, inheritable)
        os.close(fd)


class Fspath(os.PathLike):
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        if isinstance(self.path, Exception):
            raise self.path
        return self.path

    def __repr__(self):
        return "Fspath({!a})".format(self.path)


class Items:
    """An object that has only items() of a mapping."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def items(self):
        return iter(self.pairs)

    def __repr__(self):
        return "Items" + ascii(self.pairs)


class Mapping(dict):
    """A dict with its own items()."""

    def items(self):
        return [("MAPPED", "1")] + list(super().items())


class Str(str):
    """A string that is not exactly a str."""


class Int(int):
    """A number that is not exactly an int."""


class HasFileno:
    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def failing(items):
    yield from items
    raise LookupError("on_purpose")


def fail():
    raise LookupError("on_purpose")


def limit(number):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def gone():
    """Have a current directory that does not exist any more."""
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")


def uninheritable():
    for fd in (0, 1, 2):
        try:
            os.set_inheritable(fd, False)
        except OSError:
            pass  # it is closed


def unprivileged():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


def names(folder):
    """The names that the expressions of fuzz_values may use."""
    here = str(folder)
    known = {
        "here": here,
        "PROBE": here + "/probe",
        "FILE": here + "/file",
        "SCRIPT": SCRIPT,
        "PIPE": subprocess.PIPE,
        "DEVNULL": subprocess.DEVNULL,
        "STDOUT": subprocess.STDOUT,
    }
    modules = (io, os, signal, subprocess, sys)
    known.update((module.__name__, module) for module in modules)
    own = (Fspath, HasFileno, Index, Int, Items, Mapping, Path, Str)
    own += (failing, fail, gone, limit, place, uninheritable, unprivileged)
    known.update((each.__name__, each) for each in own)
    return known
