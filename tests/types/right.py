# SPDX-License-Identifier: BSD-3-Clause
# pyright: strict
"""What type checkers know of all that is public. It is checked, not run: see tox.ini."""

import asyncio
import contextlib
import multiprocessing
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

import psutil
from typing_extensions import assert_type

import pidwait
from pidwait import aio
from pidwait import subprocess as sp

Code = Optional[int]


def wait_for_each_kind(
    popen: "sp.Popen[str]",
    worker: multiprocessing.Process,
    other: psutil.Process,
    piped: asyncio.subprocess.Process,
    process: pidwait.Process,
    child: pidwait.Child,
) -> None:
    assert_type(pidwait.wait(4711), Code)
    assert_type(pidwait.wait(4711, timeout=2.5, reap=True), Code)
    for proc in popen, worker, other, piped, process, child:
        pidwait.wait(proc, 10)
    usage: Optional[pidwait.Usage] = child.usage
    if usage is not None:
        assert_type(usage.user + usage.system, float)
        assert_type(usage.max_rss, int)
    pidwait.wait_procs([popen, worker, other, piped, process, child, 4711])
    pidwait.wait_procs([popen, 3])
    pidwait.wait_procs([popen, worker], timeout=1, callback=lambda proc, code: print(proc, code))
    pidwait.WaitSet([popen, worker, other, piped, process, child, 4711]).close()
    for _ in pidwait.as_completed((popen, 3)):
        pass
    pidwait.watch(popen, print)
    pidwait.watch(worker, print)
    pidwait.watch(other, print)
    pidwait.watch(piped, print)
    pidwait.watch(process, print)
    pidwait.watch(child, print)


