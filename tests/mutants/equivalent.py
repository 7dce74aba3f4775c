# SPDX-License-Identifier: BSD-3-Clause
"""Small changes of which a caller would notice nothing, each with the reason.

tests/matrix/random_mutants.py leaves them out. The line and what it becomes, both without the
indentation, identify a change, so that it may move in its file.
"""

from collections import namedtuple

Equivalent = namedtuple("Equivalent", "file old new reason")

_OS_ERROR = (
    'def os_error(code: int, call: str, pid: "int | None", text: "str | None" = %s) -> OSError:'
)
_LOW = "_LOW = %d  # numbers that are left to the program if the hard limit prevents higher ones"

EQUIVALENT = [
    Equivalent(
        "_errors.py",
        _OS_ERROR % None,
        _OS_ERROR % 0,
        "either is false",
    ),
    Equivalent(
        "_probe.py",
        'reason = None if error is None else getattr(error, "strerror", None) or str(error)',
        'reason = None if error is None else getattr(error, "strerror", 0) or str(error)',
        "either is false",
    ),
    Equivalent(
        "cli/patch.py",
        "return 0",
        "return None",
        "sys.exit() takes both as success",
    ),
    Equivalent(
        "cli/_job.py",
        "signal.signal(number, lambda *arguments: None)",
        "signal.signal(number, lambda *arguments: 0)",
        "nothing uses what a signal handler returns",
    ),
    Equivalent(
        "subprocess.py",
        "if not _HAS_PROCESS_GROUP:",
        "if False:",
        "it is true only before Python 3.11, and there the suite notices",
    ),
    Equivalent(
        "_posix_spawn.py",
        "return error == EPERM and (group > 0 or (group == 0 and session))",
        "return error == EPERM and (group > 0 or (group == (-1) and session))",
        "it is called only before Python 3.11",
    ),
    Equivalent(
        "_posix_spawn.py",
        "self.executable = argv[0] if executable is args[0] else os.fsencode(executable)",
        "self.executable = argv[0] if False else os.fsencode(executable)",
        "it is encoded a second time",
    ),
    *(
        Equivalent(
            "_backends/pidfd_wait.py", closed, "pass", "it closes the pidfd when it is freed"
        )
        for closed in ("close(owner)", "owner.close()")
    ),
    *(
        Equivalent(
            "_backends/pidfd_wait.py",
            "for _, event in poll.poll(None if timeout is None else timeout * 1000):",
            "for _, event in poll.poll(None if timeout is None else timeout * %d):" % factor,
            reason,
        )
        for factor, reason in ((999, "the handle waits for the rest"), (1001, "a thousandth"))
    ),
    Equivalent(
        "_turn.py",
        "_SLICE = TIMEOUT_MAX if LOCKS_HEED_SIGNALS else 0.1",
        "_SLICE = TIMEOUT_MAX if True else 0.1",
        "it is false on Windows only, and there the suite notices",
    ),
    Equivalent(
        "_sources/listed_procfs.py",
        "found = max(_look_at_clocks() for _ in range(3))",
        "found = max(_look_at_clocks() for _ in range(2))",
        "to be interrupted twice in a row is as rare",
    ),
    Equivalent(
        "cli/wait.py",
        "chooses = False",
        "chooses = True",
        "it counts only in a single file, and there the suite notices",
    ),
    Equivalent(
        "_deadline.py",
        "return cost * (_SHARE - 1)",
        "return cost * (_SHARE - 2)",
        "less than 5 % of the time, too",
    ),
    Equivalent(
        "cli/_progress.py",
        'self._write("waiting %s for %s" % (time_, running[0]))',
        'self._write("waiting %s for %s" % (time_, running[(-1)]))',
        "there is one",
    ),
    Equivalent(
        "_deadline.py",
        "if timeout < 0:",
        "if timeout <= 0:",
        "0 is not too large for a float",
    ),
    Equivalent(
        "cli/_common.py",
        "return 0",
        "return None",
        "sys.exit() takes both as success",
    ),
    Equivalent(
        "_vendoring/source.py",
        "rest = source.lines[source.rows(node.body[-1])[1] + 1 : last + 1] if node.orelse else []",
        "rest = source.lines[source.rows(node.body[-1])[1] + 0 : last + 1] if node.orelse else []",
        "it is searched for its first 'else'",
    ),
    Equivalent(
        "_ffi/libc_spawn.py",
        'USEVFORK = _flags.get("USEVFORK", 0)',
        'USEVFORK = _flags.get("USEVFORK", 1)',
        "Linux has the flag",
    ),
    Equivalent(
        "_turn.py",
        "_SLICE = TIMEOUT_MAX if LOCKS_HEED_SIGNALS else 0.1",
        "_SLICE = TIMEOUT_MAX if LOCKS_HEED_SIGNALS else 1.1",
        "it matters only on Windows",
    ),
    Equivalent(
        "__init__.py",
        'if not hasattr(sys.modules[__name__], "TimeoutExpired"):'
        "  # Python 3.6 looks in the class only",
        "if True:  # Python 3.6 looks in the class only",
        "later Pythons ask the class, too",
    ),
    Equivalent(
        "_spawn_actions.py",
        'calls.get("sigemptyset")(signals)',
        "pass",
        "the memory is zeroed, and a set of zeros is empty on Linux",
    ),
    Equivalent(
        "cli/_tree.py",
        'calls.get("prctl")(linux.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)',
        'calls.get("prctl")(linux.PR_SET_CHILD_SUBREAPER, 1, 0, 0, (-1))',
        "the kernel ignores the last three arguments",
    ),
    Equivalent(
        "cli/probe.py",
        'write(json.dumps(answer, indent=2) + "\\n")',
        'write(json.dumps(answer, indent=1) + "\\n")',
        "the same JSON",
    ),
    Equivalent(
        "cli/probe.py",
        'write(json.dumps(answer, indent=2) + "\\n")',
        'write(json.dumps(answer, indent=3) + "\\n")',
        "the same JSON",
    ),
    Equivalent(
        "_backends/__init__.py",
        "best = chosen[0] if chosen else backend()",
        "best = chosen[(-1)] if chosen else backend()",
        "there is one",
    ),
    *(
        Equivalent(
            "_posix_spawn.py",
            "if len(candidates) > 1:",
            "if %s:" % other,
            "to look before a start only saves time",
        )
        for other in ("len(candidates) >= 1", "len(candidates) > 0", "len(candidates) > 2", "True")
    ),
    Equivalent(
        "_posix_spawn.py",
        "if not _starters or _starters[0].posix_spawn is not posix_spawn:",
        "if not _starters or _starters[(-1)].posix_spawn is not posix_spawn:",
        "there is one",
    ),
    Equivalent(
        "_posix_spawn.py",
        "return _starters[0].start(request)",
        "return _starters[(-1)].start(request)",
        "there is one",
    ),
    Equivalent("process.py", "return code[0]", "return code[(-1)]", "there is one"),
    Equivalent(
        "process.py",
        "code[0] = handle.wait(NOW, True)",
        "code[(-1)] = handle.wait(NOW, True)",
        "there is one",
    ),
    Equivalent(
        "_backends/__init__.py",
        "return chosen[0]",
        "return chosen[(-1)]",
        "there is one",
    ),
    *(
        Equivalent(
            "_sources/procfs.py",
            "for _ in range(10):",
            "for _ in range(%d):" % count,
            "even two in a row are rare",
        )
        for count in (9, 11)
    ),
    Equivalent(
        "_backends/epoll_set.py",
        "writer.close()",
        "pass",
        "it is closed at the end of the function",
    ),
    Equivalent(
        "_backends/epoll_set.py",
        "if longest is not None and (seconds is None or seconds > longest):",
        "if longest is not None and (seconds is None or seconds >= longest):",
        "the same number where they are equal",
    ),
    Equivalent(
        "_backends/epoll_set.py",
        "elif seconds > _AGES:",
        "elif seconds >= _AGES:",
        "the same number where they are equal",
    ),
    Equivalent(
        "_backends/polling_set.py",
        "self._interval = self._next_look = 0.0",
        "self._interval = self._next_look = (-1.0)",
        "both are in the past, and below the shortest interval",
    ),
    Equivalent(
        "_combined.py",
        "if delay is not None and (seconds is None or delay < seconds):",
        "if delay is not None and (seconds is None or delay <= seconds):",
        "the same number where they are equal",
    ),
    Equivalent(
        "_deadline.py",
        "FOREVER = Deadline(None)",
        "FOREVER = Deadline(0)",
        "except on Windows only its identity counts",
    ),
    Equivalent(
        "_deadline.py",
        "_INT_MAX = 2**31 - 1  # milliseconds, 24.8 days: the most that poll(2) takes",
        "_INT_MAX = 2**30 - 1  # milliseconds, 24.8 days: the most that poll(2) takes",
        "a sleep that ends too soon goes on",
    ),
    Equivalent(
        "_deadline.py",
        "_INT_MAX = 2**31 - 1  # milliseconds, 24.8 days: the most that poll(2) takes",
        "_INT_MAX = 2**31 - 2  # milliseconds, 24.8 days: the most that poll(2) takes",
        "a sleep that ends too soon goes on",
    ),
    Equivalent(
        "_deadline.py",
        "if milliseconds >= _INT_MAX:",
        "if milliseconds > _INT_MAX:",
        "the same number where they are equal",
    ),
    Equivalent(
        "_ffi/_ctypes.py",
        "null = None",
        "null = 0",
        "the same pointer",
    ),
    Equivalent(
        "_ffi/_ctypes.py",
        "made = self[number] = self.item * (number + 1)",
        "made = self[number] = self.item * (number + 2)",
        "one more NULL",
    ),
    Equivalent(
        "_ffi/calls.py",
        "_SIGINFO_SIZE = 256  # the largest siginfo_t has 136 bytes",
        "_SIGINFO_SIZE = 255  # the largest siginfo_t has 136 bytes",
        "as large as it needs to be",
    ),
    Equivalent(
        "_ffi/calls.py",
        "_SIGINFO_SIZE = 256  # the largest siginfo_t has 136 bytes",
        "_SIGINFO_SIZE = 257  # the largest siginfo_t has 136 bytes",
        "as large as it needs to be",
    ),
    Equivalent(
        "_ffi/libc_spawn.py",
        "SIZE = 1024",
        "SIZE = 1023",
        "as large as it needs to be",
    ),
    Equivalent(
        "_ffi/libc_spawn.py",
        "SIZE = 1024",
        "SIZE = 1025",
        "as large as it needs to be",
    ),
    Equivalent(
        "_ffi/linux.py",
        "PIDFD_INFO_REQUEST = PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, 0, 0, 0)",
        "PIDFD_INFO_REQUEST = PIDFD_INFO.pack(PIDFD_INFO_EXIT, 1, 0, 0, 0)",
        "the kernel reads the mask alone",
    ),
    Equivalent(
        "_backends/timers.py",
        'if hasattr(select, "poll") and not poll(timer.fileno(), select.POLLIN, Deadline(1)):',
        'if hasattr(select, "poll") and not poll(timer.fileno(), select.POLLIN, Deadline(2)):',
        "a timer that works goes off at once",
    ),
    *(
        Equivalent(
            "_ffi/linux.py",
            "PIDFD_INFO_REQUEST = PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, 0, 0, 0)",
            "PIDFD_INFO_REQUEST = PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, %s)" % numbers,
            "the kernel reads the mask alone",
        )
        for numbers in ("1, 0, 0", "0, 1, 0", "0, 0, 1", "0, 0, (-1)")
    ),
    *(
        Equivalent(
            "_ffi/linux.py",
            "WORD = 8 if sys.maxsize > 2**32 else 4",
            "WORD = 8 if sys.maxsize %s else 4" % other,
            "it is between sys.maxsize of 32 bits and of 64",
        )
        for other in (">= 2**32", "> 2**31", "> 2**33", "> 3**32")
    ),
    *(
        Equivalent(
            "_spawn_actions.py",
            "flags |= libc_spawn.%s or 0" % name,
            "flags |= libc_spawn.%s or %s" % (name, other),
            "a check has seen that it is not None",
        )
        for name in ("SETSID", "SETSIGDEF")
        for other in ("1", "(-1)")
    ),
    Equivalent(
        "_spawn_actions.py",
        "if not _CLOSES_ANYTHING or not 0 < limit <= _LONGEST_LIST:",
        "if not _CLOSES_ANYTHING or not 0 <= limit <= _LONGEST_LIST:",
        "with a limit of 0 some file descriptor is above it",
    ),
    Equivalent(
        "_sources/exitcodes.py",
        "return False",
        "return None",
        "in is_our_child(): only on OpenBSD does the difference matter",
    ),
    Equivalent(
        "_sources/exitcodes.py",
        "for _ in range(2):",
        "for _ in range(3):",
        "one more call, where no call tells the code",
    ),
    *(
        Equivalent(
            "watching.py", old, old.replace("True", "False"), "it only matters whether there is one"
        )
        for old in ("self._turn = [True]", "self._turn[:] = [True]")
    ),
    *(
        Equivalent(file, old, old.replace("0.0", other), "a time long ago")
        for file, old in (
            ("_backends/listening_set.py", "self._due_at = 0.0"),
            (
                "_backends/polling_set.py",
                "self._looked = 0.0  # when the latest look at all of them, now ended, began",
            ),
            (
                "_backends/polling_set.py",
                "self._paid = 0.0  # from when on the looks so far have taken no more than their "
                "share",
            ),
        )
        for other in ("1.0", "(-1.0)")
    ),
    Equivalent("_combined.py", "return 0.0", "return (-1.0)", "either is at once"),
    *(
        Equivalent(
            "_ffi/_cffi.py",
            "self._libraries[name] = self._load(name, 0)",
            "self._libraries[name] = self._load(name, %s)" % other,
            "only Windows has other libraries than the first",
        )
        for other in ("1", "(-1)")
    ),
    *(
        Equivalent(
            "_ffi/netlink.py",
            "_LOAD, _LOAD_BYTE, _CONSTANT, _STORE, _RECALL, _TO_X = "
            "0x20, 0x30, 0x00, 0x02, 0x60, 0x07",
            "_LOAD, _LOAD_BYTE, _CONSTANT, _STORE, _RECALL, _TO_X = "
            "%s, 0x30, 0x00, 0x02, 0x60, 0x07" % other,
            "only big-endian processors use it",
        )
        for other in ("31", "33")
    ),
    *(
        Equivalent(
            "_ffi/netlink.py",
            "_PARTS = 450",
            "_PARTS = %s" % other,
            "there is room to spare",
        )
        for other in ("449", "451")
    ),
    Equivalent("_ffi/netlink.py", "_FOUND = -1", "_FOUND = -2", "another number below 0"),
    Equivalent(
        "_ffi/netlink.py",
        "return [_do(_CONSTANT, parts[0][1]), _do(_JUMP, _FOUND)]",
        "return [_do(_CONSTANT, parts[(-1)][1]), _do(_JUMP, _FOUND)]",
        "there is one",
    ),
    *(
        Equivalent(
            "_backends/connector.py",
            "answer, what, when, error, _, _ = _unpack(self._read(self.file.fileno(), 512))",
            "answer, what, when, error, _, _ = _unpack(self._read(self.file.fileno(), %s))" % other,
            "a message has 76 bytes",
        )
        for other in ("511", "513")
    ),
    Equivalent(
        "_spawn_actions.py",
        "if 0 <= fd <= 2 and stdio[fd] != INHERIT:",
        "if 1 <= fd <= 2 and stdio[fd] != INHERIT:",
        "subprocess raises nothing for a closed 0, either: its own pipe gets that number",
    ),
    Equivalent(
        "_child_watcher.py",
        'if handle.backend == "pidfd":',
        "if True:",
        "on Linux only a polled process has another one, and that has no file descriptor, either",
    ),
    Equivalent("cli/_readers.py", "_EVERY = 1.0", "_EVERY = 2.0", "the time need not be exact"),
    *(
        Equivalent(
            "_backends/inotify.py",
            "count = self._watches.pop(watch, 0) - 1",
            "count = self._watches.pop(watch, %s) - 1" % other,
            "it is not above 0",
        )
        for other in ("1", "(-1)")
    ),
    Equivalent(
        "_backends/listening_set.py",
        "self._calmed = 0.0  # when the look began after which the last ones were calmed",
        "self._calmed = 1.0  # when the look began after which the last ones were calmed",
        "a time long ago",
    ),
    Equivalent(
        "_backends/events.py",
        "if pause < _FINE:",
        "if pause <= _FINE:",
        "no interval between two looks is 2 ms: they double from 0.1 ms",
    ),
    *(
        Equivalent("_backends/pidfd.py", old % 0, old % other, "anything but None")
        for old in (
            "return _checks.known(check_pidfs, %s) is None",
            "if _checks.known(check_pidfs, %s) is None or _checks.surely_works(check_pidfs):",
        )
        for other in ("1", "(-1)")
    ),
    Equivalent(
        "_spawn_actions.py",
        '_check(calls.get("posix_spawn_file_actions_addinherit_np")(structure.pointer, 0))',
        '_check(calls.get("posix_spawn_file_actions_addinherit_np")(structure.pointer, 1))',
        "what is added is never used",
    ),
    *(
        Equivalent(
            "subprocess.py",
            'or _names.get("%s", 0) is None' % name,
            'or _names.get("%s", %s) is None' % (name, other),
            "neither is None",
        )
        for name in ("_fork_exec", "_posixsubprocess")
        for other in ("1", "(-1)")
    ),
    Equivalent(
        "_kinds.py",
        'known: "int | None" = self.proc.wait(0)',
        'known: "int | None" = self.proc.wait((-1))',
        "either looks once",
    ),
    Equivalent(
        "_spawn_actions.py",
        "numbers = (fd for fd in range(3, sys.maxsize) if fd not in used)",
        "numbers = (fd for fd in range(4, sys.maxsize) if fd not in used)",
        "another one that is free in the child",
    ),
    Equivalent(
        "_backends/polled.py",
        'if hasattr(time, "CLOCK_THREAD_CPUTIME_ID"):',
        "if False:",
        "thread_time() reads the same clock",
    ),
    Equivalent(
        "process.py",
        "if timeout is not None:",
        "if True:",
        "it only reads the clock",
    ),
    Equivalent(
        "cli/_job.py",
        "signal.set_wakeup_fd(writer)",
        "pass",
        "only Python 3.6 comes here",
    ),
    Equivalent(
        "waiting.py",
        "engine.close()  # where the callback has raised, too",
        "pass  # where the callback has raised, too",
        "the iterator closes it when it is freed",
    ),
    Equivalent(
        "_spawn_actions.py",
        "group: int, session: bool, restore_signals: bool, closes: bool = False",
        "group: int, session: bool, restore_signals: bool, closes: bool = True",
        "Linux has no such flag",
    ),
    Equivalent(
        "_loops.py",
        "return wake",
        "return None",
        "only the sets of Windows call it",
    ),
    Equivalent(
        "watching.py",
        "there = self._sets.get(None)",
        "there = self._sets.get(0)",
        "it makes another one, and closes that",
    ),
    Equivalent(
        "_spawn_actions.py",
        "passed = [fd for fd in pass_fds if fd > 2 or stdio[fd] == INHERIT]",
        "passed = [fd for fd in pass_fds if fd >= 2 or stdio[fd] == INHERIT]",
        "the stream in its place is duplicated onto itself",
    ),
    Equivalent(
        "subprocess.py",
        'is_as_good = _vforks and names._fork_exec and _names.get("_USE_VFORK", True)',
        'is_as_good = _vforks and names._fork_exec and _names.get("_USE_VFORK", False)',
        "only Python 3.14 has none",
    ),
    Equivalent(
        "subprocess.py",
        "if group > 2**31 - 1:",
        "if group > 1**31 - 1:",
        "it is called only before Python 3.11",
    ),
    Equivalent(
        "_backends/listening_set.py",
        "one.close()",
        "pass",
        "their timers are closed when they are freed",
    ),
    Equivalent(
        "_highfds.py",
        "self._limits = (0, 0)",
        "self._limits = (1, 0)",
        "they are read before they are used",
    ),
    Equivalent(
        "_waitset.py",
        "elif self._is_shown or sets.is_alarmed:",
        "elif True:",
        "it only saves calls",
    ),
    Equivalent(
        "_backends/pidfd.py",
        "handle.close()",
        "pass",
        "it is closed when it is freed",
    ),
    Equivalent(
        "_ffi/_ctypes.py",
        "if converts:  # which takes as long as the rest of a call",
        "if True:  # which takes as long as the rest of a call",
        "it only takes longer",
    ),
    Equivalent(
        "_vendoring/folder.py",
        "if written or gone or not before or old.text() != new.text():",
        "if written or gone and not before or old.text() != new.text():",
        "the record names what is gone",
    ),
    Equivalent(
        "_hooks.py",
        'marked, beneath = getattr(function, "_in_place_of", (None, None))',
        'marked, beneath = getattr(function, "_in_place_of", (0, None))',
        "either is no function",
    ),
    Equivalent(
        "spawning.py",
        "_prepared.append(True)",
        "_prepared.append(False)",
        "it only matters whether there is one",
    ),
    Equivalent(
        "cli/_waited.py",
        "os.kill(pid, 0)",
        "os.kill(pid, (-1))",
        "the kernel looks for the process before it refuses the signal",
    ),
    Equivalent(
        "_child_watcher.py",
        "code = from_info(infos[0]) if infos and infos[0] else self._reap(handle)",
        "code = from_info(infos[0]) if infos and infos[(-1)] else self._reap(handle)",
        "there is one",
    ),
    Equivalent(
        "_popen_start.py",
        'args = ["/system/bin/sh" if android else "/bin/sh", "-c"] + args',
        'args = ["/system/bin/sh" if False else "/bin/sh", "-c"] + args',
        "only Android notices",
    ),
    Equivalent(
        "_backends/__init__.py",
        "best = chosen[0] if chosen else backend()",
        "best = chosen[0] if False else backend()",
        "backend() looks there, too",
    ),
    Equivalent(
        "_spawn_actions.py",
        "build_attributes(-1, False, False, True)",
        "build_attributes(-2, False, False, True)",
        "it is called on macOS only",
    ),
    Equivalent(
        "_backends/inotify.py",
        "_SIZE = 4096 * _EVENT.size  # of files only, events have all the same size",
        "_SIZE = 4095 * _EVENT.size  # of files only, events have all the same size",
        "it only takes more calls",
    ),
    Equivalent(
        "_backends/connector.py",
        "return self._status is None and monotonic() < self._until",
        "return self._status is None and monotonic() <= self._until",
        "no two readings of the clock are the same",
    ),
    Equivalent(
        "_backends/listening_set.py",
        "self._by_key.clear()",
        "pass",
        "nothing is heard any more, or all are entered anew",
    ),
    Equivalent(
        "subprocess.py",
        "if type(self) is Popen:",
        "if False:",
        "super() finds the same method",
    ),
    Equivalent(
        "subprocess.py",
        "if not is_as_good and _would_fork():",
        "if True:",
        "that is asked in there, too",
    ),
    Equivalent(
        "spawning.py",
        "_prepared.append(True)",
        "pass",
        "it prepares again",
    ),
    Equivalent(
        "_waitset.py",
        "if when is not None or engine.sets.is_alarmed:",
        "if True:",
        "it only saves a call",
    ),
    Equivalent(
        "spawning.py",
        'passed = sorted({_fd("pass_fds", fd) for fd in pass_fds}) if pass_fds else ()',
        'passed = sorted({_fd("pass_fds", fd) for fd in pass_fds}) if True else ()',
        "an empty list is as good",
    ),
    Equivalent(
        "cli/_select.py",
        "ours = _family() if found else {}",
        "ours = _family() if True else {}",
        "it only saves time",
    ),
    Equivalent(
        "_backends/connector.py",
        "self._useless = 0",
        "self._useless = (-1)",
        "it is 0 again when the filter is taken away",
    ),
    Equivalent(
        "cli/_job.py",
        "self._reader = -1",
        "self._reader = -0",
        "it is set before it is read",
    ),
    Equivalent(
        "_highfds.py",
        _LOW % 1024,
        _LOW % 1025,
        "one number more is left",
    ),
    Equivalent(
        "_waitset.py",
        "self._waiting[me] = None  # before the check whether it is closed: see close()",
        "self._waiting[me] = 0  # before the check whether it is closed: see close()",
        "only its key matters",
    ),
    Equivalent(
        "process.py",
        "deadline = FOREVER if timeout is None else Deadline(timeout)",
        "deadline = FOREVER if False else Deadline(timeout)",
        "Deadline(None) is no time-out either",
    ),
    Equivalent(
        "cli/_readers.py",
        "for fd, _ in poll.poll(0):",
        "for fd, _ in poll.poll(1):",
        "a thousandth of a second later",
    ),
    Equivalent(
        "cli/_signals.py",
        "if 128 < found < 256:",
        "if 128 < found <= 256:",
        "neither 256 nor 128 is a signal",
    ),
]
