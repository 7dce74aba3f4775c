# SPDX-License-Identifier: BSD-3-Clause
"""Find processes, and look at them: what is needed to choose those to wait for."""

from _thread import get_ident
from errno import ESRCH

from ._base.errors import DENIED, Failed, failed
from ._listing import checked, fact, gather, source
from ._process import Process, pid_exists, wait
from ._waiting.owners import check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._listing import CpuTimes, Uids
    from ._types import Any, Facts, Iterable, Iterator


class ProcessInfo:
    """Information about one process. It never describes a later process with the same pid.

    Each method asks the system. Within oneshot(), and in as_dict(), each file or table is read
    at most once. Names and units are those of psutil. ``info`` is a dict with the attributes
    that process_iter() has read. A method raises ProcessLookupError if the process is gone,
    PermissionError without the right to read, and an OSError with errno ENOSYS if the system
    does not offer the information.

    All waits take a ProcessInfo, and so does Process(). Two ProcessInfos are equal if they
    describe the same process.

    >>> import os
    >>> me = ProcessInfo(os.getpid())
    >>> me.is_running()
    True
    """

    def __init__(self, pid: int) -> None:
        number = check_pid(pid)
        if not pid_exists(number):
            raise failed(ESRCH).as_error("open", number)
        self._fill(number)
        with Oneshot(self):
            return

    def _fill(self, pid: int) -> None:
        self.pid = pid
        self.info: "dict[str, Any]" = {}
        self._started: "int | None" = None  # while we may not see it
        # By the thread that has entered a oneshot().
        self._held: "dict[int, Facts]" = {}

    def _checked(self, facts: "Facts") -> "Facts":
        """The facts; Failed (ESRCH) if they are another process's."""
        try:
            started = facts.started()
            if self._started is None:
                self._started = started
            if started != self._started:
                raise failed(ESRCH)
        except Failed as why:
            if why.errno not in DENIED:  # else we may not see it
                facts.close()
                raise
        return facts

    def _ask(self, name: str) -> "Any":
        with Oneshot(self) as facts:
            return fact(facts, name)

    def name(self) -> str:
        """The name of the program. On Linux, the process can change it by prctl(2).

        Linux keeps 15 bytes of the name. The rest comes from the command line, if it matches.
        """
        return self._ask("name")  # type: ignore[no-any-return]

    def ppid(self) -> int:
        """The parent's pid."""
        return self._ask("ppid")  # type: ignore[no-any-return]

    def cmdline(self) -> "list[str]":
        """The program and its arguments; empty for a zombie or a kernel thread."""
        return self._ask("cmdline")  # type: ignore[no-any-return]

    def status(self) -> str:
        """The state: "running", "sleeping", "stopped" or "zombie", for example."""
        return self._ask("status")  # type: ignore[no-any-return]

    def create_time(self) -> float:
        """The start time, in seconds since the epoch, by the current setting of the clock."""
        return self._ask("create_time")  # type: ignore[no-any-return]

    def username(self) -> str:
        """The name of the real user, or the number if that user has no name."""
        return self._ask("username")  # type: ignore[no-any-return]

    def uids(self) -> "Uids":
        """The user IDs: (real, effective, saved)."""
        return self._ask("uids")  # type: ignore[no-any-return]

    def terminal(self) -> "str | None":
        """The path of the controlling terminal; None without one."""
        return self._ask("terminal")  # type: ignore[no-any-return]

    def cpu_times(self) -> "CpuTimes":
        """CPU time in seconds: (user, system, children_user, children_system).

        The last two count only children that the process has reaped.
        """
        return self._ask("cpu_times")  # type: ignore[no-any-return]

    def is_running(self) -> bool:
        """Whether the process still exists, running or a zombie. A process that reuses the pid
        does not count."""
        try:
            self._checked(source.read(self.pid)).close()
        except Failed as why:
            if why.errno not in (ESRCH, *DENIED):
                raise as_error(why, self.pid) from None
            return why.errno != ESRCH
        return True

    def oneshot(self) -> "Oneshot":
        """A ``with`` block in which this thread reads each file or table at most once."""
        return Oneshot(self)

    def as_dict(
        self, attrs: "Iterable[str] | None" = None, ad_value: object = None
    ) -> "dict[str, Any]":
        """A dict of the results of these methods (all by default), read at one moment.

        A value that we may not read, or that the system does not offer, is ``ad_value``.
        """
        names = checked(attrs)
        with Oneshot(self) as facts:
            return gather(facts, names, ad_value)

    def children(self, recursive: bool = False) -> "list[ProcessInfo]":
        """The children; with ``recursive``, all descendants.

        Repeats the listing until no new descendant appears. If the parent of a descendant
        exits, the system gives it another parent; then this may not find it.
        """
        if not self.is_running():
            raise failed(ESRCH).as_error("open", self.pid)
        family = [self]
        add_children(family, recursive)
        return family[1:]

    def wait(self, timeout: "float | None" = None) -> "int | None":
        """Wait until this process has exited, as the function wait() does."""
        return wait(self, timeout)

    def send_signal(self, sig: int) -> None:
        """Send a signal to this process, as Process.send_signal() does."""
        with Process(self) as process:
            process.send_signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM; on Windows, end the process."""
        with Process(self) as process:
            process.terminate()

    def kill(self) -> None:
        """Send SIGKILL; on Windows, end the process."""
        with Process(self) as process:
            process.kill()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessInfo):
            return NotImplemented
        if self is other or self._started is None:
            return self is other
        return (self.pid, self._started) == (other.pid, other._started)

    def __hash__(self) -> int:
        return hash(self.pid)

    def __repr__(self) -> str:
        name = self.info.get("name")
        shown = "" if name is None else " name=%r" % name
        return "<%s pid=%d%s>" % (type(self).__name__, self.pid, shown)


class Oneshot:
    """The facts of a process, within a ``with`` block: those of a block around it, if any."""

    def __init__(self, info: ProcessInfo) -> None:
        self._info = info
        self._facts: "Facts | None" = None

    def __enter__(self) -> "Any":
        held = self._info._held
        facts = held.get(get_ident())
        if facts is None:
            try:
                facts = self._facts = self._info._checked(source.read(self._info.pid))
            except Failed as why:
                raise as_error(why, self._info.pid) from None
            held[get_ident()] = facts
        return facts

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._facts is not None:
            self._info._held.pop(get_ident(), None)
            self._facts.close()
        if isinstance(error, Failed):
            raise as_error(error, self._info.pid) from None


def as_error(why: Failed, pid: int) -> OSError:
    return why.as_error(source.WHERE, pid)


def process_iter(
    attrs: "Iterable[str] | None" = None, ad_value: object = None
) -> "Iterator[ProcessInfo]":
    """Iterate over all processes, in the order of their pids: a ProcessInfo for each.

    ``attrs`` lists names of methods, and "pid"; an empty list means all. Their results are
    in the dict ``info`` of each ProcessInfo. A value that we may not read, or that the system
    does not offer, is ``ad_value``. Processes that exit meanwhile are left out. Raises OSError
    if processes can't be listed: on Linux without a /proc of our own PID namespace.

    >>> import os
    >>> names = {info.pid: info.info["name"] for info in process_iter(["pid", "name"])}
    >>> os.getpid() in names
    True
    """
    return list_all([] if attrs is None else checked(attrs), ad_value)


def list_all(names: "Iterable[str]", ad_value: object) -> "Iterator[ProcessInfo]":
    for facts in source.read_all():
        info = ProcessInfo.__new__(ProcessInfo)
        info._fill(facts.pid)
        try:
            info._checked(facts)
            info.info = gather(facts, names, ad_value)
        except Failed as why:
            if why.errno == ESRCH:
                continue
            raise as_error(why, info.pid) from None
        finally:
            facts.close()  # nothing is left open while the caller does its work
        yield info


def add_children(family: "list[ProcessInfo]", recursive: bool, group: "int | None" = None) -> None:
    """Add the children of the first one, until no new one appears; ``recursive``: of each.

    With ``group``, add the members of that process group, too.
    """
    for _ in range(100):  # some never stop starting processes
        before = len(family)
        _add_children(family, recursive, group)
        if len(family) == before:
            break


def _add_children(family: "list[ProcessInfo]", recursive: bool, group: "int | None") -> None:
    """Look at all processes once."""
    began = source.now()
    by_pid: "dict[int, ProcessInfo]" = {}
    known = set(family)
    children: "dict[int, list[ProcessInfo]]" = {}
    for info in list_all(["ppid"] if group is None else ["ppid", "group"], -1):
        children.setdefault(info.info.pop("ppid"), []).append(info)
        by_pid[info.pid] = info
        is_in_group = group is not None and info.info.pop("group") == group
        if is_in_group and info not in known and info._started is not None:
            family.append(info)
            known.add(info)
    # In the order of their pids a child may come before its parent, so look from the top.
    for parent in family if recursive else family[:1]:
        if by_pid.get(parent.pid) != parent:
            continue  # it is gone, and another process may have its pid
        for child in children.get(parent.pid, ()):
            since, born = parent._started, child._started
            # Another process may have had the parent's pid before, or have got it since we looked
            # at the parent; then the child is younger than our look.
            if since is None or born is None or born < since or child in known:
                continue
            if born < began or parent.is_running():
                family.append(child)
                known.add(child)
