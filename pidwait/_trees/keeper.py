# SPDX-License-Identifier: BSD-3-Clause
"""The keeper: a program that stands between a caller and a command, and ends the command's tree.

The keeper is a child subreaper: orphans below it become its children. So all that the command
starts stays below it, in whatever session or group. The command is reaped last. From its socket the
keeper reads a plan, see reaper.py, then orders. It answers when the command has started and when
nothing is left, and with what all have used. Then it exits as the command did.
"""

import _signal  # type: ignore[import-not-found]
import marshal
import posix
import select
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_PDEATHSIG, _DUMPABLE, _SUBREAPER = 1, 4, 36  # of prctl(2)
# System call numbers: before Python 3.9 posix lacks the functions. Only Alpha has other numbers.
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
_EXITED = 0x01000005  # WEXITED, WNOHANG and WNOWAIT of waitid(2)
_KILL, _TERM, _STOP, _CONT = _signal.SIGKILL, _signal.SIGTERM, _signal.SIGSTOP, _signal.SIGCONT

if sys.implementation.name == "pypy":
    import ctypes
else:
    import _ctypes  # without ctypes, which takes 3 ms more


def in_c(name: str, *numbers: "Any") -> int:
    if "ctypes" in globals():
        return getattr(ctypes.CDLL(None), name)(*numbers)  # type: ignore[no-any-return]
    address: int = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]
    return _ctypes.call_function(address, numbers)  # type: ignore[no-any-return]


def attempt(function: "Callable[..., Any]", *args: "Any") -> "Any":
    """``function(*args)``; False if the system refuses."""
    try:
        return function(*args)
    except OSError:
        return False


