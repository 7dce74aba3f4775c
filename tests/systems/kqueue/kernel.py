# SPDX-License-Identifier: BSD-3-Clause
"""What a kernel with kqueues does, over pidfd and epoll."""

import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import resource
import select
import struct
import threading
import time

from .systems import (
    EV_ADD,
    EV_DELETE,
    EV_EOF,
    EV_ERROR,
    EV_ONESHOT,
    EVENT,
    NOTE_EXIT,
    SYSTEMS,
    info_type,
)

c = ctypes
PIDFD_OPEN = 434
PIDFD_GET_INFO = 0xC040FF0B
F_DUPFD_CLOEXEC = 1030
WEXITED, WNOWAIT = 0x4, 0x01000000


class Event:
    """A stand-in for select.kevent."""

    def __init__(self, ident, filter=-1, flags=EV_ADD, fflags=0, data=0, udata=0):
        self.ident, self.filter, self.flags = ident, filter, flags
        self.fflags, self.data, self.udata = fflags, data, udata


class Queue:
    """A kqueue: readable while it has an event that nobody has taken."""

    def __init__(self, kernel):
        self._kernel = kernel
        self._lock = threading.RLock()
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        os.set_inheritable(self.fd, kernel.system.platform != "darwin")
        self._notes = {}

    def close(self):
        self._epoll.close()
        for note in self._notes.values():
            note.close()

    def change(self, change):
        """EV_ADD of an existing event only changes it, as does a change without EV_ADD."""
        with self._lock:
            self._change(change)

    def _change(self, change):
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
            # A timer is not started again, as on FreeBSD before 12, DragonFly, NetBSD.
            note.fflags, note.udata = change.fflags, change.udata

    def _drop(self, key):
        note = self._notes.pop(key)
        self._epoll.unregister(note.fd)
        note.close()

    def take(self, room, timeout):
        """Each one-shot event goes to one thread, though all of them wake up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            events = self._take(room)
            left = None if end is None else end - time.monotonic()
            if events or not room or (left is not None and left <= 0):
                return events
            try:
                self._epoll.poll(left)
            except ValueError:
                if not self._epoll.closed:  # of a signal handler
                    raise
                raise OSError(errno.EBADF, "kevent") from None

    def _take(self, room):
        with self._lock:
            notes = {note.fd: note for note in self._notes.values()}
            found = [notes[fd] for fd, _ in self._epoll.poll(0)][:room]  # the first comes first
            # Before the notes are dropped: they find the code, perhaps in the zombie.
            events = [note.event() for note in found]
            for note, event in zip(found, events):
                if event.flags & EV_ONESHOT:
                    self._drop((note.filter, note.ident))
            return events


class Note:
    """An event that is registered in a kqueue."""

    def __init__(self, change):
        self.filter, self.ident, self.fflags = change.filter, change.ident, change.fflags
        self.udata = change.udata

    def close(self):
        pass


class Readable(Note):
    """An EVFILT_READ that stays ready until it is deleted."""

    def __init__(self, kernel, change):
        super().__init__(change)
        self.fd = change.ident
        if "read" in kernel.denied:
            raise OSError(kernel.denied["read"], "denied")

    def event(self):
        return Event(self.ident, self.filter, EV_EOF, 0, 0, self.udata)


class Timer(Note):
    """An EVFILT_TIMER, two of the system's ticks late; the system has few of them.

    Without EV_ONESHOT it comes again and again.
    """

    def __init__(self, kernel, change):
        super().__init__(change)
        self._flags = change.flags & ~EV_ADD
        assert change.flags & EV_ADD and self._flags in (0, EV_ONESHOT)
        assert change.data > 0 and not change.fflags
        if kernel.timers == kernel.max_timers:
            raise OSError(errno.ENOMEM, "no timer left")
        self._kernel = kernel
        self.fd = moved_up(timerfd, change.data / 1000 + 2 * kernel.system.tick, not self._flags)
        kernel.timers += 1

    def event(self):
        os.read(self.fd, 8)
        return Event(self.ident, self.filter, self._flags, 0, 1, self.udata)

    def close(self):
        self._kernel.timers -= 1
        os.close(self.fd)


class Process(Note):
    def __init__(self, kernel, change):
        super().__init__(change)
        self._kernel = kernel
        self._pid = kernel.passed_on.get(change.ident, change.ident)
        self.fd = moved_up(pidfd_open, self._pid)
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
        fflags = self.fflags & (NOTE_EXIT | system.status_flag)
        if not self._kernel.tells_status:  # an old macOS ignores the flag
            fflags &= ~system.status_flag
        told = fflags & system.status_flag if system.status_flag else self._kernel.tells_status
        status = wait_status(self.fd, self._pid) if told else 0
        flags = EV_ONESHOT | EV_EOF | system.more_flags
        return Event(self.ident, self.filter, flags, fflags, status, self.udata)

    def close(self):
        os.close(self.fd)


def pidfd_open(pid):
    fd = _libc.syscall(c.c_long(PIDFD_OPEN), c.c_long(pid), c.c_long(0))
    if fd < 0:
        code = ctypes.get_errno()
        # A thread's ID counts as no process.
        raise OSError(errno.ESRCH if code in (errno.EINVAL, errno.ENOENT) else code, "pidfd_open")
    return fd


def timerfd(seconds, is_repeated):
    fd = _libc.timerfd_create(1, 0o2000000)  # CLOCK_MONOTONIC, TFD_CLOEXEC
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    times = int(seconds), int(seconds % 1 * 1e9)
    new = (c.c_long * 4)(*(times if is_repeated else (0, 0)), *times)
    if _libc.timerfd_settime(fd, 0, new, None):
        raise OSError(ctypes.get_errno(), "timerfd_settime")
    return fd


def moved_up(open_, *args):
    """A file descriptor above the process's own, since a real kernel would not take one of them."""
    with moved_up.lock:
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


