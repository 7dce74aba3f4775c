# SPDX-License-Identifier: BSD-3-Clause
"""Find processes to wait for, and read their attributes."""

from _thread import get_ident
from errno import ESRCH

from ._base.arguments import check_pid
from ._base.errors import DENIED, Failed
from ._process import KILL, TERMINATE, Process, pid_exists, wait
from ._systems.listers import checked, fact, gather, lister

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._systems.listers import Uids
    from ._types import Any, Container, Iterable, Iterator


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
        self.pid: int = check_pid(pid)
        self.info: "dict[str, Any]" = {}
        self._started: "int | None" = None  # None: not read yet, or we may not read it
        self._listed: "int | None" = None  # when the pid was listed, if nothing was read then
        if not pid_exists(self.pid):
            raise Failed(ESRCH).as_error("open", self.pid)
        with Oneshot(self):
            return

    def _checked(self, facts: "Any") -> "Any":
        """The facts; Failed (ESRCH) if they are another process's: a later one has the pid."""
        try:
            started = facts.started()
            if self._started is None and (self._listed is None or started <= self._listed):
                self._started = started
            if started != self._started:
                raise Failed(ESRCH)
        except Failed as why:
            if why.errno not in DENIED:  # else we may not read the start time
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

    def is_running(self) -> bool:
        """Whether the process still exists, running or a zombie. A process that reuses the pid
        does not count."""
        try:
            self._checked(lister.read(self.pid)).close()
        except Failed as why:
            if why.errno not in (ESRCH, *DENIED):
                raise why.as_error(lister.where, self.pid) from None
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

        For descendants, repeats the listing until no new one appears. If the parent of a
        descendant exits, the system gives the descendant another parent, and it may be missed.
        """
        if not self.is_running():
            raise Failed(ESRCH).as_error("open", self.pid)
        family = [self]
        for _ in range(100 if recursive else 1):  # some never stop starting processes
            before = len(family)
            add_children(family, recursive)
            if len(family) == before:
                break
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
        self.send_signal(TERMINATE)

    def kill(self) -> None:
        """Send SIGKILL; on Windows, end the process."""
        self.send_signal(KILL)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessInfo):
            return NotImplemented
        if self is other or self.pid != other.pid:
            return self is other
        for one in self, other:
            if one._started is None and one._listed is not None:
                one.is_running()  # this reads the start time
        return self._started is not None and self._started == other._started

    def __hash__(self) -> int:
        return hash(self.pid)

    def __repr__(self) -> str:
        name = self.info.get("name")
        shown = "" if name is None else " name=%r" % name
        return "<%s pid=%d%s>" % (type(self).__name__, self.pid, shown)


class Oneshot:
    """The facts of a process in a ``with`` block; a block within another one shares its facts."""

    def __init__(self, info: ProcessInfo) -> None:
        self._info = info
        self._facts: "Any" = None

    def __enter__(self) -> "Any":
        held = vars(self._info).setdefault("_held", {})  # by the thread
        if get_ident() not in held:
            try:
                self._facts = self._info._checked(lister.read(self._info.pid))
            except Failed as why:
                raise why.as_error(lister.where, self._info.pid) from None
            held[get_ident()] = self._facts
        return held[get_ident()]

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._facts is not None:
            vars(self._info)["_held"].pop(get_ident(), None)
            self._facts.close()
        if isinstance(error, Failed):
            raise error.as_error(lister.where, self._info.pid) from None


def process_iter(
    attrs: "Iterable[str] | None" = None, ad_value: object = None
) -> "Iterator[ProcessInfo]":
    """Iterate over all processes, in the order of their pids: a ProcessInfo for each.

    ``attrs`` lists names of methods, and "pid"; an empty list means all. Their results are
    in the dict ``info`` of each ProcessInfo. A value that we may not read, or that the system
    does not offer, is ``ad_value``. Processes that exit meanwhile are left out. Raises OSError
    if processes can't be listed: on Linux, without a /proc of our own PID namespace.

    Without ``attrs``, or for "pid" alone, Linux is asked about a process when its ProcessInfo is
    first used; if the process has exited by then, methods raise ProcessLookupError.

    >>> import os
    >>> names = {info.pid: info.info["name"] for info in process_iter(["pid", "name"])}
    >>> os.getpid() in names
    True
    """
    return list_all([] if attrs is None else checked(attrs), ad_value)


def list_all(names: "Iterable[str]", ad_value: object) -> "Iterator[ProcessInfo]":
    """process_iter(). For pids alone nothing is read, if the time of the listing is enough."""
    is_brief = hasattr(lister, "clock_is_steady") and {"pid"}.issuperset(names)
    listed: "int | None" = None
    for facts in lister.read_all():
        info = _new(facts.pid)
        try:
            if is_brief:
                info._listed = listed = listed or lister.now()
            else:
                info._checked(facts)
            info.info = gather(facts, names, ad_value)
        except Failed as why:
            if why.errno == ESRCH:
                continue
            raise why.as_error(lister.where, info.pid) from None
        finally:
            facts.close()  # nothing is left open while the caller does its work
        yield info


def _new(pid: int, started: "int | None" = None) -> ProcessInfo:
    info = ProcessInfo.__new__(ProcessInfo)
    info.pid, info.info, info._started, info._listed = pid, {}, started, None
    return info


def add_children(
    family: "list[ProcessInfo]", recursive: bool = True, groups: "Container[int | None]" = ()
) -> None:
    """List all processes, and add the children of the family's first; ``recursive``: of each.

    Add the members of these process groups, too.
    """
    known = {(info.pid, info._started) for info in family}

    def add(pid: int, born: int) -> None:
        if (pid, born) not in known:
            known.add((pid, born))
            family.append(_new(pid, born))

    began = lister.now()
    started: "dict[int, int]" = {}
    children: "dict[int, list[tuple[int, int]]]" = {}
    for facts in lister.read_all():
        try:
            pid, born, parent_pid = facts.pid, facts.started(), facts.ppid()
            is_member = hasattr(facts, "group") and facts.group() in groups
        except Failed as why:
            if why.errno not in (ESRCH, *DENIED):  # else it has exited, or is hidden
                raise why.as_error(lister.where, facts.pid) from None
            continue
        finally:
            facts.close()
        started[pid] = born
        children.setdefault(parent_pid, []).append((pid, born))
        if is_member:
            add(pid, born)
    # A child may have a lower pid than its parent, so go from parents to children.
    for parent in family if recursive else family[:1]:
        since = started.get(parent.pid)
        if since is None or since != parent._started:
            continue  # it is gone, and another process may have its pid
        for pid, born in children.get(parent.pid, ()):
            # The parent's pid may have been another process's before, or may have been reused
            # since we read the parent; then the child is younger than this listing.
            if since <= born and (born < began or parent.is_running()):
                add(pid, born)
