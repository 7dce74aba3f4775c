# SPDX-License-Identifier: BSD-3-Clause
"""What we believe of the kernels that have kqueue(2), asked of whatever kqueue there is.

On macOS and the BSDs that is the system's own; elsewhere it is the stand-in for the systems that
KQUEUE_STANDIN names. A failure says what was asked, what we believe, what the kernel said, and
from where we have the belief. What asks all:

    python3 -m tests --whole -n 0 tests/systems/test_kqueue_kernel.py
"""

import errno
import os
import platform
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from ..processes import OnPurpose, interrupted_by

pytestmark = pytest.mark.kqueue

NAMED = os.environ.get("KQUEUE_STANDIN", "").split()
ADD, DELETE, ENABLE, ONESHOT, EOF, ERROR = 0x1, 0x2, 0x4, 0x10, 0x8000, 0x4000
EXIT, EXITSTATUS = 0x80000000, 0x04000000
ONCE = ADD | ONESHOT
NOBODY = 2**31 - 1  # no system has such a pid
LONG = 60  # seconds; nobody waits for their end


def major():
    """Of the real system's release."""
    return int(platform.release().partition(".")[0])


def this_system():
    """The name of the real system's column. netbsd10: before NetBSD 10."""
    name = sys.platform.rstrip("0123456789")
    if name == "freebsd":
        return "freebsd12"
    if name == "netbsd":
        return "netbsd11" if major() >= 10 else "netbsd10"
    return name


# Where the beliefs come from
SEEN = "seen on NetBSD 6.99.16"
SCAN, REGISTER, KEVENT, PROC, EXITS, TIMER, CLOSE, PS = (
    "the source of each system: " + where
    for where in (
        "kqueue_scan()",
        "kqueue_register()",
        "kern_kevent(), kevent()",
        "filt_procattach(), filt_proc(); XNU: filt_procevent()",
        "exit1(); XNU: proc_exit(), OpenBSD: reaper()",
        "filt_timerattach(), filt_timer()",
        "kqueue_close(); OpenBSD: kqueue_terminate(), XNU: kqueue_drain(), NetBSD: _restart()",
        "bin/ps: print.c, keyword.c",
    )
)
PYTHON = "Python's documentation of select.kqueue"

QUESTIONS = []


class Question:
    def __init__(self, sentence, why, ask, answers):
        self.sentence, self.why, self.ask, self.answers = sentence, why, ask, answers


def asked(sentence, *why, **answers):
    """Have the function that follows be a question.

    ``answers``: by the names of systems, joined by "_"; ``all`` is for those that have no name
    there. A set: versions differ. A system without an answer is not asked.
    """

    def asks(function):
        by_system = {}
        for names, answer in answers.items():
            by_system.update(dict.fromkeys(names.split("_"), answer))
        QUESTIONS.append(Question(sentence, "; ".join(why), function, by_system))
        return function

    return asks


def refusal(function, *args):
    """The name of the errno; None if it succeeds."""
    try:
        function(*args)
    except Exception as why:
        error = getattr(why, "error", why)  # the stand-in's are marked as the system's
        if not isinstance(error, OSError):
            raise
        return errno.errorcode[error.errno]
    return None


