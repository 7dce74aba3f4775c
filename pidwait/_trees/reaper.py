# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a keeper starts the command, and ends all its descendants. See keeper.py."""

import _signal  # type: ignore[import-not-found]
import marshal
import os
import select
import sys
from contextlib import suppress
from errno import EIO
from importlib.util import find_spec
from subprocess import DEVNULL
from time import sleep

from .._base.deadline import Deadline
from .._base.errors import PASSING, Failed, call, log, not_by_handler
from .._base.handle import Shared, Usage
from .._process import has_exited
from .._starting.posix_spawn import SpawnRequest, error_of_start
from .._systems.posix import code_of_status, poll
from .._watching import load_libgcc
from . import interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

# Linux's; PyPy's modules lack the names.
_F_DUPFD_CLOEXEC = 1030
_LOOK, _WAIT_ALL, _NO_SIGNAL = 0x42, 0x100, 0x4000  # MSG_PEEK | MSG_DONTWAIT, _WAITALL, _NOSIGNAL
# Read once: the files may be replaced or removed while this program runs, or its root changed.
_spec: "Any" = find_spec(__name__.rpartition(".")[0] + ".keeper")
_get_code = getattr(getattr(_spec, "loader", None), "get_code", None)
_CODE = b"" if _get_code is None else marshal.dumps(_get_code(_spec.name))  # compiled programs
# What the keeper's interpreter runs. By the first line keepers know each other, in all copies.
_PROGRAM = """# keeper of a process tree
import marshal, posix, sys
sys.flags.isolated or sys.path.pop(0)
def read(control):
    try:
        size, text = posix.read(control, 16).strip(), b""
        while len(text) < int(size):
            text += posix.read(control, int(size) - len(text)) or int("no more")
        return text
    except (OSError, ValueError):  # the caller has given up, or an order to end came first
        posix._exit(0)
code = read(int(sys.argv[-1]))
sys.implementation.cache_tag == {!r} or posix._exit(0)  # another Python's code
exec(marshal.loads(code))
""".format(sys.implementation.cache_tag)


def _error_of_keeper(error: OSError) -> OSError:
    return OSError(error.errno, "the keeper of a tree: %s" % error.strerror)


