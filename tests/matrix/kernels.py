# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests of what depends on the kernel on Debian's kernels, in a virtual machine.

python -m tests.matrix.kernels 6.12 [5.10 ...] [--quick] [pytest arguments]
python -m tests.matrix.kernels all

Without arguments for pytest it runs the tests of waiting, and of what the kernel is known to offer;
with --quick only those. The machine is emulated, about 25 times slower than a real one, and needs
no rights: qemu-system-x86
and mmdebstrap (Debian's packages). Python and pytest are Debian 12's. The kernels, the newest of
each series, and the root file system are kept in a folder of the user's cache. Without qemu it is
skipped, or fails if the environment variable CI is set.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

from .cpio import Cpio
from .freethreaded import apt
from .interpreters import CACHE
from .tools import check_tools, locked, replacing, run_each

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns(".*", "__pycache__")
FOLDER = CACHE / "kernels"
FACTS, WAITING = "tests/matrix/kernel_facts.py", "tests/waiting"
# series: the suite that has it
KERNELS = {
    "5.10": "bullseye-security",
    "6.1": "bookworm",
    "6.12": "trixie",
    "6.16": "trixie-backports",  # the first whose PIDFD_GET_INFO tells exit codes
    "newest": "trixie-backports",
}
PACKAGES = (
    "python3 python3-pytest python3-pytest-timeout python3-cffi-backend python3-psutil dash "
    "coreutils mount util-linux procps passwd grep strace"
).split()
LEFT_OUT = re.compile(
    r"usr/share/(doc|man|locale|perl\d*|info|lintian|i18n)/|var/(cache|lib)/.*/.|usr/bin/perl"
    r"|usr/lib/x86_64-linux-gnu/(perl|libperl|gconv)|.*/(idlelib|lib2to3)/"
)
# Else each Python that starts would compile what it imports.
COMPILE = "python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib"
NAME = "^linux-(image|binary)-[0-9].*-cloud-amd64$"
# Without -cx16, one boot in five of 6.12 dies.
QEMU = (
    "qemu-system-x86_64 -accel tcg -cpu max,-cx16 -smp 2 -m 2G -nographic -no-reboot -net none"
).split()
APPEND = "console=ttyS0 rdinit=/run.sh panic=-1 quiet mitigations=off"
LIMIT = 3600  # seconds
RUN = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp PYTHONPATH=/tree
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_ADDOPTS='-p no:cacheprovider'
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
ulimit -H -n 65536
cd /tree
echo GUEST_BEGINS
{} </dev/null
echo "GUEST_RC=$?"
python3 -c "import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)"
"""


def lines_of_apt(tar):
    """Those of the root file system: they name the mirrors that this machine reaches."""
    return tar.extractfile("./etc/apt/sources.list").read().decode().splitlines()


def line_for(lines, suite):
    """A line of apt's for another suite."""
    own = "bookworm-security" if suite.endswith("-security") else "bookworm"
    (words,) = (words for words in map(str.split, lines) if words[2] == own)
    return " ".join(words[:2] + [suite] + words[3:])


def fetch_root(folder):
    """The root file system, as a cpio archive for the kernel to unpack."""
    with tempfile.TemporaryDirectory() as tmp:
        path = str(Path(tmp, "root.tar"))
        unpack = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=amd64"]
        unpack += ["--include=" + ",".join(PACKAGES), '--customize-hook=chroot "$1" ' + COMPILE]
        subprocess.check_call(unpack + ["bookworm", path])
        with tarfile.open(path) as tar, folder.joinpath("root.cpio").open("wb") as file:
            lines = lines_of_apt(tar)
            cpio = Cpio(file)
            for entry in tar:
                if not LEFT_OUT.match(entry.name[2:]):
                    cpio.add_member(tar, entry)
            for name in "proc", "sys", "dev", "tmp":
                cpio.add_folder(name)
            cpio.close()
        folder.joinpath("sources.list").write_text("\n".join(lines) + "\n")


def version(name):
    return [int(number) for number in re.findall(r"\d+", name)]


def fetch_kernel(path, series, line):
    with tempfile.TemporaryDirectory() as tmp:
        options = apt(Path(tmp, "apt"), line, "APT::Architecture=amd64")
        subprocess.check_call(["apt-get"] + options + ["update"])
        search = ["apt-cache"] + options + ["search", "--names-only", NAME]
        found = [line.split()[0] for line in subprocess.check_output(search).decode().splitlines()]
        if series != "newest":
            begin = version(series)
            found = [name for name in found if version(name)[: len(begin)] == begin]
        # An image's package that has a twin for the binary depends on it, and is empty.
        name = max(found, key=lambda name: (version(name), "-binary-" in name))
        print("fetching", name, flush=True)
        subprocess.check_call(["apt-get"] + options + ["download", name], cwd=tmp)
        (package,) = Path(tmp).glob("*.deb")
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as unpack, tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
            for entry in tar:
                if re.search("/vmlinuz(-|$)", entry.name):
                    new = path.with_suffix(".new")
                    new.write_bytes(tar.extractfile(entry).read())
                    new.rename(path)


def fetch(series):
    """The kernel and the root file system, each fetched once."""
    root, kernel = FOLDER / "root", FOLDER / ("vmlinuz-" + series)
    with locked(FOLDER):
        if not root.is_dir():
            with replacing(root) as new:
                fetch_root(new)
        if not kernel.exists():
            lines = root.joinpath("sources.list").read_text().splitlines()
            fetch_kernel(kernel, series, line_for(lines, KERNELS[series]))
    return kernel, root / "root.cpio"


def make_image(path, base, command):
    with path.open("wb") as file:
        with base.open("rb") as root:
            shutil.copyfileobj(root, file)
        cpio = Cpio(file)
        cpio.add_file("run.sh", RUN.format(command).encode(), 0o755)
        cpio.add_tree("tree", ROOT, IGNORED)
        cpio.close()


def boot(kernel, image):
    """Run it, and pass on what it prints; its exit status, or "died" if it did not end."""
    command = QEMU + ["-kernel", str(kernel), "-initrd", str(image), "-append", APPEND]
    code = None
    before = []  # what the BIOS and the kernel say
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        timer = threading.Timer(LIMIT, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                line = line.decode("utf-8", "replace").rstrip()
                found = re.search(r"GUEST_RC=(\d+)$", line)
                if found:
                    code = int(found.group(1))
                elif before is not None:
                    before = None if line.endswith("GUEST_BEGINS") else before + [line]
                elif code is None:
                    print(line, flush=True)
        finally:
            timer.cancel()
            process.kill()
    if code is None:
        print("\n".join(before or []))
        return "died"
    return code


def run(series, args):
    kernel, base = fetch(series)
    words = ["python3", "-m", "pytest", "--color=no", "--timeout", "900"]
    words += args or [FACTS, WAITING]
    with tempfile.TemporaryDirectory() as tmp:
        image = Path(tmp, "image.cpio")
        make_image(image, base, " ".join(map(shlex.quote, words)))
        return boot(kernel, image)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", choices=["all", *KERNELS])
    parser.add_argument("--quick", action="store_true")
    options, args = parser.parse_known_args()
    names = list(KERNELS) if options.kernel == "all" else [options.kernel]
    while args and args[0] in KERNELS:
        names.append(args.pop(0))
    if options.quick:
        args = [FACTS]
    check_tools("qemu-system-x86_64", "mmdebstrap")
    run_each("Linux", names, lambda series: run(series, args))


if __name__ == "__main__":
    main()
