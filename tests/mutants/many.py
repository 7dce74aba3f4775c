# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for many, by epoll."""

from .mutant import Mutant

MUTANTS = [
    Mutant(
        "event of a discarded process, whose fd number another one has",
        "_backends/pidfd_set.py",
        "        if code is RUNNING:\n            self._epoll.modify(fd, _ARMED)\n",
        "        if code is RUNNING:\n            return None\n",
        "tests/test_waitset.py::test_event_of_a_discarded_process",
    ),
    Mutant(
        "pidfd whose copy a forked child has",
        "_backends/pidfd_set.py",
        "_ARMED = 0x001 | _ONESHOT",
        "_ARMED = 0x001",
        "tests/test_waitset.py::test_copies_in_a_forked_child_do_not_wake_anybody[pidfd-ctypes]",
    ),
    Mutant(
        "poll that lets others run meanwhile, put in place when a set is there",
        "_backends/epoll_set.py",
        "pidfd.C_FUNCTION and seconds != 0:\n",
        "pidfd.C_FUNCTION and False:\n",
        "tests/test_pidfd.py::test_poll_that_lets_others_run_meanwhile",
    ),
    Mutant(
        "cost of a look by the wall clock",
        "_backends/polling_set.py",
        "        began = clock()\n",
        "        clock = monotonic\n        began = clock()\n",
        "tests/test_waitset.py::test_look_that_stands_still",
    ),
    Mutant(
        "epoll of the parent in a forked child",
        "_combined.py",
        "            self.best = self.best.forked()\n",
        "            pass\n",
        "tests/test_waitset.py::test_forked_copy_of_a_set[pidfd-ctypes]",
    ),
    Mutant(
        "exits that an exception has swallowed",
        "_backends/pidfd_set.py",
        "                self._epoll.modify(fd, _ARMED)\n            except",
        "                pass\n            except",
        "tests/test_waitset.py::test_exceptions_of_signal_handlers_lose_nothing[pidfd-ctypes]",
    ),
    Mutant(
        "last member discarded while a thread waits",
        "_waitset.py",
        "if self._sleeping and (not engine or ",
        "if self._sleeping and (",
        "tests/test_waitset.py::test_discard_while_another_thread_waits[pidfd-ctypes]",
    ),
    Mutant(
        "one member less, while a thread waits",
        "_waitset.py",
        "if sleeping:  # another",
        "if False:  # another",
        "tests/faults/test_threads.py::test_overtaken_in_a_set",
    ),
    Mutant(
        "Popen that another thread keeps from reaping, in a set",
        "_engine.py",
        "if target.is_member and outcome is RUNNING:",
        "if False:",
        "tests/test_waitset.py::test_popen_that_can_not_be_reaped_yet[pidfd-ctypes]",
    ),
    Mutant(
        "Child in a set",
        "_kinds.py",
        '    (ChildTarget, ("reaped", "exitcode")),\n',
        "",
        "tests/test_waiting.py::test_children_are_reaped[pidfd-ctypes]",
    ),
    Mutant(
        "pidfds above the soft limit",
        "_highfds.py",
        "self._limits = _exchange((hard, hard))",
        "self._limits = soft, hard",
        "tests/test_waiting.py::test_low_file_descriptors_are_left_alone[pidfd-ctypes]",
    ),
    Mutant(
        "soft limit that Ctrl-C leaves raised",
        "_highfds.py",
        "            finally:  # Ctrl-C may come anywhere, even just before the call above\n"
        "                self._restore()\n",
        "            finally:\n                pass\n",
        "tests/faults/test_interrupts.py::test_at_any_line[in_a_set]",
    ),
    Mutant(
        "soft limit that a signal handler puts back",
        "_highfds.py",
        "if self._is_up:  # by",
        "if False:  # by",
        "tests/faults/test_interrupts.py::test_handled_at_any_line",
    ),
    Mutant(
        "freed file descriptors for polled members",
        "_engine.py",
        "sets.use_room(len(exits))",
        "pass",
        "tests/test_waiting.py::test_past_the_hard_limit",
    ),
    Mutant(
        "turn to sleep that Ctrl-C keeps",
        "_turn.py",
        "        held.extend(compress((self.lock,), map(self.lock.acquire, (False,))))\n",
        "        if self.lock.acquire(False):\n            held.append(self.lock)\n",
        "tests/faults/test_interrupts.py::test_waited_for_again[True-True]",
    ),
    Mutant(
        "events before Ctrl-C",
        "_backends/epoll_set.py",
        "        if self._events:\n            return\n",
        "",
        "tests/faults/test_interrupts.py::test_waited_for_again[False-True]",
    ),
    Mutant(
        "look that Ctrl-C ends",
        "_backends/polling_set.py",
        "        finally:  # Ctrl-C may come anywhere, even just before the call above\n"
        "            self._end_look(me)\n",
        "        finally:\n            pass\n",
        "tests/faults/test_interrupts.py::test_waited_for_again[False-False]",
    ),
    Mutant(
        "error of a signal handler, taken for an answer of the system",
        "_errors.py",
        "    if is_of_signal_handler(error):\n        raise error\n",
        "",
        "tests/faults/test_errors_of_handlers.py::test_comes_out[in_a_set]",
    ),
    Mutant(
        "time-out that a signal handler raises, one process",
        "_backends/pidfd.py",
        "            if is_of_signal_handler(error):\n"
        "                raise\n"
        "            if event is None:\n",
        "            if event is None:\n",
        "tests/test_handlers.py::test_wait_of_a_process[pidfd-ctypes-alarm0-None]",
    ),
    Mutant(
        "pidfd that somebody else has closed, after the wait",
        "_backends/pidfd_wait.py",
        "        if code is not None:  # somebody else has closed the pidfd\n",
        "        if False:\n",
        "tests/test_pidfd.py::test_pidfd_that_somebody_else_closes_during_the_wait[True]",
    ),
    Mutant(
        "a lost child that a signal handler raises",
        "_backends/pidfd_wait.py",
        "(OSError, AttributeError)) or is_of_signal_handler(error):\n",
        "(OSError, AttributeError)):\n",
        "tests/test_handlers.py::test_wait[pidfd-ctypes-alarm2-None]",
    ),
    Mutant(
        "time-out that a signal handler raises, the end of a child's block",
        "_child.py",
        "        except TimeoutError as error:\n            raise_of_handler(error)\n",
        "        except TimeoutError:\n",
        "tests/test_child.py::test_time_out_of_a_signal_handler_ends_the_block",
    ),
    Mutant(
        "error that a signal handler raises right after a start",
        "_popen_start.py",
        "            if request.started[0]:\n",
        "            if False:\n",
        "tests/test_subprocess.py::test_start_that_a_signal_handler_interrupts[KeyboardInterrupt]",
    ),
    Mutant(
        "error that a signal handler raises while arguments are read",
        "_popen_start.py",
        "            raise_of_handler(error)\n            return False\n",
        "            return False\n",
        "tests/test_subprocess.py::test_arguments_whose_reading_a_signal_handler_interrupts",
    ),
    Mutant(
        "time-out that a signal handler raises, a set",
        "_combined.py",
        "            if isinstance(error, OSError) and not is_of_signal_handler(error):\n"
        "                self._broken = error\n",
        "            if isinstance(error, OSError):\n                self._broken = error\n",
        "tests/test_handlers.py::test_set_goes_on[pidfd-ctypes-alarm0]",
    ),
    Mutant(
        "watch that fails while another watch starts the thread",
        "watching.py",
        "if self._turn and not self._coming:\n                    self._is_needed()",
        "if self._turn:\n                    self._is_needed()",
        "tests/test_watching.py::test_failed_watch_leaves_the_set_to_the_thread_that_comes",
    ),
]