class Job:
    """Whatever has a pid."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.name = "job %d" % pid


class Unstarted:
    pid: "Optional[int]" = None


class Task:
    @property
    def pid(self) -> int:
        return 4711


def wait_for_others(job: Job, unstarted: Unstarted, task: Task) -> None:
    pidwait.wait(job)
    pidwait.wait(unstarted)
    pidwait.wait(task)
    with pidwait.WaitSet([job]) as waiting:
        for one, _ in waiting.wait():
            print(one.name)


def time_out() -> None:
    try:
        pidwait.wait(4711, timeout=0)
    except pidwait.TimeoutExpired as error:
        as_builtin: TimeoutError = error
        assert_type(error.pid, Optional[int])
        assert_type(error.timeout, Optional[float])
        raise as_builtin from None


def handle() -> None:
    with pidwait.Process(4711) as process:
        assert_type(process, pidwait.Process)
        assert_type(process.pid, Optional[int])
        assert_type(process.backend, str)
        assert_type(process.exitcode, Code)
        assert_type(process.has_exited(timeout=1), bool)
        assert_type(process.wait(timeout=1, reap=True), Code)
        assert_type(process.fileno(), int)
        process.send_signal(15)
        process.terminate()
        process.kill()
    assert_type(pidwait.Process.from_fd(7), pidwait.Process)
    assert_type({process} | {pidwait.Process(4712)}, Set[pidwait.Process])
    assert_type(pidwait.pid_exists(4711), bool)
    assert_type(pidwait.probe(), Dict[str, Any])
    print(pidwait.__version__.split("."))


class Named(pidwait.Process):
    name = "mine"


def subclass() -> None:
    with Named(4711) as named:
        assert_type(named, Named)
    assert_type(Named.from_fd(7).name, str)


# Many


def many(
    popens: "List[sp.Popen[bytes]]", jobs: "Mapping[Job, str]", mixed: "List[Union[Job, int]]"
) -> None:
    exited, alive = pidwait.wait_procs(popens, timeout=10)
    assert_type(exited, List[Tuple["sp.Popen[bytes]", Code]])
    assert_type(alive, List["sp.Popen[bytes]"])
    assert_type(pidwait.as_completed(popens, 10), Iterator[Tuple["sp.Popen[bytes]", Code]])
    for popen, code in pidwait.as_completed(popens):
        print(popen.args, code)
    for job, code in pidwait.as_completed(jobs):
        print(job.name, code)
    for pid, code in pidwait.as_completed(int(name) for name in ["1", "2"]):
        assert_type(pid, int)
        assert_type(code, Code)
    assert_type(pidwait.wait_procs(mixed)[1], List[Union[Job, int]])
    pidwait.wait_procs(popens, None, lambda popen, code: print(popen.args, code))
    pidwait.wait_procs(popens, callback=on_exit_of_any)


def on_exit_of_any(proc: object, code: Code) -> None:
    print(proc, code)


def on_exit_of_popen(popen: "sp.Popen[bytes]", code: Code) -> str:
    return "%r %s" % (popen.args, code)


def waitset(popens: "List[sp.Popen[bytes]]") -> None:
    with pidwait.WaitSet(popens) as waiting:
        assert_type(waiting, pidwait.WaitSet["sp.Popen[bytes]"])
        waiting.add(popens[0])
        waiting.discard(popens[0])
        assert_type(waiting.wait(timeout=1), List[Tuple["sp.Popen[bytes]", Code]])
        for popen, code in waiting.wait():
            print(popen.args, code)
        for popen in waiting:
            assert_type(popen, "sp.Popen[bytes]")
        assert_type(len(waiting), int)
        assert_type(4711 in waiting, bool)
        assert_type(waiting.fileno(), int)
        print(names(waiting))


def names(waiting: "pidwait.WaitSet[sp.Popen[bytes]]") -> "List[str]":
    return [str(popen.args) for popen in waiting]


class Supervisor:
    """The type of what is put in later can be told; else it is Any."""

    def __init__(self) -> None:
        self.waiting: "pidwait.WaitSet[Union[Job, int]]" = pidwait.WaitSet()
        self.jobs = pidwait.WaitSet["Job"]()  # from Python 3.7 on
        self.any = pidwait.WaitSet()

    def start(self, job: Job) -> None:
        self.waiting.add(job)
        self.waiting.add(4711)
        for proc, _ in self.waiting.wait():
            assert_type(proc, Union[Job, int])
        for job, _ in self.jobs.wait():
            print(job.name)
        self.any.add(job)
        self.any.add(4711)
        for one, _ in self.any.wait():
            assert_type(one, Any)

    def reset(self) -> None:
        self.waiting = pidwait.WaitSet([4711])


def run_all(commands: "List[List[str]]", at_once: int = 4) -> "Iterator[Tuple[Any, Code]]":
    """As in RECIPES.md."""
    with pidwait.WaitSet() as running:
        while commands or running:
            while commands and len(running) < at_once:
                running.add(sp.Popen(commands.pop(0)))
            for popen, exitcode in running.wait():
                yield popen.args, exitcode


def watches(popen: "sp.Popen[bytes]") -> None:
    watch = pidwait.watch(popen, on_exit_of_popen)
    assert_type(watch, pidwait.Watch["sp.Popen[bytes]"])
    assert_type(watch.proc, "sp.Popen[bytes]")
    watch.cancel()
    pidwait.watch(popen, lambda popen, code: print(popen.args, code))
    pidwait.watch(4711, on_exit_of_any)
    some: "List[pidwait.Watch]" = []
    some.append(watch)
    some.append(pidwait.watch(4711, print))
    assert_type(pidwait.watch_parent(lambda: None, parent=4711, ancestors=True).cancel(), bool)


# Ending


def end_all(popens: "List[sp.Popen[bytes]]", mixed: "List[Union[Job, int]]") -> None:
    exited, alive = pidwait.end_procs(popens, 2.5, 15, on_exit_of_popen)
    assert_type(exited, List[Tuple[Any, Code]])
    assert_type(alive, List[Any])
    pidwait.end_procs(mixed)
    pidwait.end_procs([popens[0], 4711], grace=0, callback=on_exit_of_any, tree=True)
    assert_type(pidwait.has_exited(popens[0], 1), bool)


# Starting


def spawn(strings: "List[str]", env: "Dict[str, str]", log: Path) -> None:
    with pidwait.spawn(["make", "-j4"], cwd="src", process_group=0) as child:
        assert_type(child, pidwait.Child)
        assert_type(child.pid, int)
        os.killpg(child.pid, 15)
        assert_type(child.wait(timeout=600), Code)
        assert_type(child.reaped, bool)
        print(child.args)
    assert_type(pidwait.Child(4711).pid, int)
    pidwait.spawn(strings, env=env)
    pidwait.spawn("true", env=os.environ)
    pidwait.spawn(b"true", env={b"LANG": b"C"}, cwd=b"/")
    pidwait.spawn(log, env={"LOG": log}, cwd=log)
    pidwait.spawn(("cat", log, b"-"), env=dict(os.environ, LANG="C"))
    with open(os.devnull) as text, open(os.devnull, "rb") as binary:
        pidwait.spawn(strings, stdin=text, stdout=binary, stderr=sp.STDOUT)
        pidwait.spawn(strings, stdin=0, stdout=sp.DEVNULL, stderr=None)
        pidwait.spawn(strings, pass_fds=(text.fileno(),), close_fds=True)
        pidwait.spawn(strings, pass_fds={3, 4}, start_new_session=True)


# Looking


def look() -> None:
    for info in pidwait.process_iter(["pid", "name"], ad_value=""):
        assert_type(info, pidwait.ProcessInfo)
        assert_type(info.info, Dict[str, Any])
        assert_type(info.pid, int)
    me = pidwait.ProcessInfo(1)
    with me.oneshot():
        assert_type(me.name(), str)
        assert_type(me.ppid(), int)
        assert_type(me.cmdline(), List[str])
        assert_type(me.status(), str)
        assert_type(me.create_time(), float)
        assert_type(me.username(), str)
        assert_type(me.uids().effective, int)
    assert_type(me.as_dict(("pid",)), Dict[str, Any])
    assert_type(me.is_running(), bool)
    assert_type(me.children(recursive=True), List[pidwait.ProcessInfo])
    pidwait.wait(me)
    pidwait.wait_procs(me.children())


def end(processes: "Sequence[pidwait.Process]") -> None:
    for process in processes:
        process.kill()


def end_children(children: "List[pidwait.Child]") -> None:
    end(children)
    with contextlib.ExitStack() as stack:
        for child in children:
            stack.enter_context(child)


# As the standard library's subprocess, with trees


def tree(
    command: "List[str]", encoding: "Optional[str]", flag: bool, options: "Dict[str, Any]"
) -> None:
    done = sp.run(command, timeout=60, tree=True, grace=2.5, capture_output=True, text=True)
    assert_type(done, "sp.CompletedProcess[str]")
    assert_type(done.usage, Optional[pidwait.Usage])
    done.check_returncode()
    with sp.Popen(command, tree="wait", stdout=sp.PIPE, process_group=0, umask=0o22) as popen:
        assert_type(popen, "sp.Popen[bytes]")
        assert_type(popen.left, Optional[List[int]])
        assert_type(popen.mechanism, Optional[str])
        assert_type(popen.end(0, 15), Optional[int])
        assert_type(popen.end(grace=1.5), Optional[int])
        assert_type(popen.usage, Optional[pidwait.Usage])
        assert_type(popen.wait(1), int)
    assert_type(sp.Popen("a", 0, "/bin/sh", shell=True, encoding="utf-8"), "sp.Popen[str]")
    assert_type(sp.Popen(args=[b"a", Path("b")], errors="replace", tree=flag), "sp.Popen[str]")
    assert_type(sp.Popen(command, text=flag), "sp.Popen[Any]")
    assert_type(sp.Popen(command, text=False, encoding=None).communicate(), Tuple[bytes, bytes])
    assert_type(sp.run(command, universal_newlines=True), "sp.CompletedProcess[str]")
    assert_type(sp.run(command, encoding="utf-8", errors=encoding), "sp.CompletedProcess[str]")
    assert_type(sp.run(command, encoding=encoding), "sp.CompletedProcess[Any]")
    assert_type(sp.check_output(command, tree="leave", errors="ignore"), str)
    assert_type(sp.check_output(command, input=b"a", timeout=1, tree=True), bytes)
    assert_type(sp.check_output(command, text=flag), Any)
    assert_type(sp.call(command, 0, timeout=1, tree="kill", grace=0), int)
    assert_type(sp.check_call(command, stdout=sp.DEVNULL, tree=True), int)
    sp.run(command, **options)
    sp.Popen(command, **options)
    as_standard: "subprocess.Popen[bytes]" = sp.Popen(command)
    pidwait.wait(as_standard)


async def tree_in_asyncio(command: "List[str]") -> None:
    assert_type(await aio.run(command, tree=True, grace=5), "sp.CompletedProcess[bytes]")
    done = await aio.run(command, 0, encoding="utf-8", check=True, timeout=1)
    assert_type(done, "sp.CompletedProcess[str]")
    assert_type(done.usage, Optional[pidwait.Usage])


class Logged(sp.Popen[str]):
    def __init__(self, args: "List[str]", **options: Any) -> None:
        super().__init__(args, text=True, **options)


def standard() -> None:
    assert_type(sp.run(["true"]), "sp.CompletedProcess[bytes]")
    assert_type(sp.run(["true"], stdout=sp.PIPE, text=True), "sp.CompletedProcess[str]")
    assert_type(sp.call(["true"]), int)
    assert_type(sp.check_call(["true"]), int)
    assert_type(sp.check_output(["true"]), bytes)
    assert_type(sp.getoutput("true"), str)
    assert_type(sp.getstatusoutput("true"), Tuple[int, str])
    with sp.Popen(["true"], stdin=sp.DEVNULL, universal_newlines=True) as popen:
        assert_type(popen, "sp.Popen[str]")
        assert_type(popen.communicate(timeout=1), Tuple[str, str])
    try:
        sp.check_call(["false"], stderr=sp.STDOUT)
    except (sp.CalledProcessError, sp.TimeoutExpired) as error:
        assert_type(error.usage, Optional[pidwait.Usage])
    except sp.SubprocessError as other:
        print(other)
    print(sp.list2cmdline(["a b"]))
    with sp.patch():
        pass
    sp.patch()
    sp.unpatch()
