# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for the kqueues of macOS and the BSDs, over pidfd and epoll, on Linux.

It has each system's struct kevent, siginfo_t and numbers, spelled out as their headers do,
and their quirks. What runs on it shows that pidwait's code agrees with what is written
here; whether the systems do, only they can show. The layouts are compared with the true
headers by tests/matrix/headers.py.
"""

import contextlib
import ctypes
import errno
import fcntl
import importlib
import os
import resource
import select
import struct
import sys

from .. import pidwait

c = ctypes
_EVENT = ("ident", "filter", "flags", "fflags", "data", "udata")
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000
EV_ADD, EV_DELETE, EV_ENABLE, EV_ONESHOT = 0x1, 0x2, 0x4, 0x10
EV_EOF, EV_ERROR = 0x8000, 0x4000
PIDFD_OPEN = 434
PIDFD_GET_INFO = 0xC040FF0B
F_DUPFD_CLOEXEC = 1030


def event_type(*types, ext=False, pack=None):
    fields = list(zip(_EVENT, types))
    if ext:
        fields.append(("ext", c.c_uint64 * 4))
    names = {"_fields_": fields}
    if pack:
        names.update(_pack_=pack, _layout_="ms")
    return type("kevent", (c.Structure,), names)


def info_type(*fields):
    return type("siginfo_t", (c.Structure,), {"_fields_": fields})


class timespec(c.Structure):
    _fields_ = [("tv_sec", c.c_int64), ("tv_nsec", c.c_long)]


_INTS = [(name, c.c_int) for name in ("si_signo", "si_errno", "si_code")]
_FREEBSD_INFO = info_type(
    *_INTS,
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 56),
)
_NETBSD_INFO = info_type(
    ("si_signo", c.c_int),
    ("si_code", c.c_int),
    ("si_errno", c.c_int),
    ("pad", c.c_int),
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 100),
)
_OPENBSD_INFO = info_type(
    ("si_signo", c.c_int),
    ("si_code", c.c_int),
    ("si_errno", c.c_int),
    ("pad", c.c_int),
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_utime", c.c_int64),
    ("si_stime", c.c_int64),
    ("si_status", c.c_int),
    ("rest", c.c_char * 92),
)
_DARWIN_INFO = info_type(
    *_INTS,
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 80),
)

_SHORT = (c.c_size_t, c.c_short, c.c_ushort, c.c_uint)
_WIDE = (c.c_size_t, c.c_uint32, c.c_uint32, c.c_uint32)


class System:
    """One system, in one of its versions, and what is peculiar to it."""

    def __init__(
        self,
        platform,
        event,
        info,
        waits,
        symbol="kevent",
        counts=c.c_int,
        filters=(-5, -7, -1),
        zombies=False,
        status_flag=0,
        more_flags=0,
        has_waitid=True,
        tells_signal=True,
    ):
        self.platform = platform
        self.event = event
        self.info = info
        self.p_pid, self.wexited, self.wnowait = waits
        self.symbol = symbol
        self.counts = counts
        self.filter_proc, self.filter_timer, self.filter_read = filters
        self.zombies = zombies  # who has exited can still be watched
        self.status_flag = status_flag
        self.more_flags = more_flags
        self.has_waitid = has_waitid  # os.waitid, in all Pythons
        self.tells_signal = tells_signal


_NETBSD = {
    "info": _NETBSD_INFO,
    "waits": (1, 0x20, 0x10000),
    "counts": c.c_size_t,
    "filters": (4, 6, 0),
}
SYSTEMS = {
    "freebsd12": System(
        "freebsd",
        event_type(*_SHORT, c.c_int64, c.c_void_p, ext=True),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
    ),
    "freebsd11": System(
        "freebsd",
        event_type(*_SHORT, c.c_ssize_t, c.c_void_p),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
    ),
    "netbsd11": System(
        "netbsd",
        event_type(*_WIDE, c.c_int64, c.c_void_p, ext=True),
        symbol="__kevent100",
        **_NETBSD,
    ),
    "netbsd10": System(
        "netbsd", event_type(*_WIDE, c.c_int64, c.c_void_p), symbol="__kevent50", **_NETBSD
    ),
    "openbsd": System(
        "openbsd", event_type(*_SHORT, c.c_int64, c.c_void_p), _OPENBSD_INFO, (2, 4, 16)
    ),
    "dragonfly": System(
        "dragonfly",
        event_type(*_SHORT, c.c_ssize_t, c.c_void_p),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
        more_flags=0x1000,
    ),
    "darwin": System(
        "darwin",
        event_type(c.c_uint64, c.c_int16, c.c_uint16, c.c_uint32, c.c_int64, c.c_uint64, pack=4),
        _DARWIN_INFO,
        (1, 4, 32),
        status_flag=NOTE_EXITSTATUS,
        has_waitid=False,  # from Python 3.13 on
        tells_signal=False,
    ),
}


class Event:
    """select.kevent."""

    def __init__(self, ident, filter=-1, flags=EV_ADD, fflags=0, data=0, udata=0):
        self.ident, self.filter, self.flags = ident, filter, flags
        self.fflags, self.data, self.udata = fflags, data, udata


class Queue:
    """A kqueue: readable while it has an event that nobody has taken."""

    def __init__(self, kernel):
        self._kernel = kernel
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        os.set_inheritable(self.fd, kernel.system.platform != "darwin")
        self._notes = {}

    def close(self):
        self._epoll.close()
        for note in self._notes.values():
            note.close()

    def change(self, change):
        """An EV_ADD for what is there already only changes it, and so does one without EV_ADD."""
        key = change.filter, change.ident
        note = self._notes.get(key)
        if note is None and not change.flags & EV_ADD:
            raise OSError(errno.ENOENT, "kevent")
        if change.flags & EV_DELETE:
            self._drop(key)
        elif note is None:
            note = self._kernel.note(change)
            self._epoll.register(note.fd, select.EPOLLIN)
            self._notes[key] = note
        else:
            note.fflags = change.fflags

    def _drop(self, key):
        note = self._notes.pop(key)
        self._epoll.unregister(note.fd)
        note.close()

    def take(self, room):
        ready = [fd for fd, _ in self._epoll.poll(0)]
        found = [note for note in self._notes.values() if note.fd in ready][:room]
        # Before it is gone: the code may be told by the zombie.
        events = [note.event() for note in found]
        for note, event in zip(found, events):
            if event.flags & EV_ONESHOT:
                self._drop((note.filter, note.ident))
        return events


class Note:
    """What is looked for, in a kqueue."""

    def __init__(self, change):
        self.filter, self.ident, self.fflags = change.filter, change.ident, change.fflags

    def close(self):
        pass


class Readable(Note):
    """There until it is deleted."""

    def __init__(self, change):
        super().__init__(change)
        self.fd = change.ident

    def event(self):
        return Event(self.ident, self.filter, EV_EOF, 0, 0)


class Timer(Note):
    """It has fired as soon as it is there."""

    def __init__(self, kernel, change):
        super().__init__(change)
        self.fd = kernel.ready
        if "timer" in kernel.denied:
            raise OSError(kernel.denied["timer"], "denied")

    def event(self):
        return Event(self.ident, self.filter, EV_ONESHOT, 0, 1)


class Process(Note):
    def __init__(self, kernel, change):
        super().__init__(change)
        self._kernel = kernel
        self.fd = moved_up(pidfd_open, kernel.passed_on.get(change.ident, change.ident))
        try:
            self._check()
        except OSError:
            os.close(self.fd)
            raise

    def _check(self):
        kernel, system = self._kernel, self._kernel.system
        if self.ident in kernel.denied:
            raise OSError(kernel.denied[self.ident], "denied")
        if not system.zombies and has_exited(self.fd):
            raise OSError(errno.ESRCH, "a zombie")
        if self.fflags & system.status_flag and not is_child(self.ident):
            raise OSError(errno.EACCES, "not a child")

    def event(self):
        system = self._kernel.system
        told = self._kernel.tells_status and not system.status_flag
        told = told or self.fflags & system.status_flag
        flags = EV_ONESHOT | EV_EOF | system.more_flags
        return Event(
            self.ident,
            self.filter,
            flags,
            self.fflags & (NOTE_EXIT | system.status_flag),
            wait_status(self.fd, self.ident) if told else 0,
        )

    def close(self):
        os.close(self.fd)


def pidfd_open(pid):
    fd = _libc.syscall(c.c_long(PIDFD_OPEN), c.c_long(pid), c.c_long(0))
    if fd < 0:
        code = ctypes.get_errno()
        # A thread's ID is nobody's.
        raise OSError(errno.ESRCH if code in (errno.EINVAL, errno.ENOENT) else code, "pidfd_open")
    return fd


def moved_up(open_, *args):
    """A file descriptor that is not one of the process': as the kernel's own would be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = soft if soft < hard else min(hard // 2, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        fd = open_(*args)
        try:
            return fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        finally:
            os.close(fd)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def has_exited(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll.poll(0) != []


def wait_status(fd, pid):
    """Of who has exited: of a zombie, or kept by the pidfd."""
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, 8)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(
        "/proc/%d/stat" % pid, "rb"
    ) as file:
        status = int(file.read().rpartition(b")")[2].split()[49])
    fcntl.ioctl(fd, PIDFD_GET_INFO, info, True)
    if struct.unpack_from("=Q", info)[0] & 8:
        return struct.unpack_from("=i", info, 60)[0]
    return status


def is_child(pid):
    try:
        _waitid(pid, os.WNOHANG | 0x01000004)  # WEXITED | WNOWAIT
    except ChildProcessError:
        return False
    return True


class _LinuxInfo(c.Structure):
    _fields_ = _INTS + [("pad", c.c_int), ("si_pid", c.c_int), ("si_uid", c.c_uint)]
    _fields_ += [("si_status", c.c_int), ("rest", c.c_char * 100)]


def _waitid(pid, options):
    info = _LinuxInfo()
    if _libc.waitid(1, pid, c.byref(info), options):
        code = ctypes.get_errno()
        raise OSError(code, "waitid")
    return info


_libc = ctypes.CDLL(None, use_errno=True)


class Kernel:
    """The calls of a system. Each has a form for C and one for Python."""

    def __init__(self, name):
        self.system = SYSTEMS[name]
        self.queues = {}
        self.denied = {}  # pid, or "timer": errno
        self.passed_on = {}  # pid: who has the number now
        self.tells_status = True
        self.failures = []
        self.calls = []
        self.ready, end = os.pipe()
        os.close(end)
        system = self.system
        waitid_id = c.c_int64 if system.platform in ("freebsd", "dragonfly") else c.c_uint32
        pointer = c.c_void_p
        self.symbols = {
            "kqueue": self._c(self._c_kqueue),
            system.symbol: self._c(
                self._c_kevent, c.c_int, pointer, system.counts, pointer, system.counts, pointer
            ),
            "waitid": self._c(self._c_waitid, c.c_uint, waitid_id, pointer, c.c_int),
        }

    def _c(self, function, *types):
        def call(*args):
            try:
                return function(*args)
            except OSError as error:
                ctypes.set_errno(error.errno)
                return -1
            except BaseException as error:
                self.failures.append(error)
                raise

        return c.CFUNCTYPE(c.c_int, *types, use_errno=True)(call)

    def close(self):
        os.close(self.ready)
        if self.failures:
            raise self.failures[0]
        assert not self.queues

    def close_fd(self, fd):
        """close(2) of one that may be a kqueue."""
        queue = self.queues.pop(fd, None)
        if queue is None:
            return False
        queue.close()
        return True

    def kqueue(self):
        queue = Queue(self)
        self.queues[queue.fd] = queue
        return queue.fd

    def kevent(self, fd, changes, room):
        self.calls.append((fd, len(changes), room))
        try:
            queue = self.queues[fd]
        except KeyError:
            raise OSError(errno.EBADF, "kevent") from None
        errors = []
        for change in changes:
            try:
                queue.change(change)
            except OSError as error:
                if not room:
                    raise
                flags = change.flags | EV_ERROR | self.system.more_flags
                errors.append(Event(change.ident, change.filter, flags, change.fflags, error.errno))
        return errors or queue.take(room)

    def note(self, change):
        if change.filter == self.system.filter_proc:
            return Process(self, change)
        if change.filter == self.system.filter_timer:
            return Timer(self, change)
        if change.filter == self.system.filter_read:
            return Readable(change)
        raise OSError(errno.EINVAL, "kevent")

    def waitid(self, idtype, id_, options):
        """struct siginfo_t; si_pid is 0 where there is nothing to tell."""
        system = self.system
        assert idtype == system.p_pid
        assert options == system.wexited | system.wnowait | os.WNOHANG
        info = _waitid(id_, os.WNOHANG | 0x01000004)
        status = info.si_status
        if info.si_code == 1:
            status |= 0x700  # what nobody but the caller of _exit() knows
        elif not system.tells_signal:
            status = 0
        return system.info(
            si_signo=info.si_signo, si_code=info.si_code, si_pid=info.si_pid, si_status=status
        )

    # as C calls them

    def _c_kqueue(self):
        return self.kqueue()

    def _c_kevent(self, fd, changes, count, events, room, timeout):
        wait = timespec.from_address(timeout)
        assert (wait.tv_sec, wait.tv_nsec) == (0, 0)
        kind = self.system.event
        given = [
            Event(*(getattr(change, name) or 0 for name in _EVENT))
            for change in (kind * count).from_address(changes)
        ]
        taken = self.kevent(fd, given, room)
        written = (kind * len(taken)).from_address(events)
        for place, event in zip(written, taken):
            values = {name: getattr(event, name) for name in _EVENT}
            c.memmove(c.byref(place), c.byref(kind(**values)), c.sizeof(kind))
        return len(taken)

    def _c_waitid(self, idtype, id_, info, options):
        answer = self.waitid(idtype, id_, options)
        c.memmove(info, c.byref(answer), c.sizeof(answer))
        return 0


class Library:
    """What an adapter loads functions from: the C library, with the kernel's calls in it."""

    def __init__(self, adapter, kernel):
        self._adapter = adapter
        self._real = adapter._library
        self._kernel = kernel

    def __getitem__(self, name):
        if name not in self._kernel.symbols:
            return self._real[name]
        return self._real._FuncPtr(self._address(name))

    def load_function(self, kind, name):
        if name not in self._kernel.symbols:
            return self._real.load_function(kind, name)
        return self._adapter._ffi.cast(kind, self._address(name))

    def _address(self, name):
        if self._kernel.symbols[name] is None:
            raise AttributeError(name)
        return c.cast(self._kernel.symbols[name], c.c_void_p).value


def select_types(kernel):
    """select.kqueue and select.kevent."""

    class kqueue:
        _fd = -1

        def __init__(self):
            self._fd = kernel.kqueue()
            os.set_inheritable(self._fd, False)

        def fileno(self):
            if self._fd < 0:
                raise ValueError("I/O operation on closed kqueue object")
            return self._fd

        def control(self, changelist, max_events, timeout=None):
            assert timeout == 0, "it would block"
            if max_events < 0:
                raise ValueError("Length of eventlist must be 0 or positive")
            for change in changelist or ():
                assert isinstance(change, Event)
            return kernel.kevent(self.fileno(), list(changelist or ()), max_events)

        def close(self):
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

        def __del__(self):
            # Before Python 3.13 also in a forked child, which has no such kqueue.
            self.close()

    return kqueue, Event


_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin")
_package = pidwait.__name__
_modules = {
    name: importlib.import_module(_package + "." + name)
    for name in "_ffi _ffi.calls _probe _backends.kqueue _backends.polling _backends.ps".split()
}


def install(name, patch):
    """Make this process one on that system; ``patch(object, name, value)`` sets attributes.

    None as a value takes one away. Return the Kernel, which is to be closed.
    """
    kernel = Kernel(name)
    system = kernel.system
    ffi, ps = _modules["_ffi"], _modules["_backends.ps"]
    patch(ffi, "PLATFORM", system.platform)
    patch(_modules["_backends.polling"], "Handle", ps.Polled)
    for binding in ("ctypes", "cffi"):
        if ffi.missing(binding) is None:
            adapter = ffi.load(binding)
            patch(adapter, "_library", Library(adapter, kernel))
    _install_select(kernel, patch)
    _install_os(kernel, patch)
    # Linux' kill() takes threads for processes.
    patch(ps, "PS", os.path.join(_FOLDER, "ps"))
    real_exists = ps.exists
    patch(ps, "exists", lambda pid: real_exists(pid) and is_process(pid))
    _modules["_probe"].forget()
    return kernel


def is_process(pid):
    try:
        os.close(pidfd_open(pid))
    except ProcessLookupError:
        return False
    except OSError:  # no file descriptor left
        return True
    return True


def _install_select(kernel, patch):
    system = kernel.system
    kqueue, kevent = select_types(kernel)
    for name, value in (
        ("kqueue", kqueue),
        ("kevent", kevent),
        ("KQ_FILTER_PROC", system.filter_proc),
        ("KQ_FILTER_TIMER", system.filter_timer),
        ("KQ_FILTER_READ", system.filter_read),
        ("KQ_EV_ADD", EV_ADD),
        ("KQ_EV_DELETE", EV_DELETE),
        ("KQ_EV_ENABLE", EV_ENABLE),
        ("KQ_EV_ONESHOT", EV_ONESHOT),
        ("KQ_EV_ERROR", EV_ERROR),
        ("KQ_NOTE_EXIT", NOTE_EXIT),
    ):
        patch(select, name, value)


def _install_os(kernel, patch):
    system = kernel.system
    real_close, real_fork = os.close, os.fork

    def close(fd):
        if not kernel.close_fd(fd):
            real_close(fd)

    def fork():
        pid = real_fork()
        if pid == 0:
            # The child has none of them, and their numbers are free.
            for queue in kernel.queues.values():
                queue.close()
            kernel.queues.clear()
        return pid

    patch(os, "close", close)
    patch(os, "fork", fork)
    if system.has_waitid and hasattr(os, "waitid"):

        def waitid(idtype, id_, options):
            info = kernel.waitid(idtype, id_, options)
            return info if info.si_pid else None

        patch(os, "waitid", waitid)
        patch(os, "P_PID", system.p_pid)
        patch(os, "WEXITED", system.wexited)
        patch(os, "WNOWAIT", system.wnowait)
    elif hasattr(os, "waitid"):
        for name in ("waitid", "P_PID", "WEXITED", "WNOWAIT"):
            patch(os, name, None)


def use(name, monkeypatch):
    """install(), undone by the monkeypatch; also in child processes."""

    def patch(object_, name, value):
        if value is None:
            monkeypatch.delattr(object_, name)
        else:
            monkeypatch.setattr(object_, name, value, raising=False)

    kernel = install(name, patch)
    monkeypatch.setenv(VARIABLE, name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([_FOLDER] + sys.path))
    monkeypatch.syspath_prepend(_FOLDER)
    return kernel


VARIABLE = "KQUEUE_STANDIN_CHILD"


def install_in_child():
    """What standin/sitecustomize.py does."""

    def patch(object_, name, value):
        if value is None:
            delattr(object_, name)
        else:
            setattr(object_, name, value)

    import selectors  # noqa: F401  # which takes select.kqueue, if it is there, for its own

    install(os.environ[VARIABLE], patch)
