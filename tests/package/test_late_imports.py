# SPDX-License-Identifier: BSD-3-Clause
"""Nothing is imported once a wait has begun: by then no file descriptor may be left for it."""

import re
import signal
import subprocess

import pytest

from .. import pidwait
from ..needs import needs
from ..processes import run_python

linux = needs("/proc")

# Whatever waits, and what it returns; None if it ends the program by SIGUSR1.
WAITS = {
    "wait": ("wait(held().pid)", 3),
    "wait, Popen": ("wait(killed(), 60)", -10),
    "wait, multiprocessing": ("wait(forked(), 60)", 3),
    "Process.wait": ("Process(held().pid).wait(60)", 3),
    "has_exited": ("has_exited(sleeper(), 0.2)", False),
    "ProcessInfo.wait": ("ProcessInfo(held().pid).wait(60)", 3),
    "WaitSet": ("codes(WaitSet([held(), sleeper()]).wait(60))", [3]),
    "wait_procs": ("codes(wait_procs([held(), killed()], 60)[0])", [-10, 3]),
    "as_completed": ("codes(as_completed([held(), killed().pid], 60))", [-10, 3]),
    "watch": ("watched(held())", 3),
    "end_procs": ("codes(end_procs([sleeper()], 0.2)[0])", [-9]),
    "end_procs, tree": ("codes(end_procs([sleeper()], 0.2, tree=True)[0])", [-9]),
    "spawn": ("spawn(HELD).wait()", 3),
    "Popen.wait": ("ours.Popen(HELD).wait(60)", 3),
    "Popen.wait, for ever": ("ours.Popen(HELD).wait()", 3),
    "Popen.communicate": ("ours.Popen(HELD, stdout=-1, stderr=-1).communicate()[0]", b"x"),
    "subprocess.run": ("raised(ours.run, SLEEPER, stdout=-1, timeout=0.2)", "TimeoutExpired"),
    "patch": ("ours.patch() and held().wait(60)", 3),
    "tree": ("ours.Popen(HELD, tree='wait').wait()", 3),
    "tree, communicate": ("ours.Popen(HELD, tree=True, stdout=-1).communicate()[0]", b"x"),
    "tree, end": ("ours.Popen(SLEEPER, tree=True).end(0.2) in (-9, -15)", True),
    "tree, wait": ("wait(ours.Popen(HELD, tree=True), 60)", 3),
    "aio.wait": ("loop(aio.wait(held().pid, 60))", 3),
    "aio.wait_procs": ("codes(loop(aio.wait_procs([held(), killed()], 60))[0])", [-10, 3]),
    "aio.as_completed": ("loop(first(held()))", 3),
    "aio.end_procs": ("codes(loop(aio.end_procs([sleeper()], 0.2))[0])", [-9]),
    "aio.run": ("loop(aio.run(HELD, tree=True)).returncode", 3),
    "command": ("main('-v', '--exit-code', held().pid, killed().pid) in (3, 138)", True),
    "command, json": ("main('--json', '--any', killed().pid)", 0),
    "command, time-out": ("main('-v', '-t', '0.2', sleeper().pid)", 124),
    "run": ("main('run', '-v', *HELD)", 3),
    "run, killed": ("main('run', *KILLED)", None),
    "run, time-out": ("main('run', '-vf', '-k', '0.1', '-t', '0.2', *SLEEPER) in (124, 137)", True),
    "run, tree": ("main('run', '-v', '--tree', '-t', '0.2', *SLEEPER)", 124),
    "run, tree, killed": ("main('run', '--tree', *KILLED)", None),
}

