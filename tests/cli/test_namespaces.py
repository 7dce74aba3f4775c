# SPDX-License-Identifier: BSD-3-Clause
"""The command line where processes are hidden, /proc is missing, or a pid is used again."""

import contextlib
import importlib
import io
import json
import os
import time

import pytest

from .. import pidwait, seam, trouble
from ..trouble import Child, system
from ..trouble.conftest import namespaces, real_root  # noqa: F401
from .command_line import COMMAND, acting_first, run

pytest.importorskip("ctypes")
NOBODY = 65534
cli = importlib.import_module(pidwait.__name__ + ".cli")


def main(*args):
    """The exit status, and what the command line says there."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main([str(arg) for arg in args])
    return status, out.getvalue() + err.getvalue()


def hidden(how):
    def chosen(*args):
        return [json.loads(line)["pid"] for line in main("-l", "--json", *args)[1].splitlines()]

    secret = Child()
    assert chosen("-o") == [secret.pid]  # what it loads, the other user may not read
    system.mount("proc", "/proc", how)
    system.become(NOBODY)
    system.prctl(system.PR_SET_DUMPABLE, 1)  # which setuid() has cleared
    child = Child()
    for args in ["-P", os.getpid()], ["-o"], ["-n"]:
        assert chosen(*args) == [child.pid]
    for each in secret, child:
        each.end(0)
        each.reap()


@pytest.mark.root
@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2"])
def test_it_chooses_none_that_are_hidden(real_root, how):  # noqa: F811
    trouble.run(hidden, how, within=real_root)


def without_proc():
    system.mount("tmpfs", "/proc")
    for args in ["-o"], ["--list", "-o"], ["--list", "--json", "1"]:
        status, said = main(*args)
        assert status == 1 and ": processes can't be listed in /proc: " in said
    done = run("run", "--tree", "touch", "/proc/mark")
    assert "can escape here" in done.stderr
    assert done.returncode == 0 and os.path.exists("/proc/mark")


def test_it_says_so_where_there_is_no_proc(namespaces):  # noqa: F811
    trouble.run(without_proc, within=namespaces)


def reused():
    """Another process gets the pid after the choice, and before there is a handle."""
    it = seam.Seam()
    old, new = Child(), []

    def pass_on():
        old.end(0)
        old.reap()
        time.sleep(0.02)  # the start times are in hundredths of a second
        system.next_pid(old.pid)
        new.append(Child())

    it.put("pidfd_open", acting_first(old.pid, pass_on))
    status, said = main("--json", "-P", os.getpid())
    it.undo()
    row = json.loads(said)
    assert status == 0 and new[0].pid == old.pid == row["pid"]
    assert row["exited"] and row["exitcode"] is None
    new[0].end(9)
    assert new[0].reap() == 9


def test_one_whose_pid_another_process_gets_is_not_waited_for(namespaces):  # noqa: F811
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())
    trouble.run(reused, within=namespaces)


ORPHAN = """
(sh -c 'echo $$ > "$0"' "$0" &)
until pid=$(cat "$0") && [ "$pid" ]; do sleep 0.01; done
while kill -0 $pid 2> /dev/null; do sleep 0.01; done
exit 7
"""


@pytest.mark.parametrize("options", ["", "--tree", "--foreground", "--tree --rest leave"])
def test_as_pid_1_it_reaps_those_whose_parents_have_exited(
    start,
    tmp_path,
    namespaces,  # noqa: F811
    options,
):
    """As in a container, where nobody else does; and never the command before its time."""
    command = ["run", "-t", "60", *options.split(), "sh", "-c", ORPHAN, str(tmp_path / "pid")]
    assert start(*namespaces, *COMMAND, *command).wait() == 7
