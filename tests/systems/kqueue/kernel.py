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
from time import monotonic, sleep  # a test may replace them

from .signals import forked, sleeping, system_call
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
close = os.close  # the real one
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
    """A kqueue: readable while it has an event that nobody has taken.

    As in the kernels, no lock is held while an event is being taken: other threads change and
    take events meanwhile.
    """

    def __init__(self, kernel):
        self._kernel = kernel
        self._changed = threading.Condition()
        epoll = select.epoll()
        # Where close() leaves a thread asleep, that one keeps its own file descriptor.
        self._epoll = select.epoll.fromfd(moved_up(os.dup, epoll.fileno()))
        epoll.close()
        self.fd = os.dup(self._epoll.fileno())
        os.set_inheritable(self.fd, kernel.system.platform != "darwin")
        self._wake = -1  # readable once the kqueue is closed
        self._notes = {}
        self._sleepers = 0
        self._is_closed = False

    def close(self):
        """What becomes of the threads that sleep in it, and of close(), depends on the system."""
        with self._changed:
            if self._kernel.system.close == "waits":
                self._changed.wait_for(lambda: not self._sleepers)
            self._is_closed = True
            close(self.fd)
            if self._kernel.system.close == "ends" and self._sleepers:
                self._wake = moved_up(_libc.eventfd, 1, 0o2000000)  # EFD_CLOEXEC
                self._epoll.register(self._wake, select.EPOLLIN)
            self._close_if_unused()

    def _close_if_unused(self):
        if self._is_closed and not self._sleepers:
            self.forked()

    def forked(self):
        """Close all; in a forked child no lock is taken."""
        self._epoll.close()
        for note in self._notes.values():
            note.close()
        for fd in (self._wake, -1 if self._is_closed else self.fd):
            if fd >= 0:
                close(fd)
        self._notes, self._wake = {}, -1

    def change(self, change):
        """EV_ADD of an existing event only changes it, as does a change without EV_ADD."""
        key = change.filter, change.ident
        system = self._kernel.system
        with self._changed:
            while True:
                note = self._notes.get(key)
                if note is not None and note.is_stale():
                    self._drop(note)
                elif note is None or not note.is_being_taken:
                    break
                elif system.forgives and note.flags & EV_ONESHOT and change.flags & EV_DELETE:
                    self._kernel.stuck += system.sticks
                    return
                else:
                    self._changed.wait()
            if note is None and not change.flags & EV_ADD:
                raise OSError(errno.ENOENT, "kevent")
            if change.flags & EV_DELETE:
                self._drop(note)
            elif note is None:
                note = self._kernel.note(change)
                try:
                    self._epoll.register(note.fd, select.EPOLLIN)
                except OSError:
                    note.close()
                    raise
                self._notes[key] = note
            else:
                if change.flags & EV_ADD or not system.keeps_udata:
                    note.fflags, note.udata = change.fflags, change.udata
                note.change(change)

    def _drop(self, note):
        del self._notes[note.filter, note.ident]
        if not note.is_stale():
            self._epoll.unregister(note.fd)
        note.close()

    def take(self, room, timeout):
        """Each one-shot event goes to one thread, though all of them wake up."""
        end = None if timeout is None else monotonic() + timeout
        with self._changed:
            self._sleepers += 1
        try:
            while True:
                events, missed = self._take(room)
                left = None if end is None else end - monotonic()
                if events or not room or (left is not None and left <= 0):
                    return events
                self._sleep(left, missed)
                if self._is_closed and self._kernel.system.close == "ends":
                    raise OSError(errno.EBADF, "kevent")
        finally:
            with self._changed:
                self._sleepers -= 1
                self._changed.notify_all()
                self._close_if_unused()

    def _sleep(self, left, missed):
        if not missed:
            sleeping(self._epoll.poll, left)
            return
        # What was not there when this thread looked, as another one was about to take it, does not
        # wake it when it is there again. A new one does.
        end = None if left is None else monotonic() + left
        while end is None or monotonic() < end:
            with self._changed:
                if self._is_closed or any(note not in missed for note in self._ready()):
                    return
            sleeping(sleep, 0.001)

    def _ready(self):
        notes = {note.fd: note for note in self._notes.values()}
        return [notes[fd] for fd, _ in self._epoll.poll(0) if fd in notes]  # the first comes first

    def _take(self, room):
        """Events; and those that other threads are about to take."""
        events = []
        with self._changed:
            ready = self._ready() if room else []
            missed = [note for note in ready if note.is_being_taken]
            if not (self._kernel.misses and self._kernel.system.misses):
                self._changed.wait_for(lambda: not any(one.is_being_taken for one in ready))
                missed = []
        for note in ready:
            with self._changed:
                is_there = self._notes.get((note.filter, note.ident)) is note
                if not is_there or note.is_being_taken or len(events) == room:
                    continue
                note.is_being_taken = True
            event = None
            try:
                self._kernel.meanwhile(note)
                event = note.event()  # before it is dropped: it finds the code in the zombie
            finally:
                with self._changed:
                    note.is_being_taken = False
                    if event is not None:
                        events.append(event)
                        if event.flags & EV_ONESHOT:
                            self._drop(note)
                    self._changed.notify_all()
        return events, missed


class Note:
    """An event that is registered in a kqueue."""

    is_being_taken = False

    def __init__(self, change):
        self.filter, self.ident, self.fflags = change.filter, change.ident, change.fflags
        self.udata, self.flags = change.udata, change.flags

    def change(self, change):
        pass

    def is_stale(self):
        return False

    def close(self):
        pass


