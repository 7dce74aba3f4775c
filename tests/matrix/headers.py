# SPDX-License-Identifier: BSD-3-Clause
"""Compare our tables with the headers of the systems that they describe.

python tests/matrix/headers.py [TARGET...], where the package ziglang is installed: it has
the headers of many systems, and a compiler that knows their ABIs. No compiled code is run.
Each table is loaded as on a machine with the target's word size and alignment, and the
compiler checks each number in an assertion; then each again, off by one, which has to fail.

ziglang 0.15.2 has the headers of NetBSD 10, 0.17.0 those of NetBSD 11 and of OpenBSD.
Neither has DragonFly's.
"""

import contextlib
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from struct import pack

FOLDER = Path(__file__).resolve().parents[2] / "pidwait"
sys.path.insert(0, str(FOLDER.parents[1]))
CLD_EXITED = importlib.import_module("pidwait._systems.posix").CLD_EXITED

TARGETS = """
    x86_64-freebsd x86-freebsd aarch64-freebsd arm-freebsd-eabihf riscv64-freebsd
    powerpc64-freebsd
    x86_64-netbsd x86-netbsd aarch64-netbsd arm-netbsd-eabi
    x86_64-openbsd x86-openbsd aarch64-openbsd arm-openbsd-eabi riscv64-openbsd
    powerpc-openbsd-eabihf
    x86_64-macos aarch64-macos
    x86_64-linux-gnu x86-linux-gnu aarch64-linux-gnu arm-linux-gnueabihf riscv64-linux-gnu
    powerpc64le-linux-gnu s390x-linux-gnu loongarch64-linux-gnu
    x86_64-linux-musl x86-linux-musl aarch64-linux-musl arm-linux-musleabihf riscv64-linux-musl
    powerpc64le-linux-musl s390x-linux-musl
""".split()

INCLUDES = """
#define _GNU_SOURCE
#include <sys/types.h>
#include <sys/wait.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
"""
BSD_INCLUDES = INCLUDES + "#include <sys/event.h>\n"
LINUX_INCLUDES = INCLUDES + "#include <sys/syscall.h>\n#include <linux/pidfd.h>\n"


class Abi:
    """The module struct as it would be on the target."""

    def __init__(self, word, alignment):
        self._sizes = dict.fromkeys("PnNlL", word)
        self._sizes.update(zip("bBhHiIqQ", (1, 1, 2, 2, 4, 4, 8, 8)))
        self._alignment = alignment  # of 64 bits

    def lay_out(self, layout):
        """The offset and the size of each field, and the size of the whole."""
        fields, end = [], 0
        for count, code in re.findall(r"(\d*)([a-zA-Z])", layout):
            if code == "x":
                end += int(count or 1)
                continue
            size = self._sizes[code]
            if layout[0] == "@":
                alignment = self._alignment if size == 8 else size
                end += -end % alignment
            for _ in range(int(count or 1)):
                fields.append((end, size))
                end += size
        return fields, end

    def module(self):
        abi = self

        class Struct:
            def __init__(self, layout):
                self.fields, self.size = abi.lay_out(layout)

            def unpack(self, buffer):
                return (0,) * len(self.fields)

            def pack(self, *numbers):
                return bytes(self.size)

        module = types.ModuleType("struct")
        module.Struct = Struct
        module.pack = pack
        module.calcsize = lambda layout: abi.lay_out(layout)[1]
        return module


def load(name, abi, word, machine):
    """A table, as it would be on the target."""
    spec = importlib.util.spec_from_file_location(
        "pidwait." + name, str(FOLDER.joinpath(*name.split(".")).with_suffix(".py"))
    )
    module = importlib.util.module_from_spec(spec)
    uname = os.uname
    real = sys.modules.get("struct"), sys.maxsize
    sys.modules["struct"], sys.maxsize = abi.module(), 2 ** (word * 8 - 1) - 1
    os.uname = lambda: types.SimpleNamespace(machine=machine)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules["struct"], sys.maxsize = real
        os.uname = uname
    return module


