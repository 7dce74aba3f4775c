# SPDX-License-Identifier: BSD-3-Clause
"""Real processes for the tests."""

import os
import subprocess
import sys
import time

PYTHON = (sys.executable, "-S", "-E")


def sleeping(seconds):
    return "sleep", str(seconds)


def exiting(code, after=0.0):
    """A command that exits with a code, or is killed by signal -code."""
    end = "exit %d" % code if code >= 0 else "kill -%d $$" % -code
    return "sh", "-c", "sleep %s; %s" % (after, end) if after else end


def state(pid):
    """The state letter in /proc, and None where there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return None


def eventually(condition):
    """Wait for what is bound to come; pytest's time limit is the end of it."""
    while not condition():
        time.sleep(0.001)


def become_zombie(pid):
    eventually(lambda: state(pid) == "Z")


def gone_pid():
    """A pid that no process has: its process has just been reaped."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


class Keeper:
    """A process that starts others, which are not our children, and reaps them when told."""

    _SCRIPT = """if True:
        import os, signal, sys

        children = set()
        for line in iter(sys.stdin.readline, ""):
            verb, _, rest = line.strip().partition(" ")
            if verb == "start":
                pid = os.fork()
                if pid == 0:
                    os.close(0), os.close(1)
                    try:
                        os.execv("/bin/sh", ["sh", "-c", rest])
                    finally:
                        os._exit(127)
                children.add(pid)
                print(pid, flush=True)
            elif verb == "reap":
                print(os.waitpid(int(rest), 0)[1], flush=True)
                children.discard(int(rest))
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    """

    def __init__(self):
        self.process = subprocess.Popen(
            PYTHON + ("-c", self._SCRIPT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            bufsize=1,
        )

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _ask(self, line):
        self.tell(line)
        return int(self.process.stdout.readline())

    def start(self, command):
        """Run a shell command; return its pid."""
        return self._ask("start exec " + command)

    def reap(self, pid):
        """Block until the process has been reaped; return its wait status."""
        return self._ask("reap %d" % pid)

    def reap_soon(self, pid):
        """Have it reaped as soon as it exits; reaped() takes the answer."""
        self.tell("reap %d" % pid)

    def reaped(self):
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run_python(code, *args, **kwargs):
    """Run code in a fresh interpreter; return the completed process, with its output."""
    return subprocess.run(
        (sys.executable, "-c", code) + args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **kwargs,
    )


def kill(pid, sig=9):
    os.kill(pid, sig)
