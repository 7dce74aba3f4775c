# SPDX-License-Identifier: BSD-3-Clause
"""The single file on another machine: exit of the process to exit of ssh, against `ssh true`

The other machine is a real sshd on the loopback. What waits there has long been started when the
process is killed.
"""

import subprocess
import sys
import tempfile
import time

from ..plays import sshd
from ..plays.remote import single_file
from . import core

# By then Python has started there and waits, on a slow machine, too.
SECONDS = 3


def waits(host, file):
    """From the exit of a process to that of ssh."""
    sleeper = subprocess.Popen(["sleep", "60"])
    file.seek(0)
    python = "exec %s - --json %d" % (sys.executable, sleeper.pid)
    ssh = subprocess.Popen(host.command(python), stdin=file, stdout=subprocess.PIPE)
    try:
        time.sleep(SECONDS)
        began = time.perf_counter()
        sleeper.kill()
        sleeper.wait()
        if ssh.stdout.read().count(b'"exited": true') != 1 or ssh.wait():
            raise core.Unavailable("the wait failed with %s" % ssh.returncode)
        return (time.perf_counter() - began) * 1000
    finally:
        ssh.stdout.close()
        sleeper.kill()
        sleeper.wait()
        ssh.wait()


def true(host):
    began = time.perf_counter()
    subprocess.check_call(host.command("true"))
    return (time.perf_counter() - began) * 1000


def run(options):
    if sshd.program() is None:
        raise core.Unavailable("there is no sshd, or no ssh")
    with sshd.running() as host, tempfile.TemporaryFile() as file:
        file.write(single_file())
        file.flush()
        variants = {"wait": lambda: waits(host, file), "true": lambda: true(host)}
        results = core.in_turns(variants, options.rounds or 20)
    ours, peer = core.median(results["wait"]), core.median(results["true"])
    return [core.Row("p50, milliseconds", ours, peer, kind="more", bound=100)]