moved_up.lock = threading.Lock()  # the limit is one for all threads


def has_exited(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll.poll(0) != []


def wait_status(fd, pid):
    """The wait status of an exited process: its zombie's, or the one that the pidfd keeps."""
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, 8)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        file = moved_up(os.open, "/proc/%d/stat" % pid, os.O_RDONLY)
        try:
            status = int(os.read(file, 8192).rpartition(b")")[2].split()[49])
        finally:
            os.close(file)
    fcntl.ioctl(fd, PIDFD_GET_INFO, info, True)
    if struct.unpack_from("=Q", info)[0] & 8:
        return struct.unpack_from("=i", info, 60)[0]
    return status


def is_child(pid):
    try:
        _waitid(pid, os.WNOHANG | WEXITED | WNOWAIT)
    except ChildProcessError:
        return False
    return True


class timespec(c.Structure):
    _fields_ = [("tv_sec", c.c_int64), ("tv_nsec", c.c_long)]


class _LinuxInfo(c.Structure):
    _fields_ = info_type("signo errno code pad pid uid status", 100)._fields_


def _waitid(pid, options):
    info = _LinuxInfo()
    if _libc.waitid(1, pid, c.byref(info), options):
        code = ctypes.get_errno()
        raise OSError(code, "waitid")
    return info


_libc = ctypes.CDLL(None, use_errno=True)