class Kernel:
    """Asks a kqueue; what it says are names of errnos, or "ok"."""

    def __init__(self, system):
        self.system = system
        self.is_darwin = system == "darwin"
        unsigned = system.startswith("netbsd")
        self.proc, self.timer, self.read, self.user = (4, 6, 0, 8) if unsigned else (-5, -7, -1, 0)
        self._to_close, self._children = [], []
        self.queue = self.new_queue()

    def new_queue(self):
        queue = select.kqueue()
        self._to_close.append(queue.close)
        return queue

    def change(self, ident, filter_, flags, fflags=0, data=0, udata=0, queue=None):
        change = select.kevent(ident, filter_, flags, fflags, data, udata)
        return refusal((queue or self.queue).control, [change], 0, 0) or "ok"

    def watch(self, pid, flags=ONCE, fflags=EXIT, udata=11, queue=None):
        return self.change(pid, self.proc, flags, fflags, 0, udata, queue)

    def set_timer(self, milliseconds, flags=ONCE, ident=1):
        return self.change(ident, self.timer, flags, 0, milliseconds)

    def take(self, seconds=LONG, room=8):
        return self.queue.control(None, room, seconds)

    def is_readable(self, seconds=0):
        return bool(select.select([self.queue], [], [], seconds)[0])

    def child(self, code=7):
        """It exits once its stdin is closed."""
        command = "sh", "-c", "read line; exit %d" % code
        self._children.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return self._children[-1]

    def watched(self, code=7, **how):
        child = self.child(code)
        assert self.watch(child.pid, **how) == "ok"
        return child

    def exited(self, code=7, **how):
        """A child whose exit waits to be taken."""
        child = self.watched(code, **how)
        child.stdin.close()
        assert self.is_readable(LONG)
        return child

    def taken(self, code=7, **how):
        """A child, and the event of its exit."""
        child = self.exited(code, **how)
        (event,) = self.take()
        return child, event

    def zombie(self):
        child, _ = self.taken()
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        else:
            time.sleep(0.1)  # on macOS the event comes a little before
        return child

    def grandchild(self):
        """A process, and the pid of its child, which exits with 7 once the first one's stdin is."""
        script = "exec 3<&0; (read line <&3; exit 7) & echo $!; wait"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        parent = subprocess.Popen(["sh", "-c", script], **pipes)
        self._children.append(parent)
        return parent, int(parent.stdout.readline())

    def bell(self):
        """A pipe without a writer, registered."""
        reader, writer = os.pipe()
        os.close(writer)
        self._to_close.append(lambda: os.close(reader))
        assert self.change(reader, self.read, ADD, udata=12) == "ok"
        return reader

    def sleepers(self, number, seconds, then):
        """What threads that sleep at the same time take."""
        found = []
        threads = [
            threading.Thread(target=lambda: found.extend(self.take(seconds))) for _ in range(number)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        then()
        for thread in threads:
            thread.join()
        return len(found)

    def ps(self, *arguments):
        path, more = "/bin/ps", {"LC_ALL": "C", "TZ": "UTC0"}
        if NAMED:
            from . import kqueue

            path = kqueue.PS
            more["STANDIN_PLATFORM"] = self.system.rstrip("0123456789")
            more["STANDIN_PYTHON"] = sys.executable
        done = subprocess.run(
            (path,) + arguments, stdout=subprocess.PIPE, env=dict(os.environ, **more)
        )
        return done.returncode, done.stdout.decode().splitlines()

    def close(self):
        for child in self._children:
            for pipe in filter(None, (child.stdin, child.stdout)):
                pipe.close()
            child.kill()
            child.wait()
        for close in self._to_close:
            close()


# The file descriptor


@asked("Python makes the kqueue not inheritable", PYTHON, SEEN, all=False)
def _(k):
    return os.get_inheritable(k.queue.fileno())


@asked("A forked child has no such file", "fork1(), fdcopy(); XNU: FP_CLOFORK", SEEN, all="EBADF")
def _(k):
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.fstat(k.queue.fileno())
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return errno.errorcode.get(os.waitpid(pid, 0)[1] >> 8)


@asked("A program that is executed has no such file", PYTHON, all=True)
def _(k):
    code = "import os; os.fstat(%d)" % k.queue.fileno()
    command = [sys.executable, "-S", "-E", "-c", code]
    return subprocess.call(command, close_fds=False, stderr=subprocess.DEVNULL) != 0


@asked("A kqueue can be watched by another one", "kqueue_kqfilter()", all=[True])
def _(k):
    outer = k.new_queue()
    assert k.change(k.queue.fileno(), k.read, ADD, queue=outer) == "ok"
    assert outer.control(None, 1, 0) == []
    k.exited()
    return [event.ident == k.queue.fileno() for event in outer.control(None, 1, LONG)]


@asked(
    "close() of a kqueue in which a thread sleeps: does it wait, and what does the thread get",
    CLOSE,
    SEEN + ": it waits; that newer ones do not is inferred",
    freebsd12_dragonfly=(False, []),
    netbsd10=(True, []),
    netbsd11_openbsd_darwin=(False, "EBADF"),
)
def _(k):
    said = []

    def sleep():
        why = refusal(lambda: said.append(k.take(0.8)))
        said.extend([why] if why else [])

    thread = threading.Thread(target=sleep)
    thread.start()
    time.sleep(0.2)
    k.queue.close()
    waits = bool(said) or not thread.is_alive()
    thread.join()
    return waits and said == [[]], said[0]


# Registering


@asked("A living child can be watched", PROC, SEEN, all="ok")
def _(k):
    return k.watch(k.child().pid)


@asked("EV_ENABLE finds the registration of a living child", REGISTER, SEEN, all="ok")
def _(k):
    return k.watch(k.watched().pid, ENABLE)


@asked("EV_ENABLE of what is not registered: ENOENT", REGISTER, SEEN, all="ENOENT")
def _(k):
    return k.watch(k.child().pid, ENABLE)


@asked(
    "A zombie can be watched",
    PROC,
    SEEN,
    freebsd12_dragonfly="ok",
    netbsd11_netbsd10_openbsd_darwin="ESRCH",
)
def _(k):
    return k.watch(k.zombie().pid)


@asked(
    "The exit of a zombie that is watched is told at once, with its status",
    PROC,
    freebsd12_dragonfly=[7 << 8],
)
def _(k):
    assert k.watch(k.zombie().pid) == "ok"
    return [event.data for event in k.take(0)]


@asked("A process that has been reaped: ESRCH", PROC, SEEN, all="ESRCH")
def _(k):
    child = k.child()
    child.stdin.close()
    child.wait()
    return k.watch(child.pid)


@asked("A pid that no process can have: ESRCH", PROC, all="ESRCH")
def _(k):
    return k.watch(NOBODY)


@asked("A thread's ID: ESRCH", "inferred", freebsd12_openbsd_dragonfly_darwin="ESRCH")
def _(k):
    if not hasattr(threading, "get_native_id"):
        pytest.skip("before Python 3.8 a thread does not know its ID")
    found = []
    thread = threading.Thread(target=lambda: found.append(k.watch(threading.get_native_id())))
    thread.start()
    thread.join()
    return found[0]


@asked("A process may watch itself", PROC, SEEN, all="ok")
def _(k):
    return k.watch(os.getpid())


@asked(
    "Process 1 can be watched, on NetBSD by root alone",
    PROC + "; NetBSD: KAUTH_PROCESS_KEVENT_FILTER",
    SEEN,
    freebsd12_openbsd_dragonfly_darwin="ok",
    netbsd11_netbsd10="ok" if os.getuid() == 0 else "EACCES",
)
def _(k):
    return k.watch(1)


@asked(
    "EVFILT_USER, which NetBSD has from 10 on",
    SEEN + ": 7, 8 and 9 are EINVAL",
    netbsd10=["EINVAL"] * 3,
)
def _(k):
    return [k.change(1, number, ADD) for number in (7, 8, 9)]


@asked("A filter that no system has: EINVAL", REGISTER, all="EINVAL")
def _(k):
    return k.change(1, 100 if k.system.startswith("netbsd") else -100, ADD)


@asked("A process and a timer with the same ident are two registrations", REGISTER, all=["ok"] * 4)
def _(k):
    pid = k.child().pid
    added = [k.watch(pid), k.set_timer(LONG * 1000, ident=pid)]
    return added + [k.set_timer(0, DELETE, ident=pid), k.watch(pid, ENABLE)]


# The event of an exit


@asked("A kqueue is readable once there is an exit, and not before", SEEN, all=(False, True, False))
def _(k):
    child = k.watched()
    before = k.is_readable()
    child.stdin.close()
    exited = k.is_readable(LONG)
    k.take()
    return before, exited, k.is_readable()


@asked("The event names the process, the filter, and our number", SEEN, all=(True, True, 11))
def _(k):
    child, event = k.taken()
    return event.ident == child.pid, event.filter == k.proc, event.udata


@asked("The event has EV_EOF, EV_ONESHOT and NOTE_EXIT", PROC, SEEN, all=EOF | ONESHOT | EXIT)
def _(k):
    _, event = k.taken()
    return event.flags & (EOF | ONESHOT) | event.fflags & EXIT


def status(value):
    """macOS tells it only if asked, NetBSD from 8 on."""
    is_old = not NAMED and sys.platform.startswith("netbsd") and major() < 8
    return {
        "darwin": 0,
        "freebsd12_netbsd11_netbsd10_openbsd_dragonfly": value * (not is_old),
    }


@asked("The data of an exit with code 7", PROC, SEEN + ": 0", **status(7 << 8))
def _(k):
    return k.taken(7)[1].data


@asked("The data of an exit with code 255", PROC, **status(255 << 8))
def _(k):
    return k.taken(255)[1].data & 0xFFFF  # FreeBSD's has 32 bits


@asked("The data of a death by SIGKILL", PROC, SEEN + ": 0", **status(9))
def _(k):
    k.watched().kill()
    return k.take()[0].data & 0x7F


@asked("The data of the exit of another process' child", PROC, **status(7 << 8))
def _(k):
    parent, pid = k.grandchild()
    assert k.watch(pid) == "ok"
    parent.stdin.close()
    return k.take()[0].data


@asked(
    "macOS tells the status with NOTE_EXITSTATUS, of our child and of another process'",
    PROC,
    darwin=[(7 << 8, EXITSTATUS)] * 2,
)
def _(k):
    parent, pid = k.grandchild()
    assert k.watch(pid, fflags=EXIT | EXITSTATUS) == "ok"
    parent.stdin.close()
    events = k.take() + [k.taken(fflags=EXIT | EXITSTATUS)[1]]
    return [(event.data & 0xFFFF, event.fflags & EXITSTATUS) for event in events]


@asked(
    "NOTE_EXITSTATUS of ourselves is allowed; of process 1, which nobody may kill, it is EACCES",
    PROC + "; XNU: cansignal()",
    darwin=["ok", "EACCES"],
)
def _(k):
    return [k.watch(pid, fflags=EXIT | EXITSTATUS) for pid in (os.getpid(), 1)]


@asked(
    "waitpid(WNOHANG) right after the event finds the child",
    EXITS + "; OpenBSD before 7.2 tells the exit first",
    SEEN,
    freebsd12_netbsd11_netbsd10_dragonfly=True,
    openbsd_darwin={True, False},
)
def _(k):
    child, _ = k.taken()
    is_there = os.waitpid(child.pid, os.WNOHANG)[0] == child.pid
    if is_there:
        child.returncode = 7
    return is_there


@asked(
    "kill(pid, 0) finds a zombie, but on older OpenBSDs",
    "pfind()",
    freebsd12_netbsd11_netbsd10_dragonfly_darwin="ok",
    openbsd={"ok", "ESRCH"},
)
def _(k):
    return refusal(os.kill, k.zombie().pid, 0) or "ok"


@asked("The exit of a process that has been reaped since is told", SCAN, SEEN, all=[11])
def _(k):
    k.exited().wait()
    return [event.udata for event in k.take(0)]


@asked(
    "Once taken it is gone: no other event, EV_ENABLE, EV_DELETE: ENOENT",
    SEEN,
    SCAN,
    all=([], "ENOENT", "ENOENT"),
)
def _(k):
    child, _ = k.taken()
    return k.take(0), k.watch(child.pid, ENABLE), k.watch(child.pid, DELETE)


@asked("Without EV_ONESHOT the exit is told once, too", PROC, all=(ONESHOT, [], "ENOENT"))
def _(k):
    child, event = k.taken(flags=ADD)
    return event.flags & ONESHOT, k.take(0), k.watch(child.pid, ENABLE)


@asked("While the exit waits to be taken, EV_ENABLE finds it", REGISTER, SEEN, all="ok")
def _(k):
    return k.watch(k.exited().pid, ENABLE)


@asked(
    "EV_ADD over an exit that waits to be taken gives it another number", SEEN, REGISTER, all=[22]
)
def _(k):
    assert k.watch(k.exited().pid, udata=22) == "ok"
    return [event.udata for event in k.take(0)]


@asked("EV_ADD over a registration gives it another number", REGISTER, all=22)
def _(k):
    child = k.watched()
    assert k.watch(child.pid, udata=22) == "ok"
    child.stdin.close()
    return k.take()[0].udata


@asked(
    "EV_ENABLE gives a registration another number, too, but on OpenBSD",
    REGISTER + "; OpenBSD: knote_assign()",
    freebsd12_netbsd11_netbsd10_dragonfly_darwin=22,
    openbsd=11,
)
def _(k):
    child = k.watched()
    assert k.watch(child.pid, ENABLE, udata=22) == "ok"
    child.stdin.close()
    return k.take()[0].udata


@asked("EV_DELETE takes out an exit that waits to be taken", "knote_drop()", all=("ok", False, []))
def _(k):
    return k.watch(k.exited().pid, DELETE), k.is_readable(), k.take(0)


@asked("After EV_DELETE the exit is not told", "knote_drop()", all=[])
def _(k):
    child = k.watched()
    assert k.watch(child.pid, DELETE) == "ok"
    child.stdin.close()
    child.wait()
    return k.take(0)


@asked("Two kqueues are both told", PROC, all=[1, 1])
def _(k):
    other = k.new_queue()
    child = k.watched()
    assert k.watch(child.pid, queue=other) == "ok"
    child.stdin.close()
    return [len(queue.control(None, 8, LONG)) for queue in (k.queue, other)]


@asked("Of four threads that sleep, one gets the exit", SCAN, SEEN, all=1)
def _(k):
    return k.sleepers(4, 1, k.watched().stdin.close)


# Lists, errors, times


@asked("Exits come in their order", SCAN + ": a queue", all=[2, 1])
def _(k):
    children = [k.watched(udata=1), k.watched(udata=2)]
    for child in reversed(children):
        child.stdin.close()
        child.wait()
    return [event.udata for event in k.take()]


@asked("What there is no room for stays", SCAN, all=[1, 1, 0])
def _(k):
    for child in k.watched(), k.watched():
        child.stdin.close()
        child.wait()
    return [len(k.take(0, room=1)) for _ in range(3)]


@asked("Without room it returns at once, and takes nothing", KEVENT, all=([], 1))
def _(k):
    k.exited()
    return k.take(LONG, room=0), len(k.take(0))


@asked("Without an event it does not return early", SCAN, all=([], True))
def _(k):
    start = time.monotonic()
    return k.take(0.05), time.monotonic() - start >= 0.05


def bad(k):
    return select.kevent(NOBODY, k.proc, ONCE, EXIT, 0, 13)


@asked(
    "With room, an error is an event with EV_ERROR and the errno",
    KEVENT,
    all=[(NOBODY, ERROR, errno.ESRCH)],
)
def _(k):
    events = k.queue.control([bad(k)], 1, 0)
    return [(event.ident, event.flags & ERROR, event.data) for event in events]


@asked(
    "Such an event has no other flags, but on macOS",
    KEVENT + "; XNU: kevent_register()",
    freebsd12_netbsd11_netbsd10_openbsd_dragonfly=ERROR,
    darwin=ERROR | ONCE,
)
def _(k):
    return k.queue.control([bad(k)], 1, 0)[0].flags & (ERROR | ONCE)


@asked("With an error nothing else is taken, and nobody sleeps", KEVENT, all=([NOBODY], 1))
def _(k):
    k.exited()
    events = k.queue.control([bad(k)], 8, LONG)
    return [event.ident for event in events], len(k.take(0))


def two_changes(k, room):
    child = k.child()
    changes = [bad(k), select.kevent(child.pid, k.proc, ONCE, EXIT, 0, 14)]
    assert refusal(k.queue.control, changes, room, 0) == (None if room else "ESRCH")
    return k.watch(child.pid, ENABLE)


@asked(
    "Without room, no change is made after one that fails",
    KEVENT,
    freebsd12_netbsd11_netbsd10_openbsd_darwin="ENOENT",
)
def _(k):
    return two_changes(k, 0)


@asked("With room, the changes after one that fails are made", KEVENT, all="ok")
def _(k):
    return two_changes(k, 8)


@asked(
    "A signal handler runs while control() sleeps, which then sleeps on", PYTHON, all=([], 1, True)
)
def _(k):
    ran = []
    previous = signal.signal(signal.SIGUSR1, lambda *args: ran.append(args))
    start = time.monotonic()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        return k.take(0.4), len(ran), time.monotonic() - start >= 0.4
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, previous)


