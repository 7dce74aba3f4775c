# SPDX-License-Identifier: BSD-3-Clause
"""end_procs(): SIGTERM, a grace, SIGKILL. watch_parent(): to end with one's parent."""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait
from ..processes import (
    INTERPRETER,
    PYTHON,
    WINDOWS,
    OnPurpose,
    eventually,
    everywhere,
    gone_pid,
    not_on_windows,
    sleeping,
    state,
)

KILL, TERM = (1, 1) if WINDOWS else (-signal.SIGKILL, -signal.SIGTERM)
if not hasattr(pidwait, "end_procs"):
    pytest.skip("a single file has none of this", allow_module_level=True)

STUBBORN = "sh", "-c", 'trap "" TERM; echo; exec sleep 60'
posix = not_on_windows("SIGTERM")


@pytest.fixture
def stubborn(start):
    def stubborn():
        child = start(*STUBBORN, stdout=subprocess.PIPE)
        child.stdout.readline()
        return child

    return stubborn


@posix
def test_a_closed_process_that_has_seen_its_exit_ends_no_end(variant, start_told, sleeper):
    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        assert process.wait(60) == 3
    found = pidwait.end_procs([process, sleeper], reap=True)
    assert dict(found[0]) == {process: 3, sleeper: TERM} and found[1] == []


@everywhere
def test_has_exited(variant, start_told, sleeper):
    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        for proc in child.pid, child, process:
            assert not pidwait.has_exited(proc) and not pidwait.has_exited(proc, 0.001)
        assert not process.has_exited() and not process.has_exited(timeout=0.001)
        child.stdin.close()
        assert process.has_exited(60) and process.exitcode == 3
        assert pidwait.has_exited(child, 60) and child.returncode == 3
    assert process.has_exited(None) and pidwait.has_exited(gone_pid())
    with pytest.raises(ValueError, match="timeout must not be NaN"):
        process.has_exited(float("nan"))


@everywhere
def test_the_stubborn_are_killed_after_the_grace_and_the_others_are_not(
    variant, start, zombie, stubborn
):
    obeys, early, told = start(*sleeping(60)), zombie(5), []
    procs = [obeys, early, obeys] if WINDOWS else [stubborn(), obeys, early, obeys]
    began = time.monotonic()
    exited, alive = pidwait.end_procs(procs, 0.2, callback=lambda *exit: told.append(exit))
    assert alive == [] and told == exited and time.monotonic() - began < 10
    codes = {id(proc): code for proc, code in exited}
    assert len(exited) == len(procs) and codes[id(early)] == 5 and codes[id(obeys)] == TERM
    assert obeys.returncode == TERM  # its owner has reaped it
    if not WINDOWS:
        assert exited[-1] == (procs[0], KILL) and time.monotonic() - began >= 0.2


@everywhere
@pytest.mark.parametrize("how", ["pid", "ProcessInfo", "Process", "Child", "gone"])
def test_a_grace_of_zero_kills_whatever_the_waits_take(variant, start, how):
    child = start(*sleeping(60)) if how != "Child" else pidwait.spawn(sleeping(60))
    kind = {"ProcessInfo": pidwait.ProcessInfo, "Process": pidwait.Process}.get(how, int)
    proc = child if how == "Child" else gone_pid() if how == "gone" else kind(child.pid)
    assert pidwait.end_procs([proc], grace=0) == ([(proc, None if how == "gone" else KILL)], [])
    if how in ("Process", "Child"):
        proc.close()


@posix
def test_another_signal_and_a_grace_without_end(start):
    child = start("sh", "-c", 'trap "exit 7" USR1; echo; read x', stdout=-1, stdin=-1)
    child.stdout.readline()
    assert pidwait.end_procs([child], float("inf"), signal.SIGUSR1) == ([(child, 7)], [])


@pytest.mark.windows
@pytest.mark.parametrize(
    "words, error, match",
    [
        ({"procs": [os.getpid()]}, ValueError, "procs .* the calling process"),
        ({"grace": -1}, ValueError, "grace"),
        ({"grace": float("nan")}, ValueError, "grace"),
        ({"grace": None}, TypeError, "grace"),
        ({"sig": -1}, ValueError, "sig"),
        ({"sig": "TERM"}, TypeError, "sig"),
        ({"callback": 3}, TypeError, "callback"),
        ({"limit": -1}, ValueError, "limit"),
        ({"limit": "1"}, TypeError, "limit"),
        ({"procs": ["1"]}, TypeError, "proc"),
    ],
)
def test_bad_arguments_end_nobody(words, error, match, sleeper):
    words["procs"] = [sleeper, *words.get("procs", ())]
    with pytest.raises(error, match=match):
        pidwait.end_procs(**words)
    assert sleeper.poll() is None