CODE = """
import builtins, os, queue, signal, sys, threading, time
import subprocess as standard
from {package} import *
from {package} import cli, subprocess as ours
{more}
ready, started = sys.argv[1], []
reader, writer = os.pipe()
told, tell = os.pipe()
os.dup2(reader, 0)  # what reads stdin ends once the writer is closed
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # also in what is started
HELD, KILLED, SLEEPER = (
    ["sh", "-c", "echo >> %s; " % ready + end]
    for end in ("read x; printf x; exit 3", "read x; kill -USR1 $$", "exec sleep 60")
)

def start(command):
    started.append(standard.Popen(command, stdout=standard.DEVNULL))
    return started[-1]

held, killed, sleeper = (lambda: start(HELD)), (lambda: start(KILLED)), (lambda: start(SLEEPER))
codes = lambda exits: sorted(code for _, code in exits)
main = lambda *args: cli.main(list(map(str, args)))

def forked():
    process = multiprocessing.get_context("fork").Process(target=read_and_exit)
    process.start()
    return process

def read_and_exit():
    os.close(writer)
    with open(ready, "a") as file:
        file.write(".")
    os.read(0, 1)
    os._exit(3)

def watched(popen):
    exits = queue.Queue()
    watch(popen, lambda *exit: exits.put(exit) or 1 / 0)
    watch(popen, lambda *exit: exits.put(exit))
    assert exits.get() == exits.get()
    return popen.returncode

def raised(function, *args, **options):
    try:
        function(*args, **options)
    except Exception as error:
        return type(error).__name__

async def first(popen):
    async for _, code in aio.as_completed([popen]):
        return code

def loop(coroutine):
    its = asyncio.new_event_loop()
    found = its.run_until_complete(coroutine)
    its.close()
    return found

def states(tasks):  # of all threads: aio's waits are in another one
    found = set()
    for name in os.listdir(tasks):
        try:
            with open("%s/%s/stat" % (tasks, name), "rb") as file:
                found.add(file.read().rpartition(b")")[2].split()[0])
        except OSError:  # it has just ended
            found.add(None)
    return found

def tell_when_it_waits(pid):
    while os.path.getsize(ready) < {count}:  # until all have been started
        time.sleep(0.001)
    looks = 0
    while looks < 5:
        looks = looks + 1 if states("/proc/%d/task" % pid) == {b"S"} else 0
        time.sleep(0.003)
    os.write(tell, b"x")

def import_(name, *args, **more):
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("{package}") or name not in sys.modules:
        os.write(2, ("%s imports %s; " % (caller, name)).encode())
    return imports(name, *args, **more)

def begin():
    os.read(told, 1)
    builtins.__import__ = import_
    os.close(writer)

pid = os.getpid()
helper = os.fork()
if not helper:
    os.close(writer)
    tell_when_it_waits(pid)
    os._exit(0)
imports, sys.stderr = builtins.__import__, None
threading.Thread(target=begin, daemon=True).start()
found = {wait}
builtins.__import__ = imports
for popen in started:
    if popen.poll() is None:
        popen.kill()
        popen.wait()
os.kill(helper, signal.SIGKILL)
os.write(2, repr(found).encode())
os._exit(0)
"""


@linux
@pytest.mark.parametrize("name", sorted(WAITS))
def test_nothing_is_imported_once_a_wait_has_begun(name, tmp_path):
    """Nor asked for again: nobody need know what is loaded already."""
    wait, expected = WAITS[name]
    more = "from {package} import aio; import asyncio\n" if "loop(" in wait else ""
    more += "import multiprocessing\n" if "forked" in wait else ""
    code = CODE.replace("{more}", more).replace("{wait}", wait)
    code = code.replace("{count}", str(len(re.findall("(?i)held|killed|sleeper|forked", wait))))
    (tmp_path / "ready").write_bytes(b"")
    path = str(tmp_path / "ready")
    done = run_python(code.replace("{package}", pidwait.__name__), path, stdin=subprocess.DEVNULL)
    if expected is None:
        assert (done.returncode, done.stderr) == (-signal.SIGUSR1, "")
    else:
        assert (done.returncode, done.stderr) == (0, repr(expected))
