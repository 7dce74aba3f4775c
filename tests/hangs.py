# SPDX-License-Identifier: BSD-3-Clause
"""Run a program in a test; if it does not end, say what hangs.

Its output ends when the last process that has inherited it has exited, which need not be the
program itself: a fork server, say. On Linux all that the program has started are found by a
variable in their environment, even if their parents have exited.
"""

import os
import re
import signal
import subprocess
import uuid

LIMIT = 150  # seconds; less than pytest's, which would only say that the test waits
GRACE = 5
MARK = "PIDWAIT_TEST_STARTED"


def finished(command, env, limit=LIMIT):
    """Run it to its end; return its exit code, its stdout and its stderr."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        env=dict(env, PYTHONFAULTHANDLER="1", **{MARK: mark}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        code = process.poll()
        told, stderr = end(process, mark)
        text = "{} hangs: {}\n{}\n{}".format(command, code, told, stderr)
        raise AssertionError(text) from None
    finally:
        process.kill()
        process.wait()
    return process.returncode, stdout, stderr


def end(process, mark):
    """End all that it has started; return what they are, and their stderr, with tracebacks."""
    left = started(mark)
    told = "\n".join(map(tell, left)) or "nothing is left that it has started"
    send("SIGABRT", left)  # faulthandler prints where all threads are
    try:
        return told, process.communicate(timeout=GRACE)[1]
    except subprocess.TimeoutExpired:
        send("SIGKILL", {*left, *started(mark)})
        process.kill()
    try:
        return told, process.communicate(timeout=GRACE)[1]
    except subprocess.TimeoutExpired as error:
        return told, "somebody keeps its output open: {!r}".format(error.stderr)


def started(mark):
    found = []
    if os.name == "nt":  # though Wine shows a /proc
        return found
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if "{}={}".format(MARK, mark) in read(pid, "environ").split("\0"):
            found.append(int(pid))
    return found


def tell(pid):
    status = re.findall(r"^(?:State|PPid|Threads|Sig\w+):.*", read(pid, "status"), re.M)
    lines = [read(pid, "cmdline").replace("\0", " "), read(pid, "wchan"), read(pid, "syscall")]
    return "{}: {}".format(pid, "; ".join(lines + status))


def read(pid, name):
    try:
        with open("/proc/{}/{}".format(pid, name), errors="replace") as file:
            return file.read()
    except OSError as error:  # it has exited, or is another user's
        return str(error)


def send(name, pids):
    for pid in pids:
        try:
            os.kill(pid, getattr(signal, name))
        except ProcessLookupError:
            continue
