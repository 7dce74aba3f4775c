# SPDX-License-Identifier: BSD-3-Clause
"""Planted faults: in a copy of the package a statement is changed, and the explorer finds it."""

import os
import shutil
import subprocess
import sys

import pytest

from .. import pidwait
from ..venvs import ROOT

# The function; the statement, and what stands in its place; the scenario that shows it.
FAULTS = {
    "the wake-up after a wait is left out": (
        "_waiting/core.py: Core.wait",
        "        del self.waiters[me]\n        self.wake()\n",
        "        del self.waiters[me]\n",
        "set_wait_wait",
    ),
    "a token is popped late": (
        "_waiting/core.py: Core.wait",
        "            hand_over(waiter.members, self.tokens, self.members, waiter.codes)\n",
        "            waiter.members.extend([one for one in waiter.codes if one in self.tokens])\n"
        "            hand_over([], self.tokens, self.members, waiter.codes)\n",
        "set_wait_wait",
    ),
    "an interrupted wait puts nothing back": (
        "_sets.py: WaitSet.wait",
        "                core.requeue(waiter)\n            finally:\n"
        "                core.requeue(waiter)",
        "                core.wake()\n            finally:\n                core.wake()",
        "set_wait_wait",
    ),
    "an event is forgotten before the next table has its member": (
        "_waiting/core.py: Core._look_once",
        "            handle, status = member.handle, self.seen.get(member, RUNNING)\n",
        "            handle, status = member.handle, self.seen.get(member, RUNNING)\n"
        "            self.poller.ready.pop(member, None)\n",
        "set_wait_wait",
    ),
    "nobody looks at what has been added and is not armed": (
        "_waiting/core.py: Core.add",
        "        calls.append((self.schedule.members.setdefault, member, when))\n",
        "",
        "set_wait_add",
    ),
    "what is added leaves the schedule before it is armed": (
        "_systems/linux/poller.py: arm",
        "                call(\n                    atomically,\n",
        "                atomically(*calls)\n                calls = ()\n"
        "                call(\n                    atomically,\n",
        "set_wait_add",
    ),
    "events are noted after they have been forgotten": (
        "_systems/posix.py: EventSource.receive_from",
        "        self.note(events)\n        self._batches.pop(id(batch), None)\n",
        "        self._batches.pop(id(batch), None)\n        self.note(events)\n",
        "set_wait_wait",
    ),
    "a look calls itself": (
        "_waiting/core.py: Core.look",
        "                        self._note_exit(one, found, waiter)\n",
        "                        self.look(one, waiter)\n",
        "kinds_process_process",
    ),
    "a handle is closed under a user": (
        "_base/handle.py: Shared.release",
        "        if not [use for use, pid in self.uses.copy().items() "
        "if pid == me and use() is not None]:\n",
        "        if me:\n",
        "child_wait_wait",
    ),
    "reaped is asked too early": (
        "_starting/spawn.py: Child.wait",
        "        with self._shared.use() as handle:\n"
        "            if not (self.reaped or (self._is_closed and self._exited)):\n",
        "        reaped = self.reaped\n"
        "        with self._shared.use() as handle:\n"
        "            if not (reaped or (self._is_closed and self._exited)):\n",
        "child_wait_wait",
    ),
    "two threads look at a child that is left": (
        "_starting/spawn.py: _reap_left",
        "            is_ours = _looking.setdefault(handle, me) is me and handle in _left\n",
        "            is_ours = _looking.setdefault(handle, me) and handle in _left\n",
        "spawn_spawn_left",
    ),
    "a handler's AttributeError is taken for an answer": (
        "_waiting/owners.py: target_of",
        "proc.pid  # type: ignore[union-attr]\n    except not_by_handler(AttributeError):\n",
        "proc.pid  # type: ignore[union-attr]\n    except AttributeError:\n",
        "child_set_wait",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_found(fault, tmp_path):
    where, statement, instead, scenario = FAULTS[fault]
    path = where.partition(":")[0]
    folder = tmp_path / "pidwait"
    shutil.copytree(os.path.dirname(pidwait.__file__), str(folder))
    text = (folder / path).read_text()
    assert text.count(statement) == 1, where
    (folder / path).write_text(text.replace(statement, instead))
    done = subprocess.run(
        [sys.executable, "-m", "tests.explore", "--here", "--seconds", "60", scenario],
        cwd=str(tmp_path),
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    assert done.returncode == 1 and "FAULT" in done.stdout, done.stdout
