# SPDX-License-Identifier: BSD-3-Clause
"""What ends a command with all that it starts: the means of a Popen that stands for a tree.

"reaper": a keeper stands between the two, see _keeper.py. "group": where there can be none, the
command leads a process group of its own, and the tree is that group and its descendants, as far as
parents tell. Each has the same methods in the same order. ``rest`` is what happens to the others
when the command has exited: "kill", "wait" or "leave".

``awaited`` is the pid of a process whose exit makes poll() worth a call. poll() never blocks; it
tells the command's exit code when nothing is left, and has set ``left`` by then.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys
from errno import EIO, ENOSYS

from ._base.deadline import LONGEST_SLEEP
from ._base.errors import PASSING, Failed, TimeoutExpired, log, raise_of_handler
from ._base.probe import TREE, TREES, choice, why_not
from ._listing import source
from ._process import Process, has_exited, wait
from ._sets import WaitSet
from ._systems.posix import code_of_status, is_our_child
from ._systems.procfs import check_reaper
from ._watching import watch

if os.name == "nt":
    from ._systems.windows_job import JobTree
else:
    from ._systems.posix_spawn import SpawnRequest, error_of_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable

# Linux's; PyPy's modules lack the names.
_F_DUPFD_CLOEXEC = 1030
_LOOK, _WAIT_ALL, _NO_SIGNAL = 0x42, 0x100, 0x4000  # MSG_PEEK | MSG_DONTWAIT, _WAITALL, _NOSIGNAL

_warned: "list[str]" = []


def open_tree(rest: str, grace: float) -> "Any":
    """By the best means that works; OSError if the environment asks for one that does not."""
    asked = choice(TREE, *TREES)
    if os.name == "nt":
        if asked in ("auto", "job"):
            return JobTree(rest, grace, watch)
        raise OSError(ENOSYS, "%s is %s: not on this system" % (TREE, asked))
    why = why_not(check_reaper)
    if asked in ("auto", "reaper") and (why is None or why.errno in PASSING):
        return ReaperTree(rest, grace)
    if asked in ("reaper", "job"):
        text = "not on this system" if why is None else why.error.strerror
        raise OSError(ENOSYS, "%s is %s: %s" % (TREE, asked, text))
    if why is not None and str(why) not in _warned:
        _warned.append(str(why))
        log("a tree is a process group, daemons escape from it: %s", why, level="warning")
    return GroupTree(rest, grace)


class ReaperTree:
    mechanism = "reaper"

    def __init__(self, rest: str, grace: float) -> None:
        self._rest, self._grace = rest, grace
        self.left: "list[int] | None" = []
        self._code: "int | None" = None
        self.keeper: "Any" = None

    def start(self, plan: "dict[str, Any]", start_alone: "Callable[[Any], Any]") -> None:
        """``plan`` has the arguments of Popen._execute_child(); ``start_alone`` starts by one.

        What is for the command goes to the keeper; it gets the file descriptors for both.
        """
        import _socket
        import marshal
        from fcntl import fcntl

        files = (-1, -1, -1), True, ()
        args, executable, env, cwd = (plan[name] for name in "args executable env cwd".split())
        request = SpawnRequest(args, executable, env, cwd, files, (-1, False, True))
        program, paths = request.executable, [request.executable]
        if b"/" not in program:
            folders = os.get_exec_path(request.environment.mapping)
            paths = [os.path.join(os.fsencode(folder), program) for folder in folders]
        own: "dict[str, Any]" = {"umask": -1, "process_group": -1, "gid": None, "gids": None}
        own.update(uid=None, restore_signals=False, start_new_session=False)
        values = {name: plan.get(name) for name in ("gid", "gids", "uid", "restore_signals")}
        for name, number in ("umask", plan.get("umask", -1)), ("group", plan["process_group"]):
            values[name] = None if number < 0 else number
        values.update(rest=self._rest, grace=self._grace, caller=os.getpid(), cwd=request.cwd)
        values.update(argv=request.argv, paths=paths, env=request.environment.items)
        values["session"] = 1 if plan["start_new_session"] else None
        text = marshal.dumps(values)
        self._control, theirs = _socket.socketpair()
        fd = -1
        try:
            try:
                fd = fcntl(theirs.fileno(), _F_DUPFD_CLOEXEC, 3)
                theirs.close()
                passed = (*plan["pass_fds"], fd) if plan["close_fds"] else ()
                os.set_inheritable(fd, not passed)
                words = [sys.executable, "-I", "-S", *_keeper(), str(fd)]
                own.update(args=words, executable=words[0], env=None, cwd=None, pass_fds=passed)
                self.keeper = start_alone(dict(plan, **own))
            except OSError as error:
                raise_of_handler(error)
                if error.filename is None:
                    raise
                raise OSError(error.errno, "the keeper of a tree: %s" % error) from error
            finally:
                theirs.close()
                if fd != -1:
                    os.close(fd)
            self._control.sendall(b"%-16d" % len(text) + text, _NO_SIGNAL)
            answer = self._control.recv(16, _WAIT_ALL).split()
            if not answer:
                raise OSError(EIO, "the keeper of a tree has ended")
            if answer[0][:1] == b"E":
                names = {b"c": cwd, b"x": executable}
                raise error_of_start(int(answer[0][1:]), names.get(answer[1]))
            self.pid, self.awaited = int(answer[0][1:]), int(answer[1])
        except BaseException:
            self.close()
            raise

    def poll(self) -> "int | None":
        if self._code is not None:
            return self._code
        killed = self.keeper.poll()  # first: it may have told its end before
        try:
            # It is not taken: of several threads each has to find it.
            told = self._control.recv(65536, _LOOK)
        except OSError as why:  # nothing is there, or another thread has closed it
            raise_of_handler(why)
            told = b""
        if told[:1] == b"D":
            status, *left = map(int, told[1:].split())
            self._order(0, "done")
            self._sleep(self.keeper, 1.0)
            self.left, self._code = left, code_of_status(status)
            self._control.close()
        elif killed is not None and self._code is None:
            self.left, self._code = None, killed
            self._control.close()
        return self._code

    def sleep(self, timeout: "float | None") -> None:
        """Until poll() may tell more, or the time is up."""
        self._sleep(self.awaited, timeout)
        if self.poll() is None:  # somebody has ended what is awaited
            self._sleep(self.keeper, 0.01 if timeout is None else min(timeout, 0.01))

    @staticmethod
    def _sleep(proc: "Any", timeout: "float | None") -> None:
        try:
            wait(proc, timeout)
        except TimeoutExpired as error:
            raise_of_handler(error)

    def has_exited(self) -> bool:
        """Whether the command has: a time-out is for that."""
        return self.poll() is not None or has_exited(self.pid)

    def send(self, number: int, everybody: bool) -> None:
        """Send a signal to the command alone, or to all; it starts no clock."""
        if everybody and number == _signal.SIGKILL:
            self.end(number, 0.0)
        else:
            self._order(number, "all" if everybody else "command")

    def end(self, number: int, grace: float) -> None:
        """Send a signal to all, and SIGKILL after so many seconds; it returns at once."""
        self._order(number, repr(float(grace)))

    def _order(self, number: int, what: str) -> None:
        if self._code is None:
            try:
                self._control.send(b"%d %s\n" % (number, what.encode()), _NO_SIGNAL)
            except OSError as why:
                raise_of_handler(why)
                log("the keeper %d: %s", self.keeper.pid, why)  # it has ended

    def close(self) -> None:
        """End and reap what a start that has failed has left."""
        if self.keeper is not None:
            self.end(_signal.SIGKILL, 0.0)
            self._control.close()
            self.keeper.wait()
        self._control.close()


def _keeper() -> "list[str]":
    """The interpreter's arguments for the keeper: its path, or in an archive its source."""
    path = os.path.join(os.path.dirname(__spec__.origin or ""), "_keeper.py")
    if os.path.isfile(path):
        return [path]
    return ["-c", __spec__.loader.get_data(path).decode()]  # type: ignore[union-attr]


