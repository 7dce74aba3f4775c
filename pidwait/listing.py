# SPDX-License-Identifier: BSD-3-Clause
"""Find processes, and look at them: what is needed to choose those to wait for."""

import os
from _thread import get_ident
from collections import namedtuple
from errno import ENOSYS
from weakref import ref

from . import _ffi
from ._errors import log, no_such_process, public, raise_of_handler
from ._targets import check_pid
from .process import pid_exists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Any, NamedTuple  # novm
    from weakref import ReferenceType

    from ._sources.contract import Facts, Source

    class Uids(NamedTuple):  # novm
        real: int
        effective: int
        saved: int

    class CpuTimes(NamedTuple):  # novm
        user: float
        system: float
        children_user: float
        children_system: float

else:
    Uids = namedtuple("Uids", "real effective saved")
    CpuTimes = namedtuple("CpuTimes", "user system children_user children_system")

_ATTRIBUTES = (
    "pid",
    "name",
    "ppid",
    "cmdline",
    "status",
    "create_time",
    "username",
    "uids",
    "terminal",
    "cpu_times",
)
_TYPES = {"uids": Uids._make, "cpu_times": CpuTimes._make}
_MOST_LOOKS = 100  # at a family that never stops starting processes
_sources: "list[Source]" = []


def _source() -> "Source":
    if not _sources:
        if os.name == "nt":
            from ._sources import listed_win32

            _sources.append(listed_win32)
        elif _ffi.PLATFORM in ("linux", "android"):
            from ._sources import listed_procfs

            _sources.append(listed_procfs)
        else:
            from ._sources import listed_ps

            _sources.append(listed_ps)
    return _sources[0]


@public
class ProcessInfo:
    """What the system tells of a process: of this very one, even if its pid is reused later.

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
        facts = _source().read(number, False)
        try:
            self._fill(facts)
        finally:
            facts.close()

    def _fill(self, facts: "Facts") -> None:
        self.pid = facts.pid
        self.info = {}
        self._started = _started(facts)

    def _read(self, full: bool) -> "Facts":
        facts = _source().read(self.pid, full)
        try:
            started = _started(facts)
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
            return _fact(facts, name)
        facts = self._read(name not in _source().CHEAP)
        try:
            return _fact(facts, name)
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

    def uids(self) -> Uids:
        """The numbers of its users: (real, effective, saved)."""
        return self._ask("uids")  # type: ignore[no-any-return]

    def terminal(self) -> "str | None":
        """The path of its controlling terminal; None if it has none."""
        return self._ask("terminal")  # type: ignore[no-any-return]

    def cpu_times(self) -> CpuTimes:
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

    def oneshot(self) -> "Oneshot":
        """A ``with`` block in which this thread reads each file or table at most once."""
        return Oneshot(self)

    def as_dict(
        self, attrs: "Iterable[str] | None" = None, ad_value: object = None
    ) -> "dict[str, Any]":
        """What the methods of these names return, or all, as of one moment.

        ``ad_value`` stands for what we may not see, and for what the system does not tell.
        """
        names = _checked(attrs)
        facts = self._facts_held()
        if facts is not None:
            return _gather(facts, names, ad_value)
        facts = self._read(not _source().CHEAP.issuperset(names))
        try:
            return _gather(facts, names, ad_value)
        finally:
            facts.close()

    def children(self, recursive: bool = False) -> "list[ProcessInfo]":
        """Its children; with ``recursive`` also theirs, and so on.

        The system is looked at again until there is nothing new. A process whose parent has
        exited is another one's child, and is found only if it was seen before.
        """
        if not self.is_running():
            raise no_such_process(self.pid)
        family = Family(self, recursive)
        for _ in range(_MOST_LOOKS):
            if not family.look():
                break
        else:
            log("pid %d still starts processes, after %d looks", self.pid, _MOST_LOOKS)
        return family.found

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

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        facts, self._facts = self._facts, None
        if facts is not None:  # else a block around this one has them
            self._info._held.pop(get_ident(), None)
            facts.close()


class Family:
    """The descendants of a process, found by several looks at all processes."""

    def __init__(self, top: ProcessInfo, recursive: bool) -> None:
        self.found: "list[ProcessInfo]" = []
        self._members = {top}
        self._top = top
        self._recursive = recursive

    def look(self) -> bool:
        """Add those that are not yet in it; return whether there were any."""
        began = _source().now()
        by_pid: "dict[int, ProcessInfo]" = {}
        children: "dict[int, list[ProcessInfo]]" = {}
        for info, facts in _each(False):
            try:
                children.setdefault(facts.ppid(), []).append(info)
                by_pid[info.pid] = info
            except (ProcessLookupError, PermissionError) as error:
                raise_of_handler(error)
        before = len(self.found)
        # In the order of their pids a child may come before its parent, so look from the top.
        left = [self._top, *(self.found if self._recursive else ())]
        for parent in left:
            if by_pid.get(parent.pid) != parent:
                continue  # it is gone, and another process may have its pid
            for child in children.get(parent.pid, ()):
                if child not in self._members and _is_child(child, parent, began):
                    self._members.add(child)
                    self.found.append(child)
                    if self._recursive:
                        left.append(child)
        return len(self.found) > before


def _is_child(child: ProcessInfo, parent: ProcessInfo, began: int) -> bool:
    """Whether it is the child of this very process, and not of one with the same pid.

    Both have been looked at since ``began``, the parent perhaps before the child.
    """
    if child._started is None or parent._started is None or child._started < parent._started:
        return False
    # The parent may have exited after we looked at it, and its pid been given to another
    # process, which has started the child. Then the child is younger than our look.
    return child._started < began or parent.is_running()


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
    return _iterate(None if attrs is None else _checked(attrs), ad_value)


def _iterate(names: "list[str] | None", ad_value: object) -> "Iterator[ProcessInfo]":
    full = not _source().CHEAP.issuperset(names or ())
    for info, facts in _each(full):
        if names is not None:
            try:
                info.info = _gather(facts, names, ad_value)
            except ProcessLookupError as error:
                raise_of_handler(error)
                continue
        yield info


def _each(full: bool) -> "Iterator[tuple[ProcessInfo, Facts]]":
    for facts in _source().read_all(full):
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


def _started(facts: "Facts") -> "int | None":
    try:
        return facts.started()
    except PermissionError as error:
        raise_of_handler(error)
        return None


def _checked(attrs: "Iterable[str] | None") -> "list[str]":
    if isinstance(attrs, str):
        raise TypeError("attrs must be a list of names, not str")
    names = list(attrs or ())
    for name in names:
        if name not in _ATTRIBUTES:
            raise ValueError("attrs has %r; there is %s" % (name, ", ".join(_ATTRIBUTES)))
    return names or list(_ATTRIBUTES)


def _gather(facts: "Facts", names: "Iterable[str]", ad_value: object) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for name in names:
        try:
            found[name] = _fact(facts, name)
        except OSError as error:
            raise_of_handler(error)
            if error.errno != ENOSYS and not isinstance(error, PermissionError):
                raise
            found[name] = ad_value
    return found


def _fact(facts: "Facts", name: str) -> "Any":
    if name == "pid":
        return facts.pid
    value = getattr(facts, name)()
    return _TYPES[name](value) if name in _TYPES else value