class ReaperTree:
    mechanism = "reaper"

    def __init__(self, rest: str, grace: float) -> None:
        self._rest, self._grace = rest, grace
        self.left: "list[int] | None" = []
        self.usage: "Usage | None" = None
        self._code: "int | None" = None
        self._keeper: "Any" = None
        self._control: "Any" = None  # a Shared socket

    def start(self, plan: "dict[str, Any]", start_alone: "Callable[[Any], Any]") -> None:
        """``plan`` has the arguments of Popen._execute_child(); ``start_alone(plan)`` calls that.

        The keeper gets the command's arguments, and the file descriptors for both.
        """
        import _socket

        load_libgcc()  # for a group's thread, if the program's root changes before its next tree
        values = self._values(plan)
        # The keeper starts in our group, which must not end it before it takes signals.
        blocked = {*range(1, 32)} - _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        control, theirs = _socket.socketpair()
        self._control, self._identity = Shared(control), os.fstat(control.fileno())[:3]
        try:
            for one in control, theirs:  # not as socket.setdefaulttimeout() says
                one.setblocking(True)
            _signal.pthread_sigmask(_signal.SIG_BLOCK, blocked)
            errors = self._start_keeper(plan, theirs, start_alone)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, blocked)
            texts = _CODE, marshal.dumps(dict(values, blocked=blocked, errors=errors))
            try:
                control.sendall(b"".join(b"%-16d" % len(one) + one for one in texts), _NO_SIGNAL)
                answer = control.recv(16, _WAIT_ALL).split()
            except not_by_handler(ConnectionError):
                answer = []
            if not answer:
                raise Failed(EIO, "the keeper's interpreter has ended: %r" % self._keeper.args[0])
            if answer[0][:1] == b"E":
                what = {b"c": plan["cwd"], b"x": plan["executable"]}.get(answer[1])
                error = error_of_start(int(answer[0][1:]), what)
                raise _error_of_keeper(error) if answer[1] == b"k" else error
            self.pid = int(answer[0][1:])
            self._keeper._child_created = False  # it does not warn: the Popen of the tree does
        except BaseException:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, blocked)
            if self._keeper is not None:
                self.end(_signal.SIGKILL, 0.0)
            self._control.close()
            if self._keeper is not None:
                self._keeper.wait()
            raise

    def _values(self, plan: "dict[str, Any]") -> "dict[str, Any]":
        """What the keeper has to know, encoded for execve(2)."""
        numbers = [plan.get(name) or 0 for name in ("uid", "gid", "umask", "process_group")]
        if max(numbers) >> 32:
            raise OverflowError("%d is too large" % max(numbers))
        if max(plan.get("gids") or [0]) >> 32:
            raise ValueError("invalid group id")
        args, executable, env, cwd = (plan[name] for name in "args executable env cwd".split())
        if env is None and interpreter()[1]:  # else it inherits it, byte for byte, by the keeper
            env = os.environ
        files = (-1, -1, -1), True, ()
        request = SpawnRequest(args, executable, env, cwd, files, (-1, False, True))
        paths = [request.executable]
        if b"/" not in request.executable:
            folders = [os.fsencode(folder) for folder in os.get_exec_path(env)]
            paths = [os.path.join(folder, request.executable) for folder in folders]
        if not request.argv[0]:
            raise ValueError("args must begin with a name, which the command of a tree gets")
        values = {name: plan.get(name) for name in "gid gids uid umask process_group".split()}
        values.update(rest=self._rest, grace=self._grace, caller=os.getpid(), cwd=request.cwd)
        values.update(argv=request.argv, paths=paths, env=request.environment)
        # The keeper's Python ignores two signals; the command only if this program ignores them.
        both = () if plan["restore_signals"] else (_signal.SIGPIPE, _signal.SIGXFSZ)
        values["ignored"] = [one for one in both if _signal.getsignal(one) == _signal.SIG_IGN]
        session = bool(plan["start_new_session"])
        stays = not session and plan["process_group"] in (None, -1, os.getpgrp() or -1)
        return dict(values, session=session, stays=stays)

    def _start_keeper(self, plan: "dict[str, Any]", theirs: "Any", start_alone: "Any") -> int:
        """The keeper gets ``theirs``, its end of the socket, which is closed here.

        Until the command starts, stderr is /dev/null, or the interpreter might print its errors.
        Return the number that the keeper has it by; -1 if nothing is done.
        """
        from fcntl import fcntl

        words, env = interpreter()
        own = dict(plan, gid=None, gids=None, uid=None, umask=-1, cwd=None, env=env)
        own.update(process_group=-1, start_new_session=False, restore_signals=False)
        fds = []
        try:
            fds.append(fcntl(theirs.fileno(), _F_DUPFD_CLOEXEC, 3))
            errors = 2 if plan["errwrite"] == -1 else plan["errwrite"]
            with suppress(Failed):  # it is closed
                # A preexec_fn may replace it. And a file of ours may have got the number 2.
                if plan["preexec_fn"] is None and (errors != 2 or call(os.get_inheritable, 2)):
                    fds.append(call(fcntl, errors, _F_DUPFD_CLOEXEC, 3))
                    own["errwrite"] = DEVNULL
            passed = (*plan["pass_fds"], *fds) if plan["close_fds"] else ()
            for fd in fds:
                os.set_inheritable(fd, not passed)
            words += ["-c", _PROGRAM, str(fds[0])]
            own.update(args=words, executable=words[0], pass_fds=passed)
            self._keeper = start_alone(own)
            return [-1, *fds[1:]][-1]
        except not_by_handler(OSError) as error:
            if error.errno in PASSING:
                raise _error_of_keeper(error) from error
            if error.filename is None:
                raise
            raise Failed(error.errno or 0, "the keeper's interpreter: %s" % error) from error
        finally:
            theirs.close()
            for fd in fds:
                os.close(fd)

    def poll(self) -> "int | None":
        if self._code is not None:
            self._control.close()  # an exception may have come before
            return self._code
        is_copy = self._control.is_copy()  # in a forked child: the keeper is not its child
        killed = None if is_copy else self._keeper.poll()  # first: the keeper reports, then exits
        is_there, told = self._look()
        if is_copy and told == b"" and (is_there or has_exited(self._keeper.pid)):
            killed = -_signal.SIGKILL
        if told:
            if not is_copy:
                self._order(0, "done")
                has_exited(self._keeper, 10.0)  # it exits at once, unless the machine is busy
            told = self._look()[1] or told  # now it has also told the usage
            answer, _, used = told.partition(b"U")
            status, *left = map(int, answer[1:].split())
            if used:
                user, system, kilobytes = map(float, used.split())
                self.usage = Usage(user, system, int(kilobytes) * 1024)
            self.left, self._code = left, code_of_status(status)
            self._control.close()
        elif killed is not None and self._code is None:
            # Without the socket: the keeper has exited as the command did, if nobody has killed it.
            self.left = [] if not is_there and killed != -_signal.SIGKILL else None
            self._code = killed
            self._control.close()
        return self._code

    def _look(self) -> "tuple[bool, bytes | None]":
        """Whether the socket is there, and what the keeper has told: b"" at the end, None so far.

        That stays in the socket: other threads need it, too.
        """
        with self._control.use() as control:
            is_there = self._is_ours(control)
            try:
                return is_there, control.recv(65536, _LOOK) if is_there else b""
            except not_by_handler(OSError):
                return is_there, None

    def _is_ours(self, control: "Any") -> bool:
        """Whether it is open; a program may close all file descriptors, to become a daemon."""
        try:
            if control is not None and os.fstat(control.fileno())[:3] == self._identity:
                return True
        except not_by_handler(OSError) as why:
            log("the socket of a tree: %s", why)
        if control is not None:
            control.detach()  # or its close() would close another one's file
        return False

    def __del__(self) -> None:
        if self._control is not None and self._is_ours(self._control.handle):
            self._control.close()  # a socket would warn, as the Popen does

    def sleep(self, timeout: "float | None") -> None:
        with self._control.use() as control:
            if not self._is_ours(control):
                if self._code is None:
                    has_exited(self._keeper.pid, timeout)
                return
            try:
                poll(control.fileno(), select.POLLIN, Deadline(timeout))
            except Failed as why:  # there is no poll(2), under eventlet for example
                log("the keeper %d: %s", self._keeper.pid, why)
                sleep(Deadline(timeout).at_most(0.01))

    def has_exited(self) -> bool:
        return self.poll() is not None or has_exited(self.pid)

    def send(self, number: int, everybody: bool) -> None:
        self._order(number, "all" if everybody else "command")

    def end(self, number: int, grace: float) -> None:
        self._order(number, repr(float(grace)))

    def _order(self, number: int, what: str) -> None:
        with self._control.use() as control:
            try:
                if self._control.is_copy() or self._code is not None:
                    return
                if self._is_ours(control):
                    control.send(b"%d %s\n" % (number, what.encode()), _NO_SIGNAL)
                else:
                    kills = number == _signal.SIGKILL or what == "0.0"
                    self._keeper.send_signal(_signal.SIGPWR if kills else number)
            except not_by_handler(OSError) as why:
                log("the keeper %d: %s", self._keeper.pid, why)  # it has exited
