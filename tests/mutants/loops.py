# SPDX-License-Identifier: BSD-3-Clause
"""The engines of asyncio's event loops, and the waits in them."""

from .mutant import Mutant

FILE = "_loops.py"
AT_ANY_LINE = "tests/test_aio_interrupted.py::test_interrupted_at_any_line[pidfd-ctypes-"

MUTANTS = [
    Mutant(
        "reader that a signal handler has left",
        FILE,
        "            self._fd = self._engine.fileno(False)\n"
        "            add_reader(self.loop, self._fd, self.look)\n",
        "            fd = self._engine.fileno(False)\n"
        "            add_reader(self.loop, fd, self.look)\n"
        "            self._fd = fd\n",
        AT_ANY_LINE + "KeyboardInterrupt]",
    ),
    Mutant(
        "exits that a signal handler keeps from an event loop",
        FILE,
        "                engine.put_back(exits[told:])\n",
        "                pass\n",
        AT_ANY_LINE + "KeyboardInterrupt]",
    ),
    Mutant(
        "spare timer of an event loop",
        FILE,
        "[ref(timer), ref(spare)]",
        "[ref(timer), ref(spare)]\n        spare.cancel()",
        "tests/test_aio_interrupted.py::test_interrupted_as_a_timer_begins",
    ),
    Mutant(
        "wait in an event loop that is cancelled",
        "aio.py",
        "        discard(loop, [waiter])\n        raise\n",
        "        raise\n",
        "tests/test_aio_cancel.py::test_cancelled_task[pidfd-ctypes-by_wait]",
    ),
    Mutant(
        "group in an event loop that is cancelled",
        "aio.py",
        "    finally:\n        group.stop()\n",
        "    finally:\n        pass\n",
        "tests/test_aio_cancel.py::test_cancelled_task[pidfd-ctypes-by_wait_procs]",
    ),
    Mutant(
        "iterator in an event loop that is left early",
        "aio.py",
        "            discard_soon(group.loop, [*group.left.values()])\n",
        "            pass\n",
        "tests/test_aio_completed.py::test_leaving_as_completed_early[pidfd-ctypes]",
    ),
    Mutant(
        "iterator in an event loop that a forked child frees",
        FILE,
        "    if _find(loop) is not None:  # in a forked child",
        "    if not loop.is_closed():  # in a forked child",
        "tests/test_aio_forks.py::test_iterator_that_a_forked_child_frees[pidfd-ctypes]",
    ),
    Mutant(
        "step of an iterator after a cancelled one",
        "aio.py",
        "            if self._sleeper is sleeper:\n",
        "            if False:\n",
        "tests/test_aio_completed.py::test_as_completed[pidfd-ctypes]",
    ),
    Mutant(
        "engine of the parent's event loop",
        FILE,
        "self.loop is loop and not self._is_closed and self._engine.pid == getpid()",
        "self.loop is loop and not self._is_closed",
        "tests/test_aio_forks.py::test_fork_in_a_coroutine[pidfd-ctypes-discard_from_the_copy]",
    ),
    Mutant(
        "copy of an event loop's engine that is closed",
        FILE,
        "        if self._engine.pid == getpid():  # else these are the parent's\n",
        "        if True:\n",
        "tests/test_aio_forks.py::test_fork_in_a_coroutine[pidfd-ctypes-close_the_copy]",
    ),
    Mutant(
        "engine of an event loop that is not used any more",
        FILE,
        "            self.loop.call_soon(self._close_unused)\n",
        "            pass\n",
        "tests/test_aio_loops.py::test_engine_goes_with_the_last_wait[pidfd-ctypes]",
    ),
    Mutant(
        "engine of a closed event loop",
        FILE,
        "            if other is not None and other.loop.is_closed():\n",
        "            if False:\n",
        "tests/test_aio_loops.py::test_closed_loop_that_is_still_referred_to[pidfd-ctypes]",
    ),
    Mutant(
        "engines that are listed while another thread adds its own",
        FILE,
        "[reference() for reference in _engines.valuerefs()]",
        "list(_engines.values())",
        "tests/test_aio_loops.py::test_thread_that_adds_its_engine_at_any_step_of_the_list",
    ),
    Mutant(
        "select() in an event loop",
        FILE,
        "    if fd >= _FD_SETSIZE and",
        "    if False and",
        "tests/test_aio_loops.py::test_selector[pidfd-ctypes-SelectSelector]",
    ),
    Mutant(
        "child watcher in an event loop that can't watch a file descriptor",
        "_child_watcher.py",
        "            self._fd = None\n        self._start",
        "        self._start",
        "tests/test_aio_watcher.py::TestHandlers::test_loop_that_cant_watch_a_file_descriptor",
    ),
    Mutant(
        "event loop that can't watch a file descriptor",
        FILE,
        "            self._is_blind = True\n",
        "            pass\n",
        "tests/test_aio_loops.py::test_loop_that_cant_watch_a_file_descriptor[pidfd-ctypes-by_wait]",
    ),
    Mutant(
        "timer of a closed event loop",
        FILE,
        "        self._timers = [ref(timer), ref(spare)]\n",
        "        self._timers = [lambda: timer, lambda: spare]\n",
        "tests/test_aio_fds.py::test_loop_that_is_closed_while_it_has_a_timer[pidfd-ctypes]",
    ),
    Mutant(
        "rest of the exits, when the time is up",
        FILE,
        "    while has_told:\n",
        "    while False:\n",
        "tests/test_aio.py::test_more_zombies_than_one_look_brings[pidfd-ctypes]",
    ),
    Mutant(
        "Child of an event loop",
        "aio.py",
        "find(proc._child if isinstance(proc, Child) else proc, key)",
        "find(proc, key)",
        "tests/test_aio_spawn.py::test_any_wait_reaps_it[pidfd-ctypes-by_wait]",
    ),
    Mutant(
        "child watcher that is closed while another thread adds",
        "_child_watcher.py",
        "        for handler in [reference() for reference in self._handlers.valuerefs()]:\n",
        "        for handler in list(self._handlers.values()):\n",
        "tests/test_aio_watcher.py::TestClose::test_while_another_thread_adds",
    ),
]
