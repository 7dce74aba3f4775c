# SPDX-License-Identifier: BSD-3-Clause
# pyright: standard, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers must refuse: a line that they accept has an unused ignore, an error."""

import asyncio
from typing import List, Union

import pidwait
from pidwait import aio
from pidwait import subprocess as sp


def one(popen: "sp.Popen[bytes]", process: pidwait.Process) -> None:
    pidwait.wait("4711")  # type: ignore[arg-type]
    pidwait.wait(1.5)  # type: ignore[arg-type]
    pidwait.wait(None)  # type: ignore[arg-type]
    pidwait.wait([popen])  # type: ignore[arg-type]
    pidwait.wait(object())  # type: ignore[arg-type]
    pidwait.wait(popen, "10")  # type: ignore[arg-type]
    pidwait.Process(popen)  # type: ignore[arg-type]
    pidwait.Process("4711")  # type: ignore[arg-type]
    pidwait.pid_exists(popen)  # type: ignore[arg-type]
    process.send_signal("TERM")  # type: ignore[arg-type]
    process.exited()  # type: ignore[attr-defined]
    print(process.exitcode + 1)  # type: ignore[operator]
    number: int = process.pid  # type: ignore[assignment]
    code: int = pidwait.wait(popen)  # type: ignore[assignment]
    print(number, code)
    process.pid = 3  # type: ignore[misc]
    pidwait.end_procs(["4711"])  # type: ignore[list-item]
    pidwait.end_procs([popen], grace="1")  # type: ignore[arg-type]
    pidwait.watch_parent(on_known_exit)  # type: ignore[arg-type]


class Nameless:
    pid = "4711"


def many(popens: "List[sp.Popen[bytes]]", tasks: "List[asyncio.Task[int]]") -> None:
    pidwait.wait_procs(4711)  # type: ignore[call-overload]
    pidwait.wait_procs(["4711"])  # type: ignore[type-var]
    pidwait.wait_procs([4711, "4712"])  # type: ignore[type-var]
    pidwait.wait_procs(tasks)  # type: ignore[type-var]
    pidwait.wait_procs([Nameless()])  # type: ignore[type-var]
    pidwait.wait_procs(popens, callback=on_exit_of_number)  # type: ignore[arg-type]
    pidwait.wait_procs(popens, callback=print, timeout="1")  # type: ignore[call-overload]
    pidwait.as_completed(tasks)  # type: ignore[type-var]
    pidwait.as_completed(popens, "1")  # type: ignore[call-overload]
    for popen, code in pidwait.as_completed(popens):
        print(popen.name)  # type: ignore[attr-defined]
        print(code.real)  # type: ignore[union-attr]
    for popen, _ in pidwait.wait_procs(popens)[0]:
        print(popen.exitcode)  # type: ignore[attr-defined]


def on_exit_of_number(pid: int, code: Union[int, None]) -> None:
    print(pid, code)


def on_known_exit(pid: int, code: int) -> None:
    print(pid, code)


def strings(waiting: "pidwait.WaitSet[str]") -> None:  # type: ignore[type-var]
    waiting.close()


def waitset(popens: "List[sp.Popen[bytes]]") -> None:
    pidwait.WaitSet(["4711"])  # type: ignore[type-var]
    pidwait.WaitSet(4711)  # type: ignore[call-overload]
    with pidwait.WaitSet(popens) as waiting:
        waiting.add(4711)  # type: ignore[arg-type]
        waiting.add("4711")  # type: ignore[arg-type]
        waiting.discard(4711)  # type: ignore[arg-type]
        for popen, _ in waiting.wait():
            print(popen.exitcode)  # type: ignore[attr-defined]
        for popen in waiting:
            print(popen.exitcode)  # type: ignore[attr-defined]
        numbers: "pidwait.WaitSet[int]" = waiting  # type: ignore[assignment]
        print(numbers)
    empty: "pidwait.WaitSet[sp.Popen[bytes]]" = pidwait.WaitSet()
    empty.add("4711")  # type: ignore[arg-type]
    for popen, _ in empty.wait():
        print(popen.exitcode)  # type: ignore[attr-defined]


