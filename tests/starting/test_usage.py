# SPDX-License-Identifier: BSD-3-Clause
"""``usage``: the CPU time and the peak memory of what has been reaped."""

import asyncio
import importlib
import os
import signal
import subprocess
import sys

import pytest

from .. import pidwait
from ..processes import run_python
from .conftest import ours
from .test_tree import TIMEOUTS, needs_keeper

PIPE = subprocess.PIPE
# It holds 150 MB and uses 0.2 s, and prints on stderr what the system says of it.
BUSY = """
import resource, sys, time
held = b"x" * 150000000
while time.process_time() < 0.2:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
"""
# A stand-in for macOS, whose unit is the byte, gets Linux's numbers, too.
IN_BYTES = "darwin" in sys.platform + os.environ.get("KQUEUE_STANDIN", "")
UNIT = 1 if IN_BYTES else 1024


def busy(seconds=0):
    return [sys.executable, "-S", "-c", BUSY, str(seconds)]


def check(usage, output):
    """It is what the process has printed, and the CPU time of its end."""
    assert type(usage) is pidwait.Usage
    user, system, max_rss = usage
    seconds, peak = map(float, output.split())
    assert min(user, system) >= 0
    assert 0.98 * seconds <= user + system <= seconds + 0.5
    assert abs(max_rss / UNIT - peak) < 2000 and max_rss / UNIT > 140000


def by_popen():
    with ours.Popen(busy(), stderr=PIPE) as popen:
        assert popen.usage is None
        output = popen.communicate()[1]
    return popen.usage, output


def by_wait():
    popen = ours.Popen(busy(), stderr=PIPE)
    with popen.stderr:
        pidwait.wait(popen)
        return popen.usage, popen.stderr.read()


def by_run():
    done = ours.run(busy(), stderr=PIPE)
    assert type(done) is subprocess.CompletedProcess
    return done.usage, done.stderr


def by_loop(*args, **options):
    loop = asyncio.new_event_loop()
    try:
        aio = importlib.import_module(pidwait.__name__ + ".aio")
        return loop.run_until_complete(aio.run(*args, **options))
    finally:
        loop.close()


def by_aio():
    done = by_loop(busy(), stderr=PIPE)
    return done.usage, done.stderr


def by_child():
    reader, writer = os.pipe()
    with open(reader) as output, pidwait.spawn(busy(), stderr=writer) as child:
        os.close(writer)
        assert child.usage is None
        child.wait()
        return child.usage, output.read()


@pytest.mark.kqueue
@pytest.mark.parametrize("way", [by_popen, by_wait, by_run, by_aio, by_child])
def test_it_is_what_the_process_has_used(variant, way):
    check(*way())


@pytest.mark.parametrize("name", ["run", "call", "check_call", "check_output", "aio.run"])
@pytest.mark.parametrize("tree", [False, True])
def test_a_time_out_has_it(tmp_path, name, tree):
    function = by_loop if name == "aio.run" else getattr(ours, name)
    for timeout in TIMEOUTS:
        with tmp_path.joinpath("output").open("w+") as output:
            with pytest.raises(subprocess.TimeoutExpired) as caught:
                function(busy(60), timeout=timeout, tree=tree, stderr=output)
            output.seek(0)
            text = output.read()
        assert type(caught.value) is subprocess.TimeoutExpired
        if text:
            break
    check(caught.value.usage, text)


@pytest.mark.parametrize("name", ["run", "check_call", "check_output"])
def test_an_error_of_the_command_has_it(name):
    options = {"check": True} if name == "run" else {}
    with pytest.raises(subprocess.CalledProcessError) as caught:
        getattr(ours, name)(["sh", "-c", "exit 3"], **options)
    assert type(caught.value) is subprocess.CalledProcessError
    assert caught.value.usage.max_rss > 0


def test_a_run_of_a_handler_is_told_apart():
    """The handler's command holds 150 MB, that of the run which it interrupts holds nothing."""
    inner = []
    before = signal.signal(
        signal.SIGUSR1, lambda *args: inner.append(ours.run(busy(), stderr=PIPE))
    )
    try:
        script = "kill -USR1 %d; sleep 0.1; exit 4" % os.getpid()
        with pytest.raises(subprocess.CalledProcessError) as caught:
            ours.check_call(["sh", "-c", script])
    finally:
        signal.signal(signal.SIGUSR1, before)
    check(inner[0].usage, inner[0].stderr)
    assert caught.value.usage.user + caught.value.usage.system < 0.2