def test_an_exception_of_the_callback_ends_the_call(variant, start):
    def callback(proc, code):
        raise OnPurpose

    with pytest.raises(OnPurpose):
        pidwait.end_procs([start(*sleeping(60)) for _ in range(2)], callback=callback)


TREE = "sh -c 'trap \"\" TERM; echo $$; sleep 60 & wait' & wait"


@posix
@pytest.mark.kqueue
def test_a_tree_ends_as_far_as_parents_tell(variant, start):
    parent = start("sh", "-c", TREE, stdout=subprocess.PIPE)
    inner = int(parent.stdout.readline())
    eventually(lambda: len(pidwait.ProcessInfo(parent.pid).children(recursive=True)) == 2)
    exited, alive = pidwait.end_procs([parent], 0.3, tree=True)
    codes = {getattr(proc, "pid", proc): code for proc, code in exited}
    assert alive == [] and len(codes) == 3 and codes[parent.pid] == TERM
    assert codes[inner] in (KILL, None)
    eventually(lambda: state(inner) in (None, "Z"))


END_PARENT = """
import os
from {} import end_procs
try:
    end_procs([os.getppid()], tree=True)
except ValueError as error:
    print(error)
"""


@posix
def test_nobody_is_ended_if_the_caller_is_among_them(start):
    code = END_PARENT.format(pidwait.__name__)
    parent = start("sh", "-c", '"$@"; exit 3', "sh", sys.executable, "-c", code, stdout=-1)
    assert parent.stdout.read() == b"procs must not end the calling process\n"
    assert parent.wait() == 3


@posix
@pytest.mark.parametrize("tree", [False, True])
def test_children_are_reaped_on_request(variant, start, zombie, tree):
    child, early = start(*sleeping(60)), zombie(5)
    with pidwait.Process(child.pid) as process:
        procs = [process, early.pid]
        assert pidwait.end_procs(procs, 5, tree=tree)[1] == []
        assert (state(child.pid), state(early.pid)) == ("Z", "Z")
        exited, alive = pidwait.end_procs(procs, 5, tree=tree, reap=True)
        assert dict(exited) == {process: TERM, early.pid: 5} and alive == []
    assert not pidwait.pid_exists(child.pid) and not pidwait.pid_exists(early.pid)


@posix
def test_who_is_in_a_group_that_a_given_process_leads_belongs_to_its_tree(variant, start):
    """A forked worker in a group of its own, and an orphan in that group."""
    worker = "(sleep 60 & echo $!); echo; exec sleep 60"
    worker = start("sh", "-c", worker, stdout=-1, preexec_fn=os.setpgrp)
    orphan = int(worker.stdout.readline())
    worker.stdout.readline()  # the orphan's parent has ended
    exited, alive = pidwait.end_procs([worker.pid], 5, tree=True)
    assert {getattr(proc, "pid", proc) for proc, _ in exited} == {worker.pid, orphan}
    assert alive == [] and state(orphan) in (None, "Z")
    # Once the leader is gone, its number may be another group's.
    assert pidwait.end_procs([worker.pid], 5, tree=True) == ([(worker.pid, TERM)], [])


@not_on_windows("signals that can be ignored")
@pytest.mark.parametrize("mechanism, grace", [("auto", 0.1), ("group", 0.1), ("group", 0.001)])
def test_a_popen_of_a_tree_is_ended_by_its_end(variant, start, monkeypatch, mechanism, grace):
    """Also if its processes are still being listed for SIGTERM when the grace is over."""
    monkeypatch.setenv("PIDWAIT_TREE", mechanism)
    popen = importlib.import_module(pidwait.__name__ + ".subprocess").Popen
    tree = popen(["sh", "-c", "trap '' TERM; sleep 60 & echo; wait; wait"], tree=True, stdout=-1)
    child = start(*sleeping(60))
    with tree:
        tree.stdout.read(1)
        exited, alive = pidwait.end_procs([tree, child], grace)
        # A system may take SIGKILL first, if both are there before the process runs again.
        code = KILL if grace < 0.1 and (child, KILL) in exited else TERM
        assert (exited, alive) == ([(child, code), (tree, KILL)], [])
        assert tree.stdout.read() == b"" and tree.left == []


@everywhere
def test_in_asyncio(variant, start, stubborn):
    """A call that is cancelled still ends them."""
    aio = importlib.import_module(pidwait.__name__ + ".aio")
    popen = start(*sleeping(60)) if WINDOWS else stubborn()

    async def main():
        child = aio.spawn(sleeping(60))
        exited, alive = await aio.end_procs([popen, child], 0.05)
        child.close()
        assert {popen: KILL, child: TERM} == dict(exited) and alive == []
        last = start(*sleeping(60))
        task = asyncio.ensure_future(aio.end_procs([last]))
        await asyncio.sleep(0)
        task.cancel()
        assert await aio.wait(last) == TERM

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