class Readable(Note):
    """An EVFILT_READ that stays ready until it is deleted, or its file closed."""

    def __init__(self, kernel, change):
        super().__init__(change)
        self.fd = change.ident
        self._file = os.fstat(self.fd)
        if "read" in kernel.denied:
            raise OSError(kernel.denied["read"], "denied")

    def is_stale(self):
        try:
            return not os.path.samestat(os.fstat(self.fd), self._file)
        except OSError:
            return True

    def event(self):
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        found = dict(poll.poll(0)).get(self.fd)
        if not found:
            return None
        flags = EV_EOF if found & select.POLLHUP else 0
        return Event(self.ident, self.filter, flags, 0, 0, self.udata)


class Timer(Note):
    """An EVFILT_TIMER, two of the system's ticks late; the system has few of them.

    Without EV_ONESHOT it comes again and again.
    """

    def __init__(self, kernel, change):
        super().__init__(change)
        assert change.flags & ~EV_ADD in (0, EV_ONESHOT) and not change.fflags
        if change.data <= 0 and not kernel.system.zero_timers:
            raise OSError(errno.EINVAL, "no time")
        if kernel.timers == kernel.max_timers:
            raise OSError(errno.ENOMEM, "no timer left")
        self._kernel = kernel
        self.fd = moved_up(timerfd)
        self._set(change)
        kernel.timers += 1

    def _set(self, change):
        seconds = change.data / 1000 + 2 * self._kernel.system.tick
        set_timer(self.fd, seconds, is_repeated=not change.flags & EV_ONESHOT)

    def change(self, change):
        if change.flags & EV_ADD and self._kernel.system.restarts_timers:
            self._set(change)

    def event(self):
        try:
            count = struct.unpack("Q", os.read(self.fd, 8))[0]
        except BlockingIOError:  # it has been started again
            return None
        return Event(self.ident, self.filter, self.flags & EV_ONESHOT, 0, count, self.udata)

    def close(self):
        self._kernel.timers -= 1
        close(self.fd)


class Process(Note):
    def __init__(self, kernel, change):
        super().__init__(change)
        self._kernel = kernel
        self._pid = kernel.passed_on.get(change.ident, change.ident)
        self.fd = moved_up(pidfd_open, self._pid)
        try:
            self._check()
        except OSError:
            close(self.fd)
            raise

    def _check(self):
        kernel, system = self._kernel, self._kernel.system
        if self.ident in kernel.denied:
            raise OSError(kernel.denied[self.ident], "denied")
        if not system.zombies and has_exited(self.fd):
            raise OSError(errno.ESRCH, "a zombie")
        may_ask = not self.fflags & system.status_flag or is_child(self.ident)
        if not may_ask and (self.ident == 1 or not may_kill(self._pid)):
            raise OSError(errno.EACCES, "neither a child, nor may it be killed")
        if system.watches_own_user and not may_kill(self._pid):
            raise OSError(errno.EACCES, "another user's")

    def event(self):
        system = self._kernel.system
        fflags = self.fflags & (NOTE_EXIT | system.status_flag)
        told = fflags & system.status_flag if system.status_flag else self._kernel.tells_status
        status = wait_status(self.fd, self._pid) if told else 0
        flags = EV_ONESHOT | EV_EOF | system.more_flags
        return Event(self.ident, self.filter, flags, fflags, status, self.udata)

    def close(self):
        close(self.fd)


def pidfd_open(pid):
    fd = _libc.syscall(c.c_long(PIDFD_OPEN), c.c_long(pid), c.c_long(0))
    if fd < 0:
        code = ctypes.get_errno()
        # A thread's ID counts as no process.
        raise OSError(errno.ESRCH if code in (errno.EINVAL, errno.ENOENT) else code, "pidfd_open")
    return fd


def timerfd():
    fd = _libc.timerfd_create(1, 0o2004000)  # CLOCK_MONOTONIC, TFD_CLOEXEC, TFD_NONBLOCK
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    return fd


def set_timer(fd, seconds, is_repeated):
    times = int(seconds), int(seconds % 1 * 1e9)
    new = (c.c_long * 4)(*(times if is_repeated else (0, 0)), *times)
    if _libc.timerfd_settime(fd, 0, new, None):
        raise OSError(ctypes.get_errno(), "timerfd_settime")


def may_kill(pid):
    try:
        return os.getuid() in (0, os.stat("/proc/%d" % pid).st_uid)
    except FileNotFoundError:
        raise OSError(errno.ESRCH, "gone") from None


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
                close(fd)
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
            close(file)
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
        self.tells_status = True  # not on older NetBSDs
        self.has_waitid = True
        self.kill_finds_zombies = True  # not on older OpenBSDs
        self.late = 0  # so many looks come before our child that has exited is a zombie
        self.interrupt = None  # the signal that comes right after events have been taken
        self.meanwhile = lambda note: sleep(0)  # called while an event is being taken
        self.misses = False  # where the system may do so: in the kernels it is rare
        self.stuck = 0  # threads that NetBSD before 10 would have left stuck in the kernel
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
        @system_call
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
        end = monotonic() + 10
        while self.queues and monotonic() < end:
            gc.collect()
            sleep(0.001)
        left = list(map(self.close_fd, list(self.queues)))
        assert not left, "%d kqueues are left open" % len(left)

    def forked(self):
        """A child inherits no kqueue: their numbers are free."""
        moved_up.lock = threading.Lock()
        forked()
        for queue in self.queues.values():
            queue.forked()
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
                flags = EV_ERROR | (change.flags if self.system.ors_errors else 0)
                errors.append(Event(change.ident, change.filter, flags, change.fflags, error.errno))
        events = errors or queue.take(room, timeout)
        if events and not errors and self.interrupt is not None:
            number, self.interrupt = self.interrupt, None
            _libc["raise"](number)
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