def watches(popen: "sp.Popen[bytes]") -> None:
    pidwait.watch("4711", print)  # type: ignore[type-var]
    pidwait.watch(popen, on_exit_of_number)  # type: ignore[arg-type]
    pidwait.watch(4711, on_known_exit)  # type: ignore[arg-type]
    pidwait.watch(4711, lambda proc: print(proc))  # type: ignore[arg-type, misc]
    pidwait.watch(popen, lambda proc, code: print(proc.exitcode))  # type: ignore[attr-defined]
    pidwait.watch(popen, 3)  # type: ignore[arg-type]
    print(pidwait.watch(popen, print).proc.exitcode)  # type: ignore[attr-defined]
    pidwait.watch(popen, print).stop()  # type: ignore[attr-defined]


def spawn() -> None:
    pidwait.spawn(4711)  # type: ignore[arg-type]
    pidwait.spawn(["sleep", 3])  # type: ignore[list-item]
    pidwait.spawn("true", env={"LANG": 3})  # type: ignore[arg-type]
    pidwait.spawn("true", env=["LANG=C"])  # type: ignore[arg-type]
    pidwait.spawn("true", cwd=3)  # type: ignore[arg-type]
    pidwait.spawn("true", stdin="foo")  # type: ignore[arg-type]
    pidwait.spawn("true", stdout=b"foo")  # type: ignore[arg-type]
    pidwait.spawn("true", stderr=object())  # type: ignore[arg-type]
    pidwait.spawn("true", process_group="new")  # type: ignore[arg-type]
    pidwait.spawn("true", pass_fds=3)  # type: ignore[arg-type]
    pidwait.spawn("true", pass_fds=["3"])  # type: ignore[list-item]
    pidwait.spawn("true", shell=True)  # type: ignore[call-arg]
    print(pidwait.spawn("true").returncode)  # type: ignore[attr-defined]


def standard() -> None:
    sp.run(["true"], no_such=1)  # type: ignore[call-overload]
    sp.run(4711)  # type: ignore[call-overload]
    sp.no_such()  # type: ignore[attr-defined]
    text: str = sp.check_output(["true"])  # type: ignore[assignment]
    with sp.patch() as patched:
        patched.unpatch()  # type: ignore[attr-defined]
    sp.patch("Popen")  # type: ignore[call-arg]
    print(text)


def tree(popen: "sp.Popen[bytes]") -> None:
    sp.run(["true"], tree="yes")  # type: ignore[call-overload]
    sp.run(["true"], tree=1)  # type: ignore[call-overload]
    sp.run(["true"], tree=True, grace="5")  # type: ignore[call-overload]
    sp.run(["true"], treee=True)  # type: ignore[call-overload]
    sp.run("ls", "-l", tree=True)  # type: ignore[call-overload]
    sp.Popen(["true"], tree=None)  # type: ignore[call-overload]
    sp.Popen(["true"], timeout=5)  # type: ignore[call-overload]
    sp.Popen(["true"], process_group="new")  # type: ignore[call-overload]
    sp.check_call(["true"], tree="all")  # type: ignore[call-overload]
    popen.end(b"5")  # type: ignore[arg-type]
    popen.end(sig="TERM")  # type: ignore[arg-type]
    popen.end(5, tree=True)  # type: ignore[call-arg]
    popen.ended()  # type: ignore[attr-defined]
    popen.left = []  # type: ignore[misc]
    print(popen.usage.user)  # type: ignore[union-attr]
    print(popen.mechanism + 1)  # type: ignore[operator]
    code: int = popen.end()  # type: ignore[assignment]
    text: "sp.CompletedProcess[str]" = sp.run(["true"], tree=True)  # type: ignore[assignment]
    other: "sp.Popen[bytes]" = sp.Popen(["true"], encoding="utf-8")  # type: ignore[assignment]
    data: bytes = sp.check_output(["true"], tree=True, text=True)  # type: ignore[assignment]
    print(code, text, other, data, sp.run(["true"]).usages)  # type: ignore[attr-defined]


async def tree_in_asyncio() -> None:
    await aio.run(["true"], tree="yes")  # type: ignore[call-overload]
    await aio.run(["true"], grace=b"5")  # type: ignore[call-overload]
    text: "sp.CompletedProcess[str]" = await aio.run(["true"])  # type: ignore[assignment]
    print(text, aio.run(["true"]).usage)  # type: ignore[attr-defined]
