# SPDX-License-Identifier: BSD-3-Clause
"""What runs on a terminal in a scene of test_terminals.py. Each part appends what it sees to a log.

python -S terminals.py top MODE LOG COMMAND...: lead a session, as a shell with one job, or become
the command; caller TREE COMMAND...: start the command as a Python program does; command KIND.
"""

import fcntl
import os
import signal
import sys
import termios
import time

SIGNALS = "INT", "QUIT", "HUP"


def note(*words):
    fd = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


def top(mode, log, *command):
    os.environ["LOG"] = log
    if os.getpid() != os.getsid(0):
        os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if mode == "leader":
        become(command)
    job = os.fork()
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    if mode == "job":
        take_terminal(job)
    if not job:
        take_terminal(0) if mode == "job" else os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        become(command)
    while True:
        status = os.waitpid(job, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            note("exited")
            signal.pause()
        os.tcsetpgrp(0, os.getpgrp())
        note("stopped", os.WSTOPSIG(status))
        os.read(int(os.environ["FG"]), 1)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
        note("continued")


def take_terminal(job):
    try:
        os.setpgid(job, job)
    except PermissionError:  # it has done so, and runs its program
        return
    os.tcsetpgrp(0, job or os.getpgrp())


def become(command):
    note("pid", os.getpid())
    os.environ.update(GROUP=str(os.getpgrp()), SESSION=str(os.getsid(0)))
    os.execvp(command[0], command)


def caller(tree, options, *command):
    from importlib import import_module

    ours = import_module(os.environ["PACKAGE"] + ".subprocess")
    for name in SIGNALS:  # as a program that leaves them to its command
        signal.signal(getattr(signal, "SIG" + name), lambda *args: None)
    with ours.Popen(command, tree=tree == "tree", **eval(options)) as popen:
        popen.wait()


def command(kind):
    for name in SIGNALS:
        handler = lambda number, frame, name=name: note(name)  # noqa: E731
        signal.signal(getattr(signal, "SIG" + name), handler)
    if kind == "grab":
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    facts = {
        "its terminal": os.access("/dev/tty", os.R_OK) and is_there("/dev/tty"),
        "in front": os.tcgetpgrp(0) == os.getpgrp(),
        "the caller's group": str(os.getpgrp()) == os.environ["GROUP"],
        "the caller's session": str(os.getsid(0)) == os.environ["SESSION"],
    }
    note("pid", os.getpid())
    note("ready:", *sorted(name for name in facts if facts[name]))
    while kind in ("wait", "grab"):
        time.sleep(0.05)  # a signal right before pause() would be noticed with the next one only
    if kind == "write":
        settings = termios.tcgetattr(0)
        os.write(1, b"seen")
        note("written", settings[3] & termios.TOSTOP > 0)
    try:
        note("read", os.read(0, 100).decode().strip())
    except OSError as error:
        note(os.strerror(error.errno))
    while True:
        time.sleep(0.05)


def is_there(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    {"top": top, "caller": caller, "command": command}[sys.argv[1]](*sys.argv[2:])
