# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite on this Linux, dressed up as macOS or a BSD.

python -m tests.matrix.dressed darwin|freebsd|netbsd|openbsd [pytest arguments]

A mount namespace has no /proc and none of the programs that only Linux has; ps is the stand-in's.
dress/sitecustomize.py does the rest in each interpreter. It needs root's rights, or namespaces of
users.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRESS = Path(__file__).with_name("dress")
# Of util-linux, procps and others; on the systems themselves, true is not in /bin.
LINUX_PROGRAMS = (
    "flock gdb ip lsns nsenter pidof pidwait prlimit setpriv setsid strace taskset true unshare"
).split()
# What is hidden is still there in "root", for the stand-in.
PREPARE = """
mount --rbind / "$1/root"
umount -l /proc
mount --bind "$1/ps" "$2"
shift 2
until [ "$1" = -- ]; do mount --bind /dev/null "$1"; shift; done
shift
exec "$@"
"""
PS = """#!/bin/sh
exec /usr/sbin/chroot '{top}/root' '{python}' -S -I '{program}' {platform} "$@"
"""


def main(args):
    name = args.pop(0)
    found = filter(None, map(shutil.which, LINUX_PROGRAMS))
    hidden = [str(Path(path).resolve()) for path in found]
    unshare = ["unshare", "--mount"] + ["--map-root-user"] * (os.getuid() != 0)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        for one in "root", "bin":
            top.joinpath(one).mkdir()
        shutil.copy(shutil.which("true"), str(top / "bin"))
        program = ROOT / "tests/systems/kqueue/standin/bsd_ps.py"
        text = PS.format(top=top, python=sys.executable, program=program, platform=name)
        top.joinpath("ps").write_text(text)
        top.joinpath("ps").chmod(0o755)
        env = dict(os.environ, DRESSED=name, DRESSED_ROOT=str(top / "root"))
        env["PYTHONPATH"] = os.pathsep.join(map(str, (DRESS, ROOT)))
        # Its file is Linux's.
        env["_PYTHON_SYSCONFIGDATA_NAME"] = sysconfig._get_sysconfigdata_name()
        env["PATH"] = os.pathsep.join((str(top / "bin"), os.environ["PATH"]))
        command = [*unshare, "sh", "-ec", PREPARE, "sh", folder, shutil.which("ps"), *hidden, "--"]
        command += [sys.executable, "-m", "pytest", "-p", "tests.matrix.dress.left_out", *args]
        return subprocess.call(command, cwd=str(ROOT), env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
