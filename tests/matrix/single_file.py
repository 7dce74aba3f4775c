# SPDX-License-Identifier: BSD-3-Clause
"""Run tests on the single file: python -m tests.matrix.single_file [ARGUMENT OF PYTEST...].

The file stands in a folder of its own, beside a copy of the tests. They look into modules of the
package: tests.matrix.modules lets each of these names mean what it has become in the file.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pidwait._vendoring.single_file import EXTRAS, SingleFile

ROOT = Path(__file__).resolve().parents[2]
BESIDE = "pyproject.toml README.md CHANGELOG.md LICENSE tox.ini".split()
# Tests of what is in the file.
TESTS = """
wait process pidfd procfs waiting waitset polling_set owners input engine targets kinds probe fd
highfds forks guard deadline handlers interpreter_end later_policies raising_owners cli_exit_code
cli_terminal cli_family
""".split()
# Left out, as the file has no modules: what looks into the package's files, what imports its
# modules in another process, what replaces a name in one module alone, and a first wait without
# file descriptors, which learns more here on PyPy. The last need what the file lacks: to choose
# processes, and the command run.
LEFT_OUT = """
exceptions_of_signal_handlers_lose_nothing interrupted_at_any_line
closed_by_a_signal_handler_at_any_line

proc_of_another_pid_namespace binding_that_can_not_be_loaded_for_now program_with_threads

pidfds_share_an_inode whose_poll_takes_a_running_process links_of_a_process_that_goes
sleep_that_is_forbidden looks_while_idle_are_few multiprocessing_that_somebody_else_reaped
multiprocessing_where_sigchld_is_ignored error_while_a_child_is_reaped_without_waitid
proc_of_another_namespace_tells process_that_goes_while_all_are_looked_at
read_that_a_signal_handler_ends opening_the_handle_of_a_child

a_first_wait_without_file_descriptors long_ago

test_chosen progress_of_run line_of_run no_progress_in_the_background
"""


def names(joined):
    """{module: {its name: the name in the file}}."""
    found = {}
    for module in joined.modules.values():
        found[module.name] = table = {}
        for name in module.top.bound | set(module.top.aliases):
            final = joined.names.get(joined.resolved((module.name, name)))
            if final is not None:
                table[name] = final
    return found


def prepare(folder, system):
    """Put the file there, and the tests; return the arguments of pytest."""
    made = SingleFile([system], EXTRAS)
    folder.joinpath("pidwait.py").write_bytes(made.text().encode())
    plan = {"names": names(made.joined), "tests": TESTS}
    folder.joinpath("plan.json").write_text(json.dumps(plan))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(ROOT / "tests"), str(folder / "tests"), ignore=ignored)
    for name in BESIDE:
        shutil.copy(str(ROOT / name), str(folder))
    return ["-p", "tests.matrix.modules", "-k", "not (%s)" % " or ".join(LEFT_OUT.split())]


def main(args):
    with tempfile.TemporaryDirectory() as tmp:
        pytest = [sys.executable, "-m", "pytest"] + prepare(Path(tmp), "linux")
        return subprocess.call(pytest + args, cwd=tmp, env=dict(os.environ, PYTHONPATH=tmp))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
