# SPDX-License-Identifier: BSD-3-Clause
"""Find processes, and look at them: what is needed to choose those to wait for."""

from _thread import get_ident
from weakref import ref

from . import _listing as _facts
from ._base.errors import no_such_process, public, raise_of_handler
from ._family import Family
from ._process import pid_exists
from ._waiting.owners import check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any
    from weakref import ReferenceType

    from ._listing import CpuTimes, Uids
    from ._listing.contract import Facts


@public
class ProcessInfo:
    """What the system tells about one process, and about no later one with the same pid.

    Each method asks the system. Within oneshot(), and in as_dict(), each file or table is read
    at most once. Names and units are those of psutil. ``info`` has what process_iter() has
    fetched. A method raises ProcessLookupError if the process is gone, PermissionError if we
    may not see it, and an OSError with errno ENOSYS if the system does not tell it.

    Everything that waits takes a ProcessInfo. Two are equal if they are for the same process.

    >>> import os
    >>> me = ProcessInfo(os.getpid())
    >>> me.is_running()
    True
    """

    if TYPE_CHECKING:
        pid: int
        info: "dict[str, Any]"
        _held: "dict[int, ReferenceType[Facts]]"
        _started: "int | None"
    # By the thread that has entered a oneshot(), whose with statement keeps them alive: they
    # go with it if a signal handler raises before __exit__() does anything.
    _held = {}

    def __init__(self, pid: int) -> None:
        number = check_pid(pid)
        if not pid_exists(number):
            raise no_such_process(number)
        facts = _facts.source().read(number, False)
        try:
            self._fill(facts)
        finally:
            facts.close()

    def _fill(self, facts: "Facts") -> None:
        self.pid = facts.pid
        self.info = {}
        self._started = _facts.started(facts)

    def _read(self, full: bool) -> "Facts":
        facts = _facts.source().read(self.pid, full)
        try:
            started = _facts.started(facts)
            if None not in (started, self._started) and started != self._started:
                raise no_such_process(self.pid)
        except BaseException:
            facts.close()
            raise
        return facts

    def _facts_held(self) -> "Facts | None":
        reference = self._held.get(get_ident())
        return None if reference is None else reference()

    def _ask(self, name: str) -> "Any":
        facts = self._facts_held()
        if facts is not None:
            return _facts.fact(facts, name)
        facts = self._read(name in _facts.source().NEED_FULL)
        try:
            return _facts.fact(facts, name)
        finally:
            facts.close()

    def name(self) -> str:
        """The name of its program; on Linux also what a thread has called itself by prctl(2).

        Linux keeps 15 bytes of it; the rest is taken from the command line, if it is there.
        """
        return self._ask("name")  # type: ignore[no-any-return]

    def ppid(self) -> int:
        """The pid of its parent."""
        return self._ask("ppid")  # type: ignore[no-any-return]

    def cmdline(self) -> "list[str]":
        """The arguments it was started with; empty for a zombie and for a kernel's thread."""
        return self._ask("cmdline")  # type: ignore[no-any-return]

    def status(self) -> str:
        """A word such as "running", "sleeping", "stopped", "zombie"."""
        return self._ask("status")  # type: ignore[no-any-return]

    def create_time(self) -> float:
        """When it was started: seconds from the epoch, by the clock as it is set now."""
        return self._ask("create_time")  # type: ignore[no-any-return]

    def username(self) -> str:
        """The name of its real user; the number of one without a name."""
        return self._ask("username")  # type: ignore[no-any-return]

    def uids(self) -> "Uids":
        """The numbers of its users: (real, effective, saved)."""
        return self._ask("uids")  # type: ignore[no-any-return]

    def terminal(self) -> "str | None":
        """The path of its controlling terminal; None if it has none."""
        return self._ask("terminal")  # type: ignore[no-any-return]

    def cpu_times(self) -> "CpuTimes":
        """Seconds of processor time: (user, system, children_user, children_system).

        The last two are of the children that it has waited for.
        """
        return self._ask("cpu_times")  # type: ignore[no-any-return]

    def is_running(self) -> bool:
        """Whether it is still there, running or a zombie; its pid may be another process's."""
        try:
            self._read(False).close()
        except ProcessLookupError as error:
            raise_of_handler(error)
            return False
        except PermissionError as error:
            raise_of_handler(error)
            return True
        return True

    def oneshot(self) -> "Oneshot":
        """A ``with`` block in which this thread reads each file or table at most once."""
        return Oneshot(self)

    def as_dict(
        self, attrs: "Iterable[str] | None" = None, ad_value: object = None
    ) -> "dict[str, Any]":
        """What the methods of these names return, or all, as of one moment.

        ``ad_value`` stands for what we may not see, and for what the system does not tell.
        """
        names = _facts.checked(attrs)
        facts = self._facts_held()
        if facts is not None:
            return _facts.gather(facts, names, ad_value)
        facts = self._read(not _facts.source().NEED_FULL.isdisjoint(names))
        try:
            return _facts.gather(facts, names, ad_value)
        finally:
            facts.close()

    def children(self, recursive: bool = False) -> "list[ProcessInfo]":
        """Its children; with ``recursive`` also theirs, and so on.

        The system is looked at again until there is nothing new. A process whose parent has
        exited is another one's child, and is found only if it was seen before.
        """
        if not self.is_running():
            raise no_such_process(self.pid)
        return Family(self, recursive, _parents, _facts.source().now).find()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessInfo):
            return NotImplemented
        if self is other:
            return True
        return self._started is not None and self._key() == other._key()

    def _key(self) -> "tuple[int, int | None]":
        return self.pid, self._started

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        name = self.info.get("name")
        return "<%s pid=%d%s>" % (
            type(self).__name__,
            self.pid,
            "" if name is None else " name=%r" % name,
        )


