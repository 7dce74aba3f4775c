# SPDX-License-Identifier: BSD-3-Clause
"""Process objects of other packages, and what their own bookkeeping says after a wait of ours.

Each function starts a process that exits with a code once its FIFO has been opened, and
returns the object, and a function that has its owner do what is left to do, and returns the
code that the owner tells. Imports are inside: each kind runs in an interpreter of its own.
"""

import shlex
import subprocess

from ..processes import exiting

# Whether the wait reaps. If not, it is left to its owner, by another thread perhaps.
REAPED, LEFT = "reaped", "left"
# As LEFT, and the object tells nothing but its pid: once somebody else has reaped it, the code
# is known if our handle had been opened before.
ONLY_A_PID = "only a pid"

KINDS = {}


def kind(whose, name=None):
    def register(function):
        KINDS[name or function.__name__] = (function, whose)
        return function

    return register


def command(fifo, code):
    return ["sh", "-c", 'read line < "$0"; ' + exiting(code)[2], fifo]


def in_a_shell(fifo, code):
    return " ".join(map(shlex.quote, command(fifo, code)))


def status_of_pexpect(terminal):
    status, signal = terminal.exitstatus, terminal.signalstatus
    assert (status is None) != (signal is None)
    return -signal if status is None else status


@kind(REAPED)
def popen(fifo, code):
    process = subprocess.Popen(command(fifo, code))
    return process, lambda: process.returncode


@kind(REAPED)
def psutil_popen(fifo, code):
    import psutil

    process = psutil.Popen(command(fifo, code))
    return process, lambda: process.returncode


@kind(ONLY_A_PID)
def psutil_process(fifo, code):
    import psutil

    popen = subprocess.Popen(command(fifo, code))
    return psutil.Process(popen.pid), popen.wait


@kind(REAPED)
def plumbum_popen(fifo, code):
    from plumbum import local

    name, *arguments = command(fifo, code)
    process = local[name].popen(arguments)
    return process, lambda: process.returncode


@kind(REAPED)
def plumbum_background(fifo, code):
    from plumbum import BG, local

    name, *arguments = command(fifo, code)
    future = local[name][tuple(arguments)] & BG(retcode=code)

    def owner():
        future.wait()  # it raises if the code is another one
        return future.returncode

    return future.proc, owner


@kind(REAPED)
def plumbum_pipeline(fifo, code):
    from plumbum import local

    name, *arguments = command(fifo, code)
    process = (local["true"] | local[name][tuple(arguments)]).popen()
    return process, process.wait


@kind(ONLY_A_PID)
def sh(fifo, code):
    import sh

    name, *arguments = command(fifo, code)
    running = sh.Command(name)(*arguments, _bg=True, _bg_exc=False)

    def owner():
        try:
            running.wait()
        except sh.ErrorReturnCode as error:
            assert error.exit_code == code
        return running.exit_code

    return running, owner


@kind(REAPED)
def invoke(fifo, code):
    from invoke import Context

    promise = Context().run(
        in_a_shell(fifo, code), asynchronous=True, hide=True, in_stream=False, warn=True
    )
    return promise.runner.process, lambda: promise.join().exited


@kind(ONLY_A_PID)
def invoke_in_a_terminal(fifo, code):
    from invoke import Context

    promise = Context().run(
        in_a_shell(fifo, code), asynchronous=True, hide=True, in_stream=False, warn=True, pty=True
    )
    return promise.runner, lambda: promise.join().exited


@kind(ONLY_A_PID)
def pexpect(fifo, code):
    from pexpect import spawn

    name, *arguments = command(fifo, code)
    terminal = spawn(name, arguments)

    def owner():
        terminal.wait()
        told = status_of_pexpect(terminal)
        terminal.close()
        return told

    return terminal, owner


@kind(ONLY_A_PID)
def pexpect_without_terminal(fifo, code):
    from pexpect.popen_spawn import PopenSpawn

    process = PopenSpawn(command(fifo, code))

    def owner():
        process.wait()
        return status_of_pexpect(process)

    return process, owner


@kind(ONLY_A_PID)
def ptyprocess(fifo, code):
    from ptyprocess import PtyProcess

    process = PtyProcess.spawn(command(fifo, code))

    def owner():
        process.wait()
        told = status_of_pexpect(process)
        process.close()
        return told

    return process, owner