def test_it_is_not_known_if_other_code_has_reaped_it():
    popen = ours.Popen(["sh", "-c", "read x; exit 3"], stdin=PIPE)
    child = pidwait.spawn(["sh", "-c", "exit 3"])
    assert popen.poll() is None
    popen.stdin.close()
    for one in popen, child:
        os.waitpid(one.pid, 0)
    assert child.wait() in (None, 3) and child.usage is None
    assert popen.wait() in (0, 3) and popen.usage is None
    child.close()


def test_with_sigchld_ignored_it_is_not_known():
    code = """if 1:
        import signal
        from %(pidwait)s import spawn, subprocess
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        popen = subprocess.Popen(["sh", "-c", "exit 3"])
        popen.wait()
        with spawn(["sh", "-c", "exit 3"]) as child:
            child.wait()
        print(popen.usage, child.usage, subprocess.run("true").usage)
    """
    done = run_python(code % {"pidwait": pidwait.__name__})
    assert done.stdout == "None None None\n", done.stderr


def test_a_forked_child_knows_what_was_known_before():
    code = """if 1:
        import os
        from %(pidwait)s import spawn, subprocess
        known, running = subprocess.run("true"), subprocess.Popen("cat", stdin=subprocess.PIPE)
        pid = os.fork()
        if not pid:
            running.stdin.close()
            running.poll()
            print(known.usage.max_rss > 0, running.usage, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        running.communicate()
        print(running.usage.max_rss > 0)
    """
    done = run_python(code % {"pidwait": pidwait.__name__})
    assert done.stdout == "True None\nTrue\n", done.stderr


def test_nothing_is_printed_if_a_popen_is_freed_when_python_ends():
    code = """if 1:
        import builtins, os
        from %(pidwait)s import subprocess
        builtins.held = popen = subprocess.Popen("true")
        popen.held = builtins.held
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    """
    done = run_python(code % {"pidwait": pidwait.__name__})
    assert (done.stderr, done.returncode) == ("", 0)


def test_patch_adds_nothing_to_the_standard_one():
    with ours.patch():
        popen = subprocess.Popen("true")
        popen.wait()
        done = subprocess.run("true")
    assert not hasattr(popen, "usage") and not hasattr(done, "usage")


# Twenty processes: the command with 0.2 s, ten in its session, and nine daemons. Three of these are
# in sessions of their own. Each has 50 ms; one holds 150 MB. They print what they used.
FAMILY = """
import os, resource, sys, time

def busy(seconds, size):
    held = b"x" * size
    while time.process_time() < seconds:
        pass
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, b"%f %d\\n" % (used.ru_utime + used.ru_stime, used.ru_maxrss))

for number in range(19):
    if os.fork():
        continue
    if number < 9 and os.fork():
        os._exit(0)
    if number < 3:
        os.setsid()
    busy(0.05, 150000000 if number == 5 else 0)
    os._exit(0)
busy(0.2, 0)
"""


@needs_keeper
@pytest.mark.parametrize("held", [0, 300])
def test_of_a_tree_it_is_the_sum_and_the_maximum(held):
    code = """if 1:
        import resource, sys
        from %(pidwait)s import subprocess
        held = b"x" * (%(held)d * 10**6)
        command = [sys.executable, "-S", "-c", sys.argv[1]]
        done = subprocess.run(command, tree="wait", stdout=subprocess.PIPE)
        print(*done.usage)
        print(done.stdout.decode())
    """
    done = run_python(code % {"pidwait": pidwait.__name__, "held": held}, FAMILY)
    usage, *lines = [tuple(map(float, line.split())) for line in done.stdout.splitlines() if line]
    assert len(lines) == 20, done.stderr
    seconds = sum(line[0] for line in lines)
    assert 0.98 * seconds <= usage[0] + usage[1] <= seconds + 1
    peak = max(line[1] for line in lines) * 1024
    assert abs(usage[2] - peak) < 5e6
    assert usage[2] > 150e6 and (sys.implementation.name == "pypy" or usage[2] < 200e6)


@needs_keeper
def test_a_keeper_that_was_killed_tells_nothing():
    popen = ours.Popen("echo $PPID; exec sleep 60", shell=True, tree=True, stdout=PIPE)
    with popen.stdout:
        os.kill(int(popen.stdout.readline()), signal.SIGKILL)
    assert popen.wait() == -signal.SIGKILL
    assert popen.usage is None


def test_of_a_group_it_is_the_commands(monkeypatch):
    monkeypatch.setenv("PIDWAIT_TREE", "group")
    done = ours.run(busy(), tree=True, stderr=PIPE)
    check(done.usage, done.stderr)
