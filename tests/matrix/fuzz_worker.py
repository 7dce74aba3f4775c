# SPDX-License-Identifier: BSD-3-Clause
"""One start, in a process of its own, and all that can be seen of it.

What is found is a dict of strings by name, so that two of them are easily compared.
"""

import fcntl
import gc
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings

from .. import pidwait, seam
from . import fuzz_world

ours = importlib.import_module(pidwait.__name__ + ".subprocess")

PATIENCE = 2  # seconds, for a program to stop or to end
EVENTS = "subprocess.Popen", "os.posix_spawn", "os.fork", "os.chdir", "os.putenv"
STATUS = "Umask Uid Gid Groups SigBlk SigIgn SigCgt NoNewPrivs".split()
# The address of an object, and the pid of a child: they may differ.
VARYING = re.compile("0x[0-9a-f]{4,}|(?<=subprocess )[0-9]+")


def warm_up():
    """Load what is loaded on demand, so that the workers need not."""
    seam.start_by_posix_spawn()
    subprocess.call(["true"])
    ours.call(["true"], timeout=PATIENCE)


def run(case, side, folder):
    """What a forked worker finds; ``side`` is 0 for the standard library, 1 for ours."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Whatever happens, it must not go on with its parent's code.
        status = 1
        try:
            os.close(reader)
            fuzz_world.place(writer, fuzz_world.RESULT_FD, False)
            signal.alarm(30)
            found = Start(case, side, folder).run()
            with os.fdopen(fuzz_world.RESULT_FD, "w") as file:
                json.dump(found, file)
            status = 0
        except BaseException:
            with os.fdopen(fuzz_world.RESULT_FD, "w") as file:
                json.dump({"harness": traceback.format_exc()}, file)
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if text else {"worker": "ended by {}".format(status)}


class Start:
    def __init__(self, case, side, folder):
        self.case, self.folder = case, folder
        self.start = (subprocess, ours)[side].Popen
        self.found = {}
        self.by_posix_spawn = 0
        self.links = {}  # what a file descriptor leads to: a name that is the same in each run

    def run(self):
        fuzz_world.prepare(self.folder)
        self.usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        space = dict(fuzz_world.names(self.folder), forget=seam.forget)
        self.links[stat_key(os.devnull)] = os.devnull
        self.own_fds()
        self.watch()
        for expression in self.case["world"]:
            eval(expression, space)
        self.limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, self.usual)
        before = self.parent()
        # Nothing that one start keeps may change the next one.
        every = []
        for options in self.case.get("before", []) + [self.case["options"]]:
            every.append({name: eval(text, space) for name, text in options.items()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for options in every[:-1]:
                child = self.attempt(options)
                if child is not None:
                    self.has_stopped(child)
                self.end(child)
        self.found.clear()
        self.by_posix_spawn = 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            child = self.attempt(every[-1])
        own = self.own_fds()
        if child is not None:
            self.look(child, every[-1], own)
        self.end(child)
        del child
        self.note("warnings", [(each.category.__name__, str(each.message)) for each in caught])
        self.after(before)
        self.found["posix_spawn"] = self.by_posix_spawn
        return self.found

    def note(self, name, value):
        text = value if isinstance(value, str) else ascii(value)
        self.found[name] = VARYING.sub("*", text)

    def watch(self):
        """Count the starts by posix_spawn, and the events that audit hooks see."""
        seam.start_by_posix_spawn()
        seam.count_starts(self.count)
        self.events = []
        if hasattr(sys, "addaudithook"):  # Python 3.8
            sys.addaudithook(self.hook)

    def count(self, pid):
        self.by_posix_spawn += 1

    def hook(self, event, arguments):
        if event in EVENTS:
            self.events.append((event, VARYING.sub("*", ascii(arguments))))

    def attempt(self, options):
        self.events.clear()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limit)
        try:
            child = self.start(**options)
            self.note("error", None)
        except BaseException as error:
            self.note("error", type(error).__name__)
            for name in "args errno strerror filename filename2".split():
                self.note("error." + name, getattr(error, name, None))
            self.note("error.text", str(error))
            self.note("error.cause", type(error.__cause__).__name__)
            child = None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.usual)
        self.note("events", list(self.events))
        return child

    def look(self, child, options, own):
        """Note what can be seen of a child that has stopped, and of its object."""
        self.note("args is args", child.args is options["args"])
        for name, value in sorted(vars(child).items()):
            if name in ("stdin", "stdout", "stderr"):
                self.note("Popen." + name, stream(value))
            elif name not in ("pid", "args", "_waitpid_lock", "_process_group"):
                self.note("Popen." + name, value)
        self.note("parent's fds", own)
        if self.has_stopped(child):
            self.note("child.fds", self.named(fds(child.pid)))
            for name in "cmdline", "environ":
                self.note("child." + name, contents(child.pid, name, "rb"))
            for name in "cwd", "exe":
                self.note("child." + name, os.readlink("/proc/{}/{}".format(child.pid, name)))
            fields = contents(child.pid, "stat").rpartition(")")[2].split()
            for name, position in ("parent", 1), ("group", 2), ("session", 3):
                self.note("child." + name, known_pid(int(fields[position]), child.pid))
            self.note("child.tty", fields[4])
            self.note("child.nice", fields[16])
            self.status("child", child.pid)
            for line in contents(child.pid, "limits").splitlines():
                if line.startswith(("Max open files", "Max core", "Max stack")):
                    self.note("child." + line[:14], line)

    def status(self, whose, pid):
        for line in contents(pid, "status").splitlines():
            name, _, value = line.partition(":")
            if name in STATUS:
                self.note("{}.{}".format(whose, name), " ".join(value.split()))

    def has_stopped(self, child):
        """Whether it has stopped; else it has ended, or is too slow and is killed."""
        deadline = time.monotonic() + PATIENCE
        pause = 0.0001
        while True:
            try:
                letter = contents(child.pid, "stat").rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return False
            if letter in "TZX":
                return letter == "T"
            if time.monotonic() > deadline:
                self.note("killed", True)
                os.kill(child.pid, signal.SIGKILL)
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def end(self, child):
        if child is None:
            return
        try:
            os.kill(child.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it ended at once
        how = self.case["wait"]
        try:
            if how == "communicate":
                self.note("output", child.communicate(timeout=PATIENCE))
            elif how == "wait":
                child.wait()
            else:
                child.wait(PATIENCE)
        except Exception as error:
            self.note("wait", repr(error))
        self.note("exit code", child.returncode)
        for each in child.stdin, child.stdout, child.stderr:
            if each is not None:
                each.close()

    def parent(self):
        """The state of this process."""
        found = dict(self.found)
        self.status("parent", os.getpid())
        self.note("parent.cwd", os.readlink("/proc/self/cwd"))
        self.note("parent.environ", sorted(os.environ.items()))
        state = {name: self.found[name] for name in set(self.found) - set(found)}
        self.found = found
        state["fds"] = self.own_fds()
        return state

    def after(self, before):
        """Note what the start has left or changed."""
        left = self.own_fds()
        if left != before["fds"]:
            gc.collect()  # PyPy; and reference cycles
            left = self.own_fds()
        self.note("fds left", left)
        for name, value in self.parent().items():
            if name != "fds" and value != before[name]:
                self.note(name, "{} -> {}".format(before[name], value))
        self.note("children left", children())
        for name in "out", "err":
            self.note(name, self.folder.joinpath(name).read_text(errors="replace"))

    def own_fds(self):
        """Our file descriptors, each named by its file, or else by where it was first seen."""
        found = fds()
        for fd, (key, _) in found.items():
            self.links.setdefault(key, "first at {}".format(fd))
        return self.named(found)

    def named(self, found):
        return {fd: (self.links.get(key, "unknown"), flags) for fd, (key, flags) in found.items()}


def children():
    """The states of the children that are left; they are killed and reaped."""
    found = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid:
            found.append("zombie of status {}".format(status))
            continue
        for pid in contents("self/task/{}".format(os.getpid()), "children").split():
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)
            found.append("running")


def stat_key(path):
    info = os.stat(path)
    return info.st_dev, info.st_ino


def contents(pid, name, mode="r"):
    with open("/proc/{}/{}".format(pid, name), mode) as file:
        return file.read()


def fds(pid=None):
    """What each file descriptor is: its device and inode, and its flags."""
    folder = "/proc/{}/".format(pid or "self")
    found = {}
    for fd in map(int, os.listdir(folder + "fd")):
        try:
            if pid is None:
                info = os.fstat(fd)
                flags = (fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD))
            else:
                info = os.stat("{}fd/{}".format(folder, fd))
                flags = contents(pid, "fdinfo/{}".format(fd)).split("flags:")[1].split()[0]
        except OSError:  # the file descriptor of the listing itself
            continue
        if fd != fuzz_world.RESULT_FD:
            found[fd] = (info.st_dev, info.st_ino), flags
    return {fd: found[fd] for fd in sorted(found)}


def known_pid(number, child):
    names = {child: "itself", os.getpid(): "the worker", os.getppid(): "the fuzzer", 0: "0", 1: "1"}
    same = {os.getpgrp(): "as the worker's", os.getsid(0): "as the worker's session"}
    return names.get(number) or same.get(number) or "another"


def stream(file):
    """The kind and the settings of a stream that Popen has made."""
    if file is None:
        return None
    names = "mode encoding errors line_buffering write_through".split()
    told = [(name, getattr(file, name, "none")) for name in names]
    inner = getattr(file, "buffer", file)
    return type(file).__name__, type(inner).__name__, file.fileno(), told
