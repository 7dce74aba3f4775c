# SPDX-License-Identifier: BSD-3-Clause
"""Events where there is no pidfd: inotify, and what the messages of the proc connector tell.

The mutants' tests run in a PID namespace, where there is no proc connector: what a set does with
its messages is tested with scripted ones; what else is in its module has tests, but no mutants.
"""

from .mutant import Mutant

MUTANTS = [
    Mutant(
        "message about an earlier process",
        "_backends/connector.py",
        "        if when < self._since:\n            return\n",
        "",
        "tests/test_connector.py::test_message_about_an_earlier_process",
    ),
    Mutant(
        "main thread that ends before others",
        "_backends/connector.py",
        "            self._is_certain = False\n",
        "            pass\n",
        "tests/test_connector.py::test_main_thread_ends_before_others",
    ),
    Mutant(
        "thread that ends long before the main one",
        "_backends/connector.py",
        "            if is_main:\n                self._status = status\n",
        "            self._status = status\n",
        "tests/test_connector.py::test_main_thread_ends_before_others",
    ),
    Mutant(
        "messages of several threads that come at once",
        "_backends/listening_set.py",
        "                self._hear(key, message)\n            self._take_told()\n",
        "                self._hear(key, message)\n                self._take_told()\n",
        "tests/test_listening_set.py::test_messages_of_several_threads",
    ),
    Mutant(
        "message that comes after the exit was seen",
        "_backends/heard_member.py",
        "            self._late.append(self)\n",
        "            pass\n",
        "tests/test_listening_set.py::test_message_after_the_exit_was_seen",
    ),
    Mutant(
        "message about a thread of a process that runs on",
        "_backends/listening_set.py",
        "                one.status.forget(self._calmed)\n",
        "                pass\n",
        "tests/test_listening_set.py::test_end_of_a_thread",
    ),
    Mutant(
        "events about one that could not be added",
        "_backends/listening_set.py",
        "                self._unlisten(found[0], pid)\n",
        "                pass\n",
        "tests/test_listening_set.py::test_add_of_one_that_is_gone",
    ),
    Mutant(
        "pid that may be another's, seen at a last look",
        "_backends/paced_sets.py",
        "        if last and self.hears_all:\n            self._next_look = due\n        else:\n",
        "        if True:\n",
        "tests/test_paced_sets.py::test_last_look[True]",
    ),
    Mutant(
        "forked without execve",
        "_backends/inotify.py",
        "        if stat is None or stat.flags & linux.PF_FORKNOEXEC:\n",
        "        if stat is None:\n",
        "tests/test_inotify.py::test_forked_without_execve",
    ),
    Mutant(
        "forked without execve, where flags are not told",
        "_backends/inotify.py",
        "        if not self._is_linux and _same_executable(pid, stat.parent):\n",
        "        if False:\n",
        "tests/test_inotify.py::test_where_flags_are_not_told",
    ),
    Mutant(
        "execve of a process that is watched",
        "_backends/inotify.py",
        "        found = self.add(pid)\n        self.discard(key)\n",
        "        found = (key,)\n",
        "tests/test_inotify.py::test_execve_after_the_fork",
    ),
    Mutant(
        "watch that the system has removed",
        "_backends/inotify.py",
        "            if error.errno != EINVAL:  # the file system is gone\n                raise\n",
        "            raise\n",
        "tests/test_inotify.py::test_watch_ends_with_its_last_member",
    ),
    Mutant(
        "signal handler that raises while events are read",
        "_backends/listening_set.py",
        "            if self._has_lost:\n                self._hear(None, ())\n",
        "",
        "tests/test_events.py::test_handler_that_raises_while_events_are_read[polling]",
    ),
    Mutant(
        "events that end",
        "_backends/listening_set.py",
        '            pass_over(error, "events")\n            self.deafen()\n',
        '            pass_over(error, "events")\n',
        "tests/test_events.py::test_events_that_end[polling]",
    ),
    Mutant(
        "spare that somebody has closed",
        "_backends/inotify.py",
        "    if not _is_inotify(file):\n",
        "    if False:\n",
        "tests/test_inotify.py::test_spare_that_somebody_has_closed",
    ),
    Mutant(
        "spare of the parent",
        "_backends/inotify.py",
        "    elif not creator.is_me():  # a forked child shares it with the parent\n",
        "    elif False:\n",
        "tests/test_inotify.py::test_spare_of_the_parent",
    ),
    Mutant(
        "two spares",
        "_backends/inotify.py",
        "_spare.setdefault(_KEY, mine) is mine",
        "_spare.setdefault(id(mine), mine) is mine",
        "tests/test_inotify.py::test_two_waits_leave_one_spare",
    ),
    Mutant(
        "spare that another thread leaves at the same time",
        "_backends/inotify.py",
        "_spare.setdefault(_KEY, mine) is mine):\n            close(self.file)\n",
        "not _spare):\n            close(self.file)\n"
        "        else:\n            _spare[_KEY] = mine\n",
        "tests/test_inotify.py::test_another_thread_at_any_line_of_the_use_of_a_spare",
    ),
    Mutant(
        "spare that another thread takes at the same time",
        "_backends/inotify.py",
        "    creator, file = _spare.pop(_KEY, (None, None))\n    if creator is None:\n",
        "    creator, file = _spare.get(_KEY, (None, None))\n    _spare.clear()\n"
        "    if creator is None:\n",
        "tests/test_inotify.py::test_another_thread_at_any_line_of_the_use_of_a_spare",
    ),
    Mutant(
        "watches of a spare",
        "_backends/inotify.py",
        "            for watch in list(self._watches):\n",
        "            for watch in ():\n",
        "tests/test_inotify.py::test_spare",
    ),
    Mutant(
        "others with the same executable",
        "_backends/listening_set.py",
        "                if events.may_have_exited(key, one.pid):\n",
        "                if True:\n",
        "tests/test_inotify.py::test_others_with_the_same_executable[Linux]",
    ),
    Mutant(
        "executable that may be taken away after the event",
        "_backends/inotify.py",
        "        return watch != key or not self._is_linux\n",
        "        return watch != key\n",
        "tests/test_inotify.py::test_others_with_the_same_executable[gVisor]",
    ),
    Mutant(
        "execve of one of those with the same executable",
        "_backends/inotify.py",
        "        return watch != key or not self._is_linux\n",
        "        return not self._is_linux\n",
        "tests/test_inotify.py::test_execve_after_the_fork",
    ),
    Mutant(
        "events all the time",
        "_backends/listening_set.py",
        "            if self._due and monotonic() >= self._due_at:\n",
        "            if self._due:\n",
        "tests/test_inotify.py::test_events_all_the_time",
    ),
    Mutant(
        "events that are due later",
        "_backends/listening_set.py",
        "            delays.append(max(0.0, self._due_at - monotonic()))\n",
        "            pass\n",
        "tests/test_inotify.py::test_events_all_the_time",
    ),
    Mutant(
        "one look where there is no time",
        "_backends/events.py",
        "    if deadline.expired():\n        return look(), None\n",
        "",
        "tests/test_inotify.py::test_no_time",
    ),
]
