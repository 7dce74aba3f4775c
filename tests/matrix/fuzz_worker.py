# SPDX-License-Identifier: BSD-3-Clause
"""Starts in a process of their own, and all that can be seen of each."""

import gc
import io  # noqa: F401  # for an expression of fuzz_cases
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

from pidwait import subprocess as ours

from .. import seam
from ..processes import state
from ..trouble import fork, system  # noqa: F401

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
PATIENCE = 2  # seconds, for a program to stop
EVENTS = "subprocess.Popen", "os.posix_spawn", "os.fork", "os.chdir", "os.putenv"
STATUS = "Umask PPid NSpgid NSsid Uid Gid Groups SigBlk SigIgn SigCgt NoNewPrivs".split()
# The address of an object, and the pid of a child: they may differ.
VARYING = re.compile("0x[0-9a-f]{4,}|(?<=subprocess )[0-9]+")
SCRIPT = "kill -STOP $$; exit 8"
# The probe is linked statically, so that it does nothing else: while it is stopped, /proc shows
# what it was given.
FILES = """
echo '#include <signal.h>
    int main() { raise(SIGSTOP); return 7; }' | cc -static -o probe -x c -
echo "$SCRIPT" | tee noshebang > notexec
(echo '#!/bin/sh'; cat noshebang) > script
echo '#!/nonesuch/sh' > badshebang
touch empty out err file found
chmod 755 . script badshebang noshebang empty
chmod 666 out err file found
mkdir -m 755 sub
mkdir -m 0 closed  # root may enter it, others may not
ln -s ../probe sub/inner
ln -s loop loop
ln -s /nonesuch dangling
"""


def build(folder):
    """Fill the folder that every start finds, and load what is loaded on demand."""
    subprocess.check_call(["sh", "-ec", FILES], cwd=folder, env=dict(os.environ, SCRIPT=SCRIPT))
    os.environ.clear()
    os.environ.update(PATH=folder + ":/usr/bin:/bin", HOME="/root", FUZZ="x")
    seam.start_by_posix_spawn()
    subprocess._USE_POSIX_SPAWN = False  # what the standard code does by it differs in details
    ours.call(["true"], timeout=PATIENCE)


def run(case, side, folder):
    """What a forked process finds of each start: the standard library's, or ours (``side`` 1)."""

    def work():
        signal.alarm(30)
        found = Worker(side, folder).run(case)
        with open(folder + "/found", "wb") as file:
            pickle.dump(found, file)

    _, status = os.waitpid(fork(work), 0)
    if status:
        raise RuntimeError("{}: {}".format(status, contents(folder + "/err")))
    with open(folder + "/found", "rb") as file:
        return pickle.load(file)