class Target:
    def __init__(self, name):
        self.name = name
        self.machine, self.system, *abi = name.split("-")
        self.libc = abi[0] if abi else None
        # Of 32-bit processors, x86 alone aligns 64 bits to 4.
        self.word = 8 if "64" in self.machine or self.machine == "s390x" else 4
        self.abi = Abi(self.word, 4 if self.machine == "x86" else 8)

    def load(self, table):
        return load(table, self.abi, self.word, self.machine)

    def compile(self, source, option="-c"):
        """The compiler's output file, or None if it fails, and its messages."""
        command = [sys.executable, "-m", "ziglang", "cc", "-target", self.name, option]
        command += ["-g0", "-O1", "-w", "-ferror-limit=0", "-o", "output", "input.c"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "input.c").write_text(source)
            done = subprocess.run(
                command,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            if done.returncode:
                return None, done.stdout
            return Path(folder, "output").read_bytes(), done.stdout

    def rows(self):
        """What to compare: (C expression, number)."""
        if self.system == "linux":
            return self.linux()
        return self.bsd("darwin" if self.system == "macos" else self.system)

    def linux(self):
        linux = self.load("_systems.linux.calls")
        for name, number in linux.SYSCALLS.items():
            yield "SYS_" + name, number
        for name in "P_PID P_PIDFD WNOHANG WEXITED WNOWAIT".split():
            yield name, getattr(linux, name)
        yield "CLD_EXITED", CLD_EXITED
        yield "sizeof(siginfo_t) <= 256", 1
        yield from siginfo(*linux.SIGINFO)
        yield "_IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, 64)", linux.PIDFD_GET_INFO
        yield "_IOC_NR(PIDFD_GET_INFO)", 11
        yield "_IOC_TYPE(PIDFD_GET_INFO)", 0xFF
        yield "PIDFD_INFO_SIZE_VER0", linux.PIDFD_INFO.size
        yield "PIDFD_INFO_EXIT", linux.PIDFD_INFO_EXIT
        for name, (at, _) in zip(PIDFD_INFO, linux.PIDFD_INFO.fields):
            yield "offsetof(struct pidfd_info, %s)" % name, at
        yield from self.spawn("linux")

    def bsd(self, name):
        bsd = self.load("_systems.bsd.calls")
        system = bsd.TABLES[name]
        kevents, symbol = system.kevents, self.symbol()
        if name == "netbsd":
            kevents = [kevent for kevent in kevents if kevent[0] == symbol]
        yield from layout("struct kevent", EVENT, *self.abi.lay_out(kevents[0][1]))
        yield declared(system.counts.replace("uintptr_t", "size_t")), 1
        yield int(symbol == kevents[0][0]), 1
        yield from layout("struct timespec", TIME, *self.abi.lay_out(system.timespec))
        yield from zip(("EVFILT_PROC", "EVFILT_TIMER", "EVFILT_READ"), system.filters)
        for constant in "EV_ADD EV_DELETE EV_ENABLE EV_ONESHOT NOTE_EXIT".split():
            yield constant, getattr(bsd, constant)
        yield "CLD_EXITED", CLD_EXITED
        if system.status_flag:
            yield "NOTE_EXITSTATUS", system.status_flag
        waitid = system.waitid
        yield "P_PID", waitid.p_pid
        yield "WEXITED | WNOHANG | WNOWAIT", waitid.look
        yield "sizeof(siginfo_t) <= 256", 1
        yield from siginfo(*waitid.offsets)
        yield "sizeof(id_t)", 8 if waitid.prototype[2] == "int64_t" else 4
        yield "sizeof(idtype_t)", 4
        yield from self.spawn(name)

    def spawn(self, name):
        table = self.load("_starting.libc_spawn")
        yield "POSIX_SPAWN_SETPGROUP", table.SPAWN_FLAGS["SETPGROUP"]
        for flag, number in table.FLAGS[name].items():
            if flag != "USEVFORK" or not self.libc.startswith("musl"):
                yield "POSIX_SPAWN_" + flag, number
        for type_ in ("posix_spawnattr_t", "posix_spawn_file_actions_t", "sigset_t"):
            yield "sizeof(%s) <= %d" % (type_, table.SIZE), 1

    def symbol(self):
        """The name that kevent() has in the C library."""
        source = BSD_INCLUDES + "int f(void) { return kevent(0, 0, 0, 0, 0, 0); }\n"
        text, said = self.compile(source, "-S")
        if text is None:
            sys.exit(said)
        (name,) = set(re.findall(r"\b_*kevent\d*\b", text.decode()))
        # On macOS the object format adds the first underscore.
        return name[1:] if self.system == "macos" else name


EVENT = ("ident", "filter", "flags", "fflags", "data", "udata")
PIDFD_INFO = ("mask", "pid", "tgid", "ppid", "exit_code")
TIME = ("tv_sec", "tv_nsec")


def layout(struct, names, fields, size):
    yield "sizeof(%s)" % struct, size
    for name, (offset, size) in zip(names, fields):
        yield "offsetof(%s, %s)" % (struct, name), offset
        yield "sizeof(((%s *)0)->%s)" % (struct, name), size


def declared(counts):
    return (
        "_Generic(&kevent, int (*)(int, const struct kevent *, {0}, struct kevent *, {0}, "
        "const struct timespec *): 1, default: 0)".format(counts)
    )


def siginfo(code, pid, status):
    yield "offsetof(siginfo_t, si_code)", code
    yield "offsetof(siginfo_t, si_pid)", pid
    yield "offsetof(siginfo_t, si_status)", status


def source(target, rows, off_by=0):
    lines = [LINUX_INCLUDES if target.system == "linux" else BSD_INCLUDES]
    for expression, number in rows:
        # Unsigned or not, as 64 bits wrap around.
        assertion = "(uint64_t)(%s) == (uint64_t)%dLL" % (expression, number + off_by)
        lines.append('_Static_assert(%s, "");' % assertion)
    return "\n".join(lines)


def compare(target):
    """The count of numbers compared, and the compiler's messages about those that differ."""
    rows = list(target.rows())
    output, said = target.compile(source(target, rows))
    if output is None:
        return len(rows), said
    _, said = target.compile(source(target, rows, off_by=1))
    seen = said.count("error: static assertion failed")
    if seen != len(rows):
        return len(rows), "of %d wrong numbers only %d were seen" % (len(rows), seen)
    return len(rows), ""


def main():
    failed = 0
    targets = sys.argv[1:] or TARGETS
    version = subprocess.check_output(
        [sys.executable, "-m", "ziglang", "version"], universal_newlines=True
    )
    if not sys.argv[1:] and version.startswith("0.15."):
        targets = [name for name in TARGETS if "netbsd" in name]
    for name in targets:
        count, error = compare(Target(name))
        print("{:26} {:3} {}".format(name, count, "differ:\n" + error if error else "equal"))
        failed += bool(error)
    print("%d targets, %d differ" % (len(targets), failed))
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
