# SPDX-License-Identifier: BSD-3-Clause
"""Run the waiting suite on gVisor, whose kernel is written anew: processes as gVisor sees them.

python -m tests.matrix.gvisor [current] [without-pidfd] [pytest arguments]: by the interpreter that
runs it, which has pytest. The version without pidfd answers ENOSYS to pidfd_open, as Linux before
5.3 does. It needs root, for gVisor, and Go >= 1.21 at the first time: both versions are built (one
minute each), and kept in a folder of the user's cache. They see this machine's files; what they
write is thrown away. Without Go it is skipped, or fails if CI is set.
"""

import os
import subprocess
import sys
from pathlib import Path

from .interpreters import CACHE
from .tools import check_tools, locked, replacing, run_each

ROOT = Path(__file__).resolve().parents[2]
FOLDER = CACHE / "gvisor"
# name: the version, and the Go that builds it; with a newer Go the old one crashes at random
VERSIONS = {
    "current": ("v0.0.0-20260905035102-160fafc42237", None),
    "without-pidfd": ("v0.0.0-20250205023644-9414b50a5633", "go1.23.12"),
}
TESTS = "tests/matrix/kernel_facts.py tests/waiting tests/starting".split()
# Process 1 inherits orphans.
INIT = ["sh", "-c", '"$@"; exit $?', "init"]
RUN = ["--rootless=false", "--network=none", "--platform=systrap", "do"]


def fetch(name):
    version, toolchain = VERSIONS[name]
    folder = FOLDER / name
    with locked(FOLDER):
        if not folder.is_dir():
            check_tools("go")
            print("building gVisor", version, flush=True)
            with replacing(folder) as new:
                # With cgo it can't start.
                env = dict(os.environ, GOBIN=str(new), CGO_ENABLED="0")
                if toolchain:
                    env["GOTOOLCHAIN"] = toolchain
                install = ["go", "install", "gvisor.dev/gvisor/runsc@" + version]
                subprocess.check_call(install, env=env, cwd="/")
    return folder / "runsc"


def run(name, args):
    env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1", GVISOR=name)
    if all(arg.startswith("-") for arg in args):
        args += TESTS
    pytest = [sys.executable, "-m", "pytest"]
    # Python fails if its output is a regular file.
    with subprocess.Popen(
        [str(fetch(name))] + RUN + INIT + pytest + args,
        cwd=str(ROOT),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            for line in process.stdout:
                print(line.decode("utf-8", "replace"), end="", flush=True)
        finally:
            if sys.exc_info()[0]:
                process.terminate()
    return process.returncode


def main():
    args = sys.argv[1:]
    names = [name for name in VERSIONS if name in args]
    args = [arg for arg in args if arg not in VERSIONS]
    if os.getuid() != 0:
        sys.exit("gVisor needs root")
    run_each("gVisor,", names or VERSIONS, lambda name: run(name, args[:]))


if __name__ == "__main__":
    main()