def is_answer(error):
    """Whether it is the system's; a signal handler's, which interrupts it, comes from elsewhere."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    folder = os.path.dirname(traceback.tb_frame.f_code.co_filename)
    return isinstance(error, OSError) and folder == os.path.dirname(__file__)


class Kernel:
    """The calls of a system, each in a form for C and in one for Python; and what tests set."""

    def __init__(self, name):
        self.system = system = SYSTEMS[name]
        self.queues = {}
        self.denied = {}  # pid, or "read" for that filter: errno
        self.passed_on = {}  # pid: the pid of the process that has it now
        self.tells_status = True
        self.has_waitid = True
        self.kill_finds_zombies = True  # not on older OpenBSDs
        self.late = 0  # so many looks come before our child that has exited is a zombie
        self.interrupt = None  # what a signal handler raises right after events have been taken
        self.timers, self.max_timers = 0, 64
        self._raised = {}  # thread: the exception in a call from C
        waitid_id = c.c_int64 if system.platform in ("freebsd", "dragonfly") else c.c_uint32
        pointer = c.c_void_p
        self._symbols = {
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
            except BaseException as error:
                if is_answer(error):
                    ctypes.set_errno(error.errno)
                else:
                    self._raised[threading.get_ident()] = error
            return -1

        return c.CFUNCTYPE(c.c_int, *types, use_errno=True)(call)

    def find(self, name, load):
        """The function of C by that name; load(address) makes what a binding calls."""
        if name not in self._symbols:
            return load(None)
        if name == "waitid" and not self.has_waitid:
            raise AttributeError(name)
        return Function(load(c.cast(self._symbols[name], c.c_void_p).value), self._raised)

    def close(self):
        """Wait until the last thread has let go of its kqueue; a test that failed keeps its own."""
        end = time.monotonic() + 10
        while self.queues and time.monotonic() < end:
            gc.collect()
            time.sleep(0.001)
        left = list(map(self.close_fd, list(self.queues)))
        assert not left, "%d kqueues are left open" % len(left)

    def forked(self):
        """A child inherits no kqueue: their numbers are free."""
        moved_up.lock = threading.Lock()
        for queue in self.queues.values():
            queue.close()
        self.queues.clear()

    def close_fd(self, fd):
        """close(2) of a file descriptor that may be a kqueue; return whether it was."""
        queue = self.queues.pop(fd, None)
        if queue is None:
            return False
        queue.close()
        return True

    def kqueue(self):
        queue = Queue(self)
        self.queues[queue.fd] = queue
        return queue.fd

    def kevent(self, fd, changes, room, timeout):
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
        events = errors or queue.take(room, timeout)
        if events and not errors and self.interrupt is not None:
            error, self.interrupt = self.interrupt, None
            raise error
        return events

    def note(self, change):
        if change.filter == self.system.filter_proc:
            return Process(self, change)
        if change.filter == self.system.filter_timer:
            return Timer(self, change)
        if change.filter == self.system.filter_read:
            return Readable(self, change)
        raise OSError(errno.EINVAL, "kevent")

    def waitid(self, idtype, id_, options):
        """struct siginfo_t; si_pid is 0 if there is nothing to report."""
        system = self.system
        assert idtype == system.p_pid and options & system.wexited
        assert not options & ~(system.wexited | system.wnowait | os.WNOHANG)
        linux = WEXITED | options & os.WNOHANG | (WNOWAIT if options & system.wnowait else 0)
        info = _waitid(self.passed_on.get(id_, id_), linux)
        if info.si_pid and options & os.WNOHANG and self._is_late():
            info = _LinuxInfo()
        status = info.si_status
        if info.si_code == 1:
            status |= 0x700  # bits of the argument of _exit() that waitpid(2) does not show
        elif not system.tells_signal:
            status = 0
        return system.info(
            si_signo=info.si_signo,
            si_code=info.si_code,
            si_pid=id_ if info.si_pid else 0,
            si_status=status,
        )

    def waitpid(self, pid, options, real):
        pid = self.passed_on.get(pid, pid)
        if self.late and pid > 0 and options & os.WNOHANG:
            has_exited = _waitid(pid, WEXITED | WNOWAIT | os.WNOHANG).si_pid
            if has_exited and self._is_late():
                return 0, 0
        return real(pid, options)

    def _is_late(self):
        self.late -= 1
        return self.late >= 0

    # The same calls, as C makes them

    def _c_kqueue(self):
        return self.kqueue()

    def _c_kevent(self, fd, changes, count, events, room, timeout):
        wait = timespec.from_address(timeout) if timeout else None
        assert wait is None or (wait.tv_sec >= 0 and 0 <= wait.tv_nsec < 10**9)
        kind = self.system.event
        given = [
            Event(*(getattr(change, name) or 0 for name in EVENT))
            for change in ((kind * count).from_address(changes) if count else ())
        ]
        try:
            seconds = None if wait is None else wait.tv_sec + wait.tv_nsec / 1e9
            taken = self.kevent(fd, given, room, seconds)
        except OSError:
            if events and not room and self.system.writes_unasked:
                raise AssertionError("there is no room for the event") from None
            raise
        written = (kind * len(taken)).from_address(events) if taken else ()
        for place, event in zip(written, taken):
            values = {name: getattr(event, name) for name in EVENT}
            c.memmove(c.byref(place), c.byref(kind(**values)), c.sizeof(kind))
        return len(taken)

    def _c_waitid(self, idtype, id_, info, options):
        answer = self.waitid(idtype, id_, options)
        c.memmove(info, c.byref(answer), c.sizeof(answer))
        return 0


class Function:
    """A function of C that calls Python: what is raised there comes out of the call."""

    def __init__(self, function, raised):
        self.__dict__.update(_function=function, _raised=raised)

    def __setattr__(self, name, value):
        setattr(self._function, name, value)

    def __call__(self, *args):
        try:
            return self._function(*args)
        finally:
            error = self._raised.pop(threading.get_ident(), None)
            if error is not None:
                raise error