class GroupTree:
    mechanism = "group"

    def __init__(self, rest: str, grace: float) -> None:
        from threading import Event, RLock

        self._rest, self._grace = rest, grace
        self.left: "list[int] | None" = []
        self._found: "dict[int, Process]" = {}
        self._refusing: "set[int]" = set()  # root's
        self._sees = True  # whether processes can be listed
        self._looking, self._ended, self._ends = RLock(), Event(), False

    def start(self, plan: "dict[str, Any]", start_alone: "Callable[[Any], Any]") -> None:
        if plan.get("process_group", -1) < 0 and not plan["start_new_session"]:
            plan = dict(plan, process_group=0)
        self._leads = plan["start_new_session"] or plan["process_group"] == 0
        self._command = start_alone(plan)
        self.pid = self.awaited = self._command.pid
        try:
            self._found[self.pid] = Process(self.pid)
        except ProcessLookupError as why:  # SIGCHLD is ignored
            log("pid %d: %s", self.pid, why)
        watch(self.pid, lambda pid, code: _in_thread(self._finish))

    def poll(self) -> "int | None":
        return self._command.poll() if self._ended.is_set() else None  # now it is reaped

    def sleep(self, timeout: "float | None") -> None:
        self._ended.wait(timeout if timeout is None else min(timeout, LONGEST_SLEEP))

    def has_exited(self) -> bool:
        return self.poll() is not None or has_exited(self.pid)

    def send(self, number: int, everybody: bool) -> None:
        if everybody and number == _signal.SIGKILL:
            self.end(number, 0.0)
        elif everybody:
            self._signal(number)
            self._signal(_signal.SIGCONT)
        else:
            with self._looking:
                if self.pid in self._found and not self._ended.is_set():
                    _attempt(self._found[self.pid].send_signal, number)

    def end(self, number: int, grace: float) -> None:
        self._ends = True
        if number and grace:
            self.send(number, True)
        if grace:
            _in_thread(self._enforce, grace)
        else:
            self._signal(_signal.SIGKILL)

    def _enforce(self, grace: float) -> None:
        if not self._ended.wait(min(grace, LONGEST_SLEEP)):
            self._signal(_signal.SIGKILL)

    def _finish(self) -> None:
        """The command has exited. It is reaped last: its number stays that of its group."""
        if self._rest == "kill" and not self._ends:
            self.end(_signal.SIGTERM, self._grace)
        is_sure = False
        while self._rest != "leave" or self._ends:
            self._look()
            living = [pid for pid in self._living() if pid not in self._refusing]
            if living:
                with WaitSet([self._found[pid] for pid in living]) as several:
                    several.wait()
            elif self._ends and not is_sure:
                # A listing takes a while: this is for whom it has missed, and the next one shows
                # who of those is still dying.
                self._signal(_signal.SIGKILL)
            else:
                break
            is_sure = not living
        with self._looking:
            self.left = sorted(self._refusing)
            self._ended.set()
            for handle in self._found.values():
                handle.close()

    def _signal(self, number: int) -> None:
        """To whoever is there. Before SIGKILL all are stopped, so that they beget nobody more."""
        kills = number == _signal.SIGKILL
        for one in (_signal.SIGSTOP, number) if kills else (number,):
            told: "set[int]" = set()
            with self._looking:
                while not self._ended.is_set():
                    self._look()
                    new = [pid for pid in self._living() if pid not in told]  # parents first
                    if self._leads_group() and (kills or not self._sees):
                        _attempt(os.killpg, self.pid, one)  # also a process that is being forked
                    for pid in new if kills or self._sees else ():
                        if not _attempt(self._found[pid].send_signal, one):
                            self._refusing.add(pid)
                    told.update(new)
                    if not (new and kills):
                        break

    def _leads_group(self) -> bool:
        """Whether the command's number is its group's, and has not been reaped by somebody else."""
        return self._leads and is_our_child(self.pid) is not False

    def _living(self) -> "list[int]":
        with self._looking:
            return [pid for pid, handle in self._found.items() if not handle.has_exited()]

    def _look(self) -> None:
        """Open whoever belongs to the tree, if it still does so once it is open."""
        with self._looking:
            while True:
                opened = {}
                for pid in self._members():
                    try:
                        opened[pid] = Process(pid)
                    except ProcessLookupError as why:
                        log("pid %d: %s", pid, why)
                if not opened:
                    return
                there = self._members()
                for pid, handle in opened.items():
                    if pid in there and not handle.has_exited():
                        if pid in self._found:  # one that has exited had the same pid
                            self._found[pid].close()
                        self._found[pid] = handle
                    else:
                        handle.close()

    def _members(self) -> "list[int]":
        """The processes in the group, and the children of members that live, but for known ones."""
        living = self._living()
        leads, members = self._leads_group(), []
        try:
            each: "Any" = source.read_all()
            for facts in each:
                try:
                    is_new = facts.pid not in living and facts.status() not in ("zombie", "dead")
                    if is_new and (facts.ppid() in living or (leads and facts.group() == self.pid)):
                        members.append(facts.pid)
                except Failed as why:
                    log("pid %d: %s", facts.pid, why)
        except OSError as why:
            log("the group alone is ended: %s", why)
            self._sees = False
        return members


def _in_thread(function: "Callable[..., None]", *args: "Any") -> None:
    import threading

    threading.Thread(target=function, args=args, daemon=True).start()


def _attempt(function: "Callable[..., None]", *args: int) -> bool:
    """False if it is refused. On macOS a group of zombies refuses each signal."""
    try:
        function(*args)
    except ProcessLookupError as why:
        log("signal %d: %s", args[-1], why)
    except PermissionError as why:
        log("signal %d: %s", args[-1], why)
        return False
    return True
