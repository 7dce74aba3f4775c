# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for many, by epoll."""

from .mutant import Mutant

MUTANTS = [
    Mutant(
        "event for a process that has been discarded, and its number given to another",
        "_backends/epoll.py",
        "        if code is RUNNING:\n            self._epoll.modify(fd, _ARMED)\n",
        "        if code is RUNNING:\n            return None\n",
        "tests/test_waitset.py::test_event_of_who_was_discarded",
    ),
    Mutant(
        "pidfd whose copy a forked child has",
        "_backends/epoll.py",
        "_ARMED = 0x001 | _ONESHOT",
        "_ARMED = 0x001",
        "tests/test_waitset.py::test_copies_in_a_forked_child_do_not_wake_anybody[pidfd-ctypes]",
    ),
    Mutant(
        "cost of a look by the wall clock",
        "_waitset.py",
        "        clock = polling.Handle.clock\n",
        "        clock = monotonic\n",
        "tests/test_waitset.py::test_look_that_stands_still",
    ),
    Mutant(
        "epoll of the parent in a forked child",
        "_waitset.py",
        "        self._many = _backends.forked_many(self._many)\n",
        "",
        "tests/test_waitset.py::test_forked_copy_of_a_set[pidfd-ctypes]",
    ),
    Mutant(
        "exits that an exception has swallowed",
        "_backends/epoll.py",
        "                self._epoll.modify(fd, _ARMED)\n            except",
        "                pass\n            except",
        "tests/test_waitset.py::test_exceptions_of_signal_handlers_lose_nothing[pidfd-ctypes]",
    ),
    Mutant(
        "last one discarded under a waiter",
        "_waitset.py",
        "on = not self._members or (self._slow",
        "on = (self._slow",
        "tests/test_waitset.py::test_discard_while_another_thread_waits[pidfd-ctypes]",
    ),
    Mutant(
        "who looks at the polled ones leaves",
        "_waitset.py",
        "if self._waiting or self._looker or self._ringing or self._shown:",
        "if self._waiting or self._ringing or self._shown:",
        "tests/test_waitset.py::test_callbacks_that_change_and_close_the_set[polling]",
    ),
    Mutant(
        "Popen that another thread keeps from reaping, in a set",
        "_owners.py",
        "        except TimeoutError:  # another copy's, too\n",
        "        except ZeroDivisionError:\n",
        "tests/test_waitset.py::test_popen_that_can_not_be_reaped_yet[pidfd-ctypes]",
    ),
    Mutant(
        "Child in a set",
        "_owners.py",
        '    (Child, ("reaped", "exitcode")),\n',
        "",
        "tests/test_waiting.py::test_children_are_reaped[pidfd-ctypes]",
    ),
    Mutant(
        "pidfds above the soft limit",
        "_highfds.py",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))",
        "pass",
        "tests/test_waiting.py::test_low_file_descriptors_are_left_alone[pidfd-ctypes]",
    ),
    Mutant(
        "soft limit that Ctrl-C leaves raised",
        "_highfds.py",
        "            finally:  # Ctrl-C may come anywhere, before the other one, too\n"
        "                self._restore()\n",
        "            finally:\n                pass\n",
        "tests/faults/test_interrupts.py::test_at_any_line[in_a_set]",
    ),
    Mutant(
        "soft limit that a signal handler puts back",
        "_highfds.py",
        "if self._is_up:  # for",
        "if False:  # for",
        "tests/faults/test_interrupts.py::test_handled_at_any_line",
    ),
    Mutant(
        "freed file descriptors go to the polled",
        "_waitset.py",
        "self._speed_up(len(exits))",
        "pass",
        "tests/test_waiting.py::test_past_the_hard_limit",
    ),
]
