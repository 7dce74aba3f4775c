# SPDX-License-Identifier: BSD-3-Clause
"""The engine, the targets, and what a signal handler or a later policy does to them."""

from .mutant import Mutant

MUTANTS = [
    Mutant(
        "one patience for an owner whose child is gone",
        "_targets.py",
        "        if self._until is None:\n",
        "        if True:\n",
        "tests/test_targets.py::test_multiprocessing_that_somebody_else_reaped[pidfd-ctypes-by_set]",
    ),
    Mutant(
        "owner that raises",
        "_targets.py",
        "            return self._settle(code, last)\n        except Exception as error:\n",
        "            return self._settle(code, last)\n        except ZeroDivisionError as error:\n",
        "tests/test_raising_owners.py::test_owner_that_raises",
    ),
    Mutant(
        "exception of a signal handler in an owner's code",
        "_targets.py",
        '        raise_of_handler(error)\n        log("pid %s, %s',
        '        log("pid %s, %s',
        "tests/test_raising_owners.py::test_exception_of_a_signal_handler_inside_an_owner",
    ),
    Mutant(
        "owner that has no file descriptor left",
        "_targets.py",
        "        transient = isinstance(error, ImportError) or (",
        "        transient = False and (",
        "tests/test_raising_owners.py::test_owner_that_has_no_file_descriptor_left",
    ),
    Mutant(
        "set that is only closed in a forked child",
        "_engine.py",
        "    def close(self) -> None:\n        if self.pid != getpid():\n",
        "    def close(self) -> None:\n        if False:\n",
        "tests/test_forks.py::test_set_that_is_only_closed_in_a_fork",
    ),
    Mutant(
        "Child in a forked child",
        "_child.py",
        "        return super().wait(timeout, guard.pid == getpid())",
        "        return super().wait(timeout, True)",
        "tests/test_forks.py::test_child_that_a_thread_was_reaping",
    ),
    Mutant(
        "Popen whose lock was held at the fork",
        "_kinds.py",
        "        self._is_inherited = True\n",
        "",
        "tests/test_forks.py::test_popen_whose_lock_was_held",
    ),
    Mutant(
        "Popen whose pid is a stranger's now",
        "_kinds.py",
        "            if importer.is_me() or not exitcodes.is_our_sibling(self.pid):\n"
        "                return None\n",
        "            pass\n",
        "tests/test_targets.py::test_popen_whose_pid_is_a_strangers_now",
    ),
    Mutant(
        "main thread's code before Linux 5.17",
        "_kinds.py",
        "        return code or self._known()\n",
        "        return code\n",
        "tests/test_targets.py::test_look_that_told_the_main_threads_code",
    ),
    Mutant(
        "Popen without a lock",
        "_kinds.py",
        '        if lock is None or hasattr(self.proc, "_handle"):',
        "        if lock is None:\n            return True\n"
        '        if hasattr(self.proc, "_handle"):',
        "tests/test_targets.py::test_popen_without_a_lock_keeps_its_code",
    ),
    Mutant(
        "wait that a signal handler interrupts while an owner is asked",
        "_engine.py",
        "                self._enter_again(ours)\n",
        "                pass\n",
        "tests/test_engine.py::test_wait_interrupted_at_any_line[pidfd-ctypes-object]",
    ),
    Mutant(
        "add() that a signal handler interrupts",
        "_engine.py",
        "            for target in entered:\n"
        "                self._drop(target)\n"
        "            raise\n",
        "            raise\n",
        "tests/test_engine.py::test_interrupted_at_any_line",
    ),
    Mutant(
        "pid that is given out again",
        "_engine.py",
        "                if type(there) is not Target or not self._is_anothers(there):\n",
        "                if True:\n",
        "tests/test_engine.py::test_set_that_is_given_a_pid_again",
    ),
    Mutant(
        "events that have not been taken yet",
        "_backends/epoll_set.py",
        "        if self._events:\n            return\n",
        "",
        "tests/test_engine.py::test_set_that_is_given_a_pid_again[seen]",
    ),
    Mutant(
        "code that only the reaping tells, when the time is up",
        "_backends/pidfd_set.py",
        "            elif last or until <= now:\n",
        "            elif until <= now:\n",
        "tests/test_engine.py::test_time_is_up_before_the_reaping",
    ),
    Mutant(
        "sleep during the grace for a code",
        "_backends/epoll_set.py",
        "longest = GRACE if self._fading else self._longest",
        "longest = self._longest",
        "tests/test_engine.py::test_sleeps_are_short_only_during_the_grace",
    ),
    Mutant(
        "owner that a thread of the parent is asking",
        "_engine.py",
        "            self.sets.told.extend(self._settling.items())\n",
        "",
        "tests/test_forks.py::test_owner_that_a_thread_of_the_parent_is_just_asking",
    ),
    Mutant(
        "change while fileno() is made",
        "_waitset.py",
        "        self._is_shown = True\n        self._rearm()\n",
        "        self._is_shown = True\n",
        "tests/test_waitset.py::test_change_while_fileno_is_made",
    ),
    Mutant(
        "timer made while there are file descriptors",
        "_backends/epoll_set.py",
        "            self._make_timer()  # later there may be no file descriptor left\n",
        "            pass\n",
        "tests/test_engine.py::test_fileno_with_a_later_member_that_is_polled",
    ),
    Mutant(
        "call that is forbidden later",
        "_combined.py",
        "                self._poll_all(error)\n            else:\n",
        "                raise\n            else:\n",
        "tests/test_later_policies.py::test_policy_that_comes_before_an_interrupted_wait_goes_on",
    ),
    Mutant(
        "epoll_wait(2) that is forbidden later",
        "_combined.py",
        "                self._broken = error\n                return\n",
        "                raise\n",
        "tests/test_later_policies.py::test_policy_that_comes_later",
    ),
    Mutant(
        "watch() in the middle of the first watch()",
        "watching.py",
        "        watches = self._sets.setdefault(None, made)\n",
        "        watches = self._sets[None] = made\n",
        "tests/test_watching_interrupted.py::test_watch_in_the_middle_of_a_watch",
    ),
    Mutant(
        "limit that another thread sets meanwhile",
        "_highfds.py",
        "            _exchange(found)  # another thread has set it meanwhile\n",
        "            pass\n",
        "tests/test_highfds.py::test_limit_that_another_thread_sets_meanwhile",
    ),
]