# watch_parent()

WATCH = """if True:
    import os, sys, time
    import {package} as pidwait
    def callback():
        os.write(1, b"called\\n")
        time.sleep(0.05)  # a second call would show
        os._exit(0)
    watching = pidwait.watch_parent(callback, {arguments})
    os.write(1, b"watches\\n")
    time.sleep(60)
"""
RUN = "import subprocess, sys; child = subprocess.Popen({!r}); sys.stdin.read()"


@pytest.fixture
def start_above(start):
    """Start a program that starts the command, and lives until its stdin is closed."""
    return lambda command: start(*PYTHON, "-c", RUN.format(command), stdin=-1, stdout=-1)


@everywhere
@pytest.mark.parametrize("between", [0, 1, 3])
def test_it_calls_back_once_after_the_parent_was_killed(variant, start_above, between):
    """With ancestors also if what is in between, a launcher, lives on."""
    arguments = "ancestors=True" if between else ""
    code = WATCH.format(package=pidwait.__name__, arguments=arguments)
    command = [INTERPRETER, "-c", code]
    for _ in range(between):
        command = [*PYTHON, "-c", "import subprocess; subprocess.call(%r)" % (command,)]
    parent = start_above(command)
    assert parent.stdout.readline().strip() == b"watches"
    parent.kill()
    assert parent.stdout.read().split() == [b"called"]


ABOVE = """    other = pidwait.watch_parent(lambda: os.write(1, b"above\\n"), ancestors=True)
    os.write(1, b"watches"""
CLIENT = """
import os, subprocess, sys
server = subprocess.Popen([sys.executable, "-c", {!r}, str(os.getpid())], stdin=subprocess.DEVNULL)
sys.stdin.read()
"""


@everywhere
def test_with_ancestors_no_process_above_the_parent_counts(variant, start_above, start):
    """A client that a shell has started outlives the shell (nohup), and so does its server."""
    code = WATCH.format(
        package=pidwait.__name__, arguments="parent=int(sys.argv[1]), ancestors=True"
    ).replace('    os.write(1, b"watches', ABOVE)
    shell = "import subprocess; subprocess.call(%r)" % ([*PYTHON, "-c", CLIENT.format(code)],)
    shell = start(*PYTHON, "-c", shell, stdin=-1, stdout=-1)
    assert shell.stdout.readline().strip() == b"watches"
    shell.kill()
    assert shell.stdout.readline().strip() == b"above"  # "called" would have come first
    shell.stdin.close()  # the client ends
    assert shell.stdout.read().split() == [b"called"]


FORK_SERVER = """
import multiprocessing, os, sys, time
import {package} as pidwait

def work():
    pidwait.watch_parent(lambda: (os.write(1, b"called\\n"), os._exit(0)), ancestors=True)
    os.write(1, b"watches\\n")
    time.sleep(60)

if __name__ == "__main__":
    multiprocessing.get_context("forkserver").Process(target=work).start()
    sys.stdin.read()
"""


@posix
def test_a_worker_of_a_fork_server_sees_that_the_program_was_killed(tmp_path, start):
    """The fork server, its parent, runs as long as its workers."""
    script = tmp_path / "program.py"
    script.write_text(FORK_SERVER.format(package=pidwait.__name__))
    parent = start(sys.executable, str(script), stdin=-1, stdout=-1)
    assert parent.stdout.readline() == b"watches\n"
    parent.kill()
    assert parent.stdout.read() == b"called\n"


@everywhere
@pytest.mark.parametrize("ancestors", [False, True])
def test_a_parent_that_was_handed_over_may_have_exited_before(ancestors):
    called = threading.Event()
    pidwait.watch_parent(called.set, gone_pid(), ancestors)
    assert called.wait(60)
    watching = pidwait.watch_parent(print, os.getppid(), ancestors)
    assert watching.cancel() and watching.cancel()


@posix
def test_a_forked_copy_watches_nothing(start_above):
    code = WATCH.format(package=pidwait.__name__, arguments="")
    fork = "    if os.fork() == 0:\n        os.setsid(); time.sleep(0.3); os._exit(0)\n"
    code = code.replace('    os.write(1, b"watches', fork + '    os.write(1, b"watches')
    parent = start_above([sys.executable, "-W", "ignore", "-c", code])
    assert parent.stdout.readline() == b"watches\n"
    parent.kill()
    assert parent.stdout.read() == b"called\n"


@pytest.mark.windows
def test_bad_arguments_of_watch_parent():
    for arguments, error in ((3,), TypeError), ((print, 0), ValueError), ((print, "1"), TypeError):
        with pytest.raises(error):
            pidwait.watch_parent(*arguments)