@asked("A signal handler that raises does not make an exit lost", PYTHON, all=1)
def _(k):
    child = k.watched()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    with interrupted_by(OnPurpose()):
        timer.start()
        with pytest.raises(OnPurpose):
            k.take()
        timer.join()
    child.stdin.close()
    return len(k.take())


# The bell: a pipe without a writer


@asked(
    "A pipe without a writer is ready at once, again and again",
    "filt_piperead()",
    SEEN,
    all=[(12, EOF, True)] * 2,
)
def _(k):
    k.bell()
    return [(event.udata, event.flags & EOF, k.is_readable()) for _ in "12" for event in k.take(0)]


@asked("EV_DELETE silences it at once", "knote_drop()", SEEN, all=("ok", False, [], "ENOENT"))
def _(k):
    fd = k.bell()
    deleted = k.change(fd, k.read, DELETE)
    return deleted, k.is_readable(), k.take(0), k.change(fd, k.read, DELETE)


@asked("It wakes all threads that sleep", SCAN, all=3)
def _(k):
    return k.sleepers(3, LONG, k.bell)


@asked("It wakes poll(2)", "kqueue_poll(); kqueue_kqfilter()", SEEN, all=True)
def _(k):
    timer = threading.Timer(0.1, k.bell)
    timer.start()
    is_readable = k.is_readable(LONG)
    timer.join()
    return is_readable


