# SPDX-License-Identifier: BSD-3-Clause
"""Guards of the listing."""

from .mutant import Mutant

FILE = "listing.py"
FAMILY = "_family.py"
PROCFS = "_sources/listed_procfs.py"
TEST = "tests/faults/test_listing.py::test_"
REUSED = TEST + "pid_that_is_reused_at_each_line"
VANISHES = TEST + "process_that_vanishes_at_each_line"

MUTANTS = [
    Mutant(
        "files of a process whose pid is reused",
        PROCFS,
        '            if self._directory is None:\n                return procfs.read("',
        '            if True:\n                return procfs.read("',
        REUSED,
    ),
    Mutant(
        "rest of a name whose pid is reused",
        PROCFS,
        "                self._check_pid()\n",
        "",
        TEST + "long_name_of_a_pid_that_is_reused_at_each_line",
    ),
    Mutant(
        "ProcessInfo whose pid is reused",
        FILE,
        "            if None not in (started, self._started) and started != self._started:\n",
        "            if False:\n",
        REUSED,
    ),
    Mutant(
        "pid that is reused looks hidden",
        PROCFS,
        ' and not os.path.exists("/proc/%d" % self.pid)',
        "",
        REUSED,
    ),
    Mutant(
        "process that vanishes before it is listed",
        FILE,
        "                info._fill(facts)\n            except ProcessLookupError as error:\n",
        "                info._fill(facts)\n            except ArithmeticError as error:\n",
        VANISHES,
    ),
    Mutant(
        "process that vanishes before its folder is opened",
        PROCFS,
        "facts = Facts(pid, full, usernames)\n        except ProcessLookupError as error:\n",
        "facts = Facts(pid, full, usernames)\n        except ArithmeticError as error:\n",
        VANISHES,
    ),
    Mutant(
        "process that vanishes while it is listed",
        FILE,
        "                info.info = _facts.gather(facts, names, ad_value)\n"
        "            except ProcessLookupError as error:\n",
        "                info.info = _facts.gather(facts, names, ad_value)\n"
        "            except ArithmeticError as error:\n",
        VANISHES,
    ),
    Mutant(
        "child of the process that got the parent's pid",
        FAMILY,
        "child._started < began or parent.is_running()",
        "True",
        TEST + "child_of_another_process_with_the_pid_of_the_parent",
    ),
    Mutant(
        "parent of which only the pid is left",
        FAMILY,
        "            if by_pid.get(parent.pid) != parent:\n",
        "            if False:\n",
        TEST + "child_of_another_process_with_the_pid_of_the_parent",
    ),
    Mutant(
        "child that is older than its parent",
        FAMILY,
        " or child._started < parent._started:\n",
        ":\n",
        TEST + "orphan_whose_parent_has_the_pid_of_a_member_now",
    ),
    Mutant(
        "children that are started meanwhile",
        FAMILY,
        "            if not self.look():\n                break\n",
        "            self.look()\n            break\n",
        TEST + "children_that_are_started_meanwhile",
    ),
    Mutant(
        "oneshot that a signal handler ends",
        FILE,
        "info._held[get_ident()] = ref(self._facts)",
        "info._held[get_ident()] = lambda facts=self._facts: facts",
        TEST + "handler_that_raises_at_each_line",
    ),
    Mutant(
        "folder of a hidden process",
        PROCFS,
        "                if not self._is_hidden(error):  # else",
        "                if True:  # else",
        TEST + "hidden_processes_of_another_user[hidepid=2]",
    ),
    Mutant(
        "start of a hidden process",
        "_facts.py",
        "        return facts.started()\n    except PermissionError as error:\n",
        "        return facts.started()\n    except ArithmeticError as error:\n",
        TEST + "hidden_processes_of_another_user[hidepid=1]",
    ),
    Mutant(
        "pause between looks at two clocks",
        PROCFS,
        "found = max(_look_at_clocks() for _ in range(3))",
        "found = _look_at_clocks()",
        "tests/test_listing_peers.py::test_create_time_on_a_busy_machine[pauses2]",
    ),
]
