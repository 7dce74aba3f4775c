# SPDX-License-Identifier: BSD-3-Clause
"""aio.run() runs a command in a thread, and ends it if the task is cancelled."""

import asyncio
import importlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from .. import pidwait
from ..processes import eventually
from .loops import aio, begun, is_cancelled, some_turns

# The process in the background says that it is ready: a SIGTERM while it starts would be lost.
SCRIPT = "trap 'echo term; %s' TERM; setsid sh -c 'echo ready; exec sleep 60' & "
SCRIPT += "while :; do sleep 0.01; done"


@pytest.mark.parametrize("tree", [False, True])
def test_it_returns_and_raises_what_run_does(run, tree):
    options = {"stdout": subprocess.PIPE, "universal_newlines": True, "tree": tree}
    done = run(aio.run(["sh", "-c", "cat; exit 3"], input="text", **options))
    assert (done.returncode, done.stdout) == (3, "text")
    with pytest.raises(subprocess.CalledProcessError):
        run(aio.run("false", check=True, **options))
    with pytest.raises(FileNotFoundError, match="/nonesuch"):
        run(aio.run("/nonesuch", **options))
    for timeout in 0.3, 3, 30:  # on a busy machine, the shell may need more than the first
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            run(aio.run("echo ready; exec sleep 60", shell=True, timeout=timeout, **options))
        if caught.value.output:
            break
    # As in subprocess, whose output is text only on Python 3.6.
    assert caught.value.output == ("ready\n" if sys.version_info < (3, 7) else b"ready\n")


@pytest.mark.parametrize("trap, grace", [("exit", 60), (":", 0.3), (":", 0)])
def test_a_cancel_gives_the_tree_its_grace(run, trap, grace):
    async def main():
        reader, writer = os.pipe()
        options = {"shell": True, "stdout": writer, "tree": True, "grace": grace}
        task = await begun(aio.run(SCRIPT % trap, **options))
        with open(reader, "rb") as output:  # all processes of the tree hold its other end
            assert output.readline() == b"ready\n"
            os.close(writer)
            assert await is_cancelled(task)
            assert select.select([reader], [], [], 0)[0]
            assert output.read() == (b"term\n" if grace else b"")

    run(main())


class Cancelled:
    """Awaits a coroutine; the first time that it is cancelled, this exception is thrown."""

    def __init__(self, coroutine, error):
        self.steps, self.errors = coroutine.__await__(), iter([error])

    def __await__(self):
        waiting = self.steps.send(None)
        while True:
            try:
                yield waiting
            except asyncio.CancelledError as error:
                waiting = self.steps.throw(next(self.errors, error))
            else:
                waiting = self.steps.send(None)


def test_more_cancels_change_nothing(run, tmp_path):
    """The first exception is raised, that very object: by it a scope knows its own."""
    path, error, caught = tmp_path / "end", asyncio.CancelledError("the first"), []
    trap = "until [ -e %s ]; do sleep 0.01; done; echo handled; exit" % path

    async def cancelled(running):
        try:
            await Cancelled(running, error)
        except asyncio.CancelledError as why:
            caught.append(why)

    async def main():
        reader, writer = os.pipe()
        options = {"shell": True, "stdout": writer, "tree": True, "grace": 60}
        task = await begun(cancelled(aio.run(SCRIPT % trap, **options)))
        with open(reader, "rb") as output:
            assert output.readline() == b"ready\n"
            os.close(writer)
            task.cancel()
            await some_turns()
            assert output.readline() == b"term\n"
            for _ in range(100):
                task.cancel()
                await some_turns(2)
            path.touch()
            await task
            assert output.read() == b"handled\n"
        assert len(caught) == 1 and caught[0] is error

    run(main())


def test_a_stop_iteration_of_a_fake_is_raised(run, monkeypatch):
    """As by a mock that has no more results. A future takes no StopIteration."""
    ours = importlib.import_module(pidwait.__name__ + ".subprocess")
    monkeypatch.setattr(ours, "run", lambda *args: next(iter(())))
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(asyncio.wait_for(aio.run(["true"]), 60))


INTERRUPTED = """if True:
    import asyncio, sys
    from {package} import aio

    async def run(script):
        await aio.run(["sh", "-c", script, sys.argv[1]], tree=True, grace=60)

    async def note_the_end():
        try:
            while True:  # a loop that sleeps on misses a signal that another thread has got
                await asyncio.sleep(0.05)
        finally:
            print("all are cancelled", flush=True)

    async def main():
        task = asyncio.ensure_future(note_the_end())
        await asyncio.gather(run({first!r}), run({second!r}))

    asyncio.run(main())
"""
WAITING = "trap 'echo term >> $0; %s; echo handled >> $0; exit' TERM; echo ready >> $0; "
WAITING += "while :; do sleep 0.01; done"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the first Ctrl-C stops the loop")
@pytest.mark.parametrize("presses", [1, 2])
def test_a_second_ctrl_c_of_asyncio_run_kills(tmp_path, start, presses):
    """At the end of the main task, all others are cancelled: that is none."""
    path, end = tmp_path / "output", tmp_path / "end"
    scripts = [WAITING % ("until [ -e %s ]; do sleep 0.01; done" % end)] * 2
    if presses == 1:
        scripts[0] = WAITING % ":"  # then gather() ends, and so does the main task
    code = INTERRUPTED.format(package=pidwait.__name__, first=scripts[0], second=scripts[1])
    child = start(
        *(sys.executable, "-c", code, str(path)),
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for word in ("ready", "term")[:presses]:
        eventually(lambda word=word: path.exists() and path.read_text().count(word) == 2)
        child.send_signal(signal.SIGINT)  # to it alone
    assert child.stdout.readline() == b"all are cancelled\n"
    if presses == 1:
        end.touch()
    assert child.communicate()[1].endswith(b"KeyboardInterrupt\n")
    assert path.read_text().count("handled") == (2 if presses == 1 else 0)


@pytest.mark.parametrize("tree", [False, True])
def test_a_cancel_before_the_start_ends_it_as_well(run, tree):
    async def main():
        begin = threading.Event()
        words = (word for word in ("sleep", "60000") if begin.wait())
        ending = await begun(is_cancelled(await begun(aio.run(words, tree=tree))))
        begin.set()
        assert await ending

    run(main())


@pytest.mark.skipif(not hasattr(asyncio, "run"), reason="before Python 3.7")
def test_the_end_of_asyncio_run_waits_for_it():
    async def main():
        options = {"shell": True, "stdout": writer, "tree": True, "grace": 60}
        tasks.append(await begun(aio.run(SCRIPT % "exit", **options)))
        while not select.select([reader], [], [], 0)[0]:
            await asyncio.sleep(0.01)
        os.close(writer)

    tasks = []
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        asyncio.run(main())
        assert tasks[0].cancelled() and select.select([reader], [], [], 0)[0]
        assert output.read() == b"ready\nterm\n"


def test_a_loop_that_is_closed_while_a_command_runs(caplog):
    """Nothing is logged as an error when the command ends: nobody waits for it any more."""
    reader, writer = os.pipe()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # the task is destroyed while pending
    threads = threading.active_count()
    loop.run_until_complete(begun(aio.run(["cat"], stdin=reader)))
    loop.close()
    with caplog.at_level(logging.WARNING):
        for end in reader, writer:
            os.close(end)
        eventually(lambda: threading.active_count() == threads)
    assert caplog.text == ""