# Timers


@asked("A timer's time is in milliseconds, and it is not early", TIMER, all=(1, True))
def _(k):
    start = time.monotonic()
    assert k.set_timer(50) == "ok"
    return len(k.take()), time.monotonic() - start >= 0.045


@asked("A one-shot timer is gone once it has been taken", SCAN, SEEN, all=([], "ENOENT"))
def _(k):
    k.set_timer(1)
    k.take()
    return k.take(0.05), k.set_timer(0, DELETE)


@asked("A timer without EV_ONESHOT comes again", TIMER, all=[1, 1])
def _(k):
    k.set_timer(1, ADD)
    return [len(k.take()) for _ in "12"]


@asked("Of three threads that sleep, one gets a one-shot timer", SCAN, all=1)
def _(k):
    return k.sleepers(3, 0.5, lambda: k.set_timer(1))


@asked("EV_DELETE takes out a timer that is due", "knote_drop()", all=("ok", False, []))
def _(k):
    k.set_timer(1)
    assert k.is_readable(LONG)
    return k.set_timer(0, DELETE), k.is_readable(), k.take(0)


@asked(
    "EV_ADD of a timer that runs starts it again",
    TIMER + "; FreeBSD: filt_timertouch(), OpenBSD: filt_timermodify()",
    SEEN + ": it does not",
    freebsd12_netbsd11_darwin=True,
    netbsd10_dragonfly=False,
    openbsd={True, False},
)
def _(k):
    k.set_timer(150)
    assert k.set_timer(LONG * 1000) == "ok"
    return k.take(0.5) == []