def contents(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def children_of(pid: int) -> "list[int]":
    path = "/proc/%d/task" % pid
    tasks = attempt(posix.listdir, path) or ()
    return [int(one) for task in tasks for one in contents(path + "/%s/children" % task).split()]


def is_readable(fd: int, milliseconds: int = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def exit_of(pid: int) -> "int | None":
    """The wait status of a child; None if it has not exited. The child is not reaped."""
    if hasattr(posix, "waitid"):
        info = posix.waitid(posix.P_PID, pid, _EXITED)
        code, status = (info.si_code, info.si_status) if info else (0, 0)
    else:  # PyPy
        memory: "Any" = ctypes.create_string_buffer(128)
        in_c("waitid", 1, pid, memory, _EXITED)
        numbers = memoryview(memory).cast("B").cast("i")
        code, status = numbers[2], numbers[6 if sys.maxsize > 2**32 else 5]
    exited = (status & 0xFF) << 8 if code == 1 else status  # CLD_EXITED, or a signal
    return exited if code else None


def send_signal(pid: int, fd: int, number: int) -> None:
    if fd < 0:  # there is no pidfd
        attempt(posix.kill, pid, number)
    else:
        in_c("syscall", _PIDFD_SEND_SIGNAL, fd, number, 0, 0)


def answer(control: int, text: str) -> None:
    """Write an answer, padded, as another one may follow. An error ends the keeper."""
    attempt(posix.write, control, b"%-16s" % text.encode())
    if text[0] == "E":
        posix._exit(0)


class Keeper:
    def __init__(self, control: int, plan: "dict[str, Any]") -> None:
        self.control, self.plan = control, plan
        self.me, self.caller, self.grace = posix.getpid(), plan["caller"], plan["grace"]
        self.status: "int | None" = None  # the command's, once it has exited
        self.deadline: "float | None" = None  # the time of SIGKILL; None: the tree is not ending
        self.refused: "float | None" = None  # the time since which no child can be killed
        self.left: "list[int]" = []
        self.first = _TERM  # what an end without an order sends; 0 once somebody has sent it
        self.stopped: "set[int]" = set()  # pids
        self.poll = select.poll()
        self.came: "list[int]" = []  # signals to pass on
        self.owed: "dict[int, int]" = {}  # {pid: the signal to send once it is our child}
        self.watch = in_c("syscall", _PIDFD_OPEN, self.caller, 0)  # -1 if the system refuses
        if posix.getppid() != self.caller:
            posix._exit(0)
        if in_c("prctl", _SUBREAPER, 1, 0, 0, 0):
            answer(control, "E38 -")  # ENOSYS
        self.reader, self.writer = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        _signal.set_wakeup_fd(self.writer)
        self.catch_signals()
        self.start()

    def catch_signals(self) -> None:
        """Have signals passed on; they are blocked until the command has been forked."""
        names = "HUP INT QUIT TERM USR1 USR2 ALRM CONT PWR CHLD".split()
        self.numbers = {getattr(_signal, "SIG" + name) for name in names}
        # Signals to the command stay pending until it runs its program.
        self.mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, self.numbers) - self.plan["blocked"]
        # PyPy's getsignal() does not know. If no file descriptor is left, the next pipe2() fails.
        text = contents("/proc/self/status") + b"SigIgn: 0"
        ignored = int(text.split(b"SigIgn:")[1].split()[0], 16)
        self.handled = [one for one in self.numbers if not ignored >> (one - 1) & 1]
        for number in self.handled:  # those that the command ignores are not passed on
            _signal.signal(number, lambda number, frame: self.came.append(number))
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)

    def start(self) -> None:
        """Start the command, and answer."""
        (failure, failed), (gate, opener) = [posix.pipe2(posix.O_CLOEXEC) for _ in range(2)]
        self.command = posix.fork()
        if not self.command:
            posix.close(opener)
            posix.read(gate, 1)  # returns when the keeper has left the group, or has died
            self.become_command(failed)
        # Signals to the caller's group spare the keeper from now on. Whether the command's group is
        # orphaned, which decides on Ctrl-Z, depends on parents in other groups of the session.
        attempt(posix.setsid) if self.plan["stays"] else attempt(posix.setpgid, 0, 0)
        posix.close(opener)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, self.numbers)
        posix.close(failed)
        why = posix.read(failure, 16)
        self.close_files()
        if why:
            posix.waitpid(self.command, 0)
        answer(self.control, why.decode() or "P%d" % self.command)

    def close_files(self) -> None:
        """Close the command's file descriptors: readers of its pipes wait for their end."""
        for fd in map(int, posix.listdir("/proc/self/fd")):
            if fd < 3:
                posix.dup2(self.plan["null"], fd)
            elif fd not in (self.control, self.watch, self.reader, self.writer):
                attempt(posix.close, fd)

    def become_command(self, failed: int) -> None:
        """The steps of CPython's _posixsubprocess, in its order."""
        plan, number, step = self.plan, 0, "-"
        steps: "Any" = (
            ("-", lambda number: posix.dup2(number, 2), plan["errors"]),
            ("c", posix.chdir, plan["cwd"]),
            ("-", posix.umask, plan["umask"]),
            ("-", lambda number: posix.setsid(), plan["session"] or None),
            ("-", lambda number: posix.setpgid(0, number), plan["process_group"]),
            ("-", posix.setgroups, plan["gids"]),
            ("-", lambda number: posix.setregid(number, number), plan["gid"]),
            ("-", lambda number: posix.setreuid(number, number), plan["uid"]),
        )
        try:
            for one in {*self.handled, _signal.SIGPIPE, _signal.SIGXFSZ} - {*plan["ignored"]}:
                _signal.signal(one, _signal.SIG_DFL)
            if _signal.SIGCHLD not in self.handled:
                _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
            for step, function, value in steps:  # noqa: B007 - an error names the step
                if value not in (None, -1):
                    function(value)
            # If somebody kills the keeper, nobody can end the tree, but at least the command ends.
            in_c("prctl", _PDEATHSIG, _KILL, 0, 0, 0)
            if posix.getppid() != self.me:
                posix._exit(255)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)
            step = "x"
            env = dict(item.split(b"=", 1) for item in plan["env"] if item.find(b"=") > 0)
            for path in plan["paths"]:
                try:
                    posix.execve(path, plan["argv"], env)
                except OSError as error:
                    if number in (0, 2, 20):  # the first error other than "not found" counts
                        number = error.errno or 0
        except OSError as error:
            number = error.errno or 0
        finally:
            posix.write(failed, b"E%d %s" % (number or 5, step.encode()))
            posix._exit(255)

    def send(self, number: int) -> bool:
        """Send it to all descendants; return whether it has reached any."""
        found = self.descendants(number)
        # Children are killed first: the kernel wakes stopped processes of an orphaned group.
        for pid, fd in reversed(found) if number == _KILL else found:
            if fd is None:  # if its parent ends, it becomes our child
                self.owed.setdefault(pid, number)
            else:
                send_signal(pid, fd, number)
                attempt(posix.close, fd)
        return any(fd is not None for _, fd in found)

    def descendants(self, sig: int) -> "list[tuple[int, int | None]]":
        """Pids, with -1 for our children, and a pidfd for others, whom somebody else may reap.

        If the parent still runs, and lists the pid after its pidfd was opened, the pidfd is its
        child's. None: that is not sure, or pidfds are refused; wait until it is our child.
        Descendants of another keeper are left to it: it passes signals on, but not SIGSTOP and
        SIGKILL. SIGSTOP is sent at once, so that nobody listed has more children, and only once.
        """
        found: "list[tuple[int, int | None]]" = [(self.me, -1)]
        for parent, fd in found:  # it grows
            is_ours = parent == self.me
            passes_on = not is_ours and sig not in (_STOP, _KILL)
            if passes_on and self.plan["mark"] in contents("/proc/%d/cmdline" % parent):
                continue
            pids = [pid for pid in children_of(parent) if sig != _STOP or pid not in self.stopped]
            fds: "Any" = [-1 if is_ours else in_c("syscall", _PIDFD_OPEN, pid, 0) for pid in pids]
            is_sure = fd is not None and not (fd >= 0 and is_readable(fd))
            there = pids if is_ours or not pids else children_of(parent)
            for pid, own in zip(pids, fds):
                if not is_sure or pid not in there or (own < 0 and not is_ours):
                    attempt(posix.close, own)
                    own = None
                elif sig == _STOP:
                    send_signal(pid, own, sig)
                    self.stopped.add(pid)
                found.append((pid, own))
        return found[1:]

    def end(self, number: int, grace: float) -> None:
        """Send the signal to all; SIGKILL follows after ``grace``, or at an earlier deadline."""
        self.deadline = min(monotonic() + grace, self.deadline or float("inf"))
        if number and grace:
            self.send(number)
            self.send(_CONT)

    def obey(self, order: bytes) -> None:
        """Obey an order: a signal's number, then "command", "all", or the grace of an end."""
        number, word = int(order.split()[0]), order.split()[1]
        if word == b"command":
            attempt(posix.kill, self.command, number)
        elif word == b"all":
            self.send(number)
            self.send(_CONT)
        else:
            self.end(number, float(word))

    def keep(self) -> None:
        """Keep the tree until nothing is left."""
        for fd in {self.control, self.watch, self.reader} - {-1}:
            self.poll.register(fd, select.POLLIN)
        pause, living = 0.001, [self.command]
        while living:
            living, has_reaped = self.reap()
            seconds = 1.0 if self.watch < 0 and self.caller else 86400.0
            if self.deadline is not None:
                seconds = min(seconds, max(0.0, self.deadline - monotonic()))
                if living and not seconds:
                    living = self.kill(living)
                    seconds, pause = pause, min(pause * 2, 0.02)
            if has_reaped:  # look again at once; but also for orders
                seconds, pause = 0.0, 0.001
            if living:
                self.listen(seconds)
        status = _KILL if self.status is None else self.status
        answer(self.control, "D%d%s" % (status, "".join(" %d" % pid for pid in self.left)))
        self.poll.unregister(self.reader)
        while self.control >= 0 and self.caller == posix.getppid() and not self.poll.poll(1000):
            continue
        attempt(posix.waitpid, self.command, posix.WNOHANG)  # not every init reaps
        memory: "Any" = ctypes.create_string_buffer(144) if "ctypes" in globals() else bytes(144)
        in_c("getrusage", -1, memory)  # of children: both times in seconds, microseconds; KiB
        answer(self.control, "U%d.%06d %d.%06d %d" % (*memoryview(memory).cast("B").cast("l")[:5],))
        if status & 127:
            in_c("prctl", _DUMPABLE, 0, 0, 0, 0)  # one core dump is enough
            attempt(_signal.signal, status & 127, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [status & 127])
            posix.kill(self.me, status & 127)
        posix._exit(status >> 8)

    def reap(self) -> "tuple[list[int], bool]":
        """Reap; return the living children, none at the end, and whether any was reaped."""
        if self.status is None:
            self.status = exit_of(self.command)
            if self.status is not None and self.plan["rest"] == "kill" and self.deadline is None:
                self.end(self.first, self.grace)
        # When a child exits, its children become ours, and it stays in this list until it is
        # reaped. So in a list read after the last exit, nobody is missing.
        there = children_of(self.me)
        others = [pid for pid in there if pid != self.command]
        gone = {(attempt(posix.waitpid, pid, posix.WNOHANG) or (0,))[0] for pid in others} - {0}
        if gone:
            return [self.command, *set(others) - gone], True
        for pid in set(others) & set(self.owed):
            attempt(posix.kill, pid, self.owed.pop(pid))
            attempt(posix.kill, pid, _CONT)
        if self.status is None or self.command not in there:
            return [*others, self.command], False
        if self.plan["rest"] == "leave" and self.deadline is None:
            # What has ended the command may end the caller, too, a moment later.
            if self.watch >= 0 and self.status & 127:
                is_readable(self.watch, 100)
            self.listen(0.0)
            others = [] if self.deadline is None else others
        return others, False

    def kill(self, living: "list[int]") -> "list[int]":
        """Kill these children, and all descendants; return those to wait for."""
        # What multiplies is stopped first. Nothing is reaped before, as that makes room for more.
        end, before = monotonic() + 2, len(self.stopped)
        while self.send(_STOP) and monotonic() < end:
            continue
        if len(self.stopped) > before:
            self.send(_KILL)
        if False in {attempt(posix.kill, pid, _KILL) is False for pid in living}:
            self.refused = None
            return living
        # The children are root's; but their descendants may not be.
        self.refused = self.refused or monotonic()
        self.send(_KILL)
        self.left = living if monotonic() - self.refused > 1 else []
        return [] if self.left else living

    def listen(self, seconds: float) -> None:
        """Sleep until a child exits, an order or a signal comes, or the caller exits."""
        events = dict(self.poll.poll(int(seconds * 1000 + 0.999)))
        attempt(posix.read, self.reader, 4096)
        while self.came:
            number = self.came.pop(0)
            if number == _signal.SIGPWR:  # from a caller that has lost its socket
                self.end(0, 0.0)
            elif number != _TERM or self.caller:  # else it has been sent
                self.send(number)
                self.first = 0 if number == _TERM else self.first
        if self.caller and (self.watch in events or posix.getppid() != self.caller):
            self.caller = 0
            self.end(self.first if self.deadline is None else 0, self.grace)
            if self.watch >= 0:
                self.poll.unregister(self.watch)
        if self.control in events:
            orders = attempt(posix.read, self.control, 65536)
            if not orders:  # the Popen has been freed, which ends nothing; or the caller has exited
                self.poll.unregister(self.control)
                self.control = -1
            for order in (orders or b"").splitlines():
                self.obey(order)


def keep_tree(control: int) -> None:
    null = 0
    while null < 3:  # else a pipe of ours would get 0, 1 or 2, which the command may lack
        null = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    posix.set_inheritable(control, False)
    plan = dict(marshal.loads(globals()["read"](control)), null=null)  # see reaper.py
    attempt(posix.set_inheritable, plan["errors"], False)
    if plan["env"] is None:  # our initial one: Python adds LC_CTYPE in the C locale
        env = b"\0".join(map(b"=".join, posix.environ.items()))  # if setuid(2) hides the file
        plan["env"] = (contents("/proc/self/environ") or env).split(b"\0")
    # The first line of our program, which is the last argument but one: that of all keepers.
    plan["mark"] = b"\0" + contents("/proc/self/cmdline").split(b"\0")[-3].partition(b"\n")[0]
    try:
        keeper = Keeper(control, plan)
    except OSError as error:  # no process or file descriptor is left; the command ends with us
        answer(control, "E%d k" % (error.errno or 5))
    keeper.keep()


if __name__ == "__main__":
    keep_tree(int(sys.argv[-1]))