class Worker:
    def __init__(self, side, folder):
        self.folder = folder
        self.popen = (subprocess, ours)[side].Popen
        self.pipes = {}  # by their links: a name that is the same in each run
        self.found = {}  # by names, so that two of them are easily compared
        self.events = []
        self.by_posix_spawn = []

    def run(self, case):
        self.prepare()
        self.usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.note_process("before", os.getpid())
        seam.count_starts(self.by_posix_spawn.append)
        if hasattr(sys, "addaudithook"):  # Python 3.8
            sys.addaudithook(self.hook)
        names = dict(globals(), here=self.folder)
        names.update(PROBE=self.folder + "/probe", FILE=self.folder + "/file")
        for expression in case["world"]:
            eval(expression, names)
        self.limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, self.usual)
        starts = []  # nothing that one start keeps may change the next one
        for options in case["starts"]:
            starts.append({name: eval(text, names) for name, text in options.items()})
        return [self.start(options, case["wait"]) for options in starts]

    def prepare(self):
        """Set up the file descriptors and all else that the environment can change."""
        os.chdir(self.folder)
        os.umask(0o022)
        Path("file").write_text("text")  # an earlier child may have written to it
        append = os.O_RDWR | os.O_APPEND | os.O_TRUNC
        os.dup2(os.open("script", os.O_RDONLY), 0)
        os.dup2(os.open("out", append), 1)
        os.dup2(os.open("err", append), 2)
        os.dup2(os.open("file", os.O_RDWR), 20, False)
        os.dup2(os.open("file", os.O_RDWR), 21)
        for number, inheritable in ((22, False), (25, True)):
            reader, writer = os.pipe()
            os.dup2(reader, number, inheritable)
            os.dup2(writer, number + 1, inheritable)
        os.dup2(os.open("sub", os.O_RDONLY), 24, False)
        os.dup2(os.open("file", os.O_RDONLY), 200)
        os.dup2(os.open("file", os.O_RDONLY), 300, False)
        os.closerange(3, 20)

    def hook(self, event, arguments):
        if event in EVENTS:
            self.events.append((event, described(arguments)))

    def note(self, name, value):
        self.found[name] = described(value)

    def start(self, options, wait):
        self.found = {"error": None}
        self.events.clear()
        self.by_posix_spawn.clear()
        child, before = None, os.listdir("/proc/self/fd")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            resource.setrlimit(resource.RLIMIT_NOFILE, self.limit)
            try:
                child = self.popen(**options)
            except BaseException as error:
                self.found["error"] = type(error).__name__
                for name in "args errno strerror filename filename2 __cause__".split():
                    self.note("error." + name, getattr(error, name, None))
                self.note("error.text", str(error))
            resource.setrlimit(resource.RLIMIT_NOFILE, self.usual)
        self.found.update(events=list(self.events), posix_spawn=len(self.by_posix_spawn))
        self.note_process("meanwhile", os.getpid())
        if child is not None:
            self.look(child, options, wait)
            del child
        if os.listdir("/proc/self/fd") != before:
            gc.collect()  # reference cycles
        self.found["warnings"] = [described(repr(each.message)) for each in caught]
        self.note_process("after", os.getpid())
        self.note("after.os.environ", sorted(os.environ.items()))
        left = contents("/proc/self/task/{}/children".format(os.getpid())).split()
        self.note("zombies and others left", [state(int(pid)) == "Z" for pid in left])
        for name in "out", "err":
            self.found[name] = contents(os.path.join(self.folder, name))
            os.truncate(os.path.join(self.folder, name), 0)
        return self.found

    def look(self, child, options, wait):
        """Note what can be seen of a child that has stopped, and of its object; and end it."""
        self.note("args is args", child.args is options["args"])
        of_streams = "mode encoding errors line_buffering write_through buffer".split()
        for name, value in vars(child).items():
            if name not in ("pid", "args", "_waitpid_lock", "_process_group", "_wait4"):
                settings = [getattr(value, setting, None) for setting in of_streams]
                self.note("Popen." + name, [value] + settings)
        deadline = time.monotonic() + PATIENCE
        while state(child.pid) not in ("T", "Z", "X", None):
            if time.monotonic() > deadline:
                self.note("killed", True)
                os.kill(child.pid, signal.SIGKILL)
                break
            time.sleep(0.0005)
        if state(child.pid) == "T":
            self.note_process("child", child.pid)
            os.kill(child.pid, signal.SIGCONT)
        with child:
            try:
                self.note("waited", eval(wait, {"child": child}))
            except Exception as error:
                self.note("waited", repr(error))
        self.note("exit code", child.returncode)

    def note_process(self, whose, pid):
        """Note what /proc shows of a process; pipes by where they were first seen."""
        folder = "/proc/{}/".format(pid)
        found = {name: contents(folder + name) for name in ("cmdline", "environ", "limits")}
        found.update((name, os.readlink(folder + name)) for name in ("cwd", "exe"))
        fields = contents(folder + "stat").rpartition(")")[2].split()
        found.update(tty=fields[4], nice=fields[16], fds={})
        known = {str(pid): "itself", str(os.getpid()): "the worker"}
        for line in contents(folder + "status").splitlines():
            name, _, value = line.partition(":")
            if name in STATUS:
                found[name] = " ".join(known.get(number, number) for number in value.split())
        for fd in sorted(map(int, os.listdir(folder + "fd"))):
            try:
                link = os.readlink("{}fd/{}".format(folder, fd))
                flags = contents("{}fdinfo/{}".format(folder, fd)).split("flags:")[1].split()[0]
            except FileNotFoundError:  # the file descriptor of the listing itself
                continue
            if link.startswith("pipe:"):
                link = self.pipes.setdefault(link, "the pipe first at {}".format(fd))
            found["fds"][fd] = link, flags
        self.found.update(("{}.{}".format(whose, name), found[name]) for name in found)


def described(value):
    return VARYING.sub("*", value if isinstance(value, str) else ascii(value))


def contents(path):
    return Path(path).read_bytes().decode("latin-1")


# What the expressions of fuzz_cases use


def having(method, value):
    """An object that has this one method, which returns the value, or raises it."""

    def answer(self):
        if isinstance(value, Exception):
            raise value
        return value

    return type(method, (), {method: answer, "__repr__": lambda self: ascii(value)})()


Fspath, Index = partial(having, "__fspath__"), partial(having, "__index__")
HasFileno, Items = partial(having, "fileno"), partial(having, "items")
Mapping = type("Mapping", (dict,), {"items": lambda self: [("MAPPED", "1"), *dict.items(self)]})
Str = type("Str", (str,), {})
Int = type("Int", (int,), {})


def limit(number):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