@asked("EV_DELETE and then EV_ADD start a timer again", TIMER, SEEN, all=["ok", 1])
def _(k):
    k.set_timer(LONG * 1000)
    return [k.set_timer(0, DELETE), k.set_timer(10) == "ok" and len(k.take())]


@asked("A time of 0: EINVAL on NetBSD", SEEN, netbsd11_netbsd10="EINVAL")
def _(k):
    return k.set_timer(0)


@asked(
    "Timers are few: 4,096 on FreeBSD and NetBSD, 1,024 on OpenBSD, 65,536 on DragonFly; ENOMEM",
    SEEN + ": 4,095",
    TIMER,
    freebsd12_netbsd11_netbsd10_openbsd_dragonfly="ENOMEM",
)
def _(k):
    if not NAMED and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("it takes all timers of the system, which other tests need: run it with -n 0")
    limit = {"openbsd": 1024, "dragonfly": 65536}.get(k.system, 4096)
    for ident in range(limit + 1):
        answer = k.set_timer(LONG * 1000, ident=ident + 1)
        if answer != "ok":
            break
    return answer


# ps(1)

DATE = "Sat Nov 21 03:11:52 2026"


@asked(
    "How much of a date ps shows under an empty headline",
    PS,
    SEEN,
    netbsd11_netbsd10=len("STARTED"),
    freebsd12_openbsd_dragonfly_darwin=len(DATE),
)
def _(k):
    _, (line,) = k.ps("-o", "lstart=", "-p", str(os.getpid()))
    return len(line.strip())


