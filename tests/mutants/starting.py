# SPDX-License-Identifier: BSD-3-Clause
"""Starting processes."""

from .mutant import Mutant

MUTANTS = [
    Mutant(
        "file descriptor above the limit, without closefrom",
        "_spawn_actions.py",
        "if highest >= limit:",
        "if False:",
        "tests/test_posix_spawn.py::test_fd_above_the_limit[fell]",
    ),
    Mutant(
        "error of cwd, not of the program",
        "_posix_spawn.py",
        'caught = _missing(os.path.join(request.cwd, b"."))',
        "caught = 0",
        "tests/test_spawn_failures.py::test_failures_of_subprocess[new-ctypes-cwd missing]",
    ),
    Mutant(
        "standard file descriptor overwritten before its turn",
        "_spawn_actions.py",
        "if 0 <= source <= 2 and (",
        "if False and (",
        "tests/test_posix_spawn.py::test_standard_fds_in_any_order",
    ),
    Mutant(
        "environment of objects that change",
        "_posix_spawn.py",
        "if {type(value) for value in built.snapshot.values()} <= {str, bytes}:",
        "if True:",
        "tests/test_posix_spawn.py::test_environment_that_changes_unseen",
    ),
    Mutant(
        "forbidden posix_spawn",
        "_posix_spawn.py",
        "if error not in _OF_THE_PROGRAM:",
        "if False:",
        "tests/test_posix_spawn.py::test_forced_by_policy_goes_to_the_standard_library",
    ),
    Mutant(
        "structures that nobody uses any more",
        "_spawn_actions.py",
        "            self._destroy(self.pointer)\n",
        "            pass\n",
        "tests/test_posix_spawn.py::test_structures_are_destroyed_with_their_last_user",
    ),
    Mutant(
        "asked by spawn already",
        "subprocess.py",
        'getattr(self, "_refused", None)',
        "None",
        "tests/test_posix_spawn.py::test_what_posix_spawn_can_not_do_is_asked_once",
    ),
    Mutant(
        "what the standard code tells audit hooks",
        "subprocess.py",
        'if hasattr(sys, "audit"):',
        "if False:",
        "tests/test_subprocess.py::test_audit_hooks_see_what_they_see_of_the_original",
    ),
    Mutant(
        "Child that another thread reaped",
        "spawning.py",
        "is me and not self.reaped:",
        "is me:",
        "tests/test_spawn.py::test_reaped_by_another_thread",
    ),
    Mutant(
        "child of the parent, in a forked child",
        "_backends/pidfd.py",
        "                raise\n            # ECHILD does not",
        "                raise\n            raise\n            # ECHILD does not",
        "tests/test_spawn.py::test_waited_for_in_a_fork[pidfd-ctypes]",
    ),
    Mutant(
        "child that was reaped before there was a handle",
        "spawning.py",
        "    except ProcessLookupError:\n        handle = Gone(pid)\n",
        "    except ZeroDivisionError:\n        handle = Gone(pid)\n",
        "tests/test_spawn.py::test_sigchld_ignored",
    ),
]
