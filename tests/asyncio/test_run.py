# SPDX-License-Identifier: BSD-3-Clause
"""aio.run() runs a command in a thread, and ends it if the task is cancelled."""

import asyncio
import os
import select
import subprocess
import threading

import pytest

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
    assert caught.value.output in ("ready\n", b"ready\n")


@pytest.mark.parametrize("trap, grace, cancels", [("exit", 60, 1), (":", 0.3, 1), (":", 60, 2)])
def test_a_cancel_gives_the_tree_its_grace_and_a_second_one_kills(run, trap, grace, cancels):
    async def main():
        reader, writer = os.pipe()
        options = {"shell": True, "stdout": writer, "tree": True, "grace": grace}
        task = await begun(aio.run(SCRIPT % trap, **options))
        with open(reader, "rb") as output:  # all processes of the tree hold its other end
            assert output.readline() == b"ready\n"
            os.close(writer)
            for press in range(cancels):
                task.cancel()
                await some_turns()
                assert press or output.readline() == b"term\n"
            with pytest.raises(asyncio.CancelledError):
                await task
            assert select.select([reader], [], [], 0)[0] and output.read() == b""

    run(main())


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
