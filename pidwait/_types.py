# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405, F811
"""Names for annotations, what a Poller must do, and the types of subprocess.

Only type checkers import this module.
"""

import subprocess
from enum import Enum

from typing_extensions import *

from ._base.deadline import Deadline as Deadline
from ._base.handle import Handle as Handle
from ._base.handle import Usage as Usage
from ._starting.spawn import Env, StrOrBytesPath
from ._systems.bindings import Adapter as Adapter
from ._systems.bsd.calls import Kevent as Kevent
from ._waiting.members import Member as Member
from ._waiting.owners import Target as Target


class _NoCodeYet(Enum):
    RUNNING = 0
    PENDING = 1


RUNNING: Final = _NoCodeYet.RUNNING
PENDING: Final = _NoCodeYet.PENDING
Outcome = Union[int, None, _NoCodeYet]
Identity = tuple[object, ...]
Check = Callable[[], object]
# Rows of probe()'s report: a name, the call that is checked (or None), and the check.
Checks = list[tuple[str, "str | None", Check]]
# For each system call: the module that may have the interpreter's own function, and a factory that
# makes one from a binding. Either can be None.
Rows = dict[str, tuple["str | None", "Make | None"]]
Make = Callable[["Adapter", str], "Function"]
Function = Callable[..., Any]  # the arguments and the result depend on the call
Prototype = Sequence[str]  # the C types of the result and of the arguments
Pointer = Any  # memory for a C function: an object of ctypes or cffi
Clock = Callable[[], float]
Call = tuple[Any, ...]  # a function and its arguments
Table = dict[Any, Any]
Opener = Callable[[int], Handle]


class File(Protocol):  # what owns a file descriptor: see own()
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class KQueue(File, Protocol):  # of select, or of a binding
    control: Callable[..., list[Kevent]]


class HasPid(Protocol):
    @property
    def pid(self) -> "int | None": ...


Proc = Union[int, HasPid]
# The type of the processes; Any if it can't be inferred, as for WaitSet().
P = TypeVar("P", bound=Proc, default=Any)
E = TypeVar("E", bound=BaseException)
P_co = TypeVar("P_co", bound=Proc, default=Proc, covariant=True)


class Poller(Protocol):
    """Sleeps for many handles. Any number of threads may be in poll() at once."""

    # Members, and other sources, with an event that nobody has looked at yet.
    ready: "dict[object, Any]"

    def open(self, target: Target) -> Handle:
        """A handle by ``target.pid``, or by ``target.proc`` if that is None.

        Failed if it can't be opened; UnsupportedOperation if the object has no file descriptor.
        """

    def arm(self, member: Member, *calls: Call) -> None:
        """Have its next event taken, and make the calls in the same step; not if it is polled."""

    def drop(self, member: Member) -> None:
        """Forget a member."""

    def poll(self, seconds: "float | None") -> None:
        """Sleep until there is an event, for ``seconds`` at most, or less."""

    def flush(self) -> None:
        """Put into ``ready`` the events that an interrupted poll() has taken."""

    def read(self, who: Any) -> "Iterable[Member]":
        """The members to look at for an event that is not a member's own."""

    def wake(self, seconds: float) -> bool:
        """Wake at least one sleeper, and make fileno() readable, in ``seconds`` or earlier.

        Return False if earlier: a program that polls fileno() would spin. Each woken thread wakes
        the next one while there is work for others.
        """

    def fileno(self) -> int:
        """A file descriptor, readable when there is work; UnsupportedOperation without one."""

    def close(self) -> None: ...


# The rest is for subprocess. As typeshed does, it tells text from bytes by the first four options;
# where they may mean either, the result is Any. Without any, the first overload is taken.
Cmd = Union[StrOrBytesPath, Sequence[StrOrBytesPath]]
Exe = Union[StrOrBytesPath, None]
Seconds = Union[float, None]
No = Union[Literal[False], None]
Opt = Union[str, None]
Yes = Literal[True]
YesNo = Union[bool, None]
Flag = TypeVar("Flag")
Encoding = TypeVar("Encoding")
Errors = TypeVar("Errors")
Output = TypeVar("Output")
BytesT = TypeVar("BytesT", covariant=True)
TextT = TypeVar("TextT", covariant=True)
EitherT = TypeVar("EitherT", covariant=True)


class Start(TypedDict, Generic[Flag, Encoding, Errors], total=False):
    text: Flag
    universal_newlines: Flag
    encoding: Encoding
    errors: Errors
    stdin: "int | IO[Any] | None"
    stdout: "int | IO[Any] | None"
    stderr: "int | IO[Any] | None"
    preexec_fn: "Callable[[], object] | None"
    close_fds: bool
    shell: bool
    cwd: Exe
    env: "Env | None"
    startupinfo: Any
    creationflags: int
    restore_signals: bool
    start_new_session: bool
    pass_fds: Collection[int]
    user: "str | int | None"
    group: "str | int | None"
    extra_groups: "Iterable[str | int] | None"
    umask: int
    pipesize: int
    process_group: "int | None"
    tree: "bool | Literal['kill', 'wait', 'leave']"
    grace: Seconds


class Run(Start[Flag, Encoding, Errors], total=False):
    timeout: Seconds
    input: "str | Buffer | None"
    capture_output: bool
    check: bool


class Runner(Protocol[BytesT, TextT, EitherT]):
    @overload
    def __call__(
        self, args: Cmd, bufsize: int = -1, executable: Exe = ..., **_: Unpack[Run[No, None, None]]
    ) -> BytesT: ...
    @overload
    def __call__(
        self, args: Cmd, bufsize: int = -1, executable: Exe = ..., **_: Unpack[Run[Yes, str, Opt]]
    ) -> TextT: ...
    @overload
    def __call__(
        self, args: Cmd, bufsize: int = -1, executable: Exe = ..., **_: Unpack[Run[YesNo, Opt, Opt]]
    ) -> EitherT: ...


class CalledProcessError(subprocess.CalledProcessError):
    usage: "Usage | None"


class TimeoutExpired(subprocess.TimeoutExpired):
    usage: "Usage | None"


class CompletedProcess(subprocess.CompletedProcess[Output]):
    usage: "Usage | None"


class Popen(subprocess.Popen[AnyStr]):
    @overload
    def __init__(
        self: "Popen[bytes]",
        args: Cmd,
        bufsize: int = ...,
        executable: Exe = ...,
        **more: Unpack[Start[No, None, None]],
    ) -> None: ...
    @overload
    def __init__(
        self: "Popen[str]",
        args: Cmd,
        bufsize: int = ...,
        executable: Exe = ...,
        **more: Unpack[Start[Yes, str, Opt]],
    ) -> None: ...
    @overload
    def __init__(
        self: "Popen[Any]",
        args: Cmd,
        bufsize: int = ...,
        executable: Exe = ...,
        **more: Unpack[Start[YesNo, Opt, Opt]],
    ) -> None: ...
    def __init__(self, *args: Any, **more: Any) -> None: ...
    @property
    def usage(self) -> "Usage | None": ...
    @property
    def left(self) -> "list[int] | None": ...
    @property
    def mechanism(self) -> "str | None": ...
    def end(self, grace: Seconds = None, sig: int = 15) -> "int | None": ...


Done = Coroutine[Any, Any, CompletedProcess[Output]]
run: Runner[CompletedProcess[bytes], CompletedProcess[str], CompletedProcess[Any]]
run_async: Runner[Done[bytes], Done[str], Done[Any]]
check_output: Runner[bytes, str, Any]
call: Runner[int, int, int]
check_call: Runner[int, int, int]