@asked("Under a headline as wide as a date, ps shows all of it", PS, SEEN, all=(2, len(DATE)))
def _(k):
    _, lines = k.ps("-o", "lstart=" + "S" * len(DATE), "-p", str(os.getpid()))
    return len(lines), len(lines[-1].strip())


@asked("ps shows a zombie's state, and its status in hexadecimal", PS, all=["Z", "700"])
def _(k):
    _, (line,) = k.ps("-o", "state=", "-o", "xstat=", "-p", str(k.zombie().pid))
    letters, status = line.split()
    return [letters[0], status]


@asked("For a pid that nobody has ps shows nothing, and exits with 1", PS, all=(1, []))
def _(k):
    child = k.child()
    child.stdin.close()
    child.wait()
    return k.ps("-o", "state=", "-p", str(child.pid))


CASES = [
    pytest.param(question, system, id="%s? (%s)" % (question.sentence, system))
    for question in QUESTIONS
    for system in NAMED or [this_system()]
    if system in question.answers or "all" in question.answers
]


@pytest.mark.parametrize("question, system", CASES)
def test_the_kernel_does_what_we_believe(request, question, system):
    if NAMED:
        request.getfixturevalue("on")(system)
    believed = question.answers.get(system, question.answers.get("all"))
    kernel = Kernel(system)
    try:
        said = question.ask(kernel)
    finally:
        kernel.close()
    if said not in believed if isinstance(believed, set) else said != believed:
        pytest.fail(
            "asked: %s?\nwe believe: %r\n%s said: %r\nwe believe it from: %s"
            % (question.sentence, believed, system, said, question.why),
            pytrace=False,
        )
