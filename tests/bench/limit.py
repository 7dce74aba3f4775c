# SPDX-License-Identifier: BSD-3-Clause
"""The waits and starts of the benches as a C program, limit.c, and how C is compiled here.

A ratio to it has no bound: it shows the least that any code could take.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from . import core

SOURCE = Path(__file__).with_suffix(".c")


def compiler():
    """The command of a C compiler."""
    for name in ("cc", "gcc"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        # zig links nothing statically with the system's own libc.
        target = platform.machine() + "-linux-musl"
        return [sys.executable, "-m", "ziglang", "cc", "-target", target]
    raise core.Unavailable("no C compiler: neither cc nor gcc is on PATH, nor ziglang installed")


def build(source, path, *flags):
    """Compile the text of a C program."""
    command = compiler() + ["-w", "-x", "c", "-o", path, "-"]
    try:
        subprocess.run(command + list(flags), input=source, check=True, stderr=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        errors = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise core.Unavailable("{}: {} {}".format(command[0], error, errors)) from error
    return path


def build_limit(folder):
    """The path of limit.c compiled, and the reason why it is not: one of them is None."""
    try:
        return build(SOURCE.read_bytes(), os.path.join(folder, "limit"), "-O2"), None
    except core.Unavailable as error:
        return None, str(error)


class Limit:
    """The C program at one of its jobs: it reads orders in lines, and answers in lines."""

    def __init__(self, path, *arguments, **options):
        self._process = subprocess.Popen(
            [path] + [str(argument) for argument in arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            **options,
        )

    def tell(self, lines):
        try:
            self._process.stdin.write(lines + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() tells why

    def answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise core.Unavailable(
                "limit ended with {}: {}".format(
                    self._process.wait(), self._process.stderr.read().strip()
                )
            )
        return line.split()

    def close(self):
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()