class Oneshot:
    """What ProcessInfo.oneshot() returns."""

    __slots__ = ("_facts", "_info")

    def __init__(self, info: ProcessInfo) -> None:
        self._info = info
        self._facts: "Facts | None" = None

    def __enter__(self) -> None:
        info = self._info
        if info._facts_held() is None:
            self._facts = info._read(True)
            if not info._held:
                info._held = {}
            info._held[get_ident()] = ref(self._facts)

    def __exit__(self, *exc_info: object) -> None:
        facts, self._facts = self._facts, None
        if facts is not None:  # else a block around this one has them
            self._info._held.pop(get_ident(), None)
            facts.close()


def process_iter(
    attrs: "Iterable[str] | None" = None, ad_value: object = None
) -> "Iterator[ProcessInfo]":
    """A ProcessInfo for each process, in the order of their pids.

    ``attrs`` are names of its methods, and "pid"; an empty list stands for all. What they
    return is put into ``info``, and ``ad_value`` is put there for what we may not see, and for
    what the system does not tell. A process that vanishes meanwhile is left out. Raises OSError
    where processes can't be listed: on Linux without a /proc of our own PID namespace.

    >>> import os
    >>> names = {info.pid: info.info["name"] for info in process_iter(["pid", "name"])}
    >>> os.getpid() in names
    True
    """
    return _iterate(None if attrs is None else _facts.checked(attrs), ad_value)


def _iterate(names: "list[str] | None", ad_value: object) -> "Iterator[ProcessInfo]":
    full = not _facts.source().NEED_FULL.isdisjoint(names or ())
    for info, facts in _each(full):
        if names is not None:
            try:
                info.info = _facts.gather(facts, names, ad_value)
            except ProcessLookupError as error:
                raise_of_handler(error)
                continue
        facts.close()  # nothing is left open while the caller does its work
        yield info


def _each(full: bool) -> "Iterator[tuple[ProcessInfo, Facts]]":
    for facts in _facts.source().read_all(full):
        try:
            info = ProcessInfo.__new__(ProcessInfo)
            try:
                info._fill(facts)
            except ProcessLookupError as error:
                raise_of_handler(error)
                continue
            yield info, facts
        finally:
            facts.close()


def _parents() -> "Iterator[tuple[ProcessInfo, int]]":
    """Each process, and the pid of its parent."""
    for info, facts in _each(False):
        try:
            parent = facts.ppid()
        except (ProcessLookupError, PermissionError) as error:
            raise_of_handler(error)
            continue
        yield info, parent
